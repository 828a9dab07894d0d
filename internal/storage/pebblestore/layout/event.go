package layout

import (
	"encoding/binary"

	"github.com/pulsegate/pulsegate/vitals"
)

// An EventKind is what an event says.
type EventKind uint8

// The kinds of events. The numbers are stored.
const (
	EventStart      EventKind = 1 + iota // a mark: the first change after a start, or what is left of another event
	EventAssigned                        // of Device, with one span
	EventUnassigned                      // of Device, with one span
	EventErased                          // of Device, with the spans that it had
	EventExpired                         // of all devices, before ToUnixMs
	EventSign                            // a definition of one of Signs
	EventErasedPart                      // of Device: like EventErased, but values of Signs from other gateways are left

	numEventKinds
)

// An Event is a change that is none of a reading.
type Event struct {
	Kind     EventKind
	AtUnixMs int64
	Mark     uint64
	Group    uint64 // of an EventStart at a start: the number of the next group; otherwise 0

	// What follows is zero in an EventStart.
	FromUnixMs, ToUnixMs int64  // of the readings that it is about
	Signs                uint32 // presence
	Device               vitals.Name
	Spans                []Span
}

// A Span is a time in which a subject wore a device.
type Span struct {
	FromUnixMs, ToUnixMs int64
	Subject              string // of 1 to 255 bytes
}

// AppendEventKey appends the key of an event.
func AppendEventKey(dst []byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, EventPrefix), number)
}

// DecodeEventKey returns the number of an event's key.
func DecodeEventKey(key []byte) (uint64, error) {
	if len(key) != 9 || key[0] != EventPrefix {
		return 0, errKey
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}

// AppendEvent appends the value of an event.
func AppendEvent(dst []byte, e *Event) []byte {
	big := binary.BigEndian
	dst = big.AppendUint64(append(dst, eventVersion, byte(e.Kind)), uint64(e.AtUnixMs))
	dst = big.AppendUint64(dst, e.Mark)
	if e.Kind == EventStart {
		return big.AppendUint64(dst, e.Group)
	}
	dst = big.AppendUint64(big.AppendUint64(dst, uint64(e.FromUnixMs)), uint64(e.ToUnixMs))
	dst = big.AppendUint32(dst, e.Signs)
	dst = e.Device.AppendTo(append(dst, byte(e.Device.Len())))
	for _, s := range e.Spans {
		dst = big.AppendUint64(big.AppendUint64(dst, uint64(s.FromUnixMs)), uint64(s.ToUnixMs))
		dst = append(append(dst, byte(len(s.Subject))), s.Subject...)
	}
	return dst
}

// DecodeEvent returns the event of a value.
func DecodeEvent(value []byte) (e Event, err error) {
	const headBytes, moreBytes, spanBytes = 18, 8 + 8 + 4 + 1, 8 + 8 + 1
	switch {
	case len(value) < headBytes:
		return e, errLength
	case value[0] != eventVersion:
		return e, errVersion
	}
	big := binary.BigEndian
	ms := func(b []byte) int64 { return int64(big.Uint64(b)) }
	e.Kind, e.AtUnixMs, e.Mark = EventKind(value[1]), ms(value[2:]), big.Uint64(value[10:])
	rest := value[headBytes:]
	switch {
	case e.Kind == 0 || e.Kind >= numEventKinds:
		return e, errEvent
	case e.Kind == EventStart && len(rest) != 8, e.Kind != EventStart && len(rest) < moreBytes:
		return e, errLength
	case e.Kind == EventStart:
		e.Group = big.Uint64(rest)
		return e, nil
	}
	e.FromUnixMs, e.ToUnixMs, e.Signs = ms(rest), ms(rest[8:]), big.Uint32(rest[16:])
	n := int(rest[20])
	if rest = rest[moreBytes:]; len(rest) < n {
		return e, errLength
	}
	if n > 0 {
		if e.Device, err = vitals.ParseName(rest[:n]); err != nil {
			return e, errDevice
		}
	}
	for rest = rest[n:]; len(rest) > 0; rest = rest[spanBytes+n:] {
		if len(rest) < spanBytes {
			return e, errLength
		}
		if n = int(rest[16]); n == 0 || len(rest) < spanBytes+n {
			return e, errLength
		}
		e.Spans = append(e.Spans, Span{ms(rest), ms(rest[8:]), string(rest[spanBytes : spanBytes+n])})
	}
	return e, nil
}
