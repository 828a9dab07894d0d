package pebblestore

import (
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/vitals"
)

// A groupBuffer holds the rows of a group, in the order of names and times.
type groupBuffer struct {
	runs  []columns.Run
	rows  []columns.Row
	value []byte
}

func (g *groupBuffer) reset() { g.runs, g.rows = g.runs[:0], g.rows[:0] }

// add adds a row after all others.
func (g *groupBuffer) add(device *vitals.Name, r *columns.Row) {
	if n := len(g.runs); n > 0 && g.runs[n-1].Device == *device {
		g.runs[n-1].Rows++
	} else {
		g.runs = append(g.runs, columns.Run{Device: *device, Rows: 1})
	}
	g.rows = append(g.rows, *r)
}

// encode returns the value of the group. It is valid until the next call.
func (g *groupBuffer) encode() []byte {
	g.value = columns.AppendGroup(g.value[:0], g.runs, g.rows)
	return g.value
}

// decode decodes the value of a group.
func (g *groupBuffer) decode(value []byte) (err error) {
	g.runs, g.rows, err = columns.DecodeGroup(value, g.runs[:0], g.rows[:0])
	return err
}

// names reports whether the value of a group names a device, or cannot be decoded.
func (g *groupBuffer) names(value []byte, device *vitals.Name) bool {
	return g.decode(value) != nil || slices.ContainsFunc(g.runs, func(r columns.Run) bool { return r.Device == *device })
}
