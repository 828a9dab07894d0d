package vitals_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

func TestFlags(t *testing.T) {
	limits := vitals.DefaultFlagLimits()
	for _, tt := range []struct {
		name string
		in   vitals.Values
		want []string
	}{
		{"nothing", vitals.Values{}, nil},
		{"usual", values(systolic, 121_00, diastolic, 79_00, spo2, 97_50, heartRate, 72_00, resting, 58_00), nil},
		{"SpO2 just usual", values(spo2, 91_01), nil},
		{"SpO2 low", values(spo2, 91_00), []string{"spo2_pct low"}},
		{"SpO2 lowest validated", values(spo2, 70_00), []string{"spo2_pct low"}},
		{"SpO2 unvalidated", values(spo2, 69_99), []string{"spo2_pct outside validated range", "spo2_pct low"}},
		{"SpO2 full", values(spo2, 100_00), nil},
		{"heart rate", values(heartRate, 40_01, resting, 40_00), nil},
		{"heart rate low", values(heartRate, 40_00, resting, 39_99), []string{"heart_rate_bpm low", "resting_heart_rate_bpm low"}},
		{"heart rate just usual", values(heartRate, 130_99, resting, 100_00), nil},
		{"heart rate high", values(heartRate, 131_00, resting, 100_01), []string{"heart_rate_bpm high", "resting_heart_rate_bpm high"}},
		{"pressure just usual", values(systolic, 90_01, diastolic, 50_00), nil},
		{"pressure low", values(systolic, 90_00, diastolic, 49_99), []string{"systolic_mmhg low", "diastolic_mmhg low"}},
		{"pressure just usual, high", values(systolic, 219_99, diastolic, 120_00), nil},
		{"pressure high", values(systolic, 220_00, diastolic, 120_01), []string{"systolic_mmhg high", "diastolic_mmhg high"}},
		{"pulse pressure usual", values(systolic, 120_00, diastolic, 100_00), nil},
		{"pulse pressure low", values(systolic, 119_99, diastolic, 100_00), []string{"pulse_pressure_mmhg low"}},
		{"pulse pressure usual, high", values(systolic, 200_00, diastolic, 80_00), nil},
		{"pulse pressure high", values(systolic, 200_01, diastolic, 80_00), []string{"pulse_pressure_mmhg high"}},
		{"swapped pressures", values(systolic, 100_00, diastolic, 110_00), []string{"pulse_pressure_mmhg low"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for f := range limits.Flags(&tt.in).All() {
				if f.String() != f.Subject()+" "+f.Text() {
					t.Errorf("String() = %q, want %q and %q", f, f.Subject(), f.Text())
				}
				got = append(got, f.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("Flags() = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFlagsConfigured(t *testing.T) {
	limits := vitals.DefaultFlagLimits()
	limits.Usual[vitals.SpO2] = vitals.Range{Min: 88_00, Max: 92_00} // as for COPD, NEWS2 scale 2
	limits.PulsePressure = vitals.Range{Min: 30_00, Max: 60_00}
	limits.SpO2Validated = 80_00
	if err := limits.Validate(); err != nil {
		t.Fatal(err)
	}
	in := values(spo2, 93_00, systolic, 150_00, diastolic, 80_00)
	if got, want := limits.Flags(&in), vitals.FlagSet(1<<vitals.SpO2High|1<<vitals.PulsePressureHigh); got != want {
		t.Errorf("Flags() = %b, want %b", got, want)
	}
	in = values(spo2, 79_99)
	if got, want := limits.Flags(&in), vitals.FlagSet(1<<vitals.SpO2Low|1<<vitals.SpO2Unvalidated); got != want {
		t.Errorf("Flags() = %b, want %b", got, want)
	}
}

func TestFlagLimitsValidate(t *testing.T) {
	limits := vitals.DefaultFlagLimits()
	if err := limits.Validate(); err != nil {
		t.Errorf("Validate() of the default = %v", err)
	}
	limits.Usual[vitals.HeartRate] = vitals.Range{Min: 2, Max: 1}
	if err := limits.Validate(); !errors.Is(err, vitals.ErrLimits) {
		t.Errorf("Validate() = %v, want ErrLimits", err)
	}
	limits = vitals.DefaultFlagLimits()
	limits.PulsePressure = vitals.Range{Min: 2, Max: 1}
	if err := limits.Validate(); !errors.Is(err, vitals.ErrLimits) {
		t.Errorf("Validate() = %v, want ErrLimits", err)
	}
}

// TestFlagNames checks that each flag has a unique name, and that a loop over All may
// break.
func TestFlagNames(t *testing.T) {
	seen := map[string]bool{}
	all := vitals.FlagSet(1<<vitals.NumFlags - 1)
	for f := range all.All() {
		if seen[f.String()] || f.Subject() == "" || f.Text() == "" {
			t.Errorf("flag %d has no unique name: %q", f, f)
		}
		seen[f.String()] = true
	}
	if len(seen) != vitals.NumFlags {
		t.Errorf("%d names, want %d", len(seen), vitals.NumFlags)
	}
	for f := range all.All() {
		if f != 0 {
			t.Errorf("All continued to %v after a break", f)
		}
		break
	}
}

func TestFlagsAllocate(t *testing.T) {
	limits := vitals.DefaultFlagLimits()
	in := values(spo2, 60_00, heartRate, 140_00)
	bytes := 0
	if got := testing.AllocsPerRun(100, func() {
		for f := range limits.Flags(&in).All() {
			bytes += len(f.Subject()) + len(f.Text())
		}
	}); got != 0 {
		t.Errorf("flagging allocates %v times, want 0", got)
	}
}
