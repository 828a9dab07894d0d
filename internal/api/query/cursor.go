package query

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// errCursor means that a cursor was not made by this server for this question.
var errCursor = errors.New("not a cursor of this list")

// A cursor is the base64url form of one kind byte and a key. It holds a position
// and no right: a made-up cursor shows what a made-up from or to would show.
//
//	kind  key
//	0x01  8 bytes: time of the last reading shown, Unix ms, big-endian; ascending
//	0x02  the same, descending
//	0x03  1 to 64 bytes: name of the last device shown
const (
	cursorAscending  = 0x01
	cursorDescending = 0x02
	cursorDevice     = 0x03
)

// maxCursorBytes is the length of the longest cursor as text.
var maxCursorBytes = base64.RawURLEncoding.EncodedLen(1 + vitals.MaxNameBytes)

// appendTimeCursor appends the cursor that goes on behind a reading.
func appendTimeCursor(dst []byte, lastUnixMs int64, descending bool) []byte {
	key := [9]byte{cursorAscending}
	if descending {
		key[0] = cursorDescending
	}
	binary.BigEndian.PutUint64(key[1:], uint64(lastUnixMs))
	return base64.RawURLEncoding.AppendEncode(dst, key[:])
}

// parseTimeCursor returns the time of the last reading shown, in Unix ms.
func parseTimeCursor(text string, descending bool) (int64, error) {
	key, err := decodeCursor(text)
	want := byte(cursorAscending)
	if descending {
		want = cursorDescending
	}
	if err != nil || len(key) != 9 || key[0] != want {
		return 0, errCursor
	}
	lastUnixMs := binary.BigEndian.Uint64(key[1:])
	if lastUnixMs > math.MaxInt64-1 {
		return 0, errCursor
	}
	return int64(lastUnixMs), nil
}

// appendDeviceCursor appends the cursor that goes on behind a device.
func appendDeviceCursor(dst []byte, last vitals.Name) []byte {
	var key [1 + vitals.MaxNameBytes]byte
	key[0] = cursorDevice
	return base64.RawURLEncoding.AppendEncode(dst, last.AppendTo(key[:1]))
}

// parseDeviceCursor returns the name of the last device shown.
func parseDeviceCursor(text string) (vitals.Name, error) {
	key, err := decodeCursor(text)
	if err != nil || len(key) < 2 || key[0] != cursorDevice {
		return vitals.Name{}, errCursor
	}
	name, err := vitals.ParseName(key[1:])
	if err != nil {
		return vitals.Name{}, errCursor
	}
	return name, nil
}

func decodeCursor(text string) ([]byte, error) {
	// Strict refuses the forms that would decode to the same bytes, but for line
	// breaks, which the decoder skips.
	if len(text) > maxCursorBytes || strings.ContainsAny(text, "\r\n") {
		return nil, errCursor
	}
	return base64.RawURLEncoding.Strict().DecodeString(text)
}
