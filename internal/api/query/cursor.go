package query

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// errCursor means that a cursor does not come from this server or belongs to another
// list.
var errCursor = errors.New("not a cursor of this list")

// A cursor is a kind byte and a key in base64url. It is a position and gives no access:
// a forged cursor shows no more than other values of from and to.
//
//	kind  key
//	0x01  8 bytes: time of the last reading shown, Unix ms, big-endian; ascending
//	0x02  the same, descending
//	0x03  1 to 64 bytes: name of the last device shown
//	0x04  8 bytes: end of the last bucket shown, Unix ms, big-endian
//	0x05  8 bytes: time of the newest reading of the last device shown, Unix ms; its name
//	0x06  8 bytes: rank of the last device shown when the worst come first; its name
const (
	cursorAscending  = 0x01
	cursorDescending = 0x02
	cursorDevice     = 0x03
	cursorBucket     = 0x04
	cursorAge        = 0x05
	cursorWorst      = 0x06
)

// cursorDevices has the kind of each order. It is never modified.
var cursorDevices = [...]byte{byName: cursorDevice, byAge: cursorAge, byWorst: cursorWorst}

// maxCursorBytes is the maximum length of a cursor as text.
var maxCursorBytes = base64.RawURLEncoding.EncodedLen(1 + 8 + vitals.MaxNameBytes)

// timeCursor returns the kind of the cursors of readings in an order.
func timeCursor(descending bool) byte {
	if descending {
		return cursorDescending
	}
	return cursorAscending
}

// appendMsCursor appends the cursor that continues after a time.
func appendMsCursor(dst []byte, kind byte, unixMs int64) []byte {
	key := [9]byte{kind}
	binary.BigEndian.PutUint64(key[1:], uint64(unixMs))
	return base64.RawURLEncoding.AppendEncode(dst, key[:])
}

// parseMsCursor parses a cursor of a kind, and returns its time in Unix ms.
func parseMsCursor(text string, kind byte) (int64, error) {
	key, err := decodeCursor(text)
	if err != nil || len(key) != 9 || key[0] != kind {
		return 0, errCursor
	}
	unixMs := binary.BigEndian.Uint64(key[1:])
	if unixMs > math.MaxInt64-1 {
		return 0, errCursor
	}
	return int64(unixMs), nil
}

// appendDeviceCursor appends the cursor that continues after a device in an order.
func appendDeviceCursor(dst []byte, sort deviceSort, last *deviceKey) []byte {
	var key [1 + 8 + vitals.MaxNameBytes]byte
	b := append(key[:0], cursorDevices[sort])
	if sort != byName {
		b = binary.BigEndian.AppendUint64(b, uint64(last.rank))
	}
	return base64.RawURLEncoding.AppendEncode(dst, last.name.AppendTo(b))
}

// parseDeviceCursor parses a cursor and returns the place of the last device shown.
func parseDeviceCursor(text string, sort deviceSort) (last deviceKey, err error) {
	key, err := decodeCursor(text)
	if err != nil || len(key) == 0 || key[0] != cursorDevices[sort] {
		return last, errCursor
	}
	name := key[1:]
	if sort != byName {
		if len(name) < 8 {
			return last, errCursor
		}
		last.rank, name = int64(binary.BigEndian.Uint64(name)), name[8:]
	}
	if last.name, err = vitals.ParseName(name); err != nil || last.rank < 0 {
		return last, errCursor
	}
	return last, nil
}

func decodeCursor(text string) ([]byte, error) {
	// Accept only one spelling: Strict rejects nonzero padding bits, but ignores line
	// breaks.
	if len(text) > maxCursorBytes || strings.ContainsAny(text, "\r\n") {
		return nil, errCursor
	}
	return base64.RawURLEncoding.Strict().DecodeString(text)
}
