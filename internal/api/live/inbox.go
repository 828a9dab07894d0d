package live

import (
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxInbox is the number of readings that wait for the dispatcher: four of the largest
// usual groups. It takes them every few milliseconds.
const maxInbox = 4 * 4096

// An update is a reading that was stored, or has completed a stored one.
type update struct {
	storage.Record

	// partial means that the Record may not be what is stored: only its device and time
	// are certain.
	partial bool
}

// An inbox holds the updates that the committer has published and the dispatcher has not
// taken.
type inbox struct {
	wake chan struct{} // holds one if there is something to take

	mu      sync.Mutex
	updates []update  // guarded by mu; at most maxInbox
	lost    uint64    // guarded by mu; updates that found the inbox full
	erased  time.Time // guarded by mu; of the last erasure
}

// put copies what a group has stored. began is the time at which its commit began. It does
// not wait, except for another copy.
func (in *inbox) put(began time.Time, group []*storage.Entry) {
	in.mu.Lock()
	defer in.mu.Unlock()
	before := len(in.updates)
	// A device was erased meanwhile, perhaps one of the group's, after its reading was stored.
	uncertain := !began.After(in.erased)
	for _, e := range group {
		switch {
		case e.Outcome != storage.Stored && e.Outcome != storage.Completed:
			continue
		case len(in.updates) == maxInbox:
			in.lost++
			continue
		}
		in.updates = append(in.updates, update{storage.Record{Reading: *e.Reading, ReceivedUnixMs: e.ReceivedUnixMs}, e.Outcome == storage.Completed})
		if uncertain {
			in.updates[len(in.updates)-1].hide()
		}
	}
	if before == 0 && len(in.updates) > 0 {
		signal(in.wake)
	}
}

// hide removes the values.
func (u *update) hide() {
	u.Values, u.Gateway, u.ReceivedUnixMs, u.partial = vitals.Values{}, vitals.Name{}, 0, true
}

// take returns the updates, and puts the emptied buf in their place.
func (in *inbox) take(buf []update) (updates []update, lost uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	updates, lost = in.updates, in.lost
	in.updates, in.lost = buf[:0], 0
	return updates, lost
}

// erase removes the values of a device. A reading that was stored after the erasure cannot
// be distinguished: the store is asked.
func (in *inbox) erase(device *vitals.Name) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.erased = time.Now()
	for i := range in.updates {
		if in.updates[i].Device == *device {
			in.updates[i].hide()
		}
	}
}

// signal puts a signal into a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
