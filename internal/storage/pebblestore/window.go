package pebblestore

import (
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// A window holds readings that are in groups and not in segments yet.
//
// Rows are only appended: a reading that completes a record is another row of the same
// device and time, and the later row counts. So the first rows of a window, up to the number
// that a view has, are what the window held when the view was published.
//
// Rows and indexes contain no pointers, so the garbage collector does not scan them.
type window struct {
	number     uint32 // among the windows of this store; not 0
	firstGroup uint64 // number of the first group whose readings may be here
	endGroup   uint64 // of the first group after the window; set when it is frozen

	sealed atomic.Int64 // rows of devices that are in segments now

	// mu is locked to add rows, and read-locked to read them. Append, which alone adds, and
	// the sealer of a frozen window, to which nothing is added, need no lock to read.
	mu           sync.RWMutex
	rows         int
	chunks       [][]columns.Row // of windowChunkRows each
	names        nameSet
	devices      [][]windowDevice // by the number of the name, of chunkDevices each
	arena        []uint32         // for indexes
	longest      int              // number of rows of the device with the most
	oldestUnixMs int64
}

// A windowDevice is a device with rows in a window.
type windowDevice struct {
	index        []uint32 // numbers of the rows, sorted by time and then by number
	newestUnixMs int64    // time of the last of them
	table        uint32   // number in the table of devices
	signs        uint8    // presence of the signs that any of the rows has
}

const (
	windowChunkRows  = 4096
	windowArenaRows  = 64 << 10
	windowFirstIndex = 4

	// maxDeviceRows is the number of rows of one device at which a window is sealed: adding
	// a late row moves as many numbers.
	maxDeviceRows = 16 << 10

	// Approximate sizes, for the bound on a window's memory: a row with its number in an
	// index, and a device without its name, with the first numbers in its index.
	// TestDeviceBytes asserts them.
	windowRowBytes    = 48
	windowDeviceBytes = 80

	// windowBytesPerRow times Options.WindowRows is the bound: with few readings of each of many
	// devices, a window is full before it has that many rows.
	windowBytesPerRow = windowRowBytes * 3 / 2
)

func newWindow(number uint32, firstGroup uint64) *window {
	return &window{number: number, firstGroup: firstGroup, names: newNameSet(), oldestUnixMs: math.MaxInt64}
}

// row returns a row by its number.
func (w *window) row(i uint32) *columns.Row {
	return &w.chunks[i/windowChunkRows][i%windowChunkRows]
}

// device returns a device by its number.
func (w *window) device(i uint32) *windowDevice {
	return &w.devices[i/chunkDevices][i%chunkDevices]
}

// bytes returns the approximate memory that w takes.
func (w *window) bytes() int {
	return w.rows*windowRowBytes + w.names.used*windowDeviceBytes + w.names.bytes()
}

// addDevice adds a device that w does not hold, and returns its number in w.
func (w *window) addDevice(name *vitals.Name, table uint32) uint32 {
	i := uint32(w.names.used)
	if i%chunkDevices == 0 {
		w.devices = append(w.devices, make([]windowDevice, chunkDevices))
	}
	w.names.put(name, w.names.hash(name), i)
	w.device(i).table = table
	return i
}

// add adds a row of a device.
func (w *window) add(device uint32, r *columns.Row) {
	n := uint32(w.rows)
	if n%windowChunkRows == 0 {
		w.chunks = append(w.chunks, make([]columns.Row, windowChunkRows))
	}
	*w.row(n) = *r
	w.rows++
	d := w.device(device)
	if len(d.index) == cap(d.index) {
		d.index = w.grow(d.index)
	}
	d.index = append(d.index, n)
	d.signs |= r.Values.Present()
	if r.TimeUnixMs >= d.newestUnixMs {
		d.newestUnixMs = r.TimeUnixMs
	} else {
		last := len(d.index) - 1
		at := w.after(d.index[:last], r.TimeUnixMs)
		copy(d.index[at+1:], d.index[at:last])
		d.index[at] = n
	}
	w.longest = max(w.longest, len(d.index))
	w.oldestUnixMs = min(w.oldestUnixMs, r.TimeUnixMs)
}

// grow returns a copy of an index with twice the capacity.
func (w *window) grow(index []uint32) []uint32 {
	n := max(2*cap(index), windowFirstIndex)
	if n > windowArenaRows/16 {
		return append(make([]uint32, 0, n), index...)
	}
	if len(w.arena) < n {
		w.arena = make([]uint32, windowArenaRows)
	}
	grown := append(w.arena[:0:n], index...)
	w.arena = w.arena[n:]
	return grown
}

// from returns the position of the first number whose row is not before timeUnixMs.
func (w *window) from(index []uint32, timeUnixMs int64) int {
	return sort.Search(len(index), func(i int) bool { return w.row(index[i]).TimeUnixMs >= timeUnixMs })
}

// after returns the position of the first number whose row is after timeUnixMs.
func (w *window) after(index []uint32, timeUnixMs int64) int {
	return sort.Search(len(index), func(i int) bool { return w.row(index[i]).TimeUnixMs > timeUnixMs })
}

// find returns the row of a device and a time, or nil if there is none.
func (w *window) find(device uint32, timeUnixMs int64) *columns.Row {
	index := w.device(device).index
	if i := w.after(index, timeUnixMs); i > 0 {
		if r := w.row(index[i-1]); r.TimeUnixMs == timeUnixMs {
			return r
		}
	}
	return nil
}

// appendAll appends all rows of a device to dst, in the order of time.
func (w *window) appendAll(dst []columns.Row, device uint32) []columns.Row {
	index := w.device(device).index
	for i, n := range index {
		if r := w.row(n); i+1 == len(index) || w.row(index[i+1]).TimeUnixMs != r.TimeUnixMs {
			dst = append(dst, *r)
		}
	}
	return dst
}

// A windowView is what a window held when a view was published.
type windowView struct {
	*window
	limit uint32 // the number of rows
}

// appendRange appends the rows of a device in a range to dst, in the order of time or in the
// opposite one, at most most of them.
func (w windowView) appendRange(dst []columns.Row, name *vitals.Name, fromUnixMs, toUnixMs int64, descending bool, most int) []columns.Row {
	w.mu.RLock()
	defer w.mu.RUnlock()
	device, ok := w.names.find(name)
	if !ok {
		return dst
	}
	index := w.device(device).index
	index = index[w.from(index, fromUnixMs):]
	index = index[:w.from(index, toUnixMs)]
	for len(index) > 0 && most > 0 {
		// All rows of the next time: the last one before the limit counts.
		var same []uint32
		if descending {
			i := w.from(index, w.row(index[len(index)-1]).TimeUnixMs)
			index, same = index[:i], index[i:]
		} else {
			i := 1
			for t := w.row(index[0]).TimeUnixMs; i < len(index) && w.row(index[i]).TimeUnixMs == t; {
				i++
			}
			index, same = index[i:], index[:i]
		}
		for i := len(same) - 1; i >= 0; i-- {
			if same[i] < w.limit {
				dst = append(dst, *w.row(same[i]))
				most--
				break
			}
		}
	}
	return dst
}

// updateLocked updates the latest values of a device, d, with its rows, and reports whether it
// has any. It reads them from the newest one until it has seen every sign that there is: most
// devices never send some sign.
func (w windowView) updateLocked(name *vitals.Name, d *layout.Record) (has bool) {
	i, ok := w.names.find(name)
	if !ok {
		return false
	}
	index, signs := w.device(i).index, w.device(i).signs
	seen := uint8(0)
	for i := len(index) - 1; i >= 0 && seen != signs; i-- {
		if index[i] >= w.limit {
			continue
		}
		r := w.row(index[i])
		d.Update(r.TimeUnixMs, &r.Values, r.UTCOffset)
		seen, has = seen|r.Values.Present(), true
	}
	return has
}
