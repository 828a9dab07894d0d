//go:build !race

package columns_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
)

// With sufficient capacity, nothing allocates.
func TestAllocs(t *testing.T) {
	for _, s := range shapes {
		rows := s.rows(newRand(), columns.MaxRows)
		segment := columns.AppendSegment(nil, rows)
		runs, groupRows := s.group(newRand(), 1000)
		group := columns.AppendGroup(nil, runs, groupRows)

		buf, gateways := make([]byte, 0, len(segment)+len(group)+64), make([]uint32, 0, columns.MaxRows)
		rowsTo, runsTo := make([]columns.Row, 0, columns.MaxRows), make([]columns.Run, 0, len(runs))
		for _, tt := range []struct {
			name string
			f    func()
		}{
			{"AppendSegment", func() { columns.AppendSegment(buf, rows) }},
			{"AppendGroup", func() { columns.AppendGroup(buf, runs, groupRows) }},
			{"DecodeSegment", func() { _, _ = columns.DecodeSegment(segment, rowsTo) }},
			{"DecodeGroup", func() { _, _, _ = columns.DecodeGroup(group, runsTo, rowsTo) }},
			{"SegmentHeader", func() { _, _ = columns.SegmentHeader(segment, gateways) }},
		} {
			if allocs := testing.AllocsPerRun(10, tt.f); allocs != 0 {
				t.Errorf("%s of %s: %v allocations", tt.name, s.name, allocs)
			}
		}
	}
}
