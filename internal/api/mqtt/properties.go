package mqtt

import (
	"encoding/binary"
)

// The properties of MQTT 5.0 (section 2.2.2.2) by the form of their values.
const (
	receiveMaximumProperty    = 0x21
	maximumPacketSizeProperty = 0x27
	userProperty              = 0x26
	reasonStringProperty      = 0x1F
)

// checkProperties checks that b begins with the length of properties and with these, each complete within that
// length and, except user properties, at most once. n is the number of bytes. The library, which decodes
// them, checks which of them a packet may have.
func checkProperties(b []byte) (n int, why code) {
	size, width := varint(b)
	if width == 0 || size > len(b)-width {
		return 0, malformed
	}
	var seen uint64
	rest := b[width : width+size]
	for len(rest) > 0 {
		id := rest[0]
		length := valueLength(id, rest[1:])
		if length < 0 || length > len(rest)-1 {
			return 0, malformed
		}
		if id != userProperty && seen>>id&1 != 0 {
			why = protocolError
		}
		seen |= 1 << id
		rest = rest[1+length:]
	}
	return width + size, why
}

// valueLength returns the length of the value of a property that begins with b, or a negative number.
func valueLength(id byte, b []byte) int {
	switch id {
	case 0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A:
		return 1
	case 0x13, 0x21, 0x22, 0x23:
		return 2
	case 0x02, 0x11, 0x18, 0x27:
		return 4
	case 0x0B:
		if _, width := varint(b); width > 0 {
			return width
		}
	case 0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F:
		return text(b)
	case userProperty:
		if key := text(b); key >= 0 && key <= len(b) {
			if value := text(b[key:]); value >= 0 {
				return key + value
			}
		}
	}
	return -1
}

// text returns the length of a string with its length, or a negative number.
func text(b []byte) int {
	if len(b) < 2 {
		return -1
	}
	return 2 + int(binary.BigEndian.Uint16(b))
}

// varint decodes a variable byte integer. width is 0 if there is none.
func varint(b []byte) (v, width int) {
	for i := 0; i < len(b) && i < 4; i++ {
		v |= int(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			if b[i] == 0 && i > 0 {
				return 0, 0 // not the shortest form
			}
			return v, i + 1
		}
	}
	return 0, 0
}

// zeroProperty reports whether a CONNECT has a property that must not be 0 and is: the library does not tell 0 from
// absent. The properties are valid.
func zeroProperty(body []byte, version byte) bool {
	if version != 5 {
		return false
	}
	size, width := varint(body[10:])
	for rest := body[10+width : 10+width+size]; len(rest) > 0; {
		length := valueLength(rest[0], rest[1:])
		value := rest[1 : 1+length]
		switch rest[0] {
		case receiveMaximumProperty:
			if binary.BigEndian.Uint16(value) == 0 {
				return true
			}
		case maximumPacketSizeProperty:
			if binary.BigEndian.Uint32(value) == 0 {
				return true
			}
		}
		rest = rest[1+length:]
	}
	return false
}
