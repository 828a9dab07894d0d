package pebblestore

import (
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
)

// An undo is what a settler had before a unit.
type undo struct {
	records, marked, gateways int                      // how many the group had
	devices                   map[uint32]layout.Record // those of the unit that were in the table
	completed                 []completedRecord        // in the order in which they were completed
}

// A completedRecord is a record before a reading completed it.
type completedRecord struct {
	recordID
	adds bool
	row  columns.Row
}

// Begin implements [storage.Ledger].
func (s ledger) Begin(i, n int) {
	u := &undo{records: len(s.records), marked: len(s.marked), gateways: len(s.gateways.added),
		devices: map[uint32]layout.Record{}}
	for k, e := range s.entries[i : i+n] {
		if number, ok := s.table.FindHashed(&e.Reading.Device, s.found[i+k].hash); ok {
			u.devices[number] = s.table.Record(number)
		}
	}
	s.undo = u
}

// End implements [storage.Ledger].
func (s ledger) End(rejected bool) {
	if rejected {
		s.takeBack(s.undo)
	}
	s.undo = nil
}

// takeBack makes the settler what it was before a unit. Rows stay: they are not used any more.
func (s *settler) takeBack(u *undo) {
	for _, c := range slices.Backward(u.completed) {
		if i, ok := s.index[c.recordID]; ok && int(i) < u.records {
			m := &s.records[i]
			m.adds, s.rows[m.row] = c.adds, c.row
		}
	}
	for _, r := range s.records[u.records:] {
		delete(s.index, r.recordID)
	}
	s.records, s.indexed = s.records[:u.records], min(s.indexed, u.records)
	for _, added := range s.marked[u.marked:] {
		s.table.Remove(&s.entries[added.entry].Reading.Device)
	}
	s.marked = s.marked[:u.marked]
	for number, was := range u.devices {
		s.table.Replace(number, &was)
	}
	s.gateways.takeBack(u.gateways)
}
