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

// Readings are within the accepted ranges, have increasing times, and the first five signs have one
// decimal.
func TestWearerIsAccepted(t *testing.T) {
	rules, err := vitals.NewValidator(sim.AllSigns().DefaultLimits())
	try(t, err)
	name, err := vitals.ParseName("d")
	try(t, err)
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
				for sign := range vitals.Sign(5) {
					if v, ok := s.Values.Get(sign); ok && v%10 != 0 {
						t.Fatalf("device %d: %v has two decimals", device, sign)
					}
				}
			}
		}
	}
}

// TestWearerDistribution checks the figures in docs/sim.md.
func TestWearerDistribution(t *testing.T) {
	signs := sim.AllSigns()
	var sums, counts [vitals.MaxSigns]float64
	for device := range 400 {
		for _, s := range sim.Wearer(3, device, 1440, start, time.Minute, 0) {
			for sign, v := range s.Values.All() {
				sums[sign] += float64(v) / math.Pow10(signs.Of(sign).Decimals)
				counts[sign]++
			}
		}
	}
	for sign, want := range map[vitals.Sign][2]float64{
		vitals.Systolic: {120, 124}, vitals.Diastolic: {70, 73}, vitals.SpO2: {96.5, 97}, vitals.HeartRate: {79, 82},
		vitals.RestingHeartRate: {64, 67},
		vitals.RespiratoryRate:  {15, 16}, vitals.BodyTemperature: {36.6, 36.8}, vitals.BodyWeight: {73, 77},
		vitals.GlucoseMass: {103, 107}, vitals.GlucoseMolar: {5.7, 5.9}, vitals.PulseRate: {79, 81},
		vitals.MaxSigns - 1: {-0.7, -0.55},
	} {
		if got := sums[sign] / counts[sign]; got < want[0] || got > want[1] {
			t.Errorf("the mean of %s is %.2f, want from %v to %v", signs.Field(sign), got, want[0], want[1])
		}
	}
}

const (
	pinnedTimeMs = 1795219243441
	pinnedRate   = 7890
)
