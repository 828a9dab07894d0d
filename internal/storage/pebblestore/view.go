package pebblestore

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// A view is a snapshot that readers share.
//
// Pebble shows a batch to readers before its sync ends. A snapshot that was taken
// after the sync of one group and before the next group shows synced data only. It
// costs two small objects and 2 µs a group on the reference machine, and pins no
// file; only the iterators on it do, and each of those lives for one call.
type view struct {
	*pebble.Snapshot
	users int // guarded by views.mu; the store itself is one while it is current
	open  *sync.WaitGroup
}

// views hands the current view to readers.
type views struct {
	mu      sync.Mutex
	current *view         // nil before the first publish, while paused, and after close
	paused  chan struct{} // nil: not; closed at the end of the pause

	// open counts the views that are not closed, of those since turn was called last.
	// It belongs to those who publish, pause, turn and close.
	open *sync.WaitGroup
}

// publish makes snap what readers see from now on.
func (vs *views) publish(snap *pebble.Snapshot) {
	if vs.open == nil {
		vs.turn()
	}
	vs.open.Add(1)
	vs.replace(&view{Snapshot: snap, users: 1, open: vs.open})
}

// acquire returns the current view, after a pause. The caller must release it, and
// soon: Close waits for that.
func (vs *views) acquire() (*view, error) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for vs.current == nil {
		paused := vs.paused
		if paused == nil {
			return nil, storage.ErrClosed
		}
		vs.mu.Unlock()
		<-paused
		vs.mu.Lock()
	}
	vs.current.users++
	return vs.current, nil
}

func (vs *views) release(v *view) {
	vs.mu.Lock()
	v.users--
	last := v.users == 0
	vs.mu.Unlock()
	if last {
		// Close of a Snapshot returns nil always.
		_ = v.Snapshot.Close()
		v.open.Done()
	}
}

func (vs *views) replace(v *view) {
	vs.mu.Lock()
	old := vs.current
	vs.current = v
	vs.mu.Unlock()
	if old != nil {
		vs.release(old)
	}
}

// turn returns what counts the views that have been published so far.
func (vs *views) turn() (older *sync.WaitGroup) {
	older, vs.open = vs.open, &sync.WaitGroup{}
	return older
}

// pause makes readers wait for resume, and waits for those that are reading.
func (vs *views) pause() {
	vs.mu.Lock()
	vs.paused = make(chan struct{})
	vs.mu.Unlock()
	vs.close()
}

// resume ends a pause. Readers get what was published meanwhile, or are turned away.
func (vs *views) resume() {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	close(vs.paused)
	vs.paused = nil
}

// close turns readers away and waits for those that are reading.
func (vs *views) close() {
	vs.replace(nil)
	vs.open.Wait()
}
