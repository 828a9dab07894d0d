package pebblestore

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// Defaults of [Options].
const (
	DefaultMaxDevices    = 1_000_000
	DefaultMinFreeBytes  = 256 << 20
	DefaultCacheBytes    = 64 << 20
	DefaultMemTableBytes = 16 << 20
	DefaultMaxGateways   = 1_000_000
	DefaultWindowRows    = 256 << 10
)

// Options configures a store. The zero value is suitable for a container with 128 MiB of
// memory as well as for a machine with 24 GiB, which reads older data faster with a larger
// CacheBytes.
type Options struct {
	// MaxDevices bounds the number of devices, and so the memory of their table, about
	// 300 bytes each. A reading of a further device gets the outcome
	// storage.TooManyDevices. 0 means DefaultMaxDevices.
	MaxDevices int

	// MaxGateways bounds the number of gateways that readings name, and so the memory of
	// their table, about 160 bytes each. A reading that names a further gateway gets the
	// outcome storage.TooManyDevices. 0 means DefaultMaxGateways.
	MaxGateways int

	// WindowRows is the number of readings that are gathered in memory before they are
	// written to segments. There may be twice as many in memory, 40 bytes each, 4 bytes
	// for each value and 100 bytes for each of their devices, and the next start reads them from their groups. Larger
	// windows make larger segments, which are rewritten less often. 0 means DefaultWindowRows.
	WindowRows int

	// Signs has the signs of a user's own that are accepted. Others that the store has are retired.
	// Open returns an error of [vitals.Signs.Define].
	Signs []vitals.Definition

	// MinFreeBytes is the free space of the file system below which Append rejects
	// groups with storage.ErrDiskLow. It must cover what is written between two polls
	// of the free space. If the store may need more space for flushes and compactions,
	// that is required instead; see package space. 0 means DefaultMinFreeBytes; a negative
	// number disables the limit.
	MinFreeBytes int64

	// CacheBytes bounds the memory for cached blocks and memtables together; memtables
	// take precedence. 0 means DefaultCacheBytes.
	CacheBytes int64

	// MemTableBytes is the size of a memtable, at least 64 KiB; there may be two. A larger one makes
	// fewer, larger tables, and a longer log to replay after a crash. 0 means
	// DefaultMemTableBytes.
	MemTableBytes int

	// ReadOnly opens the store for reading. No other process may have it open. Only the
	// lock file is changed. After a crash the log is replayed in memory, so readers may
	// see readings that were never synced.
	ReadOnly bool

	// Existing makes Open return storage.ErrFormat, and change nothing, if the directory
	// is empty or missing. ReadOnly implies it.
	Existing bool

	// Log receives log records. Pebble's own messages have the debug level. nil
	// disables logging.
	Log *slog.Logger

	// OnFatal is called once after a write error from which only a restart recovers,
	// such as a failed sync of the log. Its argument is a text for the operator. It
	// should end the process, or arrange that it ends soon. The only methods of the
	// Store that it may call are Ready and Collect.
	//
	// Until OnFatal returns, only these two report the failure. Afterwards, the Append
	// or Open that failed returns storage.ErrFailed. After a failure in the background,
	// or in the switch from one log to the next, a goroutine blocks until the process
	// ends, because Pebble cannot continue; Append, Open and Close may then block too.
	// OnFatal may be nil.
	OnFatal func(message string)

	// OnErased is called when an earlier, unfinished erasure is finished: by Open, or by
	// Store.Erase of another device. If it returns an error, the erasure stays
	// unfinished, and OnErased is called again by the next attempt. After a crash it may
	// be called twice for the same erasure. It must not call the Store. It may be nil.
	OnErased func(storage.Erasure) error

	// ChangesKeep is how long events are kept: assignments, erasures, expiries and definitions of signs. The event of an
	// erasure has the name of its device. 0 keeps none, and then [Store.CheckPosition] knows no position of an earlier
	// start. If it is negative, none are removed, and new ones are kept if the store has some.
	ChangesKeep time.Duration

	// FS is the file system; nil means the operating system's. It is meant for tests.
	FS vfs.FS

	// moving permits devices with awkward names: another store has them.
	moving bool

	// inspect replaces directory.verifyAll.
	inspect func(*datadir.Dir) (*datadir.List, error)

	// problem is called for damage in what Open reads. If it returns nil, Open goes on
	// without the damaged value. nil means that it returns its argument.
	problem func(error) error

	// segmentRows is the largest number of readings of a segment. It is smaller in tests.
	segmentRows int

	// later has built-in signs of a later version. It is empty but in tests.
	later []vitals.Definition
}

func (o Options) withDefaults() Options {
	o.MaxDevices = cmp.Or(o.MaxDevices, DefaultMaxDevices)
	o.MinFreeBytes = cmp.Or(o.MinFreeBytes, DefaultMinFreeBytes)
	o.CacheBytes = cmp.Or(o.CacheBytes, DefaultCacheBytes)
	o.MemTableBytes = cmp.Or(o.MemTableBytes, DefaultMemTableBytes)
	o.MaxGateways = cmp.Or(o.MaxGateways, DefaultMaxGateways)
	o.WindowRows = cmp.Or(o.WindowRows, DefaultWindowRows)
	o.segmentRows = cmp.Or(o.segmentRows, columns.MaxRows)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnFatal == nil {
		o.OnFatal = func(string) {}
	}
	if o.OnErased == nil {
		o.OnErased = func(storage.Erasure) error { return nil }
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	return o
}

// pebbleOptions returns Pebble's options. Options not set here have Pebble's defaults:
// larger blocks, zstd, more memtables and concurrent compactions were measured with 10,000
// devices, and none changed CPU time per reading or size enough to be worth setting. The
// caller sets the options that belong to one open store: lock, cache, file system,
// listener.
func pebbleOptions(o Options) *pebble.Options {
	p := &pebble.Options{
		FormatMajorVersion: datadir.PebbleFormat,
		ReadOnly:           o.ReadOnly,
		// With Pebble's default of 4 MiB, a table would hold the readings of half a
		// second.
		MemTableSize: uint64(o.MemTableBytes),
		// Merge flushed tables into the next level when four overlap, instead of two: each
		// merge rewrites the overlapping tables of that level. With windows of 262,144
		// readings, compactions write 8 bytes per reading instead of 22. With eight they
		// would write less again, and leave more bytes that are no longer needed.
		L0CompactionThreshold: 8,
		// By default Pebble stops writes at 12 overlapping tables. On a slow disk a bulk
		// load reaches these during a long compaction. The cost is slower reads while
		// tables overlap.
		L0StopWritesThreshold: 64,
		// So that what was changed of late is found without reading all segments.
		BlockPropertyCollectors: []func() pebble.BlockPropertyCollector{seal.NewChangedCollector},
	}
	for i := range p.Levels {
		// With a filter, Get reads no data block of tables without the key: of a device's
		// record, or of a segment that has just been written.
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return p
}

// tableOptions returns the options to read a table directly, without a cache.
func tableOptions(o Options) sstable.ReaderOptions {
	p := pebbleOptions(o)
	p.EnsureDefaults()
	return p.MakeReaderOptions()
}
