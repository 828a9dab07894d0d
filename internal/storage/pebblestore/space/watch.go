package space

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// diskPollEvery is the time between two polls of the free space. With the default mark
// of 256 MiB, only a writer of 1 GiB/s could fill the disk between two polls.
const diskPollEvery = 250 * time.Millisecond

// needPollEvery is the number of polls, 5 s, after which the low-water mark is computed
// again. It is computed at each poll while less than twice the mark is free, so that the
// store cannot write past a mark that has moved.
const needPollEvery = 20

// A Watch monitors whether there is enough space to write.
type Watch struct {
	fs       vfs.FS
	dir      string
	minBytes uint64 // as configured; 0 means never low
	log      *slog.Logger

	need atomic.Pointer[func() (uint64, error)]

	low       atomic.Bool
	freeBytes atomic.Uint64
	markBytes atomic.Uint64 // the low-water mark: minBytes, or what the store needs if that is more

	onPoll func()

	// These fields are used by poll only.
	failing     bool   // the last poll failed
	polls       int    // number of polls so far
	loggedBytes uint64 // the last mark that was logged

	stop chan struct{}
	done chan struct{}
}

// NewWatch returns a Watch over the file system of dir, which does not poll yet. Less than minFreeBytes
// is low; 0 or less means that space is never low. onPoll is called at each poll.
func NewWatch(fs vfs.FS, dir string, minFreeBytes int64, log *slog.Logger, onPoll func()) *Watch {
	w := &Watch{
		fs:       fs,
		dir:      dir,
		minBytes: uint64(max(minFreeBytes, 0)),
		log:      log,
		onPoll:   onPoll,
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	w.markBytes.Store(w.minBytes)
	return w
}

// SetNeed sets a function that returns how many bytes the store may still write. The low-water mark is
// at least that.
func (w *Watch) SetNeed(need func() (uint64, error)) { w.need.Store(&need) }

// FreeBytes returns the free space at the last poll; 0 means unknown.
func (w *Watch) FreeBytes() uint64 { return w.freeBytes.Load() }

// MarkBytes returns the low-water mark; 0 means there is none.
func (w *Watch) MarkBytes() uint64 { return w.markBytes.Load() }

// Start polls once, and then periodically until Close.
func (w *Watch) Start() {
	w.check()
	go func() {
		defer close(w.done)
		tick := time.NewTicker(diskPollEvery)
		defer tick.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-tick.C:
				w.check()
			}
		}
	}()
}

func (w *Watch) check() {
	w.onPoll()
	if w.minBytes > 0 {
		w.poll()
	}
}

// Close stops polling. It returns nil.
func (w *Watch) Close() error {
	close(w.stop)
	<-w.done
	return nil
}

// poll updates the free space. If that fails, the state stays as it is.
func (w *Watch) poll() {
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
		w.updateMark()
	}
	w.polls++
	// Hysteresis: writes resume only at an eighth above the mark.
	limit := w.markBytes.Load()
	if w.low.Load() {
		limit += limit / 8
	}
	w.set(usage.AvailBytes < limit)
}

// updateMark computes the mark.
func (w *Watch) updateMark() {
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
		w.log.Info("more free disk space is required than configured: the largest compaction may take as much",
			"dir", w.dir, "wanted_bytes", mark, "min_free_bytes", w.minBytes)
	}
}

// NoSpace must be called when a write found no space.
func (w *Watch) NoSpace() {
	if w.minBytes > 0 {
		w.set(true)
	}
}

func (w *Watch) set(low bool) {
	if w.low.Swap(low) == low {
		return
	}
	if low {
		w.log.Warn("disk space is low: readings are rejected until there is more",
			"dir", w.dir, "free_bytes", w.freeBytes.Load(), "wanted_bytes", w.markBytes.Load())
	} else {
		w.log.Info("disk space is sufficient again: readings are accepted",
			"dir", w.dir, "free_bytes", w.freeBytes.Load(), "wanted_bytes", w.markBytes.Load())
	}
}

// Ready returns an error that wraps storage.ErrDiskLow if space is low.
func (w *Watch) Ready() error {
	if !w.low.Load() {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free in %s, at least %d are required",
		storage.ErrDiskLow, w.freeBytes.Load(), w.dir, w.markBytes.Load())
}
