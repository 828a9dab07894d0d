//go:build !race

package vitals_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

// A new Batch allocates memory for all readings and positions at once, and no more than
// the body may need.
func TestBatchGrowthAllocates(t *testing.T) {
	d := newDecoder(t, vitals.DecoderOptions{})
	for _, tt := range []struct {
		shape vitals.Shape
		n     int
		want  float64 // allocations for the first reading and for the others
	}{
		{vitals.Array, 1, 2}, {vitals.Array, 1000, 4}, {vitals.NDJSON, 1000, 4},
	} {
		body := repeated(tt.shape, tt.n)
		var last vitals.Batch
		allocs := testing.AllocsPerRun(10, func() {
			var batch vitals.Batch
			try(t, d.Decode(body, nowUnixMs, &batch))
			last = batch
		})
		if allocs != tt.want {
			t.Errorf("%v of %d: %v allocations, want %v", tt.shape, tt.n, allocs, tt.want)
		}
		if n := cap(last.Readings); n < tt.n || n > tt.n+tt.n/4+1 {
			t.Errorf("%v of %d: capacity for %d readings", tt.shape, tt.n, n)
		}
	}
}
