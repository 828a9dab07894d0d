package memory

import (
	"bytes"
	"iter"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Window holds readings that are in groups and not in segments yet.
//
// Rows are only appended: a reading that completes a record is another row of the same
// device and time, and the later row counts. So the first rows of a window, up to the number
// that a view has, are what the window held when the view was published.
//
// Rows and indexes contain no pointers, so the garbage collector does not scan them.
type Window struct {
	Number     uint32 // among the windows of this store; not 0
	FirstGroup uint64 // number of the first group whose readings may be here
	EndGroup   uint64 // of the first group after the window; set when it is frozen
	GroupBytes int64  // of the groups

	Sealed atomic.Int64 // rows of devices that are in segments now

	// mu is locked to add rows, and read-locked to read them. Append, which alone adds, and
	// the sealer of a frozen window, to which nothing is added, need no lock to read.
	mu           sync.RWMutex
	rows         windowRows
	names        nameSet
	devices      [][]windowDevice // by the number of the name, of ChunkDevices each
	indexes      indexArena
	longest      int // number of rows of the device with the most
	oldestUnixMs int64
}

// A windowDevice is a device with rows in a window.
type windowDevice struct {
	index        []uint32 // numbers of the rows, sorted by time and then by number
	newestUnixMs int64    // time of the last of them
	table        uint32   // number in the table of devices
	signs        uint32   // presence of the signs that any of the rows has
}

const (
	windowChunkRows   = 4096
	windowChunkValues = 8192
	windowArenaRows   = 64 << 10
	windowFirstIndex  = 4

	// maxDeviceRows is the number of rows of one device at which a window is sealed: adding
	// a late row moves as many numbers.
	maxDeviceRows = 16 << 10

	// Approximate sizes, for the bound on a window's memory: a row with its number in an
	// index, a value, and a device without its name, with the first numbers in its index.
	// TestDeviceBytes asserts them.
	windowRowBytes    = 40
	windowValueBytes  = 4
	windowDeviceBytes = 80

	// windowBytesPerRow times the rows of a full window is the bound: with few readings of each of many
	// devices, a window is full before it has that many rows.
	windowBytesPerRow = (windowRowBytes + 2*windowValueBytes) * 3 / 2
)

// NewWindow returns an empty window whose first group is firstGroup.
func NewWindow(number uint32, firstGroup uint64) *Window {
	return &Window{Number: number, FirstGroup: firstGroup, names: newNameSet(), oldestUnixMs: math.MaxInt64}
}

// device returns a device by its number.
func (w *Window) device(i uint32) *windowDevice {
	return &w.devices[i/ChunkDevices][i%ChunkDevices]
}

// bytes returns the approximate memory that w takes.
func (w *Window) bytes() int {
	return w.rows.bytes() + w.names.used*windowDeviceBytes + w.names.bytes()
}

// Rows returns the number of rows.
func (w *Window) Rows() int { return w.rows.n }

// OldestUnixMs returns the oldest time of a row, or math.MaxInt64.
func (w *Window) OldestUnixMs() int64 { return w.oldestUnixMs }

// Filled returns the part of w that is filled, given the number of rows of a full window: 1 or more if it
// is full.
func (w *Window) Filled(full int) float64 {
	rows := float64(full)
	return max(float64(w.rows.n)/rows, float64(w.bytes())/(windowBytesPerRow*rows), float64(w.longest)/maxDeviceRows)
}

// SealedPart returns the part of a frozen window that is sealed.
func (w *Window) SealedPart() float64 { return float64(w.Sealed.Load()) / float64(max(w.rows.n, 1)) }

// Lock and Unlock enclose calls of Add.
func (w *Window) Lock() { w.mu.Lock() }

// Unlock ends what Lock began.
func (w *Window) Unlock() { w.mu.Unlock() }

// Devices returns the number of devices. Their numbers in w begin at 0.
func (w *Window) Devices() int { return w.names.used }

// Sorted returns the numbers of all devices in the order of their names.
func (w *Window) Sorted() []uint32 {
	order := make([]uint32, w.Devices())
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return bytes.Compare(w.names.text(a), w.names.text(b)) })
	return order
}

// Names returns the names of all devices by their numbers in w, in no order.
func (w *Window) Names() iter.Seq2[uint32, vitals.Name] { return w.names.all() }

// Name returns the name of a device by its number in w.
func (w *Window) Name(device uint32) vitals.Name { return w.names.at(device) }

// InTable returns the number in the table of a device in w.
func (w *Window) InTable(device uint32) uint32 { return w.device(device).table }

// RowsOf returns the number of rows of a device in w.
func (w *Window) RowsOf(device uint32) int { return len(w.device(device).index) }

// AddDevice adds a device that w does not hold, with its number in the table, and returns its number in w.
func (w *Window) AddDevice(name *vitals.Name, table uint32) uint32 {
	i := uint32(w.names.used)
	if i%ChunkDevices == 0 {
		w.devices = append(w.devices, make([]windowDevice, ChunkDevices))
	}
	w.names.put(name, w.names.hash(name), i)
	w.device(i).table = table
	return i
}

// Add adds a row of a device, whose state in the table is d. If d is nil, there is no table.
func (w *Window) Add(d *Device, table uint32, name *vitals.Name, r *columns.Row) {
	if d == nil {
		i, ok := w.names.find(name)
		if !ok {
			i = w.AddDevice(name, table)
		}
		w.add(i, r)
		return
	}
	if d.window != w.Number {
		d.window, d.inWindow = w.Number, w.AddDevice(name, table)
	}
	w.add(d.inWindow, r)
}

