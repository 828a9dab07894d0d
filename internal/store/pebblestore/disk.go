package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/store"
)

// diskPollEvery is the time between two looks at the free space. With the default
// of 256 MiB free, a writer would have to fill 1 GiB/s to get past it.
const diskPollEvery = 250 * time.Millisecond

// A diskWatch says whether there is space to write.
type diskWatch struct {
	fs       vfs.FS
	dir      string
	minBytes uint64 // 0: never low
	log      *slog.Logger

	low       atomic.Bool
	freeBytes atomic.Uint64
	failing   bool // the last look failed; belongs to poll

	stop chan struct{}
	done chan struct{}
}

func newDiskWatch(fs vfs.FS, dir string, minFreeBytes int64, log *slog.Logger) *diskWatch {
	return &diskWatch{
		fs:       fs,
		dir:      dir,
		minBytes: uint64(max(minFreeBytes, 0)),
		log:      log,
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
	}
}

// start looks once and then keeps looking until Close.
func (w *diskWatch) start() {
	if w.minBytes == 0 {
		close(w.done)
		return
	}
	w.poll()
	go func() {
		defer close(w.done)
		tick := time.NewTicker(diskPollEvery)
		defer tick.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-tick.C:
				w.poll()
			}
		}
	}()
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
	// Space that returned must exceed the limit by an eighth, so that the
	// store does not flap.
	limit := w.minBytes
	if w.low.Load() {
		limit += limit / 8
	}
	w.set(usage.AvailBytes < limit)
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
			"dir", w.dir, "free_bytes", w.freeBytes.Load(), "min_free_bytes", w.minBytes)
	} else {
		w.log.Info("disk space has returned: readings are taken again",
			"dir", w.dir, "free_bytes", w.freeBytes.Load(), "min_free_bytes", w.minBytes)
	}
}

// ready returns an error that wraps store.ErrDiskLow when space is low.
func (w *diskWatch) ready() error {
	if !w.low.Load() {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free in %s, at least %d are wanted",
		store.ErrDiskLow, w.freeBytes.Load(), w.dir, w.minBytes)
}
