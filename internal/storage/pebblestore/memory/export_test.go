package memory

import (
	"fmt"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// A NameTable is a table of devices.
type NameTable struct {
	t    *Table
	bits uint32
}

// NewNameTable returns a table whose hashes have only some low bits.
func NewNameTable(bits uint32) *NameTable { return &NameTable{NewTable(), bits} }

// hash returns a hash that at most 2^bits names have.
func (n *NameTable) hash(name vitals.Name) uint32 { return n.t.names.hash(&name) & (1<<n.bits - 1) }

func (n *NameTable) Find(text string) (uint32, bool) {
	name, _ := vitals.ParseName(text)
	return n.t.names.findHashed(&name, n.hash(name))
}

func (n *NameTable) Add(text string) uint32 {
	name, _ := vitals.ParseName(text)
	return n.t.AddHashed(&name, n.hash(name), -1)
}

func (n *NameTable) Remove(text string) {
	name, _ := vitals.ParseName(text)
	n.t.removeHashed(&name, n.hash(name))
}

func (n *NameTable) Len() int { return n.t.Len() }

func (n *NameTable) All() map[string]uint32 {
	all := map[string]uint32{}
	for number, name := range n.t.names.all() {
		all[name.String()] = number
	}
	return all
}

// A Filled is a table and a window with the same devices, each with one row.
type Filled struct {
	table  *Table
	window *Window
}

// FillTable returns a table of n devices whose names have nameBytes bytes, with latest values of some signs.
func FillTable(n, nameBytes, signs int) *Filled {
	f := &Filled{table: NewTable()}
	for i := range n {
		name := filledName(i, nameBytes)
		f.table.Add(&name, &layout.Record{Known: 1<<signs - 1})
	}
	return f
}

// FillWindow is like FillTable for a window.
func FillWindow(n, nameBytes int) *Filled {
	f := &Filled{window: NewWindow(1, 1)}
	for i := range n {
		name := filledName(i, nameBytes)
		f.window.add(f.window.AddDevice(&name, uint32(i)), &columns.Row{})
	}
	return f
}

func filledName(i, nameBytes int) vitals.Name {
	name, _ := vitals.ParseName(fmt.Sprintf("%0*d", nameBytes, i))
	return name
}

// WindowBytes returns the memory that the window counts for itself.
func (f *Filled) WindowBytes() int { return f.window.bytes() }