// add adds a row of a device in w.
func (w *Window) add(device uint32, r *columns.Row) {
	n := w.rows.add(r)
	d := w.device(device)
	if len(d.index) == cap(d.index) {
		d.index = w.indexes.grow(d.index)
	}
	d.index = append(d.index, n)
	d.signs |= r.Values.Present()
	if r.TimeUnixMs >= d.newestUnixMs {
		d.newestUnixMs = r.TimeUnixMs
	} else {
		last := len(d.index) - 1
		at := w.rows.after(d.index[:last], r.TimeUnixMs)
		copy(d.index[at+1:], d.index[at:last])
		d.index[at] = n
	}
	w.longest = max(w.longest, len(d.index))
	w.oldestUnixMs = min(w.oldestUnixMs, r.TimeUnixMs)
}

// An indexArena is unused memory for small indexes.
type indexArena []uint32

// grow returns a copy of an index with twice the capacity.
func (a *indexArena) grow(index []uint32) []uint32 {
	n := max(2*cap(index), windowFirstIndex)
	if n > windowArenaRows/16 {
		return append(make([]uint32, 0, n), index...)
	}
	if len(*a) < n {
		*a = make([]uint32, windowArenaRows)
	}
	grown := append((*a)[:0:n], index...)
	*a = (*a)[n:]
	return grown
}

// Find returns the row of a device, whose state in the table is d, and a time, and whether there is one. w
// must be the active window.
func (w *Window) Find(d *Device, timeUnixMs int64) (columns.Row, bool) {
	if d.window != w.Number {
		return columns.Row{}, false
	}
	return w.find(d.inWindow, timeUnixMs)
}

// FindNamed is like Find in a window that is not the active one.
func (w *Window) FindNamed(name *vitals.Name, timeUnixMs int64) (columns.Row, bool) {
	if i, ok := w.names.find(name); ok {
		return w.find(i, timeUnixMs)
	}
	return columns.Row{}, false
}

// find returns the row of a device and a time, and whether there is one.
func (w *Window) find(device uint32, timeUnixMs int64) (row columns.Row, ok bool) {
	index := w.device(device).index
	if i := w.rows.after(index, timeUnixMs); i > 0 {
		if r := w.rows.at(index[i-1]); r.timeUnixMs == timeUnixMs {
			w.rows.unpack(&row, r)
			return row, true
		}
	}
	return row, false
}

// AppendAll appends all rows of a device to dst, in the order of time.
func (w *Window) AppendAll(dst []columns.Row, device uint32) []columns.Row {
	index := w.device(device).index
	dst = slices.Grow(dst, len(index))
	for i, n := range index {
		if r := w.rows.at(n); i+1 == len(index) || w.rows.at(index[i+1]).timeUnixMs != r.timeUnixMs {
			dst = w.rows.appendTo(dst, r)
		}
	}
	return dst
}

// A View is what a window held when a view of the store was published. Its methods lock the window.
type View struct {
	w     *Window
	limit uint32 // the number of rows
}

// View returns what w holds now.
func (w *Window) View() View { return View{w, uint32(w.rows.n)} }

// Rows returns the number of rows.
func (v View) Rows() int { return int(v.limit) }

// Names returns the names of all devices. Nothing may be added until the iteration ends.
func (v View) Names() iter.Seq2[uint32, vitals.Name] { return v.w.Names() }

// Gateways calls visit with the number of each row's gateway.
func (v View) Gateways(visit func(number uint32)) {
	v.w.mu.RLock()
	defer v.w.mu.RUnlock()
	for i := range v.limit {
		visit(v.w.rows.at(i).gateway)
	}
}

// AppendRange appends the rows of a device in a range to dst, in the order of time or in the
// opposite one, at most most of them.
func (v View) AppendRange(dst []columns.Row, name *vitals.Name, fromUnixMs, toUnixMs int64, descending bool,
	most int) []columns.Row {
	w := v.w
	w.mu.RLock()
	defer w.mu.RUnlock()
	device, ok := w.names.find(name)
	if !ok {
		return dst
	}
	index := w.device(device).index
	index = index[w.rows.from(index, fromUnixMs):]
	index = index[:w.rows.from(index, toUnixMs)]
	for len(index) > 0 && most > 0 {
		// All rows of the next time: the last one before the limit counts.
		var same []uint32
		if descending {
			i := w.rows.from(index, w.rows.at(index[len(index)-1]).timeUnixMs)
			index, same = index[:i], index[i:]
		} else {
			i := 1
			for t := w.rows.at(index[0]).timeUnixMs; i < len(index) && w.rows.at(index[i]).timeUnixMs == t; {
				i++
			}
			index, same = index[i:], index[:i]
		}
		for i := len(same) - 1; i >= 0; i-- {
			if same[i] < v.limit {
				dst = w.rows.appendTo(dst, w.rows.at(same[i]))
				most--
				break
			}
		}
	}
	return dst
}

// Update updates the latest values of a device, d, with its rows, and reports whether it
// has any. It reads them from the newest one until it has seen every sign that there is: most
// devices never send some sign. So d.ArrivedUnixMs may be too early afterwards.
func (v View) Update(name *vitals.Name, d *layout.Record) (has bool) {
	w := v.w
	w.mu.RLock()
	defer w.mu.RUnlock()
	i, ok := w.names.find(name)
	if !ok {
		return false
	}
	index, signs := w.device(i).index, w.device(i).signs
	var r columns.Row
	seen := uint32(0)
	for i := len(index) - 1; i >= 0 && seen != signs; i-- {
		if index[i] >= v.limit {
			continue
		}
		w.rows.unpack(&r, w.rows.at(index[i]))
		d.Update(r.TimeUnixMs, r.ChangedUnixMs(), &r.Values, r.UTCOffset)
		seen, has = seen|r.Values.Present(), true
	}
	return has
}
