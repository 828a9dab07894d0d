package mqtt_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/fronttest"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/mqtt"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// A clock is the time of a server, which a test may advance.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	var c clock
	c.ms.Store(time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC).UnixMilli())
	return &c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// A store is a store in memory that lists what it has stored. before, if not nil, is called before each
// Append and may return its error.
type store struct {
	ingest.Appender
	before func(group []*storage.Entry) error

	mu     sync.Mutex
	stored []string
}

func (s *store) Append(group []*storage.Entry) error {
	if s.before != nil {
		if err := s.before(group); err != nil {
			return err
		}
	}
	if err := s.Appender.Append(group); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range group {
		if e.Outcome == storage.Stored || e.Outcome == storage.Completed {
			s.stored = append(s.stored, fmt.Sprintf("%s by %q at %d: %v", e.Reading.Device, e.Reading.Gateway,
				e.Reading.TimeUnixMs, e.Reading.Values))
		}
	}
	return nil
}

// take returns what was stored since the last call.
func (s *store) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.stored
	s.stored = nil
	return stored
}

// A lane is how the connections of a server are served.
type lane struct{ loop, secure bool }

func (l lane) String() string {
	return map[bool]string{true: "loop", false: "goroutines"}[l.loop] + map[bool]string{true: " over TLS",
		false: ""}[l.secure]
}

// eachLane runs a test with every lane in parallel.
func eachLane(t *testing.T, test func(t *testing.T, l lane)) {
	inLanes(t, test, lane{loop: true}, lane{}, lane{true, true}, lane{false, true})
}

// eachPlainLane is eachLane without TLS, for tests of many connections.
func eachPlainLane(t *testing.T, test func(t *testing.T, l lane)) {
	inLanes(t, test, lane{loop: true}, lane{})
}

func inLanes(t *testing.T, test func(t *testing.T, l lane), lanes ...lane) {
	for _, l := range lanes {
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			test(t, l)
		})
	}
}

// The front passes the tests of all fronts.
func TestFront(t *testing.T) {
	topic, err := mqtt.ParseTopic(mqtt.DefaultTopic)
	try(t, err)
	fronttest.Run(t, fronttest.Front{
		Serve: func(t testing.TB, l net.Listener, opt front.Options) fronttest.Server {
			s, err := mqtt.Serve(l, mqtt.Options{Options: opt, Signs: vitals.NewSigns(), Topic: topic})
			try(t, err)
			return s
		},
		Hello: hello(4), Welcome: "CONNACK 0",
		Message: func(n int) string { return publish(4, 1, n+1, "pulsegate/d", reading(n)) },
		Next: func(in *bufio.Reader) (string, error) {
			b, err := readPacket(in)
			if err != nil {
				return "", err
			}
			return show(b), nil
		},
		Stored: func(n int) string { return fmt.Sprint("PUBACK ", n+1) },
		Holds:  true,
	}, fronttest.Lane{Loop: true}, fronttest.Lane{}, fronttest.Lane{Loop: true, TLS: true}, fronttest.Lane{TLS: true})
}

// A config configures a server. Zero fields select what a test needs least.
type config struct {
	ingest ingest.Config
	opt    mqtt.Options
	gate   *gate.Gate
	topic  string
	before func([]*storage.Entry) error
	clock  *clock
	tls    *tls.Config // of the server, if the lane is secure
	store  ingest.Appender

	unlisted bool // what is stored is not listed
}

// A server is a running server.
type server struct {
	*mqtt.Server
	lane   lane
	core   *ingest.Core
	store  *store
	list   *rejections.List
	listed uint64 // for which rejected was called
	clock  *clock
	conns  *share.Conns
	done   bool
}

