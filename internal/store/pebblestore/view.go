package pebblestore

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/store"
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
}

// views hands the current view to readers.
type views struct {
	mu      sync.Mutex
	current *view // nil before the first publish and after close
	open    sync.WaitGroup
}

// publish makes snap what readers see from now on.
func (vs *views) publish(snap *pebble.Snapshot) {
	vs.open.Add(1)
	vs.replace(&view{Snapshot: snap, users: 1})
}

// acquire returns the current view. The caller must release it, and soon: Close
// waits for that.
func (vs *views) acquire() (*view, error) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.current == nil {
		return nil, store.ErrClosed
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
		vs.open.Done()
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

// close turns readers away and waits for those that are reading.
func (vs *views) close() {
	vs.replace(nil)
	vs.open.Wait()
}
