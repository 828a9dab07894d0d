package query

import "github.com/pulsegate/pulsegate/vitals"

const (
	msPerMinute = 60 * 1000
	msPerDay    = 24 * 60 * msPerMinute
)

// A clock appends a text and then a time like [vitals.AppendTime]. It keeps what consecutive
// records usually have in common: the text, and the time up to its minute or its date.
type clock struct {
	text         []byte // the text before a time, and the time up to its seconds
	before       int    // length of the text before a time
	dayUnixMs    int64  // start of the day in text
	minuteUnixMs int64  // start of the minute in text
}

// isSet reports whether text has a time.
func (c *clock) isSet() bool { return len(c.text) > c.before }

// setText sets the text before a time. The clock keeps it.
func (c *clock) setText(text []byte) { c.text, c.before = text, len(text) }

// append appends the text and a time, in Unix ms, to dst.
func (c *clock) append(dst []byte, unixMs int64) []byte {
	if uint64(unixMs-c.minuteUnixMs) >= msPerMinute || !c.isSet() {
		c.set(unixMs)
	}
	ms := uint32(unixMs - c.minuteUnixMs)
	seconds := ms / 1000
	ms -= seconds * 1000
	tens, tenths := seconds/10, ms/10
	return append(append(dst, c.text...),
		'0'+byte(tens), '0'+byte(seconds-tens*10), '.',
		'0'+byte(tenths/10), '0'+byte(tenths%10), '0'+byte(ms-tenths*10), 'Z')
}

// set sets the minute, and the day if it has changed.
func (c *clock) set(unixMs int64) {
	if ofDay := uint64(unixMs - c.dayUnixMs); ofDay < msPerDay && c.isSet() {
		minutes := int64(ofDay / msPerMinute)
		c.minuteUnixMs = c.dayUnixMs + minutes*msPerMinute
		hours := minutes / 60
		minutes -= hours * 60
		at := c.text[len(c.text)-len("10:00:"):]
		at[0], at[1] = '0'+byte(hours/10), '0'+byte(hours%10)
		at[3], at[4] = '0'+byte(minutes/10), '0'+byte(minutes%10)
		return
	}
	ofDay := unixMs % msPerDay
	if ofDay < 0 {
		ofDay += msPerDay
	}
	c.dayUnixMs = unixMs - ofDay
	c.minuteUnixMs = unixMs - ofDay%msPerMinute
	c.text = vitals.AppendTime(c.text[:c.before], unixMs)
	c.text = c.text[:len(c.text)-len("00.123Z")]
}
