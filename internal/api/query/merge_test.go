package query_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
)

// A Merge has the records of all parts, by time and then by device, in runs of one part.
func TestMerge(t *testing.T) {
	type found struct {
		device string
		unixMs int64
	}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := storetest.NewMemory()
		var parts []storage.Assignment
		var want []found
		for d := range rng.IntN(5) {
			device := fmt.Sprint("d", d)
			var lines []string
			var times []int64
			for ms := rng.Int64N(20); ms < 300; ms += 1 + rng.Int64N(1+rng.Int64N(40)) {
				times = append(times, ms)
				lines = append(lines, fmt.Sprintf(`{"device":%q,"time":%d,"spo2_pct":97}`, device, ms))
			}
			appendTo(t, m, lines...)
			for from := rng.Int64N(100); from < 300; {
				to := from + 1 + rng.Int64N(100)
				assignTo(t, m, device, "P-1", from, to)
				part := storage.Assignment{Device: name(t, device), Subject: "P-1", ToUnixMs: to}
				part.FromUnixMs = from + rng.Int64N(10)
				parts = append(parts, part) // may be empty
				for _, ms := range times {
					if part.Covers(ms) {
						want = append(want, found{device, ms})
					}
				}
				from = to + rng.Int64N(60)
			}
		}
		newest := rng.IntN(2) == 0
		slices.SortFunc(want, func(a, b found) int {
			byTime := cmp.Compare(a.unixMs, b.unixMs)
			if newest {
				byTime = -byTime
			}
			return cmp.Or(byTime, cmp.Compare(a.device, b.device))
		})
		var got []found
		merge := query.NewMerge(m.Scan, m.DeviceAssignments, parts, newest, 1+rng.IntN(40))
		for {
			part, records, err := merge.Next(t.Context())
			try(t, err)
			if len(records) == 0 {
				break
			}
			for i := range records {
				got = append(got, found{part.Device.String(), records[i].TimeUnixMs})
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d, newest first: %t\n%v\nwant\n%v", seed, newest, got, want)
		}
	}
}
