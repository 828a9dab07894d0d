package sim_test

import (
	"math"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
)

func TestPacer(t *testing.T) {
	for _, tt := range []struct {
		name         string
		perSecond    float64
		k            uint64
		wantIntended time.Duration
		length       time.Duration
		wantTotal    uint64
	}{
		{"the first one at once", 100, 0, 0, 0, 0},
		{"the second after one step", 100, 1, 10 * time.Millisecond, 10 * time.Millisecond, 1},
		{"just before a step", 100, 2, 20 * time.Millisecond, 20*time.Millisecond - 1, 2},
		{"steps that are not whole ns are rounded up", 3, 1, 333_333_334, time.Second, 3},
		{"starting point: 50,000/s for 30 s", 50_000, 1_499_999, 30*time.Second - 20*time.Microsecond,
			30 * time.Second, 1_500_000},
		{"less than one per second", 0.1, 3, 30 * time.Second, 25 * time.Second, 3},
		{"no drift after a year", 10_000_000, 315_360_000_000_000, 365 * 24 * time.Hour, 365 * 24 * time.Hour,
			315_360_000_000_000},
		{"no time", 100, 0, 0, -1, 0},
		{"beyond what a Duration holds", 1e-6, math.MaxUint64, math.MaxInt64, time.Second, 1},
		{"a closed loop", 0, 0, math.MaxInt64, time.Hour, 0},
	} {
		intended, total := sim.Schedule(tt.perSecond, tt.k, tt.length)
		if intended != tt.wantIntended || total != tt.wantTotal {
			t.Errorf("%s: got %v and %d, want %v and %d", tt.name, intended, total, tt.wantIntended, tt.wantTotal)
		}
	}
}
