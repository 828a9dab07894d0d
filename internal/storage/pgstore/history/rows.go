package history

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/bits"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Readings are encoded as rows, each of which has what differs from the row before. That takes few bytes and, above
// all, little time: all readings are encoded, and hardly any is ever decoded.
//
//	row       bits | device | gateway | offset | presence | time | receipt | values
//	device    bytes that it shares with the one before | length of the others | the others
//	gateway   number in the entry; 0 means none. The next number that was not used yet is followed by the length and
//	          the bytes of its name
//	offset    vitals.UTCOffset
//	presence  bit set of the signs
//
// bits says which of the first four differ, and whether the reading was relayed: see storage.Entry. time, receipt and
// values, in the order of signs, are differences. Numbers are varints.
const (
	otherDevice = 1 << iota
	otherGateway
	otherOffset
	otherPresence
	relayed
	allBits = 1<<iota - 1
)

// maxUTCOffset is the largest valid vitals.UTCOffset as an integer.
const maxUTCOffset = 2*vitals.MaxUTCOffsetMinutes + 1

// An encoder has buffers for encoding.
type encoder struct {
	buf      []byte
	gateways []vitals.Name // of the entry
	text     [vitals.MaxNameBytes]byte

	// numbers has by a hash of a name the number of the last gateway with that hash. So a name may be encoded more than
	// once, and the cost of a reading does not depend on the number of gateways.
	numbers [1024]uint32
}

// encode returns the rows of readings, which the next call overwrites.
func (w *encoder) encode(readings []*storage.Entry) []byte {
	if len(w.gateways) > 0 {
		clear(w.numbers[:])
	}
	w.gateways = w.gateways[:0]
	var none vitals.Name
	device, gateway := &none, &none
	var timeMs, receivedMs int64
	var offset vitals.UTCOffset
	var present uint32
	var values [vitals.MaxSigns]vitals.Value // of a sign that is absent, that of an earlier row
	var names [2][vitals.MaxNameBytes]byte
	text, flip := names[0][:0], 0
	b := w.buf[:0]
	for _, e := range readings {
		r := e.Reading
		head := len(b)
		b = append(b, 0)
		if e.Relayed {
			b[head] |= relayed
		}
		if r.Device != *device {
			b[head] |= otherDevice
			before := text
			flip ^= 1
			text = r.Device.AppendTo(names[flip][:0])
			same := 0
			for same < len(before) && same < len(text) && before[same] == text[same] {
				same++
			}
			b = append(append(b, byte(same), byte(len(text)-same)), text[same:]...)
			device = &r.Device
		}
		if r.Gateway != *gateway {
			b[head] |= otherGateway
			b = w.appendGateway(b, &r.Gateway)
			gateway = &r.Gateway
		}
		if r.UTCOffset != offset {
			b[head] |= otherOffset
			offset = r.UTCOffset
			b = binary.AppendUvarint(b, uint64(offset))
		}
		if p := r.Values.Present(); p != present {
			b[head] |= otherPresence
			present = p
			b = binary.AppendUvarint(b, uint64(present))
		}
		b = binary.AppendVarint(b, r.TimeUnixMs-timeMs)
		b = binary.AppendVarint(b, e.ReceivedUnixMs-receivedMs)
		timeMs, receivedMs = r.TimeUnixMs, e.ReceivedUnixMs
		for rest := present; rest != 0; rest &= rest - 1 {
			s := bits.TrailingZeros32(rest) % vitals.MaxSigns
			v, _ := r.Values.Get(vitals.Sign(s))
			b = binary.AppendVarint(b, int64(v)-int64(values[s]))
			values[s] = v
		}
	}
	w.buf = b
	return b
}

// appendGateway appends the number of a gateway, and its name if it is new.
func (w *encoder) appendGateway(b []byte, name *vitals.Name) []byte {
	if name.IsZero() {
		return append(b, 0)
	}
	text := name.AppendTo(w.text[:0])
	number := &w.numbers[crc32.Checksum(text, castagnoli)%uint32(len(w.numbers))]
	if *number > 0 && w.gateways[*number-1] == *name {
		return binary.AppendUvarint(b, uint64(*number))
	}
	w.gateways = append(w.gateways, *name)
	*number = uint32(len(w.gateways))
	b = binary.AppendUvarint(b, uint64(*number))
	return append(append(b, byte(len(text))), text...)
}

var errRows = errors.New("invalid rows")

// decodeRows returns the readings of rows.
func decodeRows(rows []byte) (all []Reading, err error) {
	p := &decoder{b: rows}
	var r Reading
	var present uint32
	var values [vitals.MaxSigns]vitals.Value
	var text [vitals.MaxNameBytes]byte
	var gateways []vitals.Name
	for n := 0; len(p.b) > 0; {
		head := p.byte()
		if head > allBits || len(all) == 0 && head&otherDevice == 0 {
			return nil, errRows
		}
		if head&otherDevice != 0 {
			same, added := int(p.byte()), int(p.byte())
			if same > n || same+added > len(text) || added > len(p.b) {
				return nil, errRows
			}
			n = same + copy(text[same:], p.b[:added])
			p.b = p.b[added:]
			if r.Device, err = vitals.ParseName(text[:n]); err != nil {
				return nil, errRows
			}
		}
		if head&otherGateway != 0 {
			number := p.uint()
			if number == uint64(len(gateways))+1 {
				gateways = append(gateways, p.name())
			}
			if number > uint64(len(gateways)) {
				return nil, errRows
			}
			if r.Gateway = (vitals.Name{}); number > 0 {
				r.Gateway = gateways[number-1]
			}
		}
		if head&otherOffset != 0 {
			offset := p.uint()
			if offset > maxUTCOffset {
				return nil, errRows
			}
			r.UTCOffset = vitals.UTCOffset(offset)
		}
		if head&otherPresence != 0 {
			signs := p.uint()
			if signs > 1<<vitals.MaxSigns-1 {
				return nil, errRows
			}
			present = uint32(signs)
		}
		r.Relayed = head&relayed != 0
		r.TimeUnixMs += p.int()
		r.ReceivedUnixMs += p.int()
		r.Values.Reset()
		for rest := present; rest != 0; rest &= rest - 1 {
			s := bits.TrailingZeros32(rest)
			values[s] = vitals.Value(int64(values[s]) + p.int())
			r.Values.Set(vitals.Sign(s), values[s])
		}
		if p.bad || present == 0 || r.TimeUnixMs < 0 {
			return nil, errRows
		}
		all = append(all, r)
	}
	return all, nil
}
