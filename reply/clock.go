package reply

import (
	"sync/atomic"
	"time"
)

// A Clock gives the time in HTTP form. The text is made once a second and
// immutable, so that any number of goroutines may use the Clock, and any number
// of headers may hold its values.
type Clock struct {
	now  func() time.Time
	last atomic.Pointer[second]
}

// second is one second's text. It is not written after it was published.
type second struct {
	unix  int64
	text  [httpDateLen]byte
	value [1]string
}

// NewClock returns a Clock that reads now, such as time.Now.
func NewClock(now func() time.Time) *Clock {
	return &Clock{now: now}
}

// AppendDate appends the time as [AppendHTTPDate] does.
func (c *Clock) AppendDate(dst []byte) []byte {
	s := c.current()
	return append(dst, s.text[:]...)
}

// Date returns the time as a header value. The slice must not be modified. In a
// second's first call it allocates.
func (c *Clock) Date() []string {
	s := c.current()
	return s.value[:]
}

// current returns the text of now. Calls that meet at the turn of a second each
// make the same text; a clock that is set back is followed.
func (c *Clock) current() *second {
	now := c.now()
	unix := now.Unix()
	if s := c.last.Load(); s != nil && s.unix == unix {
		return s
	}
	s := &second{unix: unix}
	AppendHTTPDate(s.text[:0], now)
	s.value[0] = string(s.text[:])
	c.last.Store(s)
	return s
}

// httpDateLen is the length of an IMF-fixdate in bytes.
const httpDateLen = len("Sun, 06 Nov 1994 08:49:37 GMT")

// AppendHTTPDate appends t as an IMF-fixdate (RFC 9110, section 5.6.7), which is
// always in GMT and always 29 bytes long. Years outside 0 to 9999 have no such
// form; their nearest end is appended.
func AppendHTTPDate(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, sec := t.Clock()
	switch {
	case year < 0:
		return append(dst, "Sat, 01 Jan 0000 00:00:00 GMT"...)
	case year > 9999:
		return append(dst, "Fri, 31 Dec 9999 23:59:59 GMT"...)
	}
	dst = append(dst, "SunMonTueWedThuFriSat"[3*t.Weekday():][:3]...)
	dst = append(dst, ',', ' ', '0'+byte(day/10), '0'+byte(day%10), ' ')
	dst = append(dst, "JanFebMarAprMayJunJulAugSepOctNovDec"[3*(month-1):][:3]...)
	return append(dst, ' ',
		'0'+byte(year/1000), '0'+byte(year/100%10), '0'+byte(year/10%10), '0'+byte(year%10), ' ',
		'0'+byte(hour/10), '0'+byte(hour%10), ':',
		'0'+byte(minute/10), '0'+byte(minute%10), ':',
		'0'+byte(sec/10), '0'+byte(sec%10), ' ', 'G', 'M', 'T')
}
