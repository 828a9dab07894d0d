package query

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// errCursor means that a cursor does not come from this server or belongs to another
// list.
var errCursor = errors.New("not a cursor of this list")

// A cursor is a kind byte, 4 bytes of what the list was made with, and a key in base64url. It is a position and gives
// no access: a forged cursor shows no more than other values of from and to. With another device, filter or division
// into buckets, a position would leave out what the client has not seen.
//
//	kind  key
//	0x01  8 bytes: time of the last reading shown, Unix ms, big-endian; ascending
//	0x02  the same, descending
//	0x03  1 to 64 bytes: name of the last device shown
//	0x04  8 bytes: end of the last bucket shown, Unix ms, big-endian
//	0x05  8 bytes: time of the newest reading of the last device shown, Unix ms; its name
//	0x06  8 bytes: rank of the last device shown when the worst come first; its name
//	0x07  4 bytes of the subject and the encoding of a storage.ChangeCursor, both encrypted with the store's key, to
//	      which the bytes before them are bound
//	0x08  8 bytes: time of the last reading of a subject shown, Unix ms; the name of its device; ascending
//	0x09  the same, descending
//	0x0a  8 bytes: end of the last bucket of a subject shown, Unix ms
const (
	cursorAscending  = 0x01
	cursorDescending = 0x02
	cursorDevice     = 0x03
	cursorBucket     = 0x04
	cursorAge        = 0x05
	cursorWorst      = 0x06
	cursorChanges    = 0x07

	cursorWornAscending  = 0x08
	cursorWornDescending = 0x09
	cursorWornBucket     = 0x0a
)

// cursorDevices has the kind of each order. It is never modified.
var cursorDevices = [...]byte{byName: cursorDevice, byAge: cursorAge, byWorst: cursorWorst}

// maxCursorBytes is the maximum length of a cursor as text.
var maxCursorBytes = base64.RawURLEncoding.EncodedLen(headBytes + 196 + vitals.MaxNameBytes)

// maxCursorUnixMs is the greatest time in a cursor: the end of the last bucket that there may be. The audit log has
// times of cursors.
const maxCursorUnixMs = vitals.MaxTimeUnixMs + 2*maxStepDays*msPerDay

// headBytes is the length of a cursor before its key.
const headBytes = 1 + 4

// A list is what the cursors of a list begin with.
type list [headBytes]byte

// newList returns the list of a kind that is made with some parameters. It is the same on each server.
func newList(kind byte, with ...string) (l list) {
	l[0] = kind
	binary.BigEndian.PutUint32(l[1:], crc32.ChecksumIEEE([]byte(strings.Join(with, "\x00"))))
	return l
}

// msCursor returns the cursor that continues after a time.
func (l list) msCursor(unixMs int64) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(l[:], uint64(unixMs)))
}

// parseMs parses a cursor, and returns its time in Unix ms.
func (l list) parseMs(text string) (int64, error) {
	key, err := l.decode(text)
	if err != nil || len(key) != 8 {
		return 0, errCursor
	}
	unixMs := binary.BigEndian.Uint64(key)
	if unixMs > maxCursorUnixMs {
		return 0, errCursor
	}
	return int64(unixMs), nil
}

// deviceCursor returns the cursor that continues after a device.
func (l list) deviceCursor(last *deviceKey) string {
	b := l[:]
	if l[0] != cursorDevice {
		b = binary.BigEndian.AppendUint64(b, uint64(last.rank))
	}
	return base64.RawURLEncoding.EncodeToString(last.name.AppendTo(b))
}

// parseDevice parses a cursor and returns the place of the last device shown.
func (l list) parseDevice(text string) (last deviceKey, err error) {
	name, err := l.decode(text)
	if err != nil {
		return last, errCursor
	}
	if l[0] != cursorDevice {
		if len(name) < 8 {
			return last, errCursor
		}
		last.rank, name = int64(binary.BigEndian.Uint64(name)), name[8:]
	}
	isTime := l[0] == cursorWornAscending || l[0] == cursorWornDescending
	if last.name, err = vitals.ParseName(name); err != nil || last.rank < 0 || isTime && last.rank > maxCursorUnixMs {
		return last, errCursor
	}
	return last, nil
}

// decode returns the key of a cursor of l.
func (l list) decode(text string) (key []byte, err error) {
	// Accept only one spelling: Strict rejects nonzero padding bits, but ignores line
	// breaks.
	if len(text) > maxCursorBytes || strings.ContainsAny(text, "\r\n") {
		return nil, errCursor
	}
	key, err = base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(key) < len(l) || list(key[:len(l)]) != l {
		return nil, errCursor
	}
	return key[len(l):], nil
}
