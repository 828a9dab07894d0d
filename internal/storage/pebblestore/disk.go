package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// diskPollEvery is the time between two looks at the free space. With the default
// of 256 MiB free, a writer would have to fill 1 GiB/s to get past it.
const diskPollEvery = 250 * time.Millisecond

// needPollEvery is the number of looks at the free space after which the watch asks
// anew how much the store needs: 5 s. It asks at each look where space is less than
// twice the mark, so that what is written between two questions cannot carry the store
// past a mark that has moved.
const needPollEvery = 20

// A diskWatch says whether there is space to write.
type diskWatch struct {
	fs       vfs.FS
	dir      string
	minBytes uint64 // as configured; 0: never low
	log      *slog.Logger

	// need returns how much the store may still write. It is set once the store is
	// open.
	need atomic.Pointer[func() (uint64, error)]

	low       atomic.Bool
	freeBytes atomic.Uint64
	markBytes atomic.Uint64 // minBytes, or what the store needs if that is more

	// intact is called at each look.
	intact func()

	// These belong to poll.
	failing     bool   // the last look failed
	polls       int    // so far
	loggedBytes uint64 // the mark that the log was told of

	stop chan struct{}
	done chan struct{}
}

func newDiskWatch(fs vfs.FS, dir string, minFreeBytes int64, log *slog.Logger) *diskWatch {
	w := &diskWatch{
		fs:       fs,
		dir:      dir,
		minBytes: uint64(max(minFreeBytes, 0)),
		log:      log,
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	w.markBytes.Store(w.minBytes)
	return w
}

// start looks once and then keeps looking until Close.
func (w *diskWatch) start() {
	w.look()
	go func() {
		defer close(w.done)
		tick := time.NewTicker(diskPollEvery)
		defer tick.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-tick.C:
				w.look()
			}
		}
	}()
}

func (w *diskWatch) look() {
	w.intact()
	if w.minBytes > 0 {
		w.poll()
	}
}

// Close stops looking. It returns nil.
func (w *diskWatch) Close() error {
	close(w.stop)
	<-w.done
	return nil
}

// poll looks at the free space. When that cannot be told, things stay as they are.
func (w *diskWatch) poll() {
	usage, err := w.fs.GetDiskUsage(w.dir)
	if err != nil {
		if !w.failing && !errors.Is(err, vfs.ErrUnsupported) {
			w.log.Error("free disk space is unknown", "dir", w.dir, "error", err)
		}
		w.failing = true
		return
	}
	w.failing = false
	w.freeBytes.Store(usage.AvailBytes)
	if w.polls%needPollEvery == 0 || usage.AvailBytes/2 < w.markBytes.Load() {
		w.ask()
	}
	w.polls++
	// Space that returned must exceed the limit by an eighth, so that the
	// store does not flap.
	limit := w.markBytes.Load()
	if w.low.Load() {
		limit += limit / 8
	}
	w.set(usage.AvailBytes < limit)
}

// ask asks how much space the store needs, and sets the mark.
func (w *diskWatch) ask() {
	need := w.need.Load()
	if need == nil {
		w.polls-- // the store is not open yet
		return
	}
	n, err := (*need)()
	if err != nil {
		return // the store is being closed, or has failed
	}
	mark := max(w.minBytes, n)
	w.markBytes.Store(mark)
	if mark > w.minBytes && mark > w.loggedBytes+w.loggedBytes/2 {
		w.loggedBytes = mark
		w.log.Info("more free disk space is wanted than was configured: as much as the largest compaction may take",
			"dir", w.dir, "wanted_bytes", mark, "min_free_bytes", w.minBytes)
	}
}

// full is told by the file system that a write found no space.
func (w *diskWatch) full() {
	if w.minBytes > 0 {
		w.set(true)
	}
}

func (w *diskWatch) set(low bool) {
	if w.low.Swap(low) == low {
		return
	}
	if low {
		w.log.Warn("disk space is low: readings are refused until there is more",
			"dir", w.dir, "free_bytes", w.freeBytes.Load(), "wanted_bytes", w.markBytes.Load())
	} else {
		w.log.Info("disk space has returned: readings are taken again",
			"dir", w.dir, "free_bytes", w.freeBytes.Load(), "wanted_bytes", w.markBytes.Load())
	}
}

// ready returns an error that wraps storage.ErrDiskLow when space is low.
func (w *diskWatch) ready() error {
	if !w.low.Load() {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free in %s, at least %d are wanted",
		storage.ErrDiskLow, w.freeBytes.Load(), w.dir, w.markBytes.Load())
}