// start starts a server, and stops it at the end of the test.
func start(t testing.TB, l lane, cfg config) *server {
	t.Helper()
	s := &server{lane: l, list: rejections.New(rejections.Max), clock: cfg.clock}
	if s.clock == nil {
		s.clock = newClock()
	}
	if s.store = (&store{Appender: cfg.store, before: cfg.before}); cfg.store == nil {
		s.store.Appender = storetest.NewMemory()
	}
	in := cfg.ingest
	in.Now, in.Gate, in.MaxWait = s.clock.now, cfg.gate, cmp.Or(in.MaxWait, polltest.Patience)
	in.Limits = vitals.NewSigns().DefaultLimits()
	in.Limits.OldestUnixMs = 0
	problems := problem.New()
	var appender ingest.Appender = s.store
	if cfg.unlisted {
		appender = cfg.store
	}
	var err error
	s.core, err = ingest.New(appender, problems, in)
	try(t, err)
	opt := cfg.opt
	opt.Core, opt.Problems, opt.Rejections, opt.Signs, opt.Now = s.core, problems, s.list, in.Limits.Signs, s.clock.now
	if opt.Gate = cfg.gate; opt.Gate == nil {
		opt.Gate = new(gate.Gate)
	}
	opt.Topic, err = mqtt.ParseTopic(cmp.Or(cfg.topic, mqtt.DefaultTopic))
	try(t, err)
	if opt.Conns == nil {
		opt.Conns = &share.Conns{Max: 20_000, MaxGuests: 1}
	}
	s.conns = opt.Conns
	opt.FastLane, opt.TLS = l.loop, l.secure
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	if l.secure {
		if cfg.tls == nil {
			cfg.tls = &tls.Config{Certificates: []tls.Certificate{certtest.New("ca").Server(1).TLS()}}
		}
		listener = listen.TLS(listener, opt.Conns, listen.Handshakes{Config: cfg.tls, Slots: 64, Timeout: polltest.Patience})
	}
	s.Server, err = mqtt.Serve(listener, opt)
	try(t, err)
	t.Cleanup(func() { s.stop(t) })
	return s
}

// stop stops the server, once, and checks that nothing is left.
func (s *server) stop(t testing.TB) {
	t.Helper()
	if s.done {
		return
	}
	s.done = true
	ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
	defer cancel()
	s.core.Drain()
	if err := errors.Join(s.Shutdown(ctx), s.core.Close(ctx)); err != nil {
		t.Error(err)
	}
	if n := s.conns.Open(); n != 0 {
		t.Errorf("%d connections are open at the end", n)
	}
}

// A client is a connection to a server.
type client struct {
	net.Conn
	t testing.TB
}

// dial connects to a server. The connection is closed at the end of the test.
func (s *server) dial(t testing.TB) *client {
	t.Helper()
	return s.dialAs(t, &tls.Config{InsecureSkipVerify: true})
}

// dialAs is dial with a configuration of TLS.
func (s *server) dialAs(t testing.TB, cfg *tls.Config) *client {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	try(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	try(t, conn.SetDeadline(time.Now().Add(polltest.Patience)))
	if s.lane.secure {
		secured := tls.Client(conn, cfg)
		try(t, secured.Handshake())
		conn = secured
	}
	return &client{conn, t}
}

// connect returns a client of a version that the server has accepted.
func (s *server) connect(t testing.TB, version byte) *client {
	t.Helper()
	c := s.dial(t)
	c.send(hello(version))
	c.want("CONNACK 0")
	return c
}

func (c *client) send(all ...string) {
	c.t.Helper()
	if _, err := io.WriteString(c, strings.Join(all, "")); err != nil {
		c.t.Fatal(err)
	}
}

// want reads packets and compares them with texts of show.
func (c *client) want(texts ...string) {
	c.t.Helper()
	for i, want := range texts {
		if got := c.next(); got != want {
			c.t.Errorf("packet %d: %s, want %s", i, got, want)
			if got == "closed" {
				c.t.FailNow()
			}
		}
	}
}

// next returns the text of the next packet, or "closed".
func (c *client) next() string {
	c.t.Helper()
	b, err := c.packet()
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		c.t.Fatal("no packet")
	}
	if err != nil {
		return "closed"
	}
	return show(b)
}

// packet reads a packet.
func (c *client) packet() ([]byte, error) { return readPacket(c) }

func readPacket(in io.Reader) ([]byte, error) {
	b := make([]byte, 2, 64)
	if _, err := io.ReadFull(in, b); err != nil {
		return nil, err
	}
	for b[len(b)-1] >= 0x80 {
		b = append(b, 0)
		if _, err := io.ReadFull(in, b[len(b)-1:]); err != nil {
			return nil, err
		}
	}
	length, _, err := packets.DecodeLength(bytes.NewReader(b[1:]))
	if err != nil {
		return nil, err
	}
	n := len(b)
	b = append(b, make([]byte, length)...)
	_, err = io.ReadFull(in, b[n:])
	return b, err
}

