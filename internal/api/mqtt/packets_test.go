package mqtt_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/mqtt"
)

// u16 returns the bytes of a number.
func u16(n int) string { return string([]byte{byte(n >> 8), byte(n)}) }

// Properties.
const (
	payloadFormat  = "\x01\x01"
	expiry         = "\x02\x00\x00\x00\x3c" // of a message
	contentType    = "\x03\x00\x01t"
	responseTopic  = "\x08\x00\x01r"
	correlation    = "\x09\x00\x01\xff"
	subscriptionID = "\x0b\x01"
	sessionExpiry  = "\x11\x00\x00\x00\x3c"
	serverKeep     = "\x13\x00\x3c"
	method         = "\x15\x00\x01m"
	data           = "\x16\x00\x01d"
	problemInfo0   = "\x17\x00"
	willDelay      = "\x18\x00\x00\x00\x3c"
	responseInfo   = "\x19\x01"
	reason         = "\x1f\x00\x01r"
	receiveMax     = "\x21\x00\x0a"
	aliasMax       = "\x22\x00\x0a"
	alias          = "\x23\x00\x01"
	user           = "\x26\x00\x01k\x00\x01v"
	maxPacket      = "\x27\x00\x00\x10\x00"
)

// A row is what a client sends, what the server answers, and why the connection has ended. If the
// answer does not end with "closed", the connection must go on until the client ends it.
type row struct {
	name string
	send string
	want string // texts of show, separated by ", "
	end  string
}

// check sends the rows, each on a connection that is connected unless version is 0.
func check(t *testing.T, s *server, version byte, rows []row) {
	t.Helper()
	for _, r := range rows {
		before := s.Ended()
		c := s.dial(t)
		if version != 0 {
			c.send(hello(version))
			c.want("CONNACK 0")
		}
		c.send(r.send)
		want := strings.Split(r.want, ", ")
		if r.want == "" {
			want = nil
		}
		if len(want) == 0 || want[len(want)-1] != "closed" {
			if r.end = "client"; len(want) > 0 {
				c.want(want...) // a PINGRESP may overtake
			}
			c.send(pingreq, disconnect)
			want = []string{"PINGRESP", "closed"}
		}
		for i, w := range want {
			if got := c.next(); got != w {
				t.Errorf("%s, version %d, packet %d: %s, want %s", r.name, version, i, got, w)
				break
			}
		}
		_ = c.Close()
		if before[r.end]++; !maps.Equal(before, s.Ended()) {
			t.Errorf("%s, version %d: ended %v, want %v", r.name, version, s.Ended(), before)
		}
	}
}

// refused returns the answer to a CONNECT.
func refused(code string) string { return "CONNACK " + code + ", closed" }

// ended returns the answer of a version to a packet after which the connection ends.
func ended(version byte, code string) string {
	if version == 5 {
		return "DISCONNECT " + code + ", closed"
	}
	return "closed"
}

