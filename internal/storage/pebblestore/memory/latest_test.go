package memory_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestTable compares a table with a map of records, while devices get and lose signs and are removed.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, want := memory.NewTable(), map[vitals.Name]layout.Record{}
		signs := rapid.SampledFrom([]int{1, 5, vitals.MaxSigns}).Draw(t, "signs")
		values := rapid.Custom(func(t *rapid.T) (vs vitals.Values) {
			for range rapid.IntRange(1, 3).Draw(t, "n") {
				vs.Set(vitals.Sign(vitals.MaxSigns-1-rapid.IntRange(0, signs-1).Draw(t, "sign")),
					vitals.Value(rapid.Int32().Draw(t, "value")))
			}
			return vs
		})
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			name, _ := vitals.ParseName(fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "device")))
			r, known := want[name]
			i, found := table.Find(&name)
			if found != known {
				t.Fatalf("Find returns %v, want %v", found, known)
			}
			switch action := rapid.IntRange(0, 9).Draw(t, "action"); {
			case !known:
				r = layout.Record{NewestUnixMs: -1, SealedUnixMs: layout.NoSegment}
				table.Add(&name, &r)
				want[name] = r
			case action == 0:
				table.Remove(&name)
				delete(want, name)
			case action == 1:
				r.Forget(rapid.Uint32().Draw(t, "forget"))
				table.Set(i, &r)
				want[name] = r
			default:
				ms, vs, offset := rapid.Int64Range(0, 20).Draw(t, "time"), values.Draw(t, "values"),
					vitals.UTCOffset(rapid.IntRange(0, 3).Draw(t, "offset"))
				changed := rapid.Int64Range(-1, 20).Draw(t, "changed")
				r.Update(ms, changed, &vs, offset)
				table.Update(i, ms, changed, &vs, offset)
				want[name] = r
			}
		}
		if table.Len() != len(want) {
			t.Fatalf("%d devices, want %d", table.Len(), len(want))
		}
		for name, r := range want {
			if i, ok := table.Find(&name); !ok || table.Record(i) != r {
				t.Fatalf("device %v is %+v, want %+v", name, table.Record(i), r)
			}
		}
	})
}