// show returns the text of a packet of a server, which the library must understand: its name, its
// identifier if it has one, its codes unless they are success, and its reason string. Version 3.1.1 is
// read as version 5, of which its answers are short forms.
func show(b []byte) string {
	p := packets.Packet{ProtocolVersion: 5}
	if err := p.FixedHeader.Decode(b[0]); err != nil {
		return fmt.Sprintf("%x: %v", b, err)
	}
	length, width, err := packets.DecodeLength(bytes.NewReader(b[1:]))
	if err != nil || 1+width+length != len(b) {
		return fmt.Sprintf("%x: length %d, %v", b, length, err)
	}
	p.FixedHeader.Remaining = length
	body := b[1+width:]
	text := packets.PacketNames[p.FixedHeader.Type]
	switch p.FixedHeader.Type {
	case packets.Connack:
		if length > 2 {
			err = p.ConnackDecode(body)
		} else {
			p.ReasonCode, p.SessionPresent = body[1], body[0] != 0
		}
		if text = fmt.Sprintf("CONNACK %#x", p.ReasonCode); p.ReasonCode < 6 {
			text = fmt.Sprintf("CONNACK %d", p.ReasonCode)
		}
		if p.SessionPresent {
			text += " with a session"
		}
	case packets.Puback, packets.Pubrec, packets.Pubcomp:
		err = p.PubackDecode(body)
		text = fmt.Sprint(strings.ToUpper(text), " ", p.PacketID)
		if p.ReasonCode != 0 {
			text += fmt.Sprintf(" %#x %s", p.ReasonCode, p.Properties.ReasonString)
		}
	case packets.Suback, packets.Unsuback:
		text = fmt.Sprintf("%s %x", strings.ToUpper(text), body)
	case packets.Disconnect:
		err = p.DisconnectDecode(body)
		text = fmt.Sprintf("DISCONNECT %#x", p.ReasonCode)
	case packets.Pingresp:
		text = "PINGRESP"
	}
	if err != nil {
		text += ": " + err.Error()
	}
	return strings.TrimSpace(text)
}

// packet returns a packet.
func packet(first byte, body string) string {
	head := []byte{first}
	n := len(body)
	for ; n >= 0x80; n >>= 7 {
		head = append(head, byte(n)|0x80)
	}
	return string(append(head, byte(n))) + body
}

// text returns a string with its length.
func text(s string) string { return string([]byte{byte(len(s) >> 8), byte(len(s))}) + s }

// connect returns a CONNECT with flags and keep alive 60. props are the properties without their length;
// fields follow the client identifier.
func connect(version, flags byte, props, id string, fields ...string) string {
	if version == 5 {
		props = string([]byte{byte(len(props))}) + props
	}
	return packet(0x10, text("MQTT")+string([]byte{version, flags, 0, 60})+props+text(id)+strings.Join(fields, ""))
}

// hello returns the usual CONNECT.
func hello(version byte) string { return connect(version, 2, "", "c") }

// signIn returns a CONNECT with a user name and a password, or without what is "".
func signIn(version byte, user, password string) string {
	flags, fields := byte(2), ""
	if user != "" {
		flags, fields = flags|0x80, text(user)
	}
	if password != "" {
		flags, fields = flags|0x40, fields+text(password)
	}
	return connect(version, flags, "", "c", fields)
}

// publish returns a PUBLISH. id is not sent with QoS 0.
func publish(version, qos byte, id int, topic, payload string) string {
	return publishAs(version, 0x30|qos<<1, id, topic, "", payload)
}

// publishAs is publish with a first byte and properties.
func publishAs(version, first byte, id int, topic, props, payload string) string {
	body := text(topic)
	if first&6 != 0 {
		body += string([]byte{byte(id >> 8), byte(id)})
	}
	if version == 5 {
		body += string([]byte{byte(len(props))}) + props
	}
	return packet(first, body+payload)
}

const (
	pingreq    = "\xc0\x00"
	disconnect = "\xe0\x00"
)

// reading returns a reading without a device.
func reading(ms int) string { return fmt.Sprintf(`{"time":%d,"spo2_pct":97}`, ms) }

// batch returns n readings from a time on.
func batch(ms, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = reading(ms + i)
	}
	return "[" + strings.Join(all, ",") + "]"
}

var try = polltest.Try
