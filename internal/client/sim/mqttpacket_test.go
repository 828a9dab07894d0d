package sim_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/pulsegate/pulsegate/internal/client/sim"
)

var mqttVersions = []byte{4, 5}

// decode decodes a packet of a client with another implementation.
func decode(version byte, text []byte) (packets.Packet, error) {
	p := packets.Packet{ProtocolVersion: version}
	if err := p.FixedHeader.Decode(text[0]); err != nil {
		return p, err
	}
	in := bytes.NewReader(text[1:])
	length, _, err := packets.DecodeLength(in)
	if err != nil {
		return p, err
	}
	p.FixedHeader.Remaining = length
	if in.Len() != length {
		return p, errors.New("the length is wrong")
	}
	body := text[len(text)-length:]
	switch p.FixedHeader.Type {
	case packets.Connect:
		if err = p.ConnectDecode(body); err == nil && p.ConnectValidate() != packets.CodeSuccess {
			err = p.ConnectValidate()
		}
	case packets.Publish:
		if err = p.PublishDecode(body); err == nil && p.PublishValidate(0) != packets.CodeSuccess {
			err = p.PublishValidate(0)
		}
	case packets.Pubrel:
		err = p.PubrelDecode(body)
	case packets.Pingreq, packets.Disconnect:
	default:
		err = errors.New("not a packet that sim sends")
	}
	return p, err
}

