package reply

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A Clock gives the time in the form of the Date field (RFC 9110, section 5.6.7).
// The text is made once a second and immutable, so that any number of goroutines
// may use the Clock.
type Clock struct {
	now  func() time.Time
	last atomic.Pointer[second]
}

// second is one second's text. It is not written after it was published.
type second struct {
	unix int64
	text []byte
}

// NewClock returns a Clock that reads now, such as time.Now.
func NewClock(now func() time.Time) *Clock {
	return &Clock{now: now}
}

// AppendDate appends the time, such as "Sun, 06 Nov 1994 08:49:37 GMT". In a
// second's first call it allocates. Calls that meet at the turn of a second each
// make the same text; a clock that is set back is followed.
func (c *Clock) AppendDate(dst []byte) []byte {
	now := c.now()
	s := c.last.Load()
	if s == nil || s.unix != now.Unix() {
		s = &second{now.Unix(), now.UTC().AppendFormat(nil, http.TimeFormat)}
		c.last.Store(s)
	}
	return append(dst, s.text...)
}
