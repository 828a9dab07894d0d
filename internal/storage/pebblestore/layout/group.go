package layout

import (
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Group holds the rows of a group, in the order of names and times.
type Group struct {
	Runs  []columns.Run
	Rows  []columns.Row
	value []byte
}

// Reset removes all rows, and makes room for that many.
func (g *Group) Reset(rows int) { g.Runs, g.Rows = g.Runs[:0], slices.Grow(g.Rows[:0], rows) }

// Begin makes device the one of the rows that are added next. It must come after those of the rows so far.
func (g *Group) Begin(device *vitals.Name) {
	n := len(g.Runs)
	g.Runs = slices.Grow(g.Runs, 1)[:n+1]
	g.Runs[n].Device, g.Runs[n].Rows = *device, 0
}

// Add adds a row after all others, and returns it, for the caller to set all of it.
func (g *Group) Add() *columns.Row {
	g.Runs[len(g.Runs)-1].Rows++
	n := len(g.Rows)
	g.Rows = slices.Grow(g.Rows, 1)[:n+1]
	return &g.Rows[n]
}

// Encode returns the value of the group. It is valid until the next call.
func (g *Group) Encode() []byte {
	g.value = columns.AppendGroup(g.value[:0], g.Runs, g.Rows)
	return g.value
}

// Decode decodes the value of a group.
func (g *Group) Decode(value []byte) (err error) {
	g.Runs, g.Rows, err = columns.DecodeGroup(value, g.Runs[:0], g.Rows[:0])
	return err
}

// Names reports whether the value of a group names a device, or cannot be decoded.
func (g *Group) Names(value []byte, device *vitals.Name) bool {
	return g.Decode(value) != nil || slices.ContainsFunc(g.Runs, func(r columns.Run) bool { return r.Device == *device })
}
