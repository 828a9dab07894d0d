package fastparse_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
)

// pub returns a PUBLISH with the remaining length in as few bytes as possible. first holds the flags.
func pub(first byte, topic, between, payload string) string {
	n := 2 + len(topic) + len(between) + len(payload)
	head := []byte{first}
	for ; n >= 0x80; n >>= 7 {
		head = append(head, byte(n)|0x80)
	}
	head = append(head, byte(n), byte(len(topic)>>8), byte(len(topic)))
	return string(head) + topic + between + payload
}

// checkPublish compares the result of RecognisePublish for b with a general parser and with its
// documentation.
func checkPublish(t *testing.T, b []byte, version5 bool) (fastparse.Publish, fastparse.Verdict) {
	t.Helper()
	p, verdict := fastparse.RecognisePublish(b, version5)
	switch verdict {
	case fastparse.More:
		if p.Size != 0 && p.Size <= len(b) {
			t.Errorf("%x: more than %d bytes for a packet of %d", b, len(b), p.Size)
		}
	case fastparse.Other:
		if p != (fastparse.Publish{}) {
			t.Errorf("%x: verdict other with %+v", b, p)
		}
	case fastparse.Accept:
		agreePublish(t, b, p, version5)
	default:
		t.Errorf("%x: verdict %d", b, verdict)
	}
	return p, verdict
}

// agreePublish reports where the library reads an accepted packet differently.
func agreePublish(t *testing.T, b []byte, p fastparse.Publish, version5 bool) {
	t.Helper()
	whole := packets.Packet{ProtocolVersion: 4}
	if version5 {
		whole.ProtocolVersion = 5
	}
	if err := whole.FixedHeader.Decode(b[0]); err != nil || whole.FixedHeader.Type != packets.Publish {
		t.Errorf("%x: accepted, but the library reads type %d, %v", b, whole.FixedHeader.Type, err)
		return
	}
	length, width, err := packets.DecodeLength(bytes.NewReader(b[1:]))
	if err != nil || 1+width+length != p.Size || p.Size > len(b) {
		t.Errorf("%x: accepted with %d bytes, but the library reads a length of %d in %d, %v", b, p.Size, length, width, err)
		return
	}
	if err := whole.PublishDecode(b[1+width : p.Size]); err != nil {
		t.Errorf("%x: accepted, but the library returns %v", b, err)
		return
	}
	switch {
	case whole.TopicName != string(p.Topic.Of(b)), !bytes.Equal(whole.Payload, p.Payload.Of(b)):
		t.Errorf("%x: the library reads %q, %x; want %q, %x", b, whole.TopicName, whole.Payload, p.Topic.Of(b),
			p.Payload.Of(b))
	case whole.PacketID != p.PacketID, whole.FixedHeader.Qos != p.QoS, whole.FixedHeader.Retain != p.Retain:
		t.Errorf("%x: the library reads identifier %d, %+v; want %+v", b, whole.PacketID, whole.FixedHeader, p)
	case whole.PublishValidate(0).Code != 0, p.QoS > 0 && p.PacketID == 0, version5 &&
		p.Retain, strings.ContainsAny(whole.TopicName, "+#"):
		t.Errorf("%x: accepted, although not valid", b)
	}
}

