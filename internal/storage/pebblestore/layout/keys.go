package layout

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/pulsegate/pulsegate/vitals"
)

const (
	recordVersion = 1
	assignVersion = 1
	eventVersion  = 1

	maxUTCOffset = uint64(2*vitals.MaxUTCOffsetMinutes + 1)
)

// The first bytes of the kinds of keys.
const (
	StatePrefix   = 0x00
	RecordPrefix  = 0x01
	SegmentPrefix = 0x02
	GroupPrefix   = 0x03
	GatewayPrefix = 0x04
	AssignPrefix  = 0x05
	SubjectPrefix = 0x06
	EventPrefix   = 0x07
	LastPrefix    = EventPrefix
)

// Keys of states.
const (
	ClockKey    = "\x00clock"    // the latest time at which something was changed, if no group has a later one
	GroupsKey   = "\x00groups"   // the number of the next group, if no later one is stored
	GatewaysKey = "\x00gateways" // the number of the next gateway
	ReadingsKey = "\x00readings" // the number of readings in segments
	SweepKey    = "\x00sweep"    // exists, with an empty value, while the dictionary must be swept
	ForgetKey   = "\x00forget"   // exists, with an empty value, if events were removed whose bytes tables may still have
	CursorsKey  = "\x00cursors"  // the key with which cursors of changes are encrypted
	SignsKey    = "\x00signs"    // the definitions of signs of a user's own: see storage.EncodeSigns

	// UncountedKey exists, with an empty value, if damaged readings were removed that could not be
	// counted: then the number of readings is too large.
	UncountedKey = "\x00uncounted"
)

// MaxSegmentKeyBytes is the length of the longest key of a segment.
const MaxSegmentKeyBytes = 1 + vitals.MaxNameBytes + 1 + 8 + binary.MaxVarintLen64

// Errors of the decoders.
var (
	errVersion = errors.New("unknown version")
	errLength  = errors.New("wrong length")
	errSigns   = errors.New("invalid presence bits")
	errGateway = errors.New("gateway is not a name")
	errDevice  = errors.New("device is not a name")
	errTime    = errors.New("invalid time")
	errVarint  = errors.New("not a shortest varint")
	errValue   = errors.New("invalid value of a sign")
	errOffset  = errors.New("invalid offset from UTC")
	errKey     = errors.New("invalid key")
	errEvent   = errors.New("invalid event")

	// ErrSizes is the error of a record with other sizes than its segments have.
	ErrSizes = errors.New("invalid sizes of segments")
)

// AppendRecordKey appends the key of a device's record.
func AppendRecordKey(dst []byte, device *vitals.Name) []byte {
	return device.AppendTo(append(dst, RecordPrefix))
}

// DecodeRecordKey returns the device of a record's key.
func DecodeRecordKey(key []byte) (vitals.Name, error) {
	if len(key) == 0 || key[0] != RecordPrefix {
		return vitals.Name{}, errDevice
	}
	device, err := vitals.ParseName(key[1:])
	if err != nil {
		return vitals.Name{}, errDevice
	}
	return device, nil
}

// AppendSegmentPrefix appends what the keys of a device's segments begin with.
func AppendSegmentPrefix(dst []byte, device *vitals.Name) []byte {
	return append(device.AppendTo(append(dst, SegmentPrefix)), 0)
}

// AppendSegmentBound appends what the key of a segment begins with whose last reading is at lastUnixMs. It comes before
// that key, and after all of earlier segments. lastUnixMs may be one more than the last millisecond.
func AppendSegmentBound(dst []byte, device *vitals.Name, lastUnixMs uint64) []byte {
	return binary.BigEndian.AppendUint64(AppendSegmentPrefix(dst, device), lastUnixMs)
}

// AppendSegmentKey appends the key of the segment whose last reading is at lastUnixMs, and which was last changed at
// changedUnixMs.
func AppendSegmentKey(dst []byte, device *vitals.Name, lastUnixMs, changedUnixMs int64) []byte {
	return binary.AppendVarint(AppendSegmentBound(dst, device, uint64(lastUnixMs)), changedUnixMs-lastUnixMs)
}

// AppendSegmentsEnd appends the first key after those of a device's segments.
func AppendSegmentsEnd(dst []byte, device *vitals.Name) []byte {
	return append(device.AppendTo(append(dst, SegmentPrefix)), 1)
}

// DecodeSegmentKey returns the device of a segment's key, and its times.
func DecodeSegmentKey(key []byte) (device vitals.Name, lastUnixMs, changedUnixMs int64, err error) {
	end := bytes.IndexByte(key, 0)
	if end < 2 || key[0] != SegmentPrefix || len(key) < end+1+8 {
		return device, 0, 0, errLength
	}
	if device, err = vitals.ParseName(key[1:end]); err != nil {
		return device, 0, 0, errDevice
	}
	if lastUnixMs = int64(binary.BigEndian.Uint64(key[end+1:])); lastUnixMs < 0 {
		return device, 0, 0, errTime
	}
	d := decoder{b: key[end+1+8:]}
	changedUnixMs = lastUnixMs + d.varint()
	if d.err == nil && len(d.b) > 0 {
		d.err = errLength
	}
	return device, lastUnixMs, changedUnixMs, d.err
}

