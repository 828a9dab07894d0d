// Package rejections lists the newest readings that were rejected without an answer, and the newest values that were
// left out because their devices disown them.
//
// # Promise
//
//   - A [List] holds a fixed number of rejections, from its start. [List.Add] allocates nothing and
//     blocks only while another goroutine copies them.
//   - Neither a measured value, a token nor a patient is in a list.
//
// # Not here
//
// A list is in memory only and starts empty. Rejections of protocols that tell the client why, such as
// HTTP, are not listed, except for those of HL7 v2, which few clients show.
package rejections

import (
	"sync"

	"github.com/pulsegate/pulsegate/vitals"
)

// Max is the number of rejections that a server lists.
const Max = 1000

// A Rejection describes a reading that an input rejected although its protocol has no way to tell the
// client. Input, Field and Reason are texts of the server, never bytes of a message, which may hold health
// data anywhere: an unknown field is not named.
type Rejection struct {
	UnixMs          int64
	Input           string      // such as "mqtt"
	Gateway, Device vitals.Name // zero if not known
	Foreign         bool        // the credentials of the client do not cover Device
	Field           string      // JSON name of the field, or "" if it is not one known field
	Reason          string

	LeftOut bool   // and not rejected
	Count   uint64 // of equal ones within a minute, if LeftOut; set by the list
}

// A List holds the newest rejections. It is safe for concurrent use.
type List struct {
	mu    sync.Mutex
	ring  []Rejection // the i-th line since the start at i modulo its length; guarded by mu
	lines uint64      // since the start; guarded by mu
	total uint64      // of rejections since the start; guarded by mu
}

// New returns an empty list that holds n rejections.
func New(n int) *List { return &List{ring: make([]Rejection, n)} }

// Add adds a rejection, in place of the oldest one if the list is full. A value that was left out is counted in an
// equal recent line of the same minute, if there is one: with a loose sensor, every message leaves something out.
func (l *List) Add(r Rejection) {
	const lines, minuteMs = 64, 60_000
	l.mu.Lock()
	defer l.mu.Unlock()
	size := uint64(len(l.ring))
	if !r.LeftOut {
		l.total++
	}
	r.Count = 1
	for age := uint64(1); r.LeftOut && age <= min(l.lines, size, lines); age++ {
		old := &l.ring[(l.lines-age)%size]
		if same := *old; same.UnixMs/minuteMs == r.UnixMs/minuteMs {
			if same.UnixMs, same.Count = r.UnixMs, r.Count; same == r {
				old.Count++
				return
			}
		}
	}
	l.ring[l.lines%size] = r
	l.lines++
}

// Newest returns at most limit of the listed rejections for which wanted returns true, the newest
// first, and the number of all rejections since the start. wanted must not retain its argument and
// must not call l.
func (l *List) Newest(limit int, wanted func(*Rejection) bool) (newest []Rejection, total uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := uint64(len(l.ring))
	for age := uint64(1); age <= min(l.lines, size) && len(newest) < limit; age++ {
		if r := &l.ring[(l.lines-age)%size]; wanted(r) {
			newest = append(newest, *r)
		}
	}
	return newest, l.total
}