func TestConnect(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		s := start(t, l, config{})
		will := func(version byte, topic, payload string) string {
			if version == 5 {
				return "\x00" + text(topic) + text(payload)
			}
			return text(topic) + text(payload)
		}
		raw := func(name string, version byte, rest string) string {
			return packet(0x10, text(name)+string([]byte{version})+rest)
		}
		rows := []row{
			{"PINGREQ first", pingreq, "closed", "protocol"},
			{"PUBLISH first", publish(4, 1, 1, "pulsegate/d", reading(1)), "closed", "protocol"},
			{"CONNACK first", packet(0x20, "\x00\x00"), "closed", "protocol"},
			{"DISCONNECT first", disconnect, "closed", "protocol"},
			{"type 0", packet(0, ""), "closed", "protocol"},
			{"AUTH first", packet(0xf0, ""), "closed", "protocol"},
			{"reserved bits of the type", packet(0x11, text("MQTT")+"\x04\x02\x00\x3c"+text("c")), "closed", "malformed"},
			{"HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "closed", "protocol"},
			{"TLS", "\x16\x03\x01\x00\x00\x01", "closed", "malformed"},
			{"length of five bytes", "\x10\x8c\x80\x80\x80\x00\x00\x04MQTT", "closed", "malformed"},
			{"length not in as few bytes as possible", "\x10\x8d\x00" + hello(4)[2:], "closed", "malformed"},
			{"longer than any CONNECT", packet(0x10, strings.Repeat("x", 70_000))[:5], "closed", "too_large"},
			{"no body", packet(0x10, ""), "closed", "malformed"},

			{"MQTT 3.1", raw("MQIsdp", 3, "\x02\x00\x3c"+text("c")), refused("1"), "unsupported"},
			{"version 3 of MQTT", raw("MQTT", 3, "\x02\x00\x3c"+text("c")), refused("1"), "unsupported"},
			{"version 0", raw("MQTT", 0, ""), refused("1"), "unsupported"},
			{"version 6", raw("MQTT", 6, "\x02\x00\x3c\x00"+text("c")), refused("0x84"), "unsupported"},
			{"version 127", raw("MQTT", 127, ""), refused("0x84"), "unsupported"},
			{"a bridge of version 3.1.1", raw("MQTT", 0x84, "\x02\x00\x3c"+text("c")), refused("1"), "unsupported"},
			{"a bridge of version 3.1", raw("MQIsdp", 0x83, "\x02\x00\x3c"+text("c")), refused("1"), "unsupported"},
			{"another protocol", raw("MQTX", 4, "\x02\x00\x3c"+text("c")), "closed", "malformed"},
			{"in small letters", raw("mqtt", 4, "\x02\x00\x3c"+text("c")), "closed", "malformed"},

			{"no identifier, which version 3.1.1 needs for a session", connect(4, 0, "", ""), refused("2"), "unauthorized"},
			{"a password without a user name", connect(4, 0x42, "", "c", text("p")), "closed", "malformed"},
			{"session expiry that is not 0", connect(5, 2, sessionExpiry, "c"), "CONNACK 0", ""},
			{"a password without a user name, version 5", connect(5, 0x42, "", "c", text("p")), "CONNACK 0", ""},
			{"no session to keep, version 5", connect(5, 0, "", ""), "CONNACK 0", ""},
			{"all properties", connect(5, 2, sessionExpiry+problemInfo0+responseInfo+receiveMax+aliasMax+user+user+maxPacket,
				"c"), "CONNACK 0", ""},
			{"a method", connect(5, 2, method, "c"), refused("0x8c"), "unsupported"},
			{"a method with data", connect(5, 2, method+data, "c"), refused("0x8c"), "unsupported"},
			{"data without a method", connect(5, 2, data, "c"), refused("0x82"), "protocol"},
			{"Receive Maximum 0", connect(5, 2, "\x21\x00\x00", "c"), refused("0x82"), "protocol"},
			{"Maximum Packet Size 0", connect(5, 2, "\x27\x00\x00\x00\x00", "c"), refused("0x82"), "protocol"},
			{"Request Problem Information 2", connect(5, 2, "\x17\x02", "c"), refused("0x82"), "protocol"},
			{"Request Response Information 2", connect(5, 2, "\x19\x02", "c"), refused("0x82"), "protocol"},
			{"a property twice", connect(5, 2, receiveMax+receiveMax, "c"), refused("0x82"), "protocol"},
			{"a property twice, another between", connect(5, 2, sessionExpiry+user+sessionExpiry, "c"),
				refused("0x82"), "protocol"},
			{"an unknown property", connect(5, 2, "\x04\x00", "c"), refused("0x81"), "malformed"},
			{"property 255", connect(5, 2, "\xff\x00", "c"), refused("0x81"), "malformed"},
			{"properties longer than the packet", connect(5, 2, "", "c")[:12] + "\x7f" + text("c"), refused("0x81"),
				"malformed"},
			{"a property longer than the properties", connect(5, 2, "\x21\x00", "c"), refused("0x81"), "malformed"},
			{"half a user property", connect(5, 2, "\x26\x00\x01k", "c"), refused("0x81"), "malformed"},
			{"a user property of invalid UTF-8", connect(5, 2, "\x26\x00\x01\xff\x00\x00", "c"), refused("0x81"), "malformed"},
			{"a user property with U+0000", connect(5, 2, "\x26\x00\x01k\x00\x01\x00", "c"), refused("0x81"), "malformed"},
			{"will properties",
				connect(5, 6, "", "c", "\x1f"+willDelay+payloadFormat+expiry+contentType+responseTopic+correlation+user, text("t"),
					text("p")), "CONNACK 0", ""},
			{"a will property twice", connect(5, 6, "", "c", "\x0a"+willDelay+willDelay, text("t"), text("p")),
				refused("0x82"), "protocol"},
			{"a property of PUBLISH in a will", connect(5, 6, "", "c", "\x03"+alias, text("t"), text("p")), refused("0x81"),
				"malformed"},
		}
		for _, p := range []string{serverKeep, willDelay, reason, alias, subscriptionID, payloadFormat, contentType,
			"\x12\x00\x01a", "\x24\x01", "\x25\x01", "\x28\x01", "\x29\x01", "\x2a\x01", "\x1a\x00\x01r", "\x1c\x00\x01r"} {
			rows = append(rows, row{fmt.Sprintf("property %#x, of another packet", p[0]), connect(5, 2, p, "c"), refused("0x81"),
				"malformed"})
		}
		for _, version := range []byte{4, 5} {
			malformed := row{"", "", "closed", "malformed"}
			if version == 5 {
				malformed.want = refused("0x81")
			}
			bad := func(name, send string) { rows = append(rows, row{name, send, malformed.want, malformed.end}) }
			good := func(name, send string) { rows = append(rows, row{name, send, "CONNACK 0", ""}) }
			good("the usual one", hello(version))
			good("no clean start", connect(version, 0, "", "c"))
			good("no identifier", connect(version, 2, "", ""))
			good("a long identifier", connect(version, 2, "", strings.Repeat("ü", 10_000)))
			good("a user name", connect(version, 0x82, "", "c", text("bed-7")))
			good("a user name and a password", connect(version, 0xc2, "", "c", text("bed-7"), text("\x00\xff")))
			good("an empty user name", connect(version, 0x82, "", "c", text("")))
			good("a will", connect(version, 6, "", "c", will(version, "t", "p")))
			good("a retained will with QoS 2 and no payload", connect(version, 0x36, "", "c", will(version, "t", "")))
			bad("a reserved flag", connect(version, 3, "", "c"))
			bad("a will with QoS 3", connect(version, 0x1e, "", "c", will(version, "t", "p")))
			bad("QoS of no will", connect(version, 0x0a, "", "c"))
			bad("RETAIN of no will", connect(version, 0x22, "", "c"))
			bad("a will without a topic", connect(version, 6, "", "c", will(version, "", "p")))
			bad("a will to a wildcard", connect(version, 6, "", "c", will(version, "t/#", "p")))
			bad("a will to invalid UTF-8", connect(version, 6, "", "c", will(version, "\xff", "p")))
			bad("a will that is not there", connect(version, 6, "", "c"))
			bad("a user name that is not there", connect(version, 0x82, "", "c"))
			bad("a user name longer than the packet", connect(version, 0x82, "", "c", "\x00\x09bed-7"))
			bad("something after the last field", connect(version, 2, "", "c", "x"))
			bad("a user name without its flag", connect(version, 2, "", "c", text("bed-7")))
			bad("an identifier of invalid UTF-8", connect(version, 2, "", "\xc3"))
			bad("an identifier with a surrogate", connect(version, 2, "", "\xed\xa0\x80"))
			bad("an identifier with U+0000", connect(version, 2, "", "a\x00b"))
			bad("a user name of invalid UTF-8", connect(version, 0x82, "", "c", text("\xff")))
			bad("a user name with U+0000", connect(version, 0x82, "", "c", text("a\x00")))
			rows = append(rows, row{"a user name that is not a name", connect(version, 0x82, "", "c", text("bed 7")),
				map[byte]string{4: refused("4"), 5: refused("0x86")}[version], "unauthorized"})
			whole := connect(version, 0xf6, map[byte]string{5: receiveMax + user}[version], "c",
				map[byte]string{5: "\x05" + willDelay}[version]+text("t")+text("p")+text("bed-7")+text("pw"))
			good("all fields", whole)
			for n := 7; n < len(whole)-2; n++ {
				bad(fmt.Sprint("cut after ", n), packet(0x10, whole[2:2+n]))
			}
			bad("all fields and more", packet(0x10, whole[2:]+"\x00"))
		}
		check(t, s, 0, rows)
	})
}

