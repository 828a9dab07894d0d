package columns_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
)

// FuzzSegment decodes arbitrary bytes, once as they are and once with the right checksum.
func FuzzSegment(f *testing.F) {
	for _, s := range shapes {
		f.Add(columns.AppendSegment(nil, s.rows(newRand(), 140)))
		f.Add(columns.AppendSegment(nil, s.rows(newRand(), 2)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkSegment(t, b)
		seal(b)
		checkSegment(t, b)
	})
}

// FuzzGroup does the same with groups.
func FuzzGroup(f *testing.F) {
	for _, s := range shapes {
		for _, n := range []int{1, 140} {
			runs, rows := s.group(newRand(), n)
			f.Add(columns.AppendGroup(nil, runs, rows))
		}
		rows := s.rows(newRand(), 140)
		f.Add(columns.AppendGroup(nil, []columns.Run{{Device: mustName("a"), Rows: 3}, {Device: mustName("ab"), Rows: 137}},
			rows))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkGroup(t, b)
		seal(b)
		checkGroup(t, b)
	})
}
