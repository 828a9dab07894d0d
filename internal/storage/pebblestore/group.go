package pebblestore

import (
	"encoding/binary"
	"errors"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/vitals"
)

// # Groups
//
// A group has the readings that one Append has added or completed, in the order in which it
// has settled them. It is written once and read at most once, by a start; so it is made for
// cheap writing. Names are written in full: an erasure searches files for them.

const groupVersion = 1

// The bits of a row's first byte after those of the signs.
const (
	rowShared  = 1 << 5 // other gateways have added signs
	rowGateway = 1 << 6 // a gateway follows: it is another one than that of the row before
	rowOffset  = 1 << 7 // an offset from UTC follows: it is another one than that of the row before
)

// A groupEncoder appends the rows of a group to a value.
type groupEncoder struct {
	value  []byte
	device vitals.Name
	before columns.Row
}

// begin begins the value of a group.
func (g *groupEncoder) begin() {
	g.value = append(g.value[:0], groupVersion)
	g.device, g.before = vitals.Name{}, columns.Row{}
}

// add adds a row.
func (g *groupEncoder) add(device *vitals.Name, r *columns.Row) {
	b := g.value
	if g.device != *device {
		g.device = *device
		b = append(device.AppendTo(b), 0)
	} else {
		b = append(b, 0) // the same device
	}
	flags := r.Values.Present()
	if r.Shared {
		flags |= rowShared
	}
	if r.Gateway != g.before.Gateway {
		flags |= rowGateway
	}
	if r.UTCOffset != g.before.UTCOffset {
		flags |= rowOffset
	}
	b = append(b, flags)
	for s := range vitals.Sign(vitals.NumSigns) {
		if v, ok := r.Values.Get(s); ok {
			b = append(b, byte(v>>8), byte(v))
		}
	}
	b = binary.AppendVarint(b, r.TimeUnixMs-g.before.TimeUnixMs)
	b = binary.AppendVarint(b, r.ReceivedUnixMs-g.before.ReceivedUnixMs)
	if flags&rowGateway != 0 {
		b = binary.AppendUvarint(b, uint64(r.Gateway))
	}
	if flags&rowOffset != 0 {
		b = binary.AppendUvarint(b, uint64(r.UTCOffset))
	}
	g.value, g.before = b, *r
}

// Errors of decodeGroup.
var (
	errGroup = errors.New("invalid row")
	errFirst = errors.New("the first row has no device")
)

// decodeGroup decodes the value of a group, and calls row for each row. It stops at the first
// error.
func decodeGroup(b []byte, row func(device *vitals.Name, r *columns.Row) error) error {
	if len(b) == 0 {
		return errLength
	}
	if b[0] != groupVersion {
		return errVersion
	}
	b = b[1:]
	if len(b) == 0 {
		return errLength
	}
	var (
		device vitals.Name
		r      columns.Row
	)
	for len(b) > 0 {
		end := 0
		for end < len(b) && end <= vitals.MaxNameBytes && b[end] != 0 {
			end++
		}
		if end >= len(b) || b[end] != 0 {
			return errDevice
		}
		if end > 0 {
			name, err := vitals.ParseName(b[:end])
			if err != nil || name == device {
				return errDevice
			}
			device = name
		} else if device.IsZero() {
			return errFirst
		}
		var err error
		if b, err = decodeGroupRow(b[end+1:], &r); err != nil {
			return err
		}
		if err := row(&device, &r); err != nil {
			return err
		}
	}
	return nil
}

// decodeGroupRow decodes a row, given the one before in r, and returns the rest of b.
func decodeGroupRow(b []byte, r *columns.Row) ([]byte, error) {
	if len(b) == 0 {
		return nil, errLength
	}
	flags := b[0]
	b = b[1:]
	if flags&allSigns == 0 {
		return nil, errSigns
	}
	r.Values = vitals.Values{}
	for s := range vitals.Sign(vitals.NumSigns) {
		if flags&(1<<s) == 0 {
			continue
		}
		if len(b) < 2 {
			return nil, errLength
		}
		r.Values.Set(s, vitals.Hundredths(binary.BigEndian.Uint16(b)))
		b = b[2:]
	}
	r.Shared = flags&rowShared != 0
	ok := true
	signed := func() int64 {
		v, n := binary.Varint(b)
		ok = ok && n > 0 && (n == 1 || b[n-1] != 0)
		b = b[max(n, 0):]
		return v
	}
	unsigned := func(below uint64) uint64 {
		v, n := binary.Uvarint(b)
		ok = ok && n > 0 && (n == 1 || b[n-1] != 0) && v < below
		b = b[max(n, 0):]
		return v
	}
	r.TimeUnixMs += signed()
	r.ReceivedUnixMs += signed()
	if flags&rowGateway != 0 {
		number := uint32(unsigned(1 << 32))
		ok = ok && number != r.Gateway
		r.Gateway = number
	}
	if flags&rowOffset != 0 {
		offset := vitals.UTCOffset(unsigned(2 * 24 * 60))
		ok = ok && offset != r.UTCOffset
		r.UTCOffset = offset
	}
	if !ok {
		return nil, errGroup
	}
	if r.TimeUnixMs < 0 {
		return nil, errTime
	}
	return b, nil
}
