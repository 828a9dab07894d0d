package query

import (
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// AppendReading appends a reading of a device as in a JSON page of readings. The names of its
// flags are left out if flags is nil.
func AppendReading(dst []byte, device vitals.Name, r *storage.Record, flags *vitals.FlagLimits) []byte {
	dst = newEncoder(NDJSON, device, flags).appendRecord(dst, r, true)
	return dst[:len(dst)-1] // without the line's end
}
