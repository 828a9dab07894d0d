// Package rejections lists the newest readings that were rejected without an answer.
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
}

// A List holds the newest rejections. It is safe for concurrent use.
type List struct {
	mu    sync.Mutex
	ring  []Rejection // the i-th since the start at i modulo its length; guarded by mu
	total uint64      // since the start; guarded by mu
}

// New returns an empty list that holds n rejections.
func New(n int) *List { return &List{ring: make([]Rejection, n)} }

// Add adds a rejection, in place of the oldest one if the list is full.
func (l *List) Add(r Rejection) {
	l.mu.Lock()
	l.ring[l.total%uint64(len(l.ring))] = r
	l.total++
	l.mu.Unlock()
}

// Newest returns at most limit of the listed rejections for which wanted returns true, the newest
// first, and the number of all rejections since the start. wanted must not retain its argument and
// must not call l.
func (l *List) Newest(limit int, wanted func(*Rejection) bool) (newest []Rejection, total uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := uint64(len(l.ring))
	for age := uint64(1); age <= min(l.total, size) && len(newest) < limit; age++ {
		if r := &l.ring[(l.total-age)%size]; wanted(r) {
			newest = append(newest, *r)
		}
	}
	return newest, l.total
}