// The CONNACK of version 5 announces what the server supports.
func TestConnack(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		s := start(t, l, config{opt: mqtt.Options{Options: front.Options{MaxBytes: 100_000}}})
		const fixed = "\x21\x00\x40" + "\x25\x00" + "\x27\x00\x01\x86\xa0" + "\x28\x00" + "\x29\x00" + "\x2a\x00"
		as := func(keep int, props, id string) string {
			whole := connect(5, 2, props, id)
			return whole[:10] + u16(keep) + whole[12:]
		}
		for _, tt := range []struct{ name, send, want string }{
			{"usual", hello(5), fixed},
			{"no keep alive", as(0, "", "c"), "\x13\x04\xb0" + fixed},
			{"20 minutes", as(1200, "", "c"), fixed},
			{"beyond 20 minutes", as(1201, "", "c"), "\x13\x04\xb0" + fixed},
			{"a session", as(60, sessionExpiry, "c"), "\x11\x00\x00\x00\x00" + fixed},
			{"a session that expires at once", as(60, "\x11\x00\x00\x00\x00", "c"), fixed},
		} {
			c := s.dial(t)
			c.send(tt.send)
			want := packet(0x20, "\x00\x00"+string([]byte{byte(len(tt.want))})+tt.want)
			if got, err := c.packet(); string(got) != want {
				t.Errorf("%s: %x, %v, want %x", tt.name, got, err, want)
			}
		}
		ids := map[string]bool{}
		for range 3 {
			c := s.dial(t)
			c.send(as(60, "", ""))
			got, err := c.packet()
			if _, id, found := strings.Cut(string(got), "\x12\x00\x24pulsegate-"); !found || err != nil || ids[id[:26]] {
				t.Errorf("no identifier, or one that was assigned before, in %q, %v", got, err)
			} else {
				ids[id[:26]] = true
			}
		}
	})
}

