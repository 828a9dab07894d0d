// Package filewatch tells when files were changed or replaced.
//
// # Promise
//
// A change that happens after [New] has returned is reported, within one
// interval and after it happened. Several changes within one interval are
// reported once. One that replaces a file by renaming another one over it, as
// certificate tools and Kubernetes volumes do, is a change; so is a file that
// goes or comes back.
//
// The order New, read, [Watcher.Start] therefore loses no change: whatever is
// written after the read is reported.
//
// What was reported and could not be read is reported again, at each interval, until
// it can: no file shows that there are descriptors again, or another owner.
//
// # Why it polls
//
// A look at a file costs about a microsecond, once a second. The kernel's
// notifications follow inodes, not names: they need a watch on every folder on
// the way, symbolic links included, and say nothing on network file systems.
//
// # Not here
//
// No reading of files: what a change means, and whether the new content is
// good, is the matter of who watches.
package filewatch

import (
	"os"
	"sync"
	"time"
)

// A Watcher looks at files at an interval.
type Watcher struct {
	every   time.Duration
	changed func() (again bool)
	paths   []string
	seen    []os.FileInfo // of each path at the last look, nil: not there

	start, stop sync.Once
	quit        chan struct{}
	done        sync.WaitGroup
}

// New looks at paths and returns a Watcher that is to compare with what it saw.
// changed is called from the Watcher's own goroutine, and returns whether to call it
// again after the next look, although nothing may have changed. every must be above 0.
func New(every time.Duration, changed func() (again bool), paths ...string) *Watcher {
	w := &Watcher{every: every, changed: changed, paths: paths, seen: make([]os.FileInfo, len(paths)), quit: make(chan struct{})}
	w.look()
	return w
}

// Start starts the goroutine, which runs until Close.
func (w *Watcher) Start() { w.start.Do(func() { w.done.Go(w.run) }) }

// Close stops looking and waits for a call of changed that is under way. It must
// not be called from within changed.
func (w *Watcher) Close() {
	w.stop.Do(func() { close(w.quit) })
	w.done.Wait()
}

func (w *Watcher) run() {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	again := false
	for {
		select {
		case <-w.quit:
			return
		case <-tick.C:
			// The look comes before the reading that changed does, so that what
			// is written during the reading is seen by the next look.
			if w.look() || again {
				again = w.changed()
			}
		}
	}
}

// look reports whether a file differs from the last look.
func (w *Watcher) look() (changed bool) {
	for i, path := range w.paths {
		info, err := os.Stat(path) // follows symbolic links
		if err != nil {
			info = nil
		}
		changed = !same(w.seen[i], info) || changed
		w.seen[i] = info
	}
	return changed
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}
