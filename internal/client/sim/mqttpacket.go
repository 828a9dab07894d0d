package sim

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/mochi-mqtt/server/v2/packets"
)

// Versions of MQTT, as in a CONNECT.
const (
	mqtt311 = 4
	mqtt5   = 5
)

// maxPacketBytes bounds the packets of a server. A CONNECT of MQTT 5 announces it.
const maxPacketBytes = 4 << 10

// dupFlag is the flag DUP in the first byte of a PUBLISH.
const dupFlag byte = 0x08

// connect returns a CONNECT with a clean session. user may be empty, and so may
// password; a password without a user name is sent with an empty one.
func connect(version byte, clientID, user, password string, keepAliveS uint16) []byte {
	p := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Connect}, ProtocolVersion: version}
	p.Properties.MaximumPacketSize = maxPacketBytes
	p.Connect = packets.ConnectParams{
		ProtocolName: []byte("MQTT"), Clean: true, ClientIdentifier: clientID, Keepalive: keepAliveS,
		UsernameFlag: user != "" || password != "", Username: []byte(user),
		PasswordFlag: password != "", Password: []byte(password),
	}
	var out bytes.Buffer
	_ = p.ConnectEncode(&out) // never fails
	return out.Bytes()
}

// appendPublish appends a PUBLISH. id is not sent with QoS 0. Unlike the library, it does not allocate.
func appendPublish(dst []byte, version, qos byte, id uint16, topic, payload []byte) []byte {
	length := 2 + len(topic) + len(payload)
	if qos > 0 {
		length += 2
	}
	if version == mqtt5 {
		length++
	}
	dst = append(dst, packets.Publish<<4|qos<<1)
	for ; length >= 0x80; length >>= 7 {
		dst = append(dst, byte(length)|0x80)
	}
	dst = append(binary.BigEndian.AppendUint16(append(dst, byte(length)), uint16(len(topic))), topic...)
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
	return binary.BigEndian.AppendUint16(append(dst, packets.Pubrel<<4|2, 2), id)
}

// A packetReader reads the packets of one connection.
type packetReader struct {
	in      *bufio.Reader
	version byte
}

func newPacketReader(conn io.Reader, version byte) *packetReader {
	return &packetReader{bufio.NewReaderSize(conn, maxPacketBytes), version}
}

// next reads one packet. Errors other than [ErrProtocol] are from the connection.
func (r *packetReader) next() (p packets.Packet, err error) {
	p.ProtocolVersion = r.version
	first, err := r.in.ReadByte()
	if err != nil {
		return p, err
	}
	if p.FixedHeader.Decode(first) != nil {
		return p, notMQTT("malformed flags")
	}
	length, _, err := packets.DecodeLength(r.in)
	if _, malformed := errors.AsType[packets.Code](err); malformed || length > maxPacketBytes {
		return p, notMQTT("a packet is larger than 4 KiB")
	}
	if err != nil {
		return p, err
	}
	p.FixedHeader.Remaining = length
	body, err := r.in.Peek(length)
	if err != nil {
		return p, err
	}
	switch kind := p.FixedHeader.Type; {
	case kind == packets.Connack:
		err = p.ConnackDecode(body)
	case kind == packets.Puback, kind == packets.Pubrec, kind == packets.Pubcomp:
		err = p.PubackDecode(body)
	case kind == packets.Disconnect && r.version == mqtt5 && length == 1: // which the library ignores
		p.ReasonCode = body[0]
	case kind == packets.Disconnect && r.version == mqtt5:
		err = p.DisconnectDecode(body)
	case kind != packets.Pingresp:
		return p, notMQTT("a packet that a server does not send")
	}
	_, _ = r.in.Discard(length) // cannot fail: it is in the buffer
	if err != nil {
		return p, notMQTT("a malformed packet") // the library's errors may quote it
	}
	return p, nil
}