// No packet is longer than the client takes, and a client that wants no reasons gets none.
func TestMaximumPacketSize(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		s := start(t, l, config{})
		const rejected = "PUBACK 7 0x99"
		filters := func(n int) string { return packet(0x82, u16(7)+"\x00"+strings.Repeat(text("a")+"\x01", n)) }
		for _, tt := range []struct{ name, props, send, want string }{
			{"any", "", publish(5, 1, 7, "pulsegate/d", "{}"), rejected + " time: missing"},
			{"longer than the acknowledgement", "\x27\x00\x00\x00\x20", publish(5, 1, 7, "pulsegate/d", "{}"),
				rejected + " time: missing"},
			{"as long", "\x27\x00\x00\x00\x16", publish(5, 1, 7, "pulsegate/d", "{}"), rejected + " time: missing"},
			{"shorter", "\x27\x00\x00\x00\x16", publish(5, 1, 7, "pulsegate/d", `{"time":1,"spo2_pct":0}`), rejected},
			{"no reasons", "\x17\x00", publish(5, 1, 7, "pulsegate/d", "{}"), rejected},
			{"reasons", "\x17\x01", publish(5, 1, 7, "pulsegate/d", "{}"), rejected + " time: missing"},
			{"as many filters", "\x27\x00\x00\x00\x16", filters(17), "SUBACK 000700" + strings.Repeat("87", 17)},
			{"too many filters", "\x27\x00\x00\x00\x16", filters(18), "DISCONNECT 0x95"},
			{"unsubscribing too many", "\x27\x00\x00\x00\x16", packet(0xa2, u16(7)+"\x00"+strings.Repeat(text("a"), 18)),
				"DISCONNECT 0x95"},
		} {
			c := s.dial(t)
			c.send(connect(5, 2, tt.props, "c"))
			c.want("CONNACK 0")
			c.send(tt.send)
			if got := c.next(); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
		for _, size := range []string{"\x14", "\x01"} { // CONNACK has 21 bytes
			c := s.dial(t)
			c.send(connect(5, 2, "\x27\x00\x00\x00"+size, "c"))
			c.want("closed")
		}
	})
}

