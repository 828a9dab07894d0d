package recording

import (
	"errors"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// fieldOffset is the field in which exports have the offset from UTC of a reading's time.
// The server does not accept it: a reading is sent with its offset in the time.
const fieldOffset = "utc_offset_minutes"

var (
	errOffset     = errors.New("not a whole number of minutes from -1439 to 1439")
	errTwoOffsets = errors.New("not the offset from UTC of the time")
	errLocalTime  = errors.New("without an offset, in a file with " + fieldOffset +
		", so that it is in UTC: the zone is Z")
)

// ParseOffset returns the offset that text has in minutes, in the JSON spelling. ofTime is
// that of the reading's time, which it must not contradict; 0 does not, because programs write all times in UTC. Some
// of them write 120 as 120.0.
func ParseOffset[T ~string | ~[]byte](text T, ofTime vitals.UTCOffset) (vitals.UTCOffset, error) {
	minutes, err := vitals.ParseUnixMs(strings.TrimSuffix(string(text), ".0")) // has the grammar of an integer
	if err != nil || minutes < vitals.MinUTCOffsetMinutes || minutes > vitals.MaxUTCOffsetMinutes {
		return 0, errOffset
	}
	offset := vitals.MakeUTCOffset(int(minutes))
	if ofTime != 0 && ofTime != vitals.MakeUTCOffset(0) && offset != ofTime {
		return 0, errTwoOffsets
	}
	return offset, nil
}
