package vitals_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

func TestFlags(t *testing.T) {
	limits := builtIn.DefaultFlagLimits()
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
		{"heart rate low", values(heartRate, 40_00, resting, 39_99),
			[]string{"heart_rate_bpm low", "resting_heart_rate_bpm low"}},
		{"heart rate just usual", values(heartRate, 130_99, resting, 100_00), nil},
		{"heart rate high", values(heartRate, 131_00, resting, 100_01),
			[]string{"heart_rate_bpm high", "resting_heart_rate_bpm high"}},
		{"pressure just usual", values(systolic, 90_01, diastolic, 50_00), nil},
		{"pressure low", values(systolic, 90_00, diastolic, 49_99), []string{"systolic_mmhg low", "diastolic_mmhg low"}},
		{"pressure just usual, high", values(systolic, 219_99, diastolic, 120_00), nil},
		{"pressure high", values(systolic, 220_00, diastolic, 120_01), []string{"systolic_mmhg high", "diastolic_mmhg high"}},
		{"pulse pressure usual", values(systolic, 120_00, diastolic, 100_00), nil},
		{"pulse pressure low", values(systolic, 119_99, diastolic, 100_00), []string{"pulse_pressure_mmhg low"}},
		{"pulse pressure usual, high", values(systolic, 200_00, diastolic, 80_00), nil},
		{"pulse pressure high", values(systolic, 200_01, diastolic, 80_00), []string{"pulse_pressure_mmhg high"}},
		{"new signs low", values(respiratory, 8_00, temperature, 35_00, weight, 200, glucoseMass, 69_99, glucoseMolar, 3_89,
			pulse, 40_00),
			[]string{"respiratory_rate_bpm low", "body_temperature_c low", "glucose_mg_dl low", "glucose_mmol_l low",
				"pulse_rate_bpm low"}},
		{"new signs just usual", values(respiratory, 8_01, temperature, 35_01, glucoseMass, 70_00, glucoseMolar, 3_90, pulse,
			40_01), nil},
		{"new signs just usual, high", values(respiratory, 24_99, temperature, 39_09, weight, 650_000, glucoseMass, 250_00,
			glucoseMolar, 13_90, pulse, 130_99), nil},
		{"new signs high", values(respiratory, 25_00, temperature, 39_10, glucoseMass, 250_01, glucoseMolar, 13_91,
			pulse, 131_00),
			[]string{"respiratory_rate_bpm high", "body_temperature_c high", "glucose_mg_dl high", "glucose_mmol_l high",
				"pulse_rate_bpm high"}},
		{"swapped pressures", values(systolic, 100_00, diastolic, 110_00), []string{"pulse_pressure_mmhg low"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, f := range builtIn.Flags(limits.Flags(&tt.in)) {
				if f.String() != f.Subject+" "+f.Text {
					t.Errorf("String() = %q, want %q and %q", f, f.Subject, f.Text)
				}
				got = append(got, f.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("Flags() = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFlagLimitsValidate(t *testing.T) {
	limits := builtIn.DefaultFlagLimits()
	if err := limits.Validate(); err != nil {
		t.Errorf("Validate() of the default = %v", err)
	}
	limits.Usual[vitals.HeartRate] = vitals.Range{Min: 2, Max: 1}
	if err := limits.Validate(); !errors.Is(err, vitals.ErrLimits) {
		t.Errorf("Validate() = %v, want ErrLimits", err)
	}
}

// flagTexts returns the flags of a set as text.
func flagTexts(signs *vitals.Signs, set vitals.FlagSet) (texts []string) {
	for _, f := range signs.Flags(set) {
		texts = append(texts, f.String())
	}
	return texts
}

// TestEveryFlag checks the order of all flags, which for the first five signs is that of versions
// that had no others, that each is a set of its own, and that a loop may break.
func TestEveryFlag(t *testing.T) {
	want := strings.Split("systolic_mmhg low,systolic_mmhg high,diastolic_mmhg low,diastolic_mmhg high,"+
		"pulse_pressure_mmhg low,pulse_pressure_mmhg high,spo2_pct outside validated range,spo2_pct low,spo2_pct high,"+
		"heart_rate_bpm low,heart_rate_bpm high,resting_heart_rate_bpm low,resting_heart_rate_bpm high,"+
		"respiratory_rate_bpm low,respiratory_rate_bpm high,body_temperature_c low,body_temperature_c high,"+
		"body_weight_kg low,body_weight_kg high,glucose_mg_dl low,glucose_mg_dl high,glucose_mmol_l low,glucose_mmol_l high,"+
		"pulse_rate_bpm low,pulse_rate_bpm high,interstitial_glucose_mg_dl low,interstitial_glucose_mg_dl high,"+
		"interstitial_glucose_mmol_l low,interstitial_glucose_mmol_l high,delta_c low,delta_c high,steps low,steps "+
		"high,fev1_l low,fev1_l high", ",")
	var got []string
	var all vitals.FlagSet
	for set, f := range withOwn.EveryFlag() {
		got = append(got, f.String())
		if texts := flagTexts(withOwn, set); !slices.Equal(texts, []string{f.String()}) || all.Intersects(set) {
			t.Errorf("the set of %v has %q; it intersects those before: %v", f, texts, all.Intersects(set))
		}
		all = all.Union(set)
	}
	if !slices.Equal(got, want) {
		t.Errorf("EveryFlag:\n%q, want\n%q", got, want)
	}
	if got := flagTexts(withOwn, all); !slices.Equal(got, want) {
		t.Errorf("Flags of all:\n%q, want\n%q", got, want)
	}
	if got, want := flagTexts(withOwn, all.About(vitals.Systolic)), []string{"systolic_mmhg low", "systolic_mmhg high",
		"pulse_pressure_mmhg low", "pulse_pressure_mmhg high"}; !slices.Equal(got, want) {
		t.Errorf("About(Systolic) = %q, want %q", got, want)
	}
	for range withOwn.EveryFlag() {
		break
	}
}

func TestFlagsAllocate(t *testing.T) {
	limits := builtIn.DefaultFlagLimits()
	in := values(spo2, 60_00, heartRate, 140_00)
	bytes := 0
	if got := testing.AllocsPerRun(100, func() {
		for _, f := range builtIn.Flags(limits.Flags(&in)) {
			bytes += len(f.Subject) + len(f.Text)
		}
	}); got != 0 {
		t.Errorf("flagging allocates %v times, want 0", got)
	}
}
