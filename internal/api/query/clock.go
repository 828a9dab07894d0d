package query

import "github.com/pulsegate/pulsegate/vitals"

const msPerDay = 24 * 60 * 60 * 1000

// A clock appends times like [vitals.AppendTime]. It keeps the text of the last date, since
// consecutive records usually have the same.
type clock struct {
	dayUnixMs int64    // start of that date
	date      [20]byte // such as 2026-11-21T
	dateBytes int      // 0: none yet
}

// append appends a time, in Unix ms, to dst.
func (c *clock) append(dst []byte, unixMs int64) []byte {
	if uint64(unixMs-c.dayUnixMs) >= msPerDay || c.dateBytes == 0 {
		c.set(unixMs)
	}
	dst = append(dst, c.date[:c.dateBytes]...)
	ms := uint32(unixMs - c.dayUnixMs)
	seconds := ms / 1000
	ms -= seconds * 1000
	minutes := seconds / 60
	seconds -= minutes * 60
	hours := minutes / 60
	minutes -= hours * 60
	return append(dst,
		'0'+byte(hours/10), '0'+byte(hours%10), ':',
		'0'+byte(minutes/10), '0'+byte(minutes%10), ':',
		'0'+byte(seconds/10), '0'+byte(seconds%10), '.',
		'0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z')
}

// set sets the date to that of a time.
func (c *clock) set(unixMs int64) {
	ofDay := unixMs % msPerDay
	if ofDay < 0 {
		ofDay += msPerDay
	}
	c.dayUnixMs = unixMs - ofDay
	var text [40]byte
	whole := vitals.AppendTime(text[:0], unixMs)
	c.dateBytes = copy(c.date[:], whole[:len(whole)-len("10:00:00.123Z")])
}
