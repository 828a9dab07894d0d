package sim_test

import (
	"fmt"
	"hash/fnv"
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

// Other signs do not change the first five: their readings are those of versions that had no others.
func TestWearerAsBefore(t *testing.T) {
	h := fnv.New64a()
	for device := range 20 {
		for _, s := range sim.Wearer(7, device, 2000, start, time.Minute, 0.5) {
			fmt.Fprintln(h, s.TimeMs)
			for sign := range vitals.Sign(5) {
				if v, ok := s.Values.Get(sign); ok {
					fmt.Fprintln(h, sign.String(), int(v))
				}
			}
		}
	}
	if got := h.Sum64(); got != 0x39de4bef4e2d12ed {
		t.Errorf("the readings have the hash %#x", got)
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
		vitals.Systolic: {120, 124}, vitals.Diastolic: {70, 73}, vitals.SpO2: {96.5, 97}, vitals.HeartRate: {79, 82}, vitals.RestingHeartRate: {64, 67},
		vitals.RespiratoryRate: {15, 16}, vitals.BodyTemperature: {36.6, 36.8}, vitals.BodyWeight: {73, 77},
		vitals.GlucoseMass: {103, 107}, vitals.GlucoseMolar: {5.7, 5.9}, vitals.PulseRate: {79, 81}, vitals.MaxSigns - 1: {-0.7, -0.55},
	} {
		if got := sums[sign] / counts[sign]; got < want[0] || got > want[1] {
			t.Errorf("the mean of %s is %.2f, want from %v to %v", signs.Field(sign), got, want[0], want[1])
		}
	}
}

func TestRandom(t *testing.T) {
	var sum, squares float64
	normal := sim.Random(200_000)
	for _, x := range normal {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	n := float64(len(normal))
	if m := sum / n; math.Abs(m) > 10 {
		t.Errorf("normal numbers have mean %.1f, want 0", m)
	}
	if sd := math.Sqrt(squares / n); math.Abs(sd-1000) > 15 {
		t.Errorf("normal numbers have standard deviation %.1f, want 1000", sd)
	}
}

const (
	pinnedTimeMs = 1795219243441
	pinnedRate   = 7890
)
