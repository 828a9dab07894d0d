package vitals

// A UTCOffset is the offset from UTC with which a sender gave a time, such as "+02:00".
// The zero UTCOffset means that none is known: the time ended in Z or in -00:00, with
// which RFC 3339 marks an unknown offset, or it was an integer.
type UTCOffset int16

// Limits of a UTCOffset, in minutes: RFC 3339 permits -23:59 to +23:59.
const (
	MinUTCOffsetMinutes = -(24*60 - 1)
	MaxUTCOffsetMinutes = 24*60 - 1
)

// utcOffsetBias is added to the minutes, so that an offset of 0 differs from none.
const utcOffsetBias = 24 * 60

// MakeUTCOffset returns the offset of minutes, east of UTC positive. It panics if minutes is
// outside MinUTCOffsetMinutes to MaxUTCOffsetMinutes.
func MakeUTCOffset(minutes int) UTCOffset {
	if minutes < MinUTCOffsetMinutes || minutes > MaxUTCOffsetMinutes {
		panic("vitals: UTC offset out of range")
	}
	return UTCOffset(minutes + utcOffsetBias)
}

// Minutes returns the offset in minutes, east of UTC positive, and whether it is known.
func (o UTCOffset) Minutes() (minutes int, ok bool) {
	if o == 0 {
		return 0, false
	}
	return int(o) - utcOffsetBias, true
}
