package reply

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A Clock formats the time for the Date field (RFC 9110, section 5.6.7), once per
// second. It is safe for concurrent use.
type Clock struct {
	now  func() time.Time
	last atomic.Pointer[second]
}

// A second is the text of one second. It is not modified after publication.
type second struct {
	unix int64
	text []byte
}

// NewClock returns a Clock that reads now, such as time.Now.
func NewClock(now func() time.Time) *Clock {
	return &Clock{now: now}
}

// AppendDate appends the time, such as "Sun, 06 Nov 1994 08:49:37 GMT". It allocates
// only in the first call of each second. Concurrent first calls format the same text.
// If the clock is set back, AppendDate follows it.
func (c *Clock) AppendDate(dst []byte) []byte {
	now := c.now()
	s := c.last.Load()
	if s == nil || s.unix != now.Unix() {
		s = &second{now.Unix(), now.UTC().AppendFormat(nil, http.TimeFormat)}
		c.last.Store(s)
	}
	return append(dst, s.text...)
}