// A packet may be as long as the server announces, and no longer.
func TestLargestPacket(t *testing.T) {
	eachLane(t, func(t *testing.T, l lane) {
		for _, largest := range []int{3000, 200_000} {
			largestPacket(t, l, largest)
		}
	})
}

// largestPacket checks a server with a bound of largest bytes.
func largestPacket(t *testing.T, l lane, largest int) {
	s := start(t, l, config{opt: mqtt.Options{Options: front.Options{MaxBytes: largest}},
		ingest: ingest.Config{MaxBatchBytes: largest}})
	for _, version := range []byte{4, 5} {
		sized := func(bytes int) string {
			payload := largest - 100 // its packet's length takes as many bytes as that of largest
			fixed := len(publish(version, 1, 7, "pulsegate/d", strings.Repeat(" ", payload))) - payload
			one := "[" + reading(int(version)) + "]"
			return publish(version, 1, 7, "pulsegate/d", one+strings.Repeat(" ", bytes-fixed-len(one)))
		}
		c := s.connect(t, version)
		c.send(sized(largest))
		c.want("PUBACK 7")
		if got := s.store.take(); len(got) != 1 {
			t.Errorf("version %d stored %q, want a reading", version, got)
		}
		c.send(sized(largest + 1)[:min(largest+1, 4000)]) // the server need not read the rest
		c.want(strings.Split(ended(version, "0x95"), ", ")...)
	}
	s.stop(t)
	if got := s.Ended()["too_large"]; got != 2 {
		t.Errorf("%d ended as too large, want 2", got)
	}
}

