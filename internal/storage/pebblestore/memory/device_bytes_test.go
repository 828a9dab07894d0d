package memory_test

import (
	"runtime"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
)

// The memory of a device, in the table and in a window with its first row. The window counts that
// for its bound, to within a fifth.
func TestDeviceBytes(t *testing.T) {
	const devices = 50_000 // the hash table has as many slots for up to 98,304
	for _, tt := range []struct{ nameBytes, signs, tableBytes, windowBytes int }{
		{10, 1, 152, 148},
		{10, 5, 208, 148},
		{15, 1, 152, 148},
		{16, 1, 168, 164},
		{64, 1, 216, 212},
	} {
		_, inTable := live(func() *memory.Filled { return memory.FillTable(devices, tt.nameBytes, tt.signs) })
		window, inWindow := live(func() *memory.Filled { return memory.FillWindow(devices, tt.nameBytes) })
		inTable, inWindow = inTable/devices, inWindow/devices
		if inTable > tt.tableBytes || inWindow > tt.windowBytes {
			t.Errorf("names of %d bytes, %d signs: %d bytes in the table, %d in a window; want at most %d and %d", tt.nameBytes,
				tt.signs, inTable, inWindow, tt.tableBytes, tt.windowBytes)
		}
		if got := window.WindowBytes() / devices; got < inWindow*4/5 || got > inWindow*6/5 {
			t.Errorf("names of %d bytes: a window counts %d bytes for a device, and takes %d", tt.nameBytes, got, inWindow)
		}
	}
}

// live returns what f returns, and how much memory it takes. The test must not be parallel.
func live(f func() *memory.Filled) (_ *memory.Filled, bytes int) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	filled := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return filled, int(after.HeapAlloc) - int(before.HeapAlloc)
}
