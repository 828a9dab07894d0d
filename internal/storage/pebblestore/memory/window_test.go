package memory_test

import (
	"math"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestWindowValues checks that a window returns the rows that were added, however many values each has: they
// do not fill the chunks of values evenly.
func TestWindowValues(t *testing.T) {
	w := memory.NewWindow(1, 1)
	device, err := vitals.ParseName("a")
	if err != nil {
		t.Fatal(err)
	}
	var want []columns.Row
	for i := range 5000 {
		r := columns.Row{TimeUnixMs: int64(i), ReceivedUnixMs: int64(2 * i), Gateway: uint32(i),
			UTCOffset: vitals.UTCOffset(i % 9), Shared: i%2 == 0}
		if i%3 == 0 {
			r.CompletedMs = int64(i-2500) << (i % 50)
		}
		for n := range 1 + i*7%vitals.MaxSigns {
			r.Values.Set(vitals.Sign((n*5+i)%vitals.MaxSigns), vitals.Value(i-2500*n))
		}
		w.Add(nil, 0, &device, &r)
		want = append(want, r)
	}
	got := w.View().AppendRange(nil, &device, 0, math.MaxInt64, false, len(want)+1)
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("row %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}