// encode encodes a packet of a server with another implementation.
func encode(p packets.Packet) []byte {
	var out bytes.Buffer
	encoders := map[byte]func(*bytes.Buffer) error{
		packets.Connack: p.ConnackEncode, packets.Puback: p.PubackEncode, packets.Pubrec: p.PubrecEncode,
		packets.Pubcomp: p.PubcompEncode,
		packets.Publish: p.PublishEncode, packets.Pingresp: p.PingrespEncode, packets.Disconnect: p.DisconnectEncode,
	}
	if err := encoders[p.FixedHeader.Type](&out); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func header(kind byte) packets.FixedHeader { return packets.FixedHeader{Type: kind} }

// Another implementation reads what sim sends.
func TestPacketsOfClient(t *testing.T) {
	for _, version := range mqttVersions {
		for _, size := range []int{0, 1, 100, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152} {
			for qos := range byte(3) {
				payload := bytes.Repeat([]byte("p"), size)
				p, err := decode(version, sim.AppendPublish(version, qos, 513, "pulsegate/sim-a-000001", payload))
				wantID := uint16(513)
				if qos == 0 {
					wantID = 0
				}
				if h := p.FixedHeader; err != nil || h.Qos != qos || h.Dup || h.Retain || p.PacketID != wantID ||
					p.TopicName != "pulsegate/sim-a-000001" || !bytes.Equal(p.Payload, payload) {
					t.Errorf("version %d, QoS %d, %d bytes: got %+v, %v", version, qos, size, h, err)
				}
			}
		}
		if p, err := decode(version, sim.AppendPubrel(0x1234)); err != nil || p.FixedHeader.Type != packets.Pubrel ||
			p.PacketID != 0x1234 {
			t.Errorf("got %+v, %v", p, err)
		}
	}
}

// everyProperty has all properties that a server may send.
var everyProperty = packets.Properties{
	SessionExpiryInterval: 7, SessionExpiryIntervalFlag: true, AssignedClientID: "a", ServerKeepAlive: 33,
	ServerKeepAliveFlag:  true,
	AuthenticationMethod: "m", AuthenticationData: []byte("d"), ResponseInfo: "i", ServerReference: "r",
	ReasonString:   "why",
	ReceiveMaximum: 7, TopicAliasMaximum: 3, MaximumQos: 1, MaximumQosFlag: true, RetainAvailable: 0,
	RetainAvailableFlag: true,
	User:                []packets.UserProperty{{Key: "k", Val: "v"}, {Key: "k", Val: ""}}, MaximumPacketSize: 1 << 20,
	WildcardSubAvailableFlag: true, SubIDAvailableFlag: true, SharedSubAvailableFlag: true,
}

// sim reads what another implementation sends, in pieces of any size.
func TestPacketsOfServer(t *testing.T) {
	for _, tt := range []struct {
		version byte
		from    packets.Packet
		want    func(*sim.Packet)
	}{
		{4, packets.Packet{FixedHeader: header(packets.Connack)}, func(*sim.Packet) {}},
		{4, packets.Packet{FixedHeader: header(packets.Connack), ReasonCode: 5}, func(p *sim.Packet) { p.Code = 5 }},
		{5, packets.Packet{FixedHeader: header(packets.Connack)}, func(*sim.Packet) {}},
		{5, packets.Packet{FixedHeader: header(packets.Connack), Properties: everyProperty}, func(*sim.Packet) {}},
		{4, packets.Packet{FixedHeader: header(packets.Puback), PacketID: 0xfffe}, func(p *sim.Packet) { p.ID = 0xfffe }},
		{5, packets.Packet{FixedHeader: header(packets.Puback), PacketID: 7}, func(p *sim.Packet) { p.ID = 7 }},
		{5, packets.Packet{FixedHeader: header(packets.Pubrec), PacketID: 7, ReasonCode: 0x99},
			func(p *sim.Packet) { p.ID, p.Code = 7, 0x99 }},
		{5, packets.Packet{FixedHeader: header(packets.Puback), PacketID: 7, ReasonCode: 0x99, Properties: everyProperty},
			func(p *sim.Packet) { p.ID, p.Code = 7, 0x99 }},
		{4, packets.Packet{FixedHeader: header(packets.Pubcomp), PacketID: 7}, func(p *sim.Packet) { p.ID = 7 }},
		{4, packets.Packet{FixedHeader: header(packets.Pingresp)}, func(*sim.Packet) {}},
		{5, packets.Packet{FixedHeader: header(packets.Disconnect), ReasonCode: 0x89}, func(p *sim.Packet) { p.Code = 0x89 }},
		{5, packets.Packet{FixedHeader: header(packets.Disconnect), ReasonCode: 0x87,
			Properties: packets.Properties{ReasonString: strings.Repeat("x", 300)}}, func(p *sim.Packet) { p.Code = 0x87 }},
	} {
		tt.from.ProtocolVersion = tt.version
		if tt.version == 5 {
			tt.from.Mods.AllowResponseInfo = true
		}
		want := sim.Packet{Kind: tt.from.FixedHeader.Type}
		tt.want(&want)
		text := encode(tt.from)
		for _, sizes := range [][]int{{4096}, {1}, {2, 3, 1, 9}} {
			got, err := sim.ParsePackets(tt.version, slices.Concat(text, text), sizes...)
			if err != nil || !reflect.DeepEqual(got, []sim.Packet{want, want}) {
				t.Errorf("version %d, %x: got %+v, %v, want %+v twice", tt.version, text, got, err, want)
			}
		}
	}
	for _, text := range []string{"\x40\x03\x00\x07\x10", "\xe0\x00", "\xe0\x01\x8b"} { // shorter forms
		if got, err := sim.ParsePackets(5, []byte(text), 10); err != nil || len(got) != 1 {
			t.Errorf("%x: got %+v, %v", text, got, err)
		}
	}
}

var malformedPackets = map[string]struct {
	version byte
	text    string
}{
	"HTTP": {4,
		"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"},
	"AUTH":                           {5, "\xf0\x00"},
	"SUBACK":                         {4, "\x90\x03\x00\x01\x00"},
	"flags":                          {4, "\x41\x02\x00\x01"},
	"DISCONNECT of 3.1.1":            {4, "\xe0\x00"},
	"PUBACK without an identifier":   {4, "\x40\x01\x00"},
	"CONNACK cut off":                {4, "\x20\x01\x00"},
	"CONNACK of 5 cut off":           {5, "\x20\x02\x00\x00"},
	"too large":                      {5, "\xe0\xff\x7f"},
	"length of 4 bytes":              {5, "\xe0\x80\x80\x80\x01"},
	"properties cut off":             {5, "\x40\x04\x00\x01\x00\x05"},
	"a reason string, cut off":       {5, "\x40\x08\x00\x01\x00\x04\x1f\x00\x09x"},
	"half a user property":           {5, "\x40\x09\x00\x01\x00\x05\x26\x00\x02xx"},
	"a property of another packet":   {5, "\x40\x07\x00\x01\x00\x03\x21\x00\x01"},
	"a property that does not exist": {5, "\x40\x06\x00\x01\x00\x02\xff\x01"},
}

func TestMalformedPackets(t *testing.T) {
	for name, tt := range malformedPackets {
		if got, err := sim.ParsePackets(tt.version, []byte(tt.text), 4096); !errors.Is(err, sim.ErrProtocol) {
			t.Errorf("%s: got %+v, %v, want ErrProtocol", name, got, err)
		}
	}
}
