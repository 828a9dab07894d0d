package sim

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrNotMQTT is wrapped by the errors of packets that a server must not send.
var ErrNotMQTT = errors.New("sim: the answer is not MQTT")

// notMQTT returns an error with the reason. Its text never quotes the server.
func notMQTT(reason string) error { return fmt.Errorf("%w: %s", ErrNotMQTT, reason) }

// An mqttVersion is the protocol level of a CONNECT.
type mqttVersion byte

const (
	mqtt311 mqttVersion = 4
	mqtt5   mqttVersion = 5
)

// First bytes of packets: the type, and the flags if they are fixed.
const (
	packetConnect    byte = 0x10
	packetConnack    byte = 0x20
	packetPublish    byte = 0x30
	packetPuback     byte = 0x40
	packetPubrec     byte = 0x50
	packetPubrel     byte = 0x62
	packetPubcomp    byte = 0x70
	packetPingreq    byte = 0xc0
	packetPingresp   byte = 0xd0
	packetDisconnect byte = 0xe0

	dupFlag byte = 0x08 // of a PUBLISH
)

// maxPacketBytes bounds the packets of a server. A CONNECT of MQTT 5 announces it.
const maxPacketBytes = 4 << 10

// failureCode is the least reason code of MQTT 5 that reports a failure.
const failureCode = 0x80

// appendConnect appends a CONNECT with a clean session. user may be empty, and so may
// password; a password without a user name is sent with an empty one.
func appendConnect(dst []byte, version mqttVersion, clientID, user, password string, keepAliveS uint16) []byte {
	const cleanSession, hasPassword, hasUser = 0x02, 0x40, 0x80
	flags := byte(cleanSession)
	body := append([]byte("\x00\x04MQTT"), byte(version), flags)
	body = binary.BigEndian.AppendUint16(body, keepAliveS)
	if version == mqtt5 {
		body = append(body, 5, maximumPacketSize)
		body = binary.BigEndian.AppendUint32(body, maxPacketBytes)
	}
	body = appendString(body, clientID)
	if user != "" || password != "" {
		flags |= hasUser
		body = appendString(body, user)
	}
	if password != "" {
		flags |= hasPassword
		body = appendString(body, password)
	}
	body[7] = flags
	return append(appendVarint(append(dst, packetConnect), len(body)), body...)
}

// appendPublish appends a PUBLISH. id is not sent with QoS 0.
func appendPublish(dst []byte, version mqttVersion, qos byte, id uint16, topic, payload []byte) []byte {
	length := 2 + len(topic) + len(payload)
	if qos > 0 {
		length += 2
	}
	if version == mqtt5 {
		length++
	}
	dst = appendVarint(append(dst, packetPublish|qos<<1), length)
	dst = appendString(dst, topic)
	if qos > 0 {
		dst = binary.BigEndian.AppendUint16(dst, id)
	}
	if version == mqtt5 {
		dst = append(dst, 0) // no properties
	}
	return append(dst, payload...)
}

// appendPubrel appends a PUBREL.
func appendPubrel(dst []byte, id uint16) []byte {
	return binary.BigEndian.AppendUint16(append(dst, packetPubrel, 2), id)
}

// appendString appends a text of at most 65,535 bytes with its length.
func appendString[T string | []byte](dst []byte, text T) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(text))), text...)
}

// appendVarint appends a variable byte integer of at most 268,435,455.
func appendVarint(dst []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(dst, byte(n))
}

// A packet is one that a server sends.
type packet struct {
	kind byte   // its first byte
	id   uint16 // of a PUBACK, PUBREC or PUBCOMP
	code byte   // return or reason code

	// Of a CONNACK.
	receiveMax int
	maxQoS     byte
	keepAliveS int // -1: the client's
}

// A packetReader reads the packets of one connection.
type packetReader struct {
	in      *bufio.Reader
	version mqttVersion
}

func newPacketReader(conn io.Reader, version mqttVersion) *packetReader {
	return &packetReader{bufio.NewReaderSize(conn, maxPacketBytes), version}
}

