package fhir

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// # Ids
//
// An id of FHIR has 1 to 64 of A-Z, a-z, 0-9, - and . (https://hl7.org/fhir/R4/datatypes.html#id).
//
// The id of a Device is the device's name, in which ".", "_" and ":" are written as "..", ".u"
// and ".c". A name that has more than 43 bytes when written so has the id ".h", 16 digits of
// a hash, and as many of the name's first bytes as fit into 25: the id then has at most 43
// bytes too. The name is found among the devices that begin with these bytes.
//
// The id of an Observation is the key of its sign group, the time in Unix ms in base 36, and
// the id of the Device, with hyphens between them, such as bp-mwq8ldvf-ppg-1.

const (
	maxDeviceID  = 64 - maxKey - len("-") - maxTimeID - len("-") // so that the id of an Observation has at most 64 bytes
	maxTimeID    = 10                                            // of the year 9999
	hashMark     = ".h"
	hashBytes    = 12
	hashDigits   = hashBytes / 3 * 4
	maxHashedTag = maxDeviceID - len(hashMark) - hashDigits
)

// hashEncoding is base64 with the alphabet of ids.
var hashEncoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.").
	WithPadding(base64.NoPadding)

// appendEscaped appends the longest part of a name that needs at most a number of bytes. It
// returns the length of the part.
func appendEscaped(dst []byte, name []byte, atMost int) ([]byte, int) {
	end := len(dst) + atMost
	for i, c := range name {
		before := len(dst)
		switch c {
		case '.':
			dst = append(dst, ".."...)
		case '_':
			dst = append(dst, ".u"...)
		case ':':
			dst = append(dst, ".c"...)
		default:
			dst = append(dst, c)
		}
		if len(dst) > end {
			return dst[:before], i
		}
	}
	return dst, len(name)
}

// unescape reverses appendEscaped. It is never modified.
var unescape = strings.NewReplacer("..", ".", ".u", "_", ".c", ":")

// appendDeviceID appends the id of a device.
func appendDeviceID(dst []byte, device *vitals.Name) []byte {
	var b [vitals.MaxNameBytes]byte
	name, start := device.AppendTo(b[:0]), len(dst)
	dst, n := appendEscaped(dst, name, maxDeviceID)
	if n == len(name) {
		return dst
	}
	sum := sha256.Sum256(name)
	dst = hashEncoding.AppendEncode(append(dst[:start], hashMark...), sum[:hashBytes])
	dst, _ = appendEscaped(dst, name, maxHashedTag)
	return dst
}

// A deviceID is a parsed id of a Device.
type deviceID struct {
	name  vitals.Name // or its beginning, if the id has a hash
	text  string      // the id
	exact bool        // name is complete
}

// is reports whether name has the id.
func (d *deviceID) is(name *vitals.Name) bool {
	var b [maxDeviceID]byte
	return string(appendDeviceID(b[:0], name)) == d.text
}

// parseDeviceID parses the id of a device. It reports false for a text that is not the id of
// any device.
func parseDeviceID(text string) (d deviceID, ok bool) {
	d.text, d.exact = text, true
	rest, hashed := strings.CutPrefix(text, hashMark)
	if hashed {
		if len(rest) <= hashDigits {
			return d, false
		}
		rest, d.exact = rest[hashDigits:], false
	}
	var err error
	d.name, err = vitals.ParseName(unescape.Replace(rest))
	return d, err == nil && (hashed && len(rest) <= maxHashedTag || d.is(&d.name))
}

// appendTimeID appends the time in an Observation's id.
func appendTimeID(dst []byte, unixMs int64) []byte { return strconv.AppendInt(dst, unixMs, 36) }

// An observationID is a parsed id of an Observation.
type observationID struct {
	group  group
	unixMs int64
	device deviceID
}

// parseObservationID parses the id of an Observation. It reports false for a text that is not
// the id of any Observation.
func parseObservationID(signs *vitals.Signs, text string) (o observationID, ok bool) {
	key, rest, _ := strings.Cut(text, "-")
	at, device, _ := strings.Cut(rest, "-")
	if o.group, ok = groupOf(signs, key); !ok {
		return o, false
	}
	ms, err := strconv.ParseInt(at, 36, 64)
	if err != nil || ms < 0 || ms > vitals.MaxTimeUnixMs || string(appendTimeID(nil, ms)) != at {
		return o, false
	}
	o.unixMs = ms
	o.device, ok = parseDeviceID(device)
	return o, ok
}
