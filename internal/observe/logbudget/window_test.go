package logbudget

import (
	"math/rand/v2"
	"testing"
)

// A window agrees with a model that keeps every amount.
func TestWindow(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 0))
		type entry struct{ second, amount int64 }
		var all []entry
		var w window
		second := int64(0)
		for range 300 {
			switch rng.IntN(4) {
			case 0:
				second += rng.Int64N(3)
			case 1:
				second += rng.Int64N(2) * rng.Int64N(150)
			default:
				e := entry{second, rng.Int64N(100)}
				all = append(all, e)
				w.add(e.second, e.amount)
			}
			want := int64(0)
			for _, e := range all {
				if second-e.second <= windowSeconds {
					want += e.amount
				}
			}
			if got := w.total(second); got != want {
				t.Fatalf("seed %d, second %d: total is %d, want %d", seed, second, got, want)
			}
		}
	}
}
