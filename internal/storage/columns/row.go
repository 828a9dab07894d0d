package columns

import (
	"errors"
	"hash/crc32"

	"github.com/pulsegate/pulsegate/vitals"
)

// MaxRows is the maximum number of rows of a segment.
const MaxRows = 1024

// MaxGroupRows is the maximum number of rows of a group.
const MaxGroupRows = 1 << 20

// A Row is a stored reading without its device.
type Row struct {
	TimeUnixMs     int64            // of the measurement; not negative
	ReceivedUnixMs int64            // when the server received it
	CompletedMs    int64            // from then until the last of its signs was added; 0 if that was at the same time
	Gateway        uint32           // number in the store's dictionary; 0 means none
	UTCOffset      vitals.UTCOffset // as the sender gave it
	Shared         bool             // gateways other than Gateway have added signs
	Values         vitals.Values    // at least one sign; last, because the end of it is often not used
}

// ChangedUnixMs returns when the row was last changed: when the server received it, or the last of its signs.
func (r *Row) ChangedUnixMs() int64 { return r.ReceivedUnixMs + r.CompletedMs }

// ChangedUnixMs returns when one of rows, which are not empty, was last changed.
func ChangedUnixMs(rows []Row) int64 {
	latest := rows[0].ChangedUnixMs()
	for i := range rows[1:] {
		latest = max(latest, rows[i+1].ChangedUnixMs())
	}
	return latest
}

// Equal reports whether r and other are equal.
func (r *Row) Equal(other *Row) bool {
	return r.TimeUnixMs == other.TimeUnixMs && r.ReceivedUnixMs == other.ReceivedUnixMs &&
		r.CompletedMs == other.CompletedMs &&
		r.Gateway == other.Gateway && r.UTCOffset == other.UTCOffset && r.Shared == other.Shared &&
		r.Values.Equal(&other.Values)
}

// Reset makes r the zero Row.
func (r *Row) Reset() {
	r.TimeUnixMs, r.ReceivedUnixMs, r.CompletedMs, r.Gateway, r.UTCOffset, r.Shared = 0, 0, 0, 0, 0, false
	r.Values.Reset()
}

// CopyFrom makes r equal to from.
func (r *Row) CopyFrom(from *Row) {
	r.TimeUnixMs, r.ReceivedUnixMs, r.CompletedMs = from.TimeUnixMs, from.ReceivedUnixMs, from.CompletedMs
	r.Gateway, r.UTCOffset, r.Shared = from.Gateway, from.UTCOffset, from.Shared
	r.Values.CopyFrom(&from.Values)
}

// Errors of the decoders. Their texts contain no values, because they reach logs.
var (
	errShort      = errors.New("too short")
	errLong       = errors.New("bytes after the end")
	errVersion    = errors.New("unknown kind or version")
	errChecksum   = errors.New("wrong checksum")
	errVarint     = errors.New("not a shortest varint")
	errCount      = errors.New("invalid number of rows or devices")
	errBlock      = errors.New("invalid block")
	errSymbols    = errors.New("invalid symbols")
	errTime       = errors.New("times are not in order")
	errCompletion = errors.New("invalid completion")
	errValue      = errors.New("invalid value of a sign")
	errName       = errors.New("device is not a name, or not in order")
)

// checksumBytes is the length of the CRC-32C at the end.
const checksumBytes = 4

// castagnoli is the table of CRC-32C. It is never modified.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)
