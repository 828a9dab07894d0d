package vitals_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

func TestUTCOffset(t *testing.T) {
	if _, ok := vitals.UTCOffset(0).Minutes(); ok {
		t.Error("the zero UTCOffset is known")
	}
	for m := vitals.MinUTCOffsetMinutes; m <= vitals.MaxUTCOffsetMinutes; m++ {
		o := vitals.MakeUTCOffset(m)
		if got, ok := o.Minutes(); !ok || got != m || o == 0 {
			t.Errorf("MakeUTCOffset(%d).Minutes() = %d, %t", m, got, ok)
		}
	}
	for _, m := range []int{vitals.MinUTCOffsetMinutes - 1, vitals.MaxUTCOffsetMinutes + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("MakeUTCOffset(%d) did not panic", m)
				}
			}()
			vitals.MakeUTCOffset(m)
		}()
	}
}
