package sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/vitals"
)

var start = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func TestWearerReproducible(t *testing.T) {
	a := sim.Wearer(7, 3, 500, start, time.Minute, 0.5)
	if b := sim.Wearer(7, 3, 500, start, time.Minute, 0.5); !slices.Equal(a, b) {
		t.Error("the same seed and device give different readings")
	}
	if b := sim.Wearer(7, 4, 500, start, time.Minute, 0.5); slices.Equal(a, b) {
		t.Error("two devices give the same readings")
	}
	if b := sim.Wearer(8, 3, 500, start, time.Minute, 0.5); slices.Equal(a, b) {
		t.Error("two seeds give the same readings")
	}
	// The readings must be the same on all machines. These are the values from when
	// this test was written; floating-point arithmetic would make them differ.
	first := a[0]
	if got, _ := first.Values.Get(vitals.HeartRate); first.TimeMs != pinnedTimeMs || got != pinnedRate {
		t.Errorf("the first reading is %d ms with heart rate %d, want %d and %d", first.TimeMs, got, pinnedTimeMs, pinnedRate)
	}
}

// Readings are within the accepted ranges, have increasing times, and have one decimal.
func TestWearerIsAccepted(t *testing.T) {
	rules, err := vitals.NewValidator(vitals.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	name, err := vitals.ParseName("d")
	if err != nil {
		t.Fatal(err)
	}
	for _, interval := range []time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour} {
		for device := range 40 {
			last := int64(math.MinInt64)
			for _, s := range sim.Wearer(1, device, 300, start, interval, 0.5) {
				r := vitals.Reading{Device: name, TimeUnixMs: s.TimeMs, Values: s.Values}
				if err := rules.Validate(&r, vitals.MaxTimeUnixMs); err != nil {
					t.Fatalf("device %d, interval %v: %v", device, interval, err)
				}
				if s.TimeMs <= last {
					t.Fatalf("device %d, interval %v: time %d follows %d", device, interval, s.TimeMs, last)
				}
				last = s.TimeMs
				for sign := range vitals.Sign(vitals.NumSigns) {
					if v, ok := s.Values.Get(sign); ok && v%10 != 0 {
						t.Fatalf("device %d: %v has two decimals", device, sign)
					}
				}
			}
		}
	}
}

// Blood pressure is reported every 15 minutes, heart rate always, and SpO2 with gaps.
func TestWearerRhythm(t *testing.T) {
	var readings, oxygen float64
	for device := range 30 {
		slots := map[int64]bool{}
		for _, s := range sim.Wearer(2, device, 1440, start, time.Minute, 0) {
			readings++
			if !s.Values.Has(vitals.HeartRate) {
				t.Fatal("a reading without heart rate")
			}
			if s.Values.Has(vitals.SpO2) {
				oxygen++
			}
			if !s.Values.Has(vitals.Systolic) {
				continue
			}
			if !s.Values.Has(vitals.Diastolic) {
				t.Fatal("systolic without diastolic")
			}
			slot := s.TimeMs / (15 * 60_000)
			if slots[slot] {
				t.Fatalf("device %d: two blood pressures within a quarter of an hour", device)
			}
			slots[slot] = true
		}
		// A day has 96 quarter hours; gaps may skip some.
		if n := len(slots); n < 90 || n > 110 {
			t.Errorf("device %d: %d blood pressures in about a day, want about 96", device, n)
		}
	}
	if share := oxygen / readings; share < 0.6 || share > 0.95 {
		t.Errorf("SpO2 in %.0f %% of the readings, want gaps as in a recording (81 %%)", 100*share)
	}
}

// TestWearerDistribution checks the figures in docs/sim.md.
func TestWearerDistribution(t *testing.T) {
	var resting, systolic, saturation, night, day, nightPressure, dayPressure mean
	active := 0
	for device := range 400 {
		for _, s := range sim.Wearer(3, device, 1440, start, time.Minute, 0) {
			hour := time.UnixMilli(s.TimeMs).UTC().Hour()
			if v, ok := s.Values.Get(vitals.RestingHeartRate); ok {
				resting.add(v)
			}
			if v, ok := s.Values.Get(vitals.SpO2); ok {
				saturation.add(v)
			}
			rate, _ := s.Values.Get(vitals.HeartRate)
			if rate > 11000 {
				active++
			}
			pressure, hasPressure := s.Values.Get(vitals.Systolic)
			if hasPressure {
				systolic.add(pressure)
			}
			switch {
			case hour >= 1 && hour < 5:
				night.add(rate)
				if hasPressure {
					nightPressure.add(pressure)
				}
			case hour >= 9 && hour < 17:
				day.add(rate)
				if hasPressure {
					dayPressure.add(pressure)
				}
			}
		}
	}
	for _, tt := range []struct {
		name        string
		got         float64
		least, most float64
	}{
		{"resting heart rate", resting.value(), 64, 67},
		{"systolic", systolic.value(), 118, 127},
		{"SpO2", saturation.value(), 96, 97.5},
		{"heart rate by night over that by day", night.value() / day.value(), 0.65, 0.9},
		{"systolic by night over that by day", nightPressure.value() / dayPressure.value(), 0.80, 0.90},
		{"readings above 110/min", float64(active) / (400 * 1440), 0.02, 0.25},
	} {
		if tt.got < tt.least || tt.got > tt.most {
			t.Errorf("%s is %.3f, want from %v to %v", tt.name, tt.got, tt.least, tt.most)
		}
	}
}

type mean struct{ sum, n float64 }

func (m *mean) add(v vitals.Hundredths) { m.sum += float64(v) / 100; m.n++ }
func (m *mean) value() float64          { return m.sum / m.n }

func TestRandom(t *testing.T) {
	normal, exponential := sim.Random(200_000)
	var sum, squares, waits float64
	for i, x := range normal {
		sum += float64(x)
		squares += float64(x) * float64(x)
		waits += float64(exponential[i])
		if exponential[i] < 0 {
			t.Fatal("a negative wait")
		}
	}
	n := float64(len(normal))
	if m := sum / n; math.Abs(m) > 10 {
		t.Errorf("normal numbers have mean %.1f, want 0", m)
	}
	if sd := math.Sqrt(squares / n); math.Abs(sd-1000) > 15 {
		t.Errorf("normal numbers have standard deviation %.1f, want 1000", sd)
	}
	if m := waits / n; math.Abs(m-1000) > 15 {
		t.Errorf("exponential numbers have mean %.1f, want 1000", m)
	}
}

const (
	pinnedTimeMs = 1795219118073
	pinnedRate   = 5690
)