func TestPackets(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		s := start(t, l, config{opt: mqtt.Options{Options: front.Options{MaxBytes: 100_000}},
			ingest: ingest.Config{MaxBatchBytes: 100_000}})
		for _, version := range []byte{4, 5} {
			var rows []row
			bad := func(name, send string) { rows = append(rows, row{name, send, ended(version, "0x81"), "malformed"}) }
			wrong := func(name, send string) {
				rows = append(rows, row{name, send, ended(version, "0x82"), "protocol"})
			}
			good := func(name, send, want string) { rows = append(rows, row{name, send, want, ""}) }
			fails := func(name, send, code, end string) {
				rows = append(rows, row{name, send, ended(version, code), end})
			}
			ms := int(version) * 1000
			usual := func() string { ms++; return reading(ms) }
			noProps := map[byte]string{5: "\x00"}[version]

			wrong("a second CONNECT", hello(version))
			for i, name := range []string{"CONNACK", "PUBACK", "PUBREC", "SUBACK", "UNSUBACK", "PINGRESP"} {
				wrong(name, packet([]byte{0x20, 0x40, 0x50, 0x90, 0xb0, 0xd0}[i], "\x00\x01"))
			}
			wrong("PUBCOMP", packet(0x70, "\x00\x01"))
			wrong("AUTH", packet(0xf0, ""))
			wrong("type 0", packet(0, ""))
			bad("length of five bytes", "\x30\xff\xff\xff\xff\x01")
			bad("length not in as few bytes as possible", "\xc0\x80\x00")
			fails("a SUBSCRIBE that is too long", packet(0x82, strings.Repeat("x", 70_000))[:5], "0x95", "too_large")
			fails("a PUBLISH that is too long", packet(0x32, strings.Repeat("x", 100_000))[:5], "0x95", "too_large")

			good("PINGREQ", pingreq, "PINGRESP")
			bad("PINGREQ with a body", packet(0xc0, "\x00"))
			bad("PINGREQ with flags", packet(0xc1, ""))
			good("PUBREL of an unknown identifier", packet(0x62, u16(700)), "PUBCOMP 700")
			wrong("PUBREL of 0", packet(0x62, u16(0)))
			bad("PUBREL without its flags", packet(0x60, u16(7)))
			bad("PUBREL without a body", packet(0x62, ""))
			bad("PUBREL with half an identifier", packet(0x62, "\x01"))

			suback, unsuback := "SUBACK 000780", "UNSUBACK 0007"
			if version == 5 {
				suback, unsuback = "SUBACK 00070087", "UNSUBACK 00070011"
			}
			good("SUBSCRIBE", packet(0x82, u16(7)+noProps+text("a/#")+"\x01"), suback)
			good("SUBSCRIBE to two", packet(0x82, u16(7)+noProps+text("a/#")+"\x01"+text("+")+"\x02"),
				suback+suback[len(suback)-2:])
			good("UNSUBSCRIBE", packet(0xa2, u16(7)+noProps+text("a/#")), unsuback)
			wrong("SUBSCRIBE 0", packet(0x82, u16(0)+noProps+text("a")+"\x01"))
			wrong("SUBSCRIBE to nothing", packet(0x82, u16(7)+noProps))
			wrong("UNSUBSCRIBE 0", packet(0xa2, u16(0)+noProps+text("a")))
			wrong("UNSUBSCRIBE from nothing", packet(0xa2, u16(7)+noProps))
			bad("SUBSCRIBE without its flags", packet(0x80, u16(7)+noProps+text("a")+"\x01"))
			bad("UNSUBSCRIBE without its flags", packet(0xa0, u16(7)+noProps+text("a")))
			bad("SUBSCRIBE without options", packet(0x82, u16(7)+noProps+text("a/#")))
			bad("SUBSCRIBE without the second's options", packet(0x82, u16(7)+noProps+text("a/#")+"\x01"+text("b")))
			wrong("SUBSCRIBE with QoS 3", packet(0x82, u16(7)+noProps+text("a")+"\x03"))
			bad("SUBSCRIBE with reserved options", packet(0x82, u16(7)+noProps+text("a")+"\x41"))
			bad("SUBSCRIBE to an empty filter", packet(0x82, u16(7)+noProps+text("")+"\x01"))
			bad("SUBSCRIBE to invalid UTF-8", packet(0x82, u16(7)+noProps+text("\xff")+"\x01"))
			bad("SUBSCRIBE to U+0000", packet(0x82, u16(7)+noProps+text("\x00")+"\x01"))
			bad("SUBSCRIBE to more than it has", packet(0x82, u16(7)+noProps+"\x00\x09a\x01"))
			bad("SUBSCRIBE without a body", packet(0x82, ""))
			bad("SUBSCRIBE with an identifier alone", packet(0x82, "\x00"))
			bad("UNSUBSCRIBE from an empty filter", packet(0xa2, u16(7)+noProps+text("")))
			bad("UNSUBSCRIBE from more than it has", packet(0xa2, u16(7)+noProps+"\x00\x09a"))
			bad("UNSUBSCRIBE without a body", packet(0xa2, ""))

			good("QoS 0", publish(version, 0, 0, "pulsegate/d", usual()), "")
			good("QoS 1", publish(version, 1, 1, "pulsegate/d", usual()), "PUBACK 1")
			good("QoS 2", publish(version, 2, 65535, "pulsegate/d", usual()), "PUBREC 65535")
			good("an identifier that is in use", publish(version, 1, 7, "pulsegate/d", usual())+publish(version, 1, 7,
				"pulsegate/d", usual()), "PUBACK 7, PUBACK 7")
			good("DUP", publishAs(version, 0x3a, 7, "pulsegate/d", "", usual()), "PUBACK 7")
			good("DUP of a known one", publishAs(version, 0x3a, 7, "pulsegate/d", "", reading(ms)), "PUBACK 7")
			good("DUP with QoS 2", publishAs(version, 0x3c, 7, "pulsegate/d", "", reading(ms)), "PUBREC 7")
			bad("DUP with QoS 0", publishAs(version, 0x38, 0, "pulsegate/d", "", usual()))
			bad("QoS 3", publishAs(version, 0x36, 7, "pulsegate/d", "", usual()))
			wrong("identifier 0", publish(version, 1, 0, "pulsegate/d", usual()))
			wrong("identifier 0 with QoS 2", publish(version, 2, 0, "pulsegate/d", usual()))
			wrong("no topic", publish(version, 1, 7, "", usual()))
			fails("a topic with #", publish(version, 1, 7, "pulsegate/#", usual()), "0x90", "protocol")
			fails("a topic with +", publish(version, 0, 7, "pulsegate/+", usual()), "0x90", "protocol")
			bad("a topic of invalid UTF-8", publish(version, 1, 7, "pulsegate/\xff", usual()))
			bad("a topic with U+0000", publish(version, 0, 0, "pulsegate/\x00", usual()))
			bad("a topic with a surrogate", publish(version, 0, 0, "pulsegate/\xed\xbf\xbf", usual()))
			bad("a topic longer than the packet", packet(0x30, "\x00\x09a/b"))
			bad("no body", packet(0x30, ""))
			bad("half a length", packet(0x30, "\x00"))
			bad("no identifier", packet(0x32, text("a/b")))
			bad("half an identifier", packet(0x32, text("a/b")+"\x01"))

			if version == 4 {
				good("RETAIN", publishAs(4, 0x33, 7, "pulsegate/d", "", usual()), "PUBACK 7")
				bad("DISCONNECT with a body", packet(0xe0, "\x00"))
				bad("DISCONNECT with flags", packet(0xe1, ""))
				bad("PUBREL with a reason code", packet(0x62, u16(7)+"\x00"))
				bad("UNSUBSCRIBE with something after it", packet(0xa2, u16(7)+text("a")+"x"))
			} else {
				props := payloadFormat + expiry + contentType + responseTopic + correlation + user + user
				good("properties", publishAs(5, 0x32, 7, "pulsegate/d", props, usual()), "PUBACK 7")
				good("properties with QoS 0", publishAs(5, 0x30, 0, "pulsegate/d", props, usual()), "")
				fails("RETAIN", publishAs(5, 0x33, 7, "pulsegate/d", "", usual()), "0x9a", "unsupported")
				fails("a topic alias", publishAs(5, 0x32, 7, "pulsegate/d", alias, usual()), "0x94", "unsupported")
				fails("a topic alias alone", publishAs(5, 0x32, 7, "", alias, usual()), "0x94", "unsupported")
				fails("topic alias 0", publishAs(5, 0x32, 7, "pulsegate/d", "\x23\x00\x00", usual()), "0x94", "unsupported")
				wrong("a subscription identifier", publishAs(5, 0x32, 7, "pulsegate/d", subscriptionID, usual()))
				wrong("payload format 2", publishAs(5, 0x32, 7, "pulsegate/d", "\x01\x02", usual()))
				wrong("a response topic with #", publishAs(5, 0x32, 7, "pulsegate/d", "\x08\x00\x03a/#", usual()))
				wrong("AUTH that begins anew", packet(0xf0, "\x19\x04"+method))
				wrong("a property twice", publishAs(5, 0x32, 7, "pulsegate/d", expiry+user+expiry, usual()))
				bad("a property of CONNECT", publishAs(5, 0x32, 7, "pulsegate/d", sessionExpiry, usual()))
				bad("an unknown property", publishAs(5, 0x32, 7, "pulsegate/d", "\x7f", usual()))
				bad("a content type of invalid UTF-8", publishAs(5, 0x32, 7, "pulsegate/d", "\x03\x00\x01\xff", usual()))
				bad("no properties", packet(0x32, text("a/b")+u16(7)))
				bad("properties longer than the packet", packet(0x32, text("a/b")+u16(7)+"\x09"+payloadFormat))
				bad("a length of properties not in as few bytes as possible", packet(0x32, text("a/b")+u16(7)+"\x80\x00"+"{}"))
				bad("a length of properties of five bytes", packet(0x32, text("a/b")+u16(7)+"\x80\x80\x80\x80\x00"+"{}"))
				for n := 1; n < len(expiry+user); n++ {
					if n != len(expiry) {
						bad(fmt.Sprint("properties cut after ", n), publishAs(5, 0x32, 7, "pulsegate/d", (expiry + user)[:n], usual()))
					}
				}
				good("PUBREL with a reason code", packet(0x62, u16(7)+"\x92"), "PUBCOMP 7")
				good("PUBREL with properties", packet(0x62, u16(7)+"\x00\x0b"+reason+user), "PUBCOMP 7")
				wrong("PUBREL with a reason twice", packet(0x62, u16(7)+"\x00\x08"+reason+reason))
				bad("PUBREL with a property of others", packet(0x62, u16(7)+"\x00\x03"+alias))
				bad("PUBREL with something after its properties", packet(0x62, u16(7)+"\x00\x00x"))
				bad("PUBREL with properties cut", packet(0x62, u16(7)+"\x00\x05"+reason))
				good("SUBSCRIBE with options and properties", packet(0x82, u16(7)+"\x09"+subscriptionID+user+text("a")+"\x2d"),
					suback)
				wrong("SUBSCRIBE with retain handling 3", packet(0x82, u16(7)+"\x00"+text("a")+"\x31"))
				wrong("SUBSCRIBE with identifier 0", packet(0x82, u16(7)+"\x02\x0b\x00"+text("a")+"\x01"))
				wrong("SUBSCRIBE with two identifiers", packet(0x82, u16(7)+"\x04"+subscriptionID+subscriptionID+text("a")+"\x01"))
				bad("SUBSCRIBE with an identifier cut", packet(0x82, u16(7)+"\x02\x0b\x80"+text("a")+"\x01"))
				bad("SUBSCRIBE with a property of others", packet(0x82, u16(7)+"\x03"+alias+text("a")+"\x01"))
				good("UNSUBSCRIBE with properties", packet(0xa2, u16(7)+"\x07"+user+text("a")+text("b")), unsuback+"11")
				bad("UNSUBSCRIBE with a subscription identifier", packet(0xa2, u16(7)+"\x02"+subscriptionID+text("a")))
				bad("DISCONNECT with flags", packet(0xe2, "\x00"))
				bad("DISCONNECT with something after it", packet(0xe0, "\x00\x00x"))
				bad("DISCONNECT with properties cut", packet(0xe0, "\x00\x05\x11\x00"))
				bad("DISCONNECT with a property of others", packet(0xe0, "\x00\x03"+alias))
				wrong("DISCONNECT with a property twice", packet(0xe0, "\x00\x0a"+sessionExpiry+sessionExpiry))
				for _, d := range []string{"\x00", "\x04", "\x00\x00", "\x04\x0c" + sessionExpiry + user} {
					rows = append(rows, row{"DISCONNECT", packet(0xe0, d), "closed", "client"})
				}
			}
			rows = append(rows, row{"DISCONNECT after a publication", publish(version, 1, 7, "pulsegate/d", usual()) +
				disconnect + pingreq + hello(version), "PUBACK 7, closed", "client"})
			check(t, s, version, rows)
		}
	})
}
