package live

import (
	"sync"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxInbox is the number of readings that wait for the dispatcher: four of the largest
// usual groups. It takes them every few milliseconds.
const maxInbox = 4 * 4096

// An update is a reading that was stored, or has completed a stored one.
type update struct {
	Device, Gateway vitals.Name // Gateway: of the record; the zero Name: none
	storage.Record              // without a gateway: most updates are of devices that nobody watches

	// partial means that the stored reading has signs that this one has not.
	partial bool
}

// record returns the record of an update.
func (u *update) record() storage.Record {
	r := u.Record
	if gateway := u.Gateway; !gateway.IsZero() {
		r.Gateway = &gateway
	}
	return r
}

// An inbox holds the updates that the committer has published and the dispatcher has not
// taken.
type inbox struct {
	wake chan struct{} // holds one if there is something to take

	mu      sync.Mutex
	updates []update // guarded by mu; at most maxInbox
	lost    uint64   // guarded by mu; updates that found the inbox full
}

// put copies what a group has stored.
func (in *inbox) put(group []*storage.Entry) {
	in.mu.Lock()
	defer in.mu.Unlock()
	before := len(in.updates)
	for _, e := range group {
		switch {
		case e.Outcome != storage.Stored && e.Outcome != storage.Completed:
			continue
		case len(in.updates) == maxInbox:
			in.lost++
			continue
		}
		r := e.Reading
		u := update{
			Device:  r.Device,
			Gateway: r.Gateway,
			Record:  storage.Record{TimeUnixMs: r.TimeUnixMs, ReceivedUnixMs: e.ReceivedUnixMs, Values: r.Values, UTCOffset: r.UTCOffset},
			partial: e.Outcome == storage.Completed,
		}
		in.updates = append(in.updates, u)
	}
	if before == 0 && len(in.updates) > 0 {
		signal(in.wake)
	}
}

// take returns the updates, and puts the emptied buf in their place.
func (in *inbox) take(buf []update) (updates []update, lost uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	updates, lost = in.updates, in.lost
	in.updates, in.lost = buf[:0], 0
	return updates, lost
}

// signal puts a signal into a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
