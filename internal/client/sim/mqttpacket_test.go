package sim_test

import (
	"bytes"
	"errors"
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
		packets.Connack: p.ConnackEncode, packets.Puback: p.PubackEncode, packets.Pubrec: p.PubrecEncode, packets.Pubcomp: p.PubcompEncode,
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
		for _, tt := range []struct{ user, password string }{{"", ""}, {"gw-000001", ""}, {"bed-7", "pgt_secret"}, {"", "pgt_secret"}} {
			p, err := decode(version, sim.AppendConnect(version, "sim-a-gw-000001", tt.user, tt.password, 60))
			c := p.Connect
			if err != nil || p.ProtocolVersion != version || c.ClientIdentifier != "sim-a-gw-000001" || !c.Clean || c.WillFlag || c.Keepalive != 60 ||
				string(c.Username) != tt.user || string(c.Password) != tt.password ||
				c.UsernameFlag != (tt != struct{ user, password string }{}) || c.PasswordFlag != (tt.password != "") {
				t.Errorf("version %d: got %+v, %v for %+v", version, c, err, tt)
			}
			if version == 5 && p.Properties.MaximumPacketSize != 4096 {
				t.Errorf("got %+v", p.Properties)
			}
		}
		for _, size := range []int{0, 1, 100, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152} {
			for qos := range byte(3) {
				payload := bytes.Repeat([]byte("p"), size)
				p, err := decode(version, sim.AppendPublish(version, qos, 513, "pulsegate/sim-a-000001", payload))
				wantID := uint16(513)
				if qos == 0 {
					wantID = 0
				}
				if h := p.FixedHeader; err != nil || h.Qos != qos || h.Dup || h.Retain || p.PacketID != wantID || p.TopicName != "pulsegate/sim-a-000001" || !bytes.Equal(p.Payload, payload) {
					t.Errorf("version %d, QoS %d, %d bytes: got %+v, %v", version, qos, size, h, err)
				}
			}
		}
		if p, err := decode(version, sim.AppendPubrel(0x1234)); err != nil || p.FixedHeader.Type != packets.Pubrel || p.PacketID != 0x1234 {
			t.Errorf("got %+v, %v", p, err)
		}
	}
}

// everyProperty has all properties that a server may send.
var everyProperty = packets.Properties{
	SessionExpiryInterval: 7, SessionExpiryIntervalFlag: true, AssignedClientID: "a", ServerKeepAlive: 33, ServerKeepAliveFlag: true,
	AuthenticationMethod: "m", AuthenticationData: []byte("d"), ResponseInfo: "i", ServerReference: "r", ReasonString: "why",
	ReceiveMaximum: 7, TopicAliasMaximum: 3, MaximumQos: 1, MaximumQosFlag: true, RetainAvailable: 0, RetainAvailableFlag: true,
	User: []packets.UserProperty{{Key: "k", Val: "v"}, {Key: "k", Val: ""}}, MaximumPacketSize: 1 << 20,
	WildcardSubAvailableFlag: true, SubIDAvailableFlag: true, SharedSubAvailableFlag: true,
}

