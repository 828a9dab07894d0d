package query

import (
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// AppendReading appends a reading as in a JSON page of readings. The names of its flags
// are left out if flags is nil.
func AppendReading(dst []byte, r *storage.Record, flags *vitals.FlagLimits) []byte {
	return (&encoder{flags: flags}).appendObject(dst, r)
}
