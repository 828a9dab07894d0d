// Package feed passes what groups have stored to those who watch it.
//
// # Promise
//
// [Inbox.Put] copies and never waits. What an inbox has no room for is counted. Updates are taken in the
// order in which they were put.
//
// # Not here
//
// What is done with an update: packages live and alert.
package feed

import (
	"slices"
	"sync"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// maxUpdates is the number of readings that an inbox holds: four of the largest usual groups.
// It is taken every few milliseconds.
const maxUpdates = 4 * 4096

// An Inbox holds the updates that the committer has put and a reader has not taken. T is what the reader
// needs of an entry.
type Inbox[T any] struct {
	fill func(update *T, e *storage.Entry) (wanted bool)
	wake chan struct{} // holds one if there is something to take

	mu      sync.Mutex
	updates []T    // guarded by mu; at most maxUpdates
	lost    uint64 // guarded by mu; updates that found the inbox full
}

// NewInbox returns an empty Inbox. fill fills an update, which has unspecified contents, from an entry that was
// stored or has completed a stored one, unless the reader does not want it. It must not wait, and must not
// retain the entry.
func NewInbox[T any](fill func(update *T, e *storage.Entry) (wanted bool)) *Inbox[T] {
	return &Inbox[T]{fill: fill, wake: make(chan struct{}, 1)}
}

// Woken returns a channel from which a value is received when there is something to take, and after
// Wake.
func (in *Inbox[T]) Woken() <-chan struct{} { return in.wake }

// Wake wakes the reader up.
func (in *Inbox[T]) Wake() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// Put copies what a group has stored. It retains neither the group nor its entries.
func (in *Inbox[T]) Put(group []*storage.Entry) {
	in.mu.Lock()
	defer in.mu.Unlock()
	before := len(in.updates)
	for _, e := range group {
		switch {
		case e.Outcome != storage.Stored && e.Outcome != storage.Completed:
			continue
		case len(in.updates) == maxUpdates:
			in.lost++
			continue
		}
		n := len(in.updates)
		if in.updates = slices.Grow(in.updates, 1)[:n+1]; !in.fill(&in.updates[n], e) {
			in.updates = in.updates[:n]
		}
	}
	if before == 0 && len(in.updates) > 0 {
		in.Wake()
	}
}

// Take returns the updates and the number of those that were lost since the call before, and puts the
// emptied buf in place of the updates.
func (in *Inbox[T]) Take(buf []T) (updates []T, lost uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	updates, lost = in.updates, in.lost
	in.updates, in.lost = buf[:0], 0
	return updates, lost
}

// Lose counts updates that are not in the inbox.
func (in *Inbox[T]) Lose(n uint64) {
	in.mu.Lock()
	in.lost += n
	in.mu.Unlock()
	in.Wake()
}
