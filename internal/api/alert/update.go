package alert

import (
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An update is what matters of a reading that was stored or, with completed, has added signs to a stored
// one.
type update struct {
	device                 vitals.Name
	unixMs, receivedUnixMs int64
	completed              bool
	values                 vitals.Values // last, because the end of it is often not used
}

// A filter selects the readings that rules are about.
type filter struct {
	signs atomic.Uint32 // bit set; see board.wanted
}

// fill fills an update from an entry, unless no rule is about it.
func (f *filter) fill(u *update, e *storage.Entry) (wanted bool) {
	r := e.Reading
	if r.Values.Present()&f.signs.Load() == 0 {
		return false
	}
	u.device, u.unixMs, u.receivedUnixMs, u.completed = r.Device, r.TimeUnixMs, e.ReceivedUnixMs, e.Outcome == storage.Completed
	u.values.CopyFrom(&r.Values)
	return true
}
