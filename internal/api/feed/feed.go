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
	"sync"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxUpdates is the number of readings that an inbox holds: four of the largest usual groups.
// It is taken every few milliseconds.
const maxUpdates = 4 * 4096

// An Update is a reading that was stored, or has completed a stored one.
type Update struct {
	Device, Gateway vitals.Name // Gateway: of the record; the zero Name: none
	storage.Record              // without a gateway: that of most updates is not needed

	// Partial means that the stored reading has signs that this one has not.
	Partial bool
}

// Whole returns the record of an update, with its gateway.
func (u *Update) Whole() storage.Record {
	r := u.Record
	if gateway := u.Gateway; !gateway.IsZero() {
		r.Gateway = &gateway
	}
	return r
}

// An Inbox holds the updates that the committer has put and a reader has not taken.
type Inbox struct {
	wake chan struct{} // holds one if there is something to take

	mu      sync.Mutex
	updates []Update // guarded by mu; at most maxUpdates
	lost    uint64   // guarded by mu; updates that found the inbox full
}

// NewInbox returns an empty Inbox.
func NewInbox() *Inbox { return &Inbox{wake: make(chan struct{}, 1)} }

// Woken returns a channel from which a value is received when there is something to take, and after
// Wake.
func (in *Inbox) Woken() <-chan struct{} { return in.wake }

// Wake wakes the reader up.
func (in *Inbox) Wake() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// Put copies what a group has stored. It retains neither the group nor its entries.
func (in *Inbox) Put(group []*storage.Entry) {
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
		r := e.Reading
		in.updates = append(in.updates, Update{
			Device:  r.Device,
			Gateway: r.Gateway,
			Record:  storage.Record{TimeUnixMs: r.TimeUnixMs, ReceivedUnixMs: e.ReceivedUnixMs, Values: r.Values, UTCOffset: r.UTCOffset},
			Partial: e.Outcome == storage.Completed,
		})
	}
	if before == 0 && len(in.updates) > 0 {
		in.Wake()
	}
}

// Take returns the updates and the number of those that were lost since the call before, and puts the
// emptied buf in place of the updates.
func (in *Inbox) Take(buf []Update) (updates []Update, lost uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	updates, lost = in.updates, in.lost
	in.updates, in.lost = buf[:0], 0
	return updates, lost
}

// Lose counts updates that are not in the inbox.
func (in *Inbox) Lose(n uint64) {
	in.mu.Lock()
	in.lost += n
	in.mu.Unlock()
	in.Wake()
}