func TestPublishShapes(t *testing.T) {
	const topic, id = "pulsegate/ppg-000123", "\x12\x34"
	for _, tt := range []struct {
		name, in string
		v3, v5   fastparse.Verdict
	}{
		{"QoS 0", pub(0x30, topic, "", "{}"), fastparse.Accept, fastparse.Other},
		{"QoS 1", pub(0x32, topic, id, "{}"), fastparse.Accept, fastparse.Other},
		{"QoS 0 without properties", pub(0x30, topic, "\x00", "{}"), fastparse.Accept, fastparse.Accept},
		{"QoS 1 without properties", pub(0x32, topic, id+"\x00", "{}"), fastparse.Accept, fastparse.Accept},
		{"QoS 2", pub(0x34, topic, id+"\x00", "{}"), fastparse.Accept, fastparse.Accept},
		{"sent again", pub(0x3A, topic, id+"\x00", "{}"), fastparse.Accept, fastparse.Accept},
		{"no payload", pub(0x32, topic, id, ""), fastparse.Accept, fastparse.Other},
		{"no payload and no properties", pub(0x32, topic, id+"\x00", ""), fastparse.Accept, fastparse.Accept},
		{"retained", pub(0x33, topic, id+"\x00", "{}"), fastparse.Accept, fastparse.Other},
		{"length of two bytes", pub(0x32, topic, id+"\x00", strings.Repeat("x", 200)), fastparse.Accept, fastparse.Accept},
		{"length of three bytes", pub(0x32, topic, id+"\x00", strings.Repeat("x", 20_000)), fastparse.Accept,
			fastparse.Accept},
		{"binary payload", pub(0x32, topic, id+"\x00", "\x00\xff\n"), fastparse.Accept, fastparse.Accept},
		{"another packet after it", pub(0x32, topic, id+"\x00", "{}") + "\xc0\x00", fastparse.Accept, fastparse.Accept},

		{"with properties", pub(0x32, topic, id+"\x02\x01\x01", "{}"), fastparse.Accept, fastparse.Other},
		{"QoS 3", pub(0x36, topic, id+"\x00", "{}"), fastparse.Other, fastparse.Other},
		{"QoS 0 sent again", pub(0x38, topic, "\x00", "{}"), fastparse.Other, fastparse.Other},
		{"no identifier", pub(0x32, topic, "", ""), fastparse.Other, fastparse.Other},
		{"half an identifier", pub(0x32, topic, "\x01", ""), fastparse.Other, fastparse.Other},
		{"identifier 0", pub(0x32, topic, "\x00\x00\x00", "{}"), fastparse.Other, fastparse.Other},
		{"no topic", pub(0x32, "", id+"\x00", "{}"), fastparse.Other, fastparse.Other},
		{"a space", pub(0x30, "a b", "\x00", "{}"), fastparse.Other, fastparse.Other},
		{"a letter beyond ASCII", pub(0x30, "ü", "\x00", "{}"), fastparse.Other, fastparse.Other},
		{"invalid UTF-8", pub(0x30, "a\xff", "\x00", "{}"), fastparse.Other, fastparse.Other},
		{"U+0000", pub(0x30, "a\x00", "\x00", "{}"), fastparse.Other, fastparse.Other},
		{"DEL", pub(0x30, "a\x7f", "\x00", "{}"), fastparse.Other, fastparse.Other},
		{"wildcard +", pub(0x30, "a/+", "\x00", "{}"), fastparse.Other, fastparse.Other},
		{"wildcard #", pub(0x30, "#", "\x00", "{}"), fastparse.Other, fastparse.Other},
		{"topic beyond the packet", "\x30\x06\x00\x05a/b\x00", fastparse.Other, fastparse.Other},
		{"no length of a topic", "\x30\x01\x00", fastparse.Other, fastparse.Other},
		{"empty", "\x30\x00", fastparse.Other, fastparse.Other},
		{"length not in as few bytes as possible", "\x30\x86\x00\x00\x03a/b\x00", fastparse.Other, fastparse.Other},
		{"length of five bytes", "\x30\x86\x80\x80\x80\x00\x00\x03a/b\x00", fastparse.Other, fastparse.Other},
		{"PUBACK", "\x40\x02\x00\x01", fastparse.Other, fastparse.Other},
		{"PINGREQ", "\xc0\x00", fastparse.Other, fastparse.Other},
		{"CONNECT", "\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00", fastparse.Other, fastparse.Other},

		{"nothing", "", fastparse.More, fastparse.More},
		{"the type", "\x32", fastparse.More, fastparse.More},
		{"half a length", "\x32\x80", fastparse.More, fastparse.More},
		{"the longest length", "\x32\xff\xff\xff\x7f", fastparse.More, fastparse.More},
		{"all but a byte", pub(0x32, topic, id+"\x00", "{}")[:26], fastparse.More, fastparse.More},
	} {
		for version5, want := range map[bool]fastparse.Verdict{false: tt.v3, true: tt.v5} {
			if _, v := checkPublish(t, []byte(tt.in), version5); v != want {
				t.Errorf("%s, version 5 %v: verdict %v, want %v", tt.name, version5, v, want)
			}
		}
	}
}

// The library agrees when any of the first bytes of a packet is changed, removed or doubled, and the verdict changes
// once over the prefixes of each.
func TestPublishChangedBytes(t *testing.T) {
	for _, in := range []string{pub(0x32, "a/b", "\x00\x01\x00", "{}"), pub(0x30, "a", "\x00", ""),
		pub(0x34, "d", "\x01\x00", strings.Repeat("x", 130))} {
		for i := range min(len(in), 12) {
			for c := range 256 {
				prefixes(t, in[:i]+string([]byte{byte(c)})+in[i+1:])
			}
			prefixes(t, in[:i]+in[i+1:])
			prefixes(t, in[:i+1]+in[i:])
		}
	}
}

// prefixes checks that the verdict over the prefixes of a stream changes once, and that no byte after a
// packet matters.
func prefixes(t *testing.T, in string) {
	t.Helper()
	for _, version5 := range []bool{false, true} {
		whole, final := checkPublish(t, []byte(in), version5)
		for n := range len(in) {
			p, v := fastparse.RecognisePublish([]byte(in[:n]), version5)
			if v != fastparse.More && (v != final || p != whole) || v == fastparse.More && final == fastparse.Accept &&
				n >= whole.Size {
				t.Fatalf("%x: %v %+v, but for its first %d bytes %v %+v", in, final, whole, n, v, p)
			}
		}
	}
}

func TestPublishAllocations(t *testing.T) {
	in := []byte(pub(0x32, "pulsegate/d", "\x00\x01\x00", "{}"))
	if n := testing.AllocsPerRun(100, func() { fastparse.RecognisePublish(in, true) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// The library reads every accepted packet in the same way, and the verdict never changes once it is
// not More.
func FuzzPublish(f *testing.F) {
	for _, in := range []string{pub(0x32, "pulsegate/d", "\x00\x01\x00", `{"time":1}`), pub(0x30, "a", "", "x") +
		"\xc0\x00", pub(0x3c, "a/b", "\x00\x01\x03\x01\x01", "")} {
		f.Add([]byte(in), 5, true)
		f.Add([]byte(in), 9, false)
	}
	f.Fuzz(func(t *testing.T, in []byte, split int, version5 bool) {
		if len(in) > 2*fastparse.MaxBytes {
			return
		}
		whole, verdict := checkPublish(t, in, version5)
		first, v := checkPublish(t, in[:min(max(split, 0), len(in))], version5)
		if v != fastparse.More && (v != verdict || first != whole) {
			t.Errorf("%x: %v %+v, but for its first %d bytes %v %+v", in, verdict, whole, split, v, first)
		}
	})
}
