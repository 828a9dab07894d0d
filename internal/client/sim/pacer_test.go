package sim_test

import (
	"math"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"pgregory.net/rapid"
)

func TestPacer(t *testing.T) {
	for _, tt := range []struct {
		name         string
		perSecond    float64
		k            uint64
		wantIntended time.Duration
		elapsed      time.Duration
		wantDue      uint64
		wantTotal    uint64 // over elapsed
	}{
		{"the first one at once", 100, 0, 0, 0, 1, 0},
		{"the second after one step", 100, 1, 10 * time.Millisecond, 10 * time.Millisecond, 2, 1},
		{"just before a step", 100, 2, 20 * time.Millisecond, 20*time.Millisecond - 1, 2, 2},
		{"steps that are not whole ns are rounded up", 3, 1, 333_333_334, time.Second, 4, 3},
		{"starting point: 50,000/s for 30 s", 50_000, 1_499_999, 30*time.Second - 20*time.Microsecond, 30 * time.Second, 1_500_001, 1_500_000},
		{"less than one per second", 0.1, 3, 30 * time.Second, 25 * time.Second, 3, 3},
		{"no drift after a year", 10_000_000, 315_360_000_000_000, 365 * 24 * time.Hour, 365 * 24 * time.Hour, 315_360_000_000_001, 315_360_000_000_000},
		{"before the start", 100, 0, 0, -1, 0, 0},
		{"beyond what a Duration holds", 1e-6, math.MaxUint64, math.MaxInt64, time.Second, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := sim.NewPacer(tt.perSecond)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Intended(tt.k); got != tt.wantIntended {
				t.Errorf("Intended(%d) = %v, want %v", tt.k, got, tt.wantIntended)
			}
			if got := p.Due(tt.elapsed); got != tt.wantDue {
				t.Errorf("Due(%v) = %d, want %d", tt.elapsed, got, tt.wantDue)
			}
			if got := p.Total(tt.elapsed); got != tt.wantTotal {
				t.Errorf("Total(%v) = %d, want %d", tt.elapsed, got, tt.wantTotal)
			}
		})
	}
}

func TestPacerRejectsRates(t *testing.T) {
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1), 1e-9, 1e9} {
		if _, err := sim.NewPacer(rate); err == nil {
			t.Errorf("NewPacer(%v) succeeds, want an error", rate)
		}
	}
	if got := (sim.Pacer{}).Due(time.Hour); got != 0 {
		t.Errorf("the zero Pacer has %d requests due, want 0", got)
	}
}

// Due and Intended describe the same schedule.
func TestPacerAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := sim.NewPacer(rapid.Float64Range(1e-6, 1e7).Draw(t, "perSecond"))
		if err != nil {
			t.Fatal(err)
		}
		k := rapid.Uint64Range(0, 1e12).Draw(t, "k")
		at := p.Intended(k)
		if at == math.MaxInt64 {
			return
		}
		if got := p.Due(at); got < k+1 {
			t.Errorf("Due(Intended(%d)) = %d", k, got)
		}
		if got := p.Due(at - 1); got > k {
			t.Errorf("Due(Intended(%d)-1ns) = %d", k, got)
		}
		if k > 0 && p.Intended(k-1) > at {
			t.Errorf("the intended send time of request %d is after that of request %d", k-1, k)
		}
	})
}
