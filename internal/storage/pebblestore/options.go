package pebblestore

import (
	"cmp"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// Defaults of [Options].
const (
	DefaultMaxDevices    = 1_000_000
	DefaultMinFreeBytes  = 256 << 20
	DefaultCacheBytes    = 64 << 20
	DefaultMemTableBytes = 16 << 20
)

// Options configure a store. The zero Options are good for a container of 128 MiB
// and for a machine of 24 GiB; the latter reads older data faster with a larger
// CacheBytes.
type Options struct {
	// MaxDevices bounds the number of devices, and by it the memory of their
	// table, which is about 180 bytes each. A reading of a further device is
	// refused as storage.TooManyDevices. 0 means DefaultMaxDevices.
	MaxDevices int

	// MinFreeBytes is the free space of the file system below which Append refuses
	// groups with storage.ErrDiskLow. It leaves room for what is written between two
	// looks at the disk. Where the store may need more, to flush and to compact what
	// it holds, that much is wanted; room.go says how much it is. 0 means
	// DefaultMinFreeBytes, a negative number turns the limit off.
	MinFreeBytes int64

	// CacheBytes bounds the memory for cached blocks and for memtables together.
	// Pebble takes the memtables' share out of it first. 0 means
	// DefaultCacheBytes.
	CacheBytes int64

	// MemTableBytes is the size of a memtable, of which there may be two. A
	// larger one makes fewer, larger tables, and a longer log to replay after a
	// crash. 0 means DefaultMemTableBytes.
	MemTableBytes int

	// ReadOnly opens a store that nobody has open, for reading. Nothing in the
	// directory is changed but its lock file. After a crash the log is replayed
	// in memory, so that readers may see readings that were never synced.
	ReadOnly bool

	// Existing opens nothing but a store that is there: an empty or missing directory
	// is left as it is, with storage.ErrFormat. ReadOnly implies it.
	Existing bool

	// Log receives what the store has to say. Pebble's own messages go to the
	// debug level. nil means that nothing is logged.
	Log *slog.Logger

	// Fatal is called once when writing has failed in a way that nothing but a
	// new start can mend, such as a failed sync of the log. Its argument is a
	// text for the operator. It should end the process, or see to it that it
	// ends soon, and must call nothing of the store but Ready and Collect.
	//
	// Until it returns, no call but these reports the failure. Then an Append or an
	// Open that has failed returns storage.ErrFailed. A failure in the background,
	// or in the change from one log to the next, waits for the end of the process,
	// because Pebble cannot go on from there; Append, Open and Close may then wait
	// too. nil is a function that returns.
	Fatal func(message string)

	// Erased is called when an erasure is finished that was left unfinished before: by
	// Open, and by Store.Erase of another device. After an error the erasure stays
	// unfinished, and Erased is called again by whoever finishes it next. After a crash
	// it may be called twice for the same. It must not call the store. nil is a function
	// that does nothing.
	Erased func(storage.Erasure) error

	// FS is the file system; nil means the operating system's. It is for tests.
	FS vfs.FS

	// inspect takes the place of directory.verifyAll.
	inspect func(*directory) (*fileList, error)
}

func (o Options) withDefaults() Options {
	o.MaxDevices = cmp.Or(o.MaxDevices, DefaultMaxDevices)
	o.MinFreeBytes = cmp.Or(o.MinFreeBytes, DefaultMinFreeBytes)
	o.CacheBytes = cmp.Or(o.CacheBytes, DefaultCacheBytes)
	o.MemTableBytes = cmp.Or(o.MemTableBytes, DefaultMemTableBytes)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Fatal == nil {
		o.Fatal = func(string) {}
	}
	if o.Erased == nil {
		o.Erased = func(storage.Erasure) error { return nil }
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	return o
}

// minMemTableBytes is the least that Pebble can work with.
const minMemTableBytes = 64 << 10

// validate reports options with which nothing can be opened. Defaults are set.
func (o *Options) validate() error {
	switch {
	case o.MaxDevices < 0:
		return fmt.Errorf("MaxDevices is %d, want at least 1", o.MaxDevices)
	case o.MemTableBytes < minMemTableBytes:
		return fmt.Errorf("MemTableBytes is %d, want at least %d", o.MemTableBytes, minMemTableBytes)
	case o.CacheBytes < 0:
		return fmt.Errorf("CacheBytes is %d, want at least 1", o.CacheBytes)
	}
	return nil
}

// pebbleFormat is the version of Pebble's own formats. It is named by number, so
// that a new release of Pebble does not change what a store needs to be read.
// From version 20 on, the log tells how far it was synced, so that replay can tell
// a torn end from damage in the middle.
const pebbleFormat pebble.FormatMajorVersion = 24

// pebbleOptions returns Pebble's options. What is not named here has Pebble's
// default: larger blocks, zstd, more memtables and a second compaction were
// measured on a fleet of 10,000 devices and changed neither CPU time per reading nor
// size enough to be worth a line. The caller adds what belongs to one open store:
// lock, cache, file system, listener.
func pebbleOptions(o Options) *pebble.Options {
	p := &pebble.Options{
		FormatMajorVersion: pebbleFormat,
		ReadOnly:           o.ReadOnly,
		// Pebble's 4 MiB make tables of half a second's readings.
		MemTableSize: uint64(o.MemTableBytes),
		// Flushed tables are merged into the level below when four overlap, and not
		// when two do: each merge rewrites what it meets there. Of 10 million readings
		// compactions write 62 bytes each instead of 97, and readers have at most two
		// tables more to look into (docs/adr/0013-cheaper-fast-lane.md).
		L0CompactionThreshold: 8,
		// Pebble stops writes at 12 tables that overlap, which bulk reaches before the
		// compactions that begin at 8 end. The price is paid by readers while tables
		// overlap: BenchmarkReadDeep, with two readings of each of 10,000 devices in
		// every table, has a page of readings in 0.1 ms with 12 tables and in 0.9 ms with
		// 60, and the latest values of a device in 0.1 and 3.4 ms.
		L0StopWritesThreshold: 64,
	}
	for i := range p.Levels {
		// A filter of 10 bits a key answers most look-ups of late readings that
		// are not there without reading a data block. It adds 1.25 bytes a
		// reading.
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return p
}