var malformedPackets = map[string]struct {
	version byte
	text    string
}{
	"HTTP":                           {4, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"},
	"AUTH":                           {5, "\xf0\x00"},
	"SUBACK":                         {4, "\x90\x03\x00\x01\x00"},
	"flags":                          {4, "\x41\x02\x00\x01"},
	"DISCONNECT of 3.1.1":            {4, "\xe0\x00"},
	"PINGRESP with a body":           {4, "\xd0\x01\x00"},
	"PUBACK without an identifier":   {4, "\x40\x01\x00"},
	"PUBACK of 3.1.1 with a reason":  {4, "\x40\x03\x00\x01\x00"},
	"CONNACK cut off":                {4, "\x20\x01\x00"},
	"CONNACK of 5 cut off":           {5, "\x20\x02\x00\x00"},
	"CONNACK of 3.1.1, too long":     {4, "\x20\x03\x00\x00\x00"},
	"CONNACK with a session":         {4, "\x20\x02\x01\x00"},
	"length of a length":             {4, "\x40\x82\x00\x00\x01"},
	"too large":                      {5, "\xe0\xff\x7f"},
	"length of 4 bytes":              {5, "\xe0\x80\x80\x80\x01"},
	"properties cut off":             {5, "\x40\x04\x00\x01\x00\x05"},
	"properties too long":            {5, "\x40\x05\x00\x01\x00\x00\x00"},
	"a reason string, cut off":       {5, "\x40\x08\x00\x01\x00\x04\x1f\x00\x09x"},
	"half a user property":           {5, "\x40\x09\x00\x01\x00\x05\x26\x00\x02xx"},
	"a property of another packet":   {5, "\x40\x07\x00\x01\x00\x03\x21\x00\x01"},
	"a property twice":               {5, "\x20\x09\x00\x00\x06\x21\x00\x01\x21\x00\x01"},
	"a property that does not exist": {5, "\x40\x06\x00\x01\x00\x02\xff\x01"},
	"Receive Maximum 0":              {5, "\x20\x06\x00\x00\x03\x21\x00\x00"},
}

func TestMalformedPackets(t *testing.T) {
	for name, tt := range malformedPackets {
		if got, err := sim.ParsePackets(tt.version, []byte(tt.text), 4096); !errors.Is(err, sim.ErrNotMQTT) {
			t.Errorf("%s: got %+v, %v, want ErrNotMQTT", name, got, err)
		}
	}
}

// What sim accepts, another implementation reads in the same way.
func FuzzPacket(f *testing.F) {
	for _, tt := range malformedPackets {
		f.Add(tt.version == 5, []byte(tt.text))
	}
	f.Add(true, encode(packets.Packet{FixedHeader: header(packets.Connack), ProtocolVersion: 5, Properties: everyProperty}))
	f.Add(true, encode(packets.Packet{FixedHeader: header(packets.Puback), ProtocolVersion: 5, PacketID: 7, ReasonCode: 0x99, Properties: everyProperty}))
	f.Add(false, []byte("\x20\x02\x00\x00\x40\x02\x00\x01\xd0\x00"))
	f.Fuzz(func(t *testing.T, v5 bool, text []byte) {
		version := byte(4)
		if v5 {
			version = 5
		}
		got, err := sim.ParsePackets(version, text, 4096)
		if err != nil && !errors.Is(err, sim.ErrNotMQTT) {
			t.Fatal(err)
		}
		for _, g := range got {
			p := packets.Packet{ProtocolVersion: version}
			if err := p.FixedHeader.Decode(text[0]); err != nil {
				t.Fatalf("%x: %v", text, err)
			}
			in := bytes.NewReader(text[1:])
			length, _, err := packets.DecodeLength(in)
			if err != nil || length > in.Len() {
				t.Fatalf("%x: length %d, %v", text, length, err)
			}
			body := text[len(text)-in.Len():][:length]
			text = text[len(text)-in.Len()+length:]
			p.FixedHeader.Remaining = length
			switch p.FixedHeader.Type {
			case packets.Connack:
				err = p.ConnackDecode(body)
			case packets.Puback, packets.Pubrec, packets.Pubcomp:
				err = p.PubackDecode(body)
			case packets.Disconnect:
				if length == 1 { // the other implementation leaves this one out
					continue
				}
				err = p.DisconnectDecode(body)
			}
			if err != nil && !strings.Contains(err.Error(), "utf-8") || g.Kind != p.FixedHeader.Type<<4 || err == nil && (g.ID != p.PacketID || g.Code != p.ReasonCode) {
				t.Errorf("got %+v, the other implementation %+v, %v of %x", g, p, err, body)
			}
		}
	})
}
