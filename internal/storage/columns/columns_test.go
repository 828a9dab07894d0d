package columns_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
)

func TestSegmentRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := anyRows(columns.MaxRows).Draw(t, "rows")
		b := columns.AppendSegment([]byte("before"), rows)[len("before"):]
		got, err := columns.DecodeSegment(b, make([]columns.Row, 1))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "rows", got[1:], rows)
		if err := columns.VerifySegment(b); err != nil {
			t.Fatal(err)
		}
		h, err := columns.SegmentHeader(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if h.Count != len(rows) || h.FirstUnixMs != rows[0].TimeUnixMs || h.LastUnixMs != rows[len(rows)-1].TimeUnixMs {
			t.Fatalf("header %+v of %d rows", h, len(rows))
		}
		var want []uint32
		for _, r := range rows {
			if r.Gateway != 0 {
				want = append(want, r.Gateway)
			}
		}
		slices.Sort(want)
		slices.Sort(h.Gateways)
		equal(t, "gateways", slices.Compact(h.Gateways), slices.Compact(want))
	})
}

func TestGroupRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runs, rows := anyGroup(t)
		b := columns.AppendGroup([]byte("before"), runs, rows)[len("before"):]
		gotRuns, gotRows, err := columns.DecodeGroup(b, make([]columns.Run, 1), make([]columns.Row, 2))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "runs", gotRuns[1:], runs)
		equal(t, "rows", gotRows[2:], rows)
		if err := columns.VerifyGroup(b); err != nil {
			t.Fatal(err)
		}
	})
}

// anyGroup draws a group.
func anyGroup(t *rapid.T) (runs []columns.Run, rows []columns.Row) {
	names := rapid.OneOf(
		rapid.SliceOfNDistinct(rapid.StringMatching(`[0-9A-Za-z._:-]{1,64}`), 1, 20, rapid.ID),
		rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0, 9999), func(n int) string { return fmt.Sprintf("ward:%040d-%d", n/7, n) }), 1, 300, rapid.ID),
		rapid.SliceOfNDistinct(rapid.StringMatching(`a{1,64}`), 1, 30, rapid.ID),
	).Draw(t, "names")
	slices.Sort(names)
	most := rapid.SampledFrom([]int{1, 2, 50}).Draw(t, "most rows")
	for _, name := range names {
		of := anyRows(most).Draw(t, "rows")
		runs = append(runs, columns.Run{Device: mustName(name), Rows: len(of)})
		rows = append(rows, of...)
	}
	return runs, rows
}