// next reads one packet. Errors other than [ErrNotMQTT] are from the connection.
func (r *packetReader) next() (packet, error) {
	head, err := r.in.Peek(2)
	if err != nil {
		return packet{}, err
	}
	at, length := 2, int(head[1])
	if length >= 0x80 { // a length of three bytes or more is out of bounds
		if head, err = r.in.Peek(3); err != nil {
			return packet{}, err
		}
		at, length = 3, length&0x7f|int(head[2])<<7
		if length < 0x80 {
			return packet{}, notMQTT("a length is longer than necessary")
		}
	}
	if at+length > maxPacketBytes {
		return packet{}, notMQTT("a packet is larger than 4 KiB")
	}
	text, err := r.in.Peek(at + length)
	if err != nil {
		return packet{}, err
	}
	p, err := parsePacket(r.version, text[0], text[at:])
	_, _ = r.in.Discard(at + length) // cannot fail: it is in the buffer
	return p, err
}

// parsePacket parses a packet that begins with kind. It retains nothing of body.
func parsePacket(version mqttVersion, kind byte, body []byte) (packet, error) {
	p := packet{kind: kind, receiveMax: math.MaxUint16, maxQoS: 2, keepAliveS: -1}
	allowed := uint64(0) // properties
	switch {
	case kind == packetConnack && len(body) >= 2:
		if body[0] != 0 {
			return p, notMQTT("a CONNACK with a session")
		}
		p.code, body, allowed = body[1], body[2:], connackProperties
		if version == mqtt5 && len(body) == 0 {
			return p, notMQTT("a CONNACK without properties")
		}
	case (kind == packetPuback || kind == packetPubrec || kind == packetPubcomp) && len(body) >= 2:
		p.id, body, allowed = binary.BigEndian.Uint16(body), body[2:], ackProperties
	case kind == packetPingresp && len(body) == 0:
	case kind == packetDisconnect && version == mqtt5:
		allowed = disconnectProperties
	default:
		return p, notMQTT("a packet that a server does not send")
	}
	if version == mqtt311 && len(body) > 0 {
		return p, notMQTT("a packet is too long")
	}
	if kind != packetConnack && len(body) > 0 {
		p.code, body = body[0], body[1:]
	}
	if len(body) > 0 && !p.takeProperties(body, allowed) {
		return p, notMQTT("malformed properties")
	}
	return p, nil
}

// Properties of MQTT 5 whose values are used.
const (
	serverKeepAlive   = 0x13
	receiveMaximum    = 0x21
	maximumQoS        = 0x24
	userProperty      = 0x26 // may be repeated
	maximumPacketSize = 0x27
)

// Properties of packets of a server, as bits. 0x1c is a server reference, 0x1f a reason string.
const (
	ackProperties        = 1<<0x1f | 1<<userProperty
	disconnectProperties = ackProperties | 1<<0x1c
	connackProperties    = disconnectProperties | 1<<0x11 | 1<<0x12 | 1<<serverKeepAlive | 1<<0x15 | 1<<0x16 | 1<<0x1a |
		1<<receiveMaximum | 1<<0x22 | 1<<maximumQoS | 1<<0x25 | 1<<maximumPacketSize | 1<<0x28 | 1<<0x29 | 1<<0x2a
)

// takeProperties parses the properties, which end the packet. It returns false if they are malformed, if one
// is not in allowed, or if one is repeated.
func (p *packet) takeProperties(text []byte, allowed uint64) bool {
	length, n := binary.Uvarint(text) // the encoding is that of MQTT; the packet's length bounds the value
	if n <= 0 || length != uint64(len(text)-n) {
		return false
	}
	for text = text[n:]; len(text) > 0; {
		id := text[0]
		if id > 63 || allowed>>id&1 == 0 {
			return false
		}
		if id != userProperty {
			allowed &^= 1 << id
		}
		value := text[1:]
		n := propertyBytes(id, value)
		if n > len(value) {
			return false
		}
		switch id {
		case serverKeepAlive:
			p.keepAliveS = int(binary.BigEndian.Uint16(value))
		case receiveMaximum:
			p.receiveMax = int(binary.BigEndian.Uint16(value))
		case maximumQoS:
			p.maxQoS = value[0]
		}
		text = value[n:]
	}
	return p.receiveMax > 0
}

// propertyBytes returns the length of a property's value, which is more than is there if
// it is cut off.
func propertyBytes(id byte, value []byte) int {
	text := func(at int) int { // the end of a text
		if at+2 > len(value) {
			return math.MaxUint16 * 2
		}
		return at + 2 + int(binary.BigEndian.Uint16(value[at:]))
	}
	switch id {
	case maximumQoS, 0x25, 0x28, 0x29, 0x2a:
		return 1
	case serverKeepAlive, receiveMaximum, 0x22:
		return 2
	case 0x11, maximumPacketSize:
		return 4
	case userProperty:
		return text(text(0))
	}
	return text(0)
}