// SegmentKeyTime returns the time of the last reading in the key of a segment that is known to be valid.
func SegmentKeyTime(key []byte) int64 {
	return int64(binary.BigEndian.Uint64(key[bytes.IndexByte(key, 0)+1:]))
}

// SegmentKeyChanged returns when the segment was last changed of a key that is known to be valid.
func SegmentKeyChanged(key []byte) int64 {
	times := key[bytes.IndexByte(key, 0)+1:]
	after, _ := binary.Varint(times[8:])
	return int64(binary.BigEndian.Uint64(times)) + after
}

// AppendGroupKey appends the key of a group.
func AppendGroupKey(dst []byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, GroupPrefix), number)
}

// DecodeGroupKey returns the number of a group's key.
func DecodeGroupKey(key []byte) (uint64, error) {
	if len(key) != 9 || key[0] != GroupPrefix {
		return 0, errKey
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}

// AppendGatewayKey appends the key of a gateway's name.
func AppendGatewayKey(dst []byte, number uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, GatewayPrefix), number)
}

// DecodeGatewayKey returns the number of the key of a gateway's name.
func DecodeGatewayKey(key []byte) (uint32, error) {
	if len(key) != 5 || key[0] != GatewayPrefix {
		return 0, errKey
	}
	return binary.BigEndian.Uint32(key[1:]), nil
}

// DecodeGateway returns the name of a gateway.
func DecodeGateway(value []byte) (vitals.Name, error) {
	name, err := vitals.ParseName(value)
	if err != nil {
		return vitals.Name{}, errGateway
	}
	return name, nil
}

// DecodeNumber returns the number in the value of a state, which must have some bytes.
func DecodeNumber(value []byte, bytes int) (n uint64, err error) {
	if len(value) != bytes {
		return 0, errLength
	}
	for _, b := range value {
		n = n<<8 | uint64(b)
	}
	return n, nil
}

// AppendAssignPrefix appends what the keys of a device's assignments begin with.
func AppendAssignPrefix(dst []byte, device *vitals.Name) []byte {
	return append(device.AppendTo(append(dst, AssignPrefix)), 0)
}

// AppendAssignKey appends the key of an assignment with a beginning, or of a span of nobody with a last millisecond.
func AppendAssignKey(dst []byte, device *vitals.Name, unixMs int64) []byte {
	return binary.BigEndian.AppendUint64(AppendAssignPrefix(dst, device), uint64(unixMs))
}

// DecodeAssignKey returns the device and the time of an assignment from its key.
func DecodeAssignKey(key []byte) (device vitals.Name, unixMs int64, err error) {
	return decodeAssigned(key[1:])
}

// decodeAssigned returns the device and the time at the end of a key.
func decodeAssigned(key []byte) (device vitals.Name, unixMs int64, err error) {
	end := len(key) - 9
	if end < 1 || key[end] != 0 {
		return device, 0, errLength
	}
	if device, err = vitals.ParseName(key[:end]); err != nil {
		return device, 0, errDevice
	}
	if unixMs = int64(binary.BigEndian.Uint64(key[end+1:])); unixMs < 0 {
		return device, 0, errTime
	}
	return device, unixMs, nil
}

// AppendAssignment appends the value of an assignment.
func AppendAssignment(dst []byte, a Assignment) []byte {
	dst = append(dst, assignVersion, a.By)
	for _, ms := range []int64{a.NamedUnixMs, a.OtherUnixMs, a.ChangedUnixMs} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(ms))
	}
	return append(dst, a.Subject...)
}

// An Assignment is the value of an assignment.
type Assignment struct {
	By            byte
	NamedUnixMs   int64
	OtherUnixMs   int64 // the end; of a span of nobody, whose key has the end, the beginning
	ChangedUnixMs int64
	Subject       string
}

// DecodeAssignment returns the value of an assignment, which may be invalid.
func DecodeAssignment(value []byte) (a Assignment, err error) {
	if len(value) < 26 {
		return a, errLength
	}
	if value[0] != assignVersion {
		return a, errVersion
	}
	number := func(i int) int64 { return int64(binary.BigEndian.Uint64(value[i:])) }
	return Assignment{By: value[1], NamedUnixMs: number(2), OtherUnixMs: number(10), ChangedUnixMs: number(18),
		Subject: string(value[26:])}, nil
}

// AppendSubjectPrefix appends what the keys of a subject in the index begin with.
func AppendSubjectPrefix(dst []byte, subject string) []byte {
	return append(append(append(dst, SubjectPrefix), subject...), 0)
}

// AppendSubjectKey appends the key of an assignment in the index. Its value is empty.
func AppendSubjectKey(dst []byte, subject string, device *vitals.Name, fromUnixMs int64) []byte {
	dst = append(device.AppendTo(AppendSubjectPrefix(dst, subject)), 0)
	return binary.BigEndian.AppendUint64(dst, uint64(fromUnixMs))
}

// DecodeSubjectKey returns the subject, which may be invalid, and the device and the beginning of the
// assignment in a key of the index.
func DecodeSubjectKey(key []byte) (subject string, device vitals.Name, fromUnixMs int64, err error) {
	text, rest, ok := bytes.Cut(key[1:], []byte{0})
	if !ok {
		return "", device, 0, errLength
	}
	device, fromUnixMs, err = decodeAssigned(rest)
	return string(text), device, fromUnixMs, err
}
