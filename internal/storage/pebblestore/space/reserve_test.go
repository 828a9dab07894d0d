package space_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/space"
)

// TestLargestCompaction compares the largest compaction of random trees with the result of
// brute force.
func TestLargestCompaction(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	for range 2000 {
		levels := make([][]pebble.SSTableInfo, 7)
		for l := range levels {
			key := 0
			for range rng.IntN(6) * rng.IntN(2) {
				var table pebble.SSTableInfo
				key += rng.IntN(4)
				table.Smallest = pebble.InternalKey{UserKey: fmt.Appendf(nil, "%03d", key)}
				key += rng.IntN(6)
				table.Largest = pebble.InternalKey{UserKey: fmt.Appendf(nil, "%03d", key)}
				key++
				table.Size = 1 + rng.Uint64N(100)
				levels[l] = append(levels[l], table)
			}
		}
		want := uint64(0)
		for l, level := range levels[1:] {
			for _, a := range level {
				n := a.Size
				if l+2 < len(levels) {
					for _, b := range levels[l+2] {
						if bytes.Compare(a.Smallest.UserKey, b.Largest.UserKey) <= 0 &&
							bytes.Compare(b.Smallest.UserKey, a.Largest.UserKey) <= 0 {
							n += b.Size
						}
					}
				}
				want = max(want, n)
			}
		}
		if len(levels[0]) > 0 {
			n := uint64(0)
			for _, a := range levels[0] {
				n += a.Size
			}
			for _, level := range levels[1:] {
				for _, b := range level {
					n += b.Size
				}
				if len(level) > 0 {
					break
				}
			}
			want = max(want, n)
		}
		if got := space.LargestCompaction(levels); got != want {
			t.Fatalf("got %d, want %d for %+v", got, want, levels)
		}
	}
}
