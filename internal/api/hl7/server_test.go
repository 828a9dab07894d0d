package hl7_test

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
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/fronttest"
	"github.com/pulsegate/pulsegate/internal/api/hl7"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// A store is a store in memory that counts what it has stored. before, if not nil, is called before each Append and may
// return its error.
type store struct {
	*storetest.Memory
	before func() error
	stored atomic.Int64
}

func (s *store) Append(group []*storage.Entry) error {
	if s.before != nil {
		if err := s.before(); err != nil {
			return err
		}
	}
	err := s.Memory.Append(group)
	for _, e := range group {
		if err == nil && (e.Outcome == storage.Stored || e.Outcome == storage.Completed) {
			s.stored.Add(1)
		}
	}
	return err
}

// A config configures a server. Zero fields select what a test needs least.
type config struct {
	ingest ingest.Config
	opt    hl7.ServerOptions
	before func() error
	tls    *tls.Config

	listener func(net.Listener) net.Listener
}

// A server is a running server.
type server struct {
	*hl7.Server
	core  *ingest.Core
	store *store
	list  *rejections.List
	conns *share.Conns
	late  atomic.Int64 // how far its clock is ahead, in ns
}

// start starts a server, and stops it at the end of the test.
func start(t testing.TB, cfg config) *server {
	t.Helper()
	s := &server{store: &store{Memory: storetest.NewMemory(), before: cfg.before}, list: rejections.New(rejections.Max)}
	in, problems := cfg.ingest, problem.New()
	in.Now = func() time.Time { return time.Now().Add(time.Duration(s.late.Load())) }
	in.MaxWait = cmp.Or(in.MaxWait, polltest.Patience)
	in.Limits = s.store.Signs().DefaultLimits()
	in.Gate = cfg.opt.Gate
	var err error
	s.core, err = ingest.New(s.store, problems, in)
	try(t, err)
	opt := cfg.opt
	opt.Core, opt.Problems, opt.Rejections, opt.Now, opt.Messages.Signs = s.core, problems, s.list, in.Now, in.Limits.Signs
	if opt.Gate == nil {
		opt.Gate = new(gate.Gate)
	}
	if opt.Conns == nil {
		opt.Conns = &share.Conns{Max: 1000, MaxGuests: 1}
	}
	s.conns = opt.Conns
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	if cfg.tls != nil {
		opt.TLS = true
		listener = listen.TLS(listener, opt.Conns, listen.Handshakes{Config: cfg.tls, Slots: 64, Timeout: polltest.Patience})
	}
	if cfg.listener != nil {
		listener = cfg.listener(listener)
	}
	s.Server = hl7.Serve(listener, opt)
	t.Cleanup(func() { s.stop(t) })
	return s
}

// stop stops the server. It may be called again.
func (s *server) stop(t testing.TB) {
	t.Helper()
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

// figures returns the counters that are not 0, such as "endings client 1".
func (s *server) figures(t testing.TB) (texts []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.Server)
	families, err := registry.Gather()
	try(t, err)
	for _, family := range families {
		name := strings.TrimSuffix(strings.TrimPrefix(family.GetName(), "pulsegate_mllp_"), "_total")
		for _, m := range family.GetMetric() {
			label := ""
			for _, l := range m.GetLabel() {
				label = " " + l.GetValue()
			}
			if v := m.GetCounter().GetValue(); v != 0 {
				texts = append(texts, fmt.Sprintf("%s%s %v", name, label, v))
			}
		}
	}
	return texts
}

// wantFigures waits for counters.
func (s *server) wantFigures(t testing.TB, want ...string) {
	t.Helper()
	if !polltest.Within(polltest.Patience, func() bool { return slices.Equal(s.figures(t), want) }) {
		t.Errorf("counted %q, want %q", s.figures(t), want)
	}
}

// A client is a connection to a server.
type client struct {
	net.Conn
	t  testing.TB
	in *bufio.Reader
}

// dial connects to a server. The connection is closed at the end of the test.
func (s *server) dial(t testing.TB, pair ...tls.Certificate) *client {
	t.Helper()
	return s.dialFrom(t, "127.0.0.1", pair...)
}

// dialFrom is dial from a loopback address.
func (s *server) dialFrom(t testing.TB, addr string, pair ...tls.Certificate) *client {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}).Dial("tcp", s.Addr().String())
	try(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	try(t, conn.SetDeadline(time.Now().Add(polltest.Patience)))
	if len(pair) > 0 {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: pair})
	}
	return &client{conn, t, bufio.NewReader(conn)}
}

func (c *client) send(texts ...string) {
	c.t.Helper()
	if _, err := io.WriteString(c, strings.Join(texts, "")); err != nil {
		c.t.Error(err)
	}
}

// next returns MSA-1 and MSA-2 of the next answer and the texts of its ERR, or "closed".
func (c *client) next() string {
	text, err := c.in.ReadString(0x1c)
	if err != nil {
		if len(text) > 0 {
			return "a part of an answer: " + text
		}
		if errors.Is(err, io.EOF) {
			return "closed"
		}
		return err.Error()
	}
	if b, err := c.in.ReadByte(); b != '\r' || text[0] != 0x0b || strings.Count(text, "\x0b") > 1 {
		return fmt.Sprintf("not a frame: %q %q %v", text, b, err)
	}
	segments := strings.Split(strings.TrimSuffix(text[1:], "\r\x1c"), "\r")
	if len(segments) < 2 || len(segments[0]) < 8 || !strings.HasPrefix(segments[0], "MSH") ||
		!strings.HasPrefix(segments[1], "MSA"+segments[0][3:4]) {
		return fmt.Sprintf("not an answer: %q", text)
	}
	separator := segments[0][3:4] // that of the message
	answer := strings.ReplaceAll(segments[1][4:], separator, " ")
	for _, s := range segments[2:] {
		answer += ", " + s[strings.LastIndex(s, separator)+1:]
	}
	return answer
}

func (c *client) want(answers ...string) {
	c.t.Helper()
	for _, want := range answers {
		if got := c.next(); got != want {
			c.t.Errorf("%q, want %q", got, want)
		}
	}
}

// heartRate returns a message, in a frame, with a heart rate that was measured so many seconds after a time. Its
// control ID is that number.
func heartRate(second, bpm int) string { return framed(observation(second, bpm, "")) }

func observation(second, bpm int, patient string) string {
	at := time.Date(2026, 11, 20, 10, 0, second, 0, time.UTC).Format("20060102150405")
	return fmt.Sprintf("MSH|^~\\&|||||||ORU^R01^ORU_R01|%d|P|2.6\rPID|||%s\rOBR|1||||||%s+0000\r"+
		"OBX|1|NM|147842^MDC_ECG_HEART_RATE^MDC||%d|264864^MDC_DIM_BEAT_PER_MIN^MDC|||||R|||||||d\r", second,
		patient, at, bpm)
}

func framed(message string) string { return "\x0b" + message + "\x1c\r" }

// The front passes the tests of all fronts.
func TestFront(t *testing.T) {
	fronttest.Run(t, fronttest.Front{
		Serve: func(_ testing.TB, l net.Listener, opt front.Options) fronttest.Server {
			return hl7.Serve(l, hl7.ServerOptions{Options: opt, Messages: hl7.Options{Signs: vitals.NewSigns()}})
		},
		Message: func(n int) string { return heartRate(n, 72) },
		Next: func(in *bufio.Reader) (string, error) {
			if _, err := in.Peek(1); err != nil {
				return "", err
			}
			return (&client{in: in}).next(), nil
		},
		Stored: func(n int) string { return fmt.Sprint("AA ", n) },
		Holds:  true,
	}, fronttest.Lane{}, fronttest.Lane{TLS: true})
}

// Whatever a client sends, what is acknowledged is stored, nothing else is, and a connection that cannot be read any
// further ends.
func TestAttacks(t *testing.T) {
	long := strings.Repeat("x", 20_000)
	for _, tt := range []struct {
		name, in string
		answers  []string
		counted  []string
	}{
		{"a message", heartRate(1, 72), []string{"AA 1"}, []string{"acknowledgements AA 1", "endings client 1"}},
		{"many at once", heartRate(1, 72) + heartRate(2, 72) + heartRate(3, 72), []string{"AA 1", "AA 2", "AA 3"},
			[]string{"acknowledgements AA 3", "endings client 1"}},
		{"a message twice", heartRate(1, 72) + heartRate(1, 72), []string{"AA 1", "AA 1"},
			[]string{"acknowledgements AA 2", "endings client 1"}},
		{"a contradiction", heartRate(1, 72) + heartRate(1, 73),
			[]string{"AA 1", "AE 1, heart_rate_bpm: contradicts the stored value"},
			[]string{"acknowledgements AA 1", "acknowledgements AE 1", "endings client 1"}},
		{"nothing", "", nil, []string{"endings client 1"}},
		{"an empty message", framed(""), []string{"AR , the message does not begin with MSH"},
			[]string{"acknowledgements AR 1", "endings client 1"}},
		{"no message of HL7", framed("GET / HTTP/1.1\r\n\r\n") + heartRate(1, 72),
			[]string{"AR , the message does not begin with MSH", "AA 1"},
			[]string{"acknowledgements AA 1", "acknowledgements AR 1", "endings client 1"}},
		{"no frame", observation(1, 72, ""), []string{"closed"}, []string{"endings framing 1"}},
		{"HTTP", "POST /v1/readings HTTP/1.1\r\n\r\n", []string{"closed"}, []string{"endings framing 1"}},
		{"no end block", "\x0b" + observation(1, 72, ""), nil, []string{"endings framing 1"}},
		{"no end block before the next message", "\x0b" + observation(1, 72, "") + heartRate(2, 72), []string{"closed"},
			[]string{"endings framing 1"}},
		{"no carriage return after the end block", "\x0b" + observation(1, 72, "") + "\x1c" + heartRate(2, 72),
			[]string{"closed"}, []string{"endings framing 1"}},
		{"a nested start block", "\x0bMSH\x0b" + observation(1, 72, "") + "\x1c\r", []string{"closed"},
			[]string{"endings framing 1"}},
		{"a nested frame", framed(framed(observation(1, 72, ""))), []string{"closed"}, []string{"endings framing 1"}},
		{"bytes between two messages", heartRate(1, 72) + "\x00" + heartRate(2, 72), []string{"AA 1", "closed"},
			[]string{"acknowledgements AA 1", "endings framing 1"}},
		{"line breaks between two messages", "\r\n" + heartRate(1, 72) + "\r\n\r\n" + heartRate(2, 72),
			[]string{"AA 1", "AA 2"}, []string{"acknowledgements AA 2", "endings client 1"}},
		{"endless line breaks", strings.Repeat("\r", 20) + heartRate(1, 72), []string{"closed"},
			[]string{"endings framing 1"}},
		{"a giant segment", framed(observation(1, 72, "")+"NTE|"+long) + heartRate(2, 72),
			[]string{"AR 1, The body is too large: A message may have 16384 bytes.", "AA 2"},
			[]string{"acknowledgements AA 1", "acknowledgements AR 1", "endings client 1"}},
		{"a giant header", framed("MSH|^~\\&|" + long[:10_000]), []string{"AR , longer than 4096 bytes"},
			[]string{"acknowledgements AR 1", "endings client 1"}},
		{"a frame in an escape sequence", framed(strings.Replace(observation(1, 72, ""), "|2.6", `|2.\X1C0D0B\6`, 1)) +
			framed(strings.Replace(observation(2, 72, ""), "R01^", `\X1C0D\^`, 1)),
			[]string{"AA 1", "AR 2, MSH-9: not ORU with the event R01"},
			[]string{"acknowledgements AA 1", "acknowledgements AR 1", "endings client 1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, config{opt: hl7.ServerOptions{Options: front.Options{MaxBytes: 16 << 10}}})
			c := s.dial(t)
			c.send(tt.in)
			c.want(tt.answers...)
			stored, times := 0, map[string]bool{}
			for _, answer := range tt.answers {
				if code, id, _ := strings.Cut(answer, " "); code == "AA" && !times[id] {
					stored, times[id] = stored+1, true
				}
			}
			_ = c.Close()
			s.wantFigures(t, tt.counted...)
			if got := s.store.stored.Load(); got != int64(stored) {
				t.Errorf("%d readings are stored, want %d", got, stored)
			}
		})
	}
}

// A message may come in pieces, but must be complete in time. A connection without messages ends, later.
func TestSlow(t *testing.T) {
	s := start(t, config{opt: hl7.ServerOptions{Options: front.Options{ReadTimeout: 50 * time.Millisecond}}})
	c := s.dial(t)
	for _, b := range []byte(heartRate(1, 72)[:20]) {
		if _, err := c.Write([]byte{b}); err != nil {
			break // it was not in time
		}
	}
	c.want("closed")
	s.wantFigures(t, "endings slow 1")

	s = start(t, config{opt: hl7.ServerOptions{IdleTimeout: 2 * time.Second}})
	c = s.dial(t)
	c.send(heartRate(1, 72))
	c.want("AA 1", "closed")
	s.wantFigures(t, "acknowledgements AA 1", "endings idle 1")

	s = start(t, config{})
	c = s.dial(t)
	for _, b := range []byte(heartRate(1, 72)) {
		c.send(string(b))
	}
	c.want("AA 1")
}

// A client that does not read its answers is let go.
func TestDeafClient(t *testing.T) {
	s := start(t, config{opt: hl7.ServerOptions{Options: front.Options{WriteTimeout: 50 * time.Millisecond}}})
	c := s.dial(t)
	many := strings.Repeat(framed("MSH|^~\\&|"+strings.Repeat("x", 3000)), 1000)
	for {
		if _, err := io.WriteString(c, many); err != nil {
			break
		}
	}
	polltest.Until(t, "the connection has ended", func() bool { return s.conns.Open() == 0 })
}

// An answer follows the sync, also while the server stops. Then, waiting connections end, and a message that has not
// arrived completely is not stored.
func TestShutdown(t *testing.T) {
	began, release := make(chan struct{}, 1), make(chan struct{})
	var once sync.Once
	s := start(t, config{before: func() error { once.Do(func() { close(began); <-release }); return nil }})
	idle, half, busy := s.dial(t), s.dial(t), s.dial(t)
	idle.send(framed("MSH"))
	idle.want("AR , the message does not begin with MSH")
	half.send("\x0b" + observation(1, 72, ""))
	busy.send(heartRate(2, 72))
	<-began
	answered := make(chan string, 1)
	go func() { answered <- busy.next() }()
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.stop(t) }()
	idle.want("closed")
	half.want("closed")
	select {
	case answer := <-answered:
		t.Errorf("%q before the sync", answer)
	default:
	}
	close(release)
	if answer := <-answered; answer != "AA 2" {
		t.Errorf("%q, want AA", answer)
	}
	busy.want("closed")
	<-stopped
	s.wantFigures(t, "acknowledgements AA 1", "acknowledgements AR 1", "endings draining 3")
}

// A failure of the store is not acknowledged: the client sends the message again.
func TestStoreFails(t *testing.T) {
	s := start(t, config{before: func() error { return errors.New("broken") }})
	c := s.dial(t)
	c.send(heartRate(1, 72), heartRate(2, 72))
	if got := c.next(); got != "closed" {
		t.Fatalf("%q, want no answer", got)
	}
	s.wantFigures(t, "endings busy 1")
}

// A message that finds the queue full is acknowledged once there is space. If that takes too long, its connection ends
// without an acknowledgement.
func TestQueueFull(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := start(t, config{ingest: ingest.Config{MaxQueued: 1},
		before: func() error { once.Do(func() { close(began); <-release }); return nil }})
	first, second, third := s.dial(t), s.dial(t), s.dial(t)
	first.send(heartRate(1, 72))
	<-began
	second.send(heartRate(2, 72))
	held := func(n int) {
		polltest.Until(t, "a message is held", func() bool {
			return slices.ContainsFunc(s.figures(t), func(text string) bool {
				times, is := strings.CutPrefix(text, "held ")
				return is && (len(times) > 1 || times >= strconv.Itoa(n))
			})
		})
	}
	held(1)
	s.late.Add(int64(10 * time.Second))
	second.want("closed")
	third.send(heartRate(3, 72))
	held(2)
	close(release)
	first.want("AA 1")
	third.want("AA 3")
	if got := s.store.stored.Load(); got != 2 {
		t.Errorf("%d readings are stored, want 2", got)
	}
}

// Messages for which there is no memory wait for it, and those that wait for too long end their connection.
func TestMemory(t *testing.T) {
	s := start(t, config{ingest: ingest.Config{MaxBodyBytes: 40 << 10, MaxBatchBytes: 10 << 10},
		opt: hl7.ServerOptions{Options: front.Options{Holders: new(share.Holders)}}})
	var all []*client
	for range 10 {
		c := s.dial(t)
		c.send("\x0bMSH|^~\\&|", strings.Repeat("x", 5000))
		all = append(all, c)
	}
	polltest.Until(t, "messages wait", func() bool {
		return slices.ContainsFunc(s.figures(t), func(text string) bool { return strings.HasPrefix(text, "held") })
	})
	s.late.Add(int64(10 * time.Second))
	polltest.Until(t, "some connections have ended", func() bool {
		return slices.ContainsFunc(s.figures(t), func(text string) bool { return strings.HasPrefix(text, "endings busy") })
	})
	for _, c := range all {
		_ = c.Close()
	}
	polltest.Until(t, "all have", func() bool {
		s.late.Add(int64(10 * time.Second)) // for those that wait only now
		return s.conns.Open() == 0
	})
	c := s.dial(t)
	for i := range 20 { // the memory is there again, after each
		c.send(framed(observation(i, 72, "") + "NTE|" + strings.Repeat("x", 5000)))
		c.want(fmt.Sprintf("AA %d", i))
	}
}

// A connection beyond the bound is closed at once, and the others are unharmed.
func TestGuests(t *testing.T) {
	s := start(t, config{opt: hl7.ServerOptions{Options: front.Options{Conns: &share.Conns{Max: 1, MaxGuests: 1}}}})
	first := s.dial(t)
	first.send(heartRate(1, 72))
	first.want("AA 1")
	s.dial(t).want("closed")
	first.send(heartRate(2, 72))
	first.want("AA 2")
	_ = first.Close()
	polltest.Until(t, "both have left", func() bool { return s.conns.Open() == 0 })
	third := s.dial(t)
	third.send(heartRate(3, 72))
	third.want("AA 3")
	s.wantFigures(t, "acknowledgements AA 3", "endings busy 1", "endings client 1")
}

// Connections that have been idle for a second give way to others of their address, which may try again. Neither these
// nor those that an address keeps opening shut out another address.
func TestFairConnections(t *testing.T) {
	const bound = 8
	conns, idle := &share.Conns{Max: bound, MaxGuests: 2, Holders: new(share.Holders)}, new(listen.Idle)
	conns.OnGuest = func() { idle.Evict(conns) }
	s := start(t, config{opt: hl7.ServerOptions{Options: front.Options{Conns: conns, Idle: idle, Holders: conns.Holders}}})
	for range 4 * bound {
		s.dial(t) // beyond the share, at the latest when the guests have taken theirs, it is closed
	}
	if runtime.GOOS == "linux" { // others have one loopback address
		c := s.dialFrom(t, "127.0.0.2")
		c.send(heartRate(1, 72))
		c.want("AA 1")
	}
	n := 1
	polltest.Until(t, "an idle connection has given way", func() bool {
		n++
		c := s.dial(t)
		_, _ = io.WriteString(c, heartRate(n, 72)) // a guest may be closed before
		return c.next() == fmt.Sprint("AA ", n)
	})
}

// A monitor that sends as fast as it can, with long messages, on as many connections as its address may have, does not
// keep the server from a quiet one, whose messages are all acknowledged.
func TestGreedyMonitor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is one loopback address")
	}
	holders := new(share.Holders)
	s := start(t, config{
		ingest: ingest.Config{MaxQueued: 1000, MaxBodyBytes: 1 << 20, MaxBatchBytes: 256 << 10, Holders: holders},
		opt: hl7.ServerOptions{Options: front.Options{Conns: &share.Conns{Max: 8, MaxGuests: 2, Holders: holders},
			Holders: holders, MaxBytes: 256 << 10}},
	})
	var greedy sync.WaitGroup
	defer greedy.Wait()
	for i := range 16 {
		c := s.dialFrom(t, "127.0.0.2")
		defer c.Close()
		head, order, _ := strings.Cut(observation(i, 72, ""), "OBR")
		long := framed(head + strings.Repeat("OBR"+strings.ReplaceAll(order, "||||||d\r",
			fmt.Sprintf("||||||greedy-%d\r", i)), 100) + "NTE|" + strings.Repeat("x", 100<<10))
		greedy.Go(func() { _, _ = io.Copy(io.Discard, c.in) }) // until it is closed
		greedy.Go(func() {
			for {
				if _, err := io.WriteString(c, long); err != nil {
					return // beyond the share, held for too long, or the end of the test
				}
			}
		})
	}
	polltest.Until(t, "the greedy monitor is served", func() bool { return s.store.stored.Load() > 0 })
	quiet := s.dial(t)
	for i := range 20 {
		quiet.send(heartRate(i, 72))
		quiet.want(fmt.Sprint("AA ", i))
	}
}

// A connection ends at the first message after its client's certificate has expired. Rejections name the gateway of the
// certificate.
func TestCertificateExpires(t *testing.T) {
	ca := certtest.New("ca")
	s := start(t, config{
		opt: hl7.ServerOptions{Options: front.Options{Gate: &gate.Gate{Certificates: true}}},
		tls: &tls.Config{Certificates: []tls.Certificate{ca.Server(1).TLS()}, ClientCAs: ca.Pool(),
			ClientAuth: tls.VerifyClientCertIfGiven},
	})
	c, stranger := s.dial(t, ca.Client("bed-7").TLS()), s.dial(t, tls.Certificate{})
	c.send(heartRate(1, 72), heartRate(1, 73))
	c.want("AA 1", "AE 1, heart_rate_bpm: contradicts the stored value")
	try(t, stranger.Conn.(*tls.Conn).Handshake())
	stranger.want("closed")
	s.late.Add(int64(48 * time.Hour))
	c.send(heartRate(2, 72))
	c.want("closed")
	s.wantFigures(t, "acknowledgements AA 1", "acknowledgements AE 1", "endings unauthorized 2")
	listed, _ := s.list.Newest(10, func(*rejections.Rejection) bool { return true })
	if len(listed) != 1 || fmt.Sprintf("%s %s %s %v %s: %s", listed[0].Input, listed[0].Gateway, listed[0].Device,
		listed[0].Foreign, listed[0].Field, listed[0].Reason) !=
		"hl7 bed-7 d false heart_rate_bpm: contradicts the stored value" {
		t.Errorf("listed %+v", listed)
	}
}

// A recorder notes the changes of assignments that it is told of.
type recorder struct {
	mu    sync.Mutex
	notes []string
	most  int // that are recorded; 0 means all, and -1 none
}

func (r *recorder) record(_ context.Context, client *gate.Access, peer netip.Addr, changes []storage.Assignment,
	failed bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range changes {
		note := fmt.Sprint(a.Device, " ", a.Subject, " ", time.UnixMilli(a.FromUnixMs).UTC().Format("05"))
		if failed {
			note = "failed " + note
		}
		if !client.Gateway().IsZero() || !peer.IsLoopback() {
			note += fmt.Sprint(" by ", client.Gateway(), " at ", peer)
		}
		r.notes = append(r.notes, note)
	}
	if r.most != 0 {
		return min(len(changes), max(r.most, 0))
	}
	return len(changes)
}

// want compares the notes since the last call.
func (r *recorder) want(t testing.TB, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.notes, want) {
		t.Errorf("recorded %q, want %q", r.notes, want)
	}
	r.notes = nil
}

func (r *recorder) limit(most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most = most
}

const year = 366 * 24 * time.Hour

func assigning(r *recorder) config {
	return config{
		opt: hl7.ServerOptions{Messages: hl7.Options{Patients: hl7.Patients{Assign: true, Back: year, Record: r.record}}}}
}

// wantAssigned compares the assignments of device d, such as "P-1 03-05 hl7".
func (s *server) wantAssigned(t testing.TB, want ...string) {
	t.Helper()
	d, err := vitals.ParseName("d")
	try(t, err)
	all, err := s.store.DeviceAssignments(t.Context(), d)
	try(t, err)
	var got []string
	for _, a := range all {
		text := fmt.Sprint(a.Subject, " ", time.UnixMilli(a.FromUnixMs).UTC().Format("05"), "-")
		if a.ToUnixMs != storage.OpenEnd {
			text += time.UnixMilli(a.ToUnixMs).UTC().Format("05")
		}
		got = append(got, text+" "+a.By.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("assignments %q, want %q", got, want)
	}
}

// observing returns a function that sends an observation with a patient, and compares the assignments then.
func (s *server) observing(t testing.TB, c *client) func(second int, patient string, want ...string) {
	return func(second int, patient string, want ...string) {
		t.Helper()
		c.send(framed(observation(second, 72, patient)))
		c.want(fmt.Sprintf("AA %d", second))
		s.wantAssigned(t, want...)
	}
}

// Of clients that name different patients for a device at the same time, one assigns it.
func TestAssignAtOnce(t *testing.T) {
	var r recorder
	s := start(t, assigning(&r))
	var tasks sync.WaitGroup
	answers := make([]string, 8)
	for i := range answers {
		c := s.dial(t)
		tasks.Go(func() {
			c.send(framed(observation(1, 72, fmt.Sprintf("P-%d", i))))
			answers[i] = c.next()
		})
	}
	tasks.Wait()
	slices.Sort(answers)
	want := append([]string{"AA 1"},
		slices.Repeat([]string{"AE 1, PID-3: not the patient to whom the device was assigned at that time"}, 7)...)
	if !slices.Equal(answers, want) {
		t.Errorf("answers %q", answers)
	}
	failed := 0
	for _, note := range r.notes {
		if strings.HasPrefix(note, "failed") {
			failed++
		}
	}
	if all, err := s.store.DeviceAssignments(t.Context(), mustName(t, "d")); err != nil || len(all) != 1 ||
		len(r.notes)-2*failed != 1 {
		t.Errorf("assigned %v, %v, recorded %q", all, err, r.notes)
	}
}

func mustName(t testing.TB, text string) vitals.Name {
	t.Helper()
	name, err := vitals.ParseName(text)
	try(t, err)
	return name
}

// An assignment begins with the first stored reading of its device in the message, even if that comes last. If it
// cannot be recorded, nothing is stored and nothing acknowledged.
func TestAssign(t *testing.T) {
	var r recorder
	s := start(t, assigning(&r))
	also := func(second, bpm int, day string) string {
		_, text, _ := strings.Cut(strings.ReplaceAll(observation(second, bpm, ""), "20261120", day), "OBR")
		return "OBR" + text
	}
	c := s.dial(t)
	c.send(framed(observation(5, 72, "P-1") + also(0, 71, "29991120") + also(3, 71, "20261120") + also(4, 71, "20261120") +
		also(2, 71, "20241120")))
	c.want("AE 5, OBR-7: more than 5m0s ahead of the server's clock")
	r.want(t, "d P-1 03")
	s.wantAssigned(t, "P-1 03- hl7")
	if got := s.store.stored.Load(); got != 4 { // the one before the bound as well
		t.Errorf("%d readings are stored, want 4", got)
	}
	c.send(framed(observation(6, 72, "P-1")))
	c.want("AA 6")
	r.want(t)
	// A reading that is rejected assigns nothing, and ends nothing.
	d := storage.Assignment{Device: mustName(t, "d"), Subject: "P-1", FromUnixMs: time.Date(2026, 11, 20, 10, 0, 3, 0,
		time.UTC).UnixMilli()}
	d.ToUnixMs = d.FromUnixMs + 1000
	try(t, s.store.EndAssignment(t.Context(), d))
	c.send(framed(observation(5, 99, "P-2")))
	c.want("AE 5, heart_rate_bpm: contradicts the stored value")
	r.want(t, "d P-2 05", "failed d P-2 05")
	c.send(framed(strings.Replace(observation(7, 72, "P-2"), "|d\r", "|-x\r", 1)))
	c.want("AE 7, OBX-18: a new device may be named neither . nor .., nor begin with -")
	r.want(t)
	s.wantAssigned(t, "P-1 03-04 hand")
	// What cannot be recorded is stored later.
	r.limit(-1)
	before := s.store.stored.Load()
	c.send(framed(observation(8, 72, "P-2")))
	c.want("closed")
	if got := s.store.stored.Load(); got != before {
		t.Errorf("%d readings are stored, want %d", got, before)
	}
	s.wantAssigned(t, "P-1 03-04 hand")
	r.want(t, "d P-2 08")
	r.limit(0)
	c = s.dial(t)
	c.send(framed(observation(8, 72, "P-2")))
	c.want("AA 8")
	s.wantAssigned(t, "P-1 03-04 hand", "P-2 08- hl7")
}

// A PID without a patient ends an assignment of HL7 from the first reading of the message on, unless a later one has
// named the patient. An assignment by hand stands, and no reading is rejected.
func TestEmptyPID(t *testing.T) {
	for _, empty := range []string{"", "^^^Hospital^PI", `""`, `""^^^Hospital^PI`} {
		var r recorder
		s := start(t, assigning(&r))
		c := s.dial(t)
		send := s.observing(t, c)
		send(1, empty)
		send(10, "P-1", "P-1 10- hl7")
		send(20, "P-1", "P-1 10- hl7")
		send(15, empty, "P-1 10- hl7") // is older than the newest that named the patient
		send(20, empty, "P-1 10- hl7")
		r.want(t, "d P-1 10")
		send(30, empty, "P-1 10-30 hl7")
		r.want(t, "d  30")
		send(25, empty, "P-1 10-25 hl7")
		send(31, empty, "P-1 10-25 hl7")
		send(40, "P-2", "P-1 10-25 hl7", "P-2 40- hl7")
		send(22, "P-1", "P-1 10-25 hl7", "P-2 40- hl7") // late
		send(21, empty, "P-1 10-25 hl7", "P-2 40- hl7")
		send(24, empty, "P-1 10-24 hl7", "P-2 40- hl7")
		by := storage.Assignment{Device: mustName(t, "d"), Subject: "P-3", FromUnixMs: time.Date(2026, 11, 20, 10, 0, 30, 0,
			time.UTC).UnixMilli()}
		by.ToUnixMs = by.FromUnixMs + 5000
		try(t, s.store.Assign(t.Context(), by))
		send(32, empty, "P-1 10-24 hl7", "P-3 30-35 hand", "P-2 40- hl7")
		send(45, empty, "P-1 10-24 hl7", "P-3 30-35 hand", "P-2 40-45 hl7")
		r.want(t, "d  25", "d P-2 40", "d  24", "d  45")
		// The message that comes first may have the later reading first.
		_, also, _ := strings.Cut(observation(51, 72, ""), "OBR")
		send(50, "P-4", "P-1 10-24 hl7", "P-3 30-35 hand", "P-2 40-45 hl7", "P-4 50- hl7")
		c.send(framed(observation(52, 72, empty) + "OBR" + also))
		c.want("AA 52")
		s.wantAssigned(t, "P-1 10-24 hl7", "P-3 30-35 hand", "P-2 40-45 hl7", "P-4 50-51 hl7")
	}
}

// Messages with and without a patient may arrive in any order: a reading belongs to whom its message names.
func TestEmptyPIDFirst(t *testing.T) {
	var r recorder
	s := start(t, assigning(&r))
	c := s.dial(t)
	send := s.observing(t, c)
	send(10, "")
	r.want(t) // nobody sees a change
	send(9, "P-1", "P-1 09-10 hl7")
	send(11, "P-1", "P-1 09-10 hl7", "P-1 11- hl7")
	r.want(t, "d P-1 09", "d P-1 11")
	// A message of a time between two without a patient assigns only its readings.
	send(20, "", "P-1 09-10 hl7", "P-1 11-20 hl7")
	send(22, "", "P-1 09-10 hl7", "P-1 11-20 hl7")
	send(24, "", "P-1 09-10 hl7", "P-1 11-20 hl7")
	r.want(t, "d  20")
	send(23, "P-2", "P-1 09-10 hl7", "P-1 11-20 hl7", "P-2 23-23 hl7")
	r.want(t, "d P-2 23")
	send(21, "", "P-1 09-10 hl7", "P-1 11-20 hl7", "P-2 23-23 hl7")
	from := time.Date(2026, 11, 20, 10, 0, 21, 0, time.UTC).UnixMilli()
	by := storage.Assignment{Device: mustName(t, "d"), Subject: "P-3", FromUnixMs: from, ToUnixMs: from + 1000}
	try(t, s.store.Assign(t.Context(), by))
	s.wantAssigned(t, "P-1 09-10 hl7", "P-1 11-20 hl7", "P-3 21-22 hand", "P-2 23-23 hl7")
	all := make([]storage.Assignment, 9)
	n, err := s.store.Assignments(t.Context(), storage.AssignmentKey{}, all)
	try(t, err)
	if spans := n - len(storage.Worn(all[:n])); spans != 4 { // around 10, 20, 22 and 24
		t.Errorf("%d spans of nobody, want 4", spans)
	}
	// Each of several has a record.
	send(30, "", "P-1 09-10 hl7", "P-1 11-20 hl7", "P-3 21-22 hand", "P-2 23-23 hl7")
	_, also, _ := strings.Cut(observation(27, 72, ""), "OBR")
	c.send(framed(observation(26, 72, "P-4") + "OBR" + also))
	c.want("AA 26")
	r.want(t, "d P-4 26", "d P-4 27")
	s.wantAssigned(t, "P-1 09-10 hl7", "P-1 11-20 hl7", "P-3 21-22 hand", "P-2 23-23 hl7", "P-4 26-26 hl7",
		"P-4 27-27 hl7")
}

// A PID without a patient ends the assignment whatever becomes of the values of its message, as long as the device
// and an accepted time are known. It assigns and stores nothing else, and is counted as no reading.
func TestEmptyPIDWithoutValues(t *testing.T) {
	nobody := observation(20, 72, "")
	_, later, _ := strings.Cut(observation(25, 72, ""), "OBR")
	for _, tt := range []struct{ name, message, code, want string }{
		{"disowned", strings.Replace(nobody, "|||||R|", "||INV|||R|", 1), "AA", "P-1 10-20 hl7"},
		{"out of range", strings.Replace(nobody, "||72|", "||301|", 1), "AE", "P-1 10-20 hl7"},
		{"no number", strings.Replace(nobody, "||72|", "||high|", 1), "AE", "P-1 10-20 hl7"},
		{"another unit", strings.Replace(nobody, "264864^MDC_DIM_BEAT_PER_MIN^MDC", "/s", 1), "AE", "P-1 10-20 hl7"},
		{"another code", strings.Replace(nobody, "147842^MDC_ECG_HEART_RATE", "150023^X", 1), "AE", "P-1 10-20 hl7"},
		{"contradicting", observation(15, 73, ""), "AE", "P-1 10-15 hl7"},
		{"the first one disowned", strings.Replace(nobody, "|||||R|", "||INV|||R|", 1) + "OBR" + later, "AA",
			"P-1 10-20 hl7"},
		{"the first one stored", nobody + "OBR" + strings.Replace(later, "|||||R|", "||INV|||R|", 1), "AA", "P-1 10-20 hl7"},
		{"of another device", strings.Replace(strings.Replace(nobody, "|||||R|", "||INV|||R|", 1), "|d\r", "|e\r", 1), "AA",
			"P-1 10- hl7"},
		{"no device", strings.Replace(strings.Replace(nobody, "|||||R|", "||INV|||R|", 1), "|d\r", "|\r", 1), "AA",
			"P-1 10- hl7"},
		{"from the future", strings.Replace(strings.Replace(nobody, "|||||R|", "||INV|||R|", 1), "||20261120", "||20991120",
			1), "AA", "P-1 10- hl7"},
	} {
		var r recorder
		s := start(t, assigning(&r))
		c := s.dial(t)
		c.send(strings.Replace(heartRate(15, 72), "PID", "NTE", 1), framed(observation(10, 72, "P-1")), framed(tt.message))
		c.want("AA 15", "AA 10")
		if got := c.next(); !strings.HasPrefix(got, tt.code) {
			t.Errorf("%s: answered with %s, want %s", tt.name, got, tt.code)
		}
		s.wantAssigned(t, tt.want)
		if t.Failed() {
			t.Fatal(tt.name)
		}
		if n, err := s.store.Devices(t.Context(), vitals.Name{}, make([]storage.Device, 3)); n != 1 || err != nil {
			t.Errorf("%s: %d devices are known, %v, want 1", tt.name, n, err)
		}
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(s.core)
		families, err := registry.Gather()
		try(t, err)
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if l := m.GetLabel(); family.GetName() == "pulsegate_readings_total" && l[0].GetValue() == "duplicate" &&
					m.GetCounter().GetValue() != 0 {
					t.Errorf("%s: counted %v as duplicates, want none", tt.name, m.GetCounter().GetValue())
				}
			}
		}
	}
}

// While changes of assignments are recorded, and while the store compares patients, messages of others are decoded.
func TestRecordOutsideDecoding(t *testing.T) {
	var r recorder
	cfg := assigning(&r)
	held, release := make(chan struct{}, 4), make(chan struct{})
	cfg.opt.Messages.Patients.Record = func(ctx context.Context, client *gate.Access, peer netip.Addr,
		changes []storage.Assignment, failed bool) int {
		held <- struct{}{}
		<-release
		return r.record(ctx, client, peer, changes, failed)
	}
	s := start(t, cfg)
	large := func(device, patient string) string { // so large that it takes a place for decoding
		message := strings.Replace(observation(1, 72, patient), "|d\r", "|"+device+"\r", 1)
		return framed(message + "NTE|1||" + strings.Repeat("x", 70<<10) + "\r")
	}
	var waiting []*client
	for range 4 {
		c := s.dial(t)
		c.send(large("d", "P-1"))
		waiting = append(waiting, c)
		<-held
	}
	c := s.dial(t)
	c.send(strings.Replace(large("other", ""), "PID", "NTE", 1))
	c.want("AA 1")
	close(release)
	for _, c := range waiting {
		c.want("AA 1")
	}
	r.want(t, slices.Repeat([]string{"d P-1 01"}, 4)...)
}

// FuzzServer sends any bytes in pieces: the server answers no more messages than there are, and ends.
func FuzzServer(f *testing.F) {
	for _, in := range []string{heartRate(1, 72) + "\r\n" + heartRate(2, 300), "\x0b\x1c\r\x0b", framed(framed("MSH")),
		framed("MSH|^~\\&|||||||||||||AL|AL"), "\x0bMSH|^~\\&|\x1c\r" + strings.Repeat("\n", 30)} {
		f.Add([]byte(in), 7)
	}
	s := start(f, config{opt: hl7.ServerOptions{Options: front.Options{MaxBytes: 8 << 10}}})
	f.Fuzz(func(t *testing.T, in []byte, piece int) {
		c := s.dial(t)
		piece = min(max(piece, 1), 1000)
		go func() {
			for part := range slices.Chunk(in, piece) {
				if _, err := c.Write(part); err != nil {
					break
				}
			}
			_ = c.Conn.(*net.TCPConn).CloseWrite()
		}()
		answers := 0
		for {
			answer := c.next()
			if answer == "closed" || strings.Contains(answer, "reset") {
				break
			}
			if code, _, _ := strings.Cut(answer, " "); code != "AA" && code != "AE" && code != "AR" && code != "CA" &&
				code != "CE" && code != "CR" {
				t.Fatalf("%q", answer)
			}
			answers++
		}
		if messages := bytes.Count(in, []byte{0x0b}); answers > 2*messages { // MSH-15 and MSH-16 may ask for one each
			t.Fatalf("%d answers to %d messages", answers, messages)
		}
	})
}

var try = polltest.Try

// Sources that were left out are counted once, and are no rejections.
func TestOtherSourceFigures(t *testing.T) {
	s := start(t, config{})
	c := s.dial(t)
	obx := func(code string, value int) string {
		return fmt.Sprintf("OBX|1|NM|%s^^MDC||%d|/min^^UCUM|||||R|||20261122093000+0000||||d\n", code, value)
	}
	c.send(framed(strings.ReplaceAll(header+obx("149546", 74)+obx("149530", 70)+obx("149514", 71)+obx("147842", 72),
		"\n", "\r")))
	if got := c.next(); got != "AA MSGID1234" {
		t.Errorf("answer %q", got)
	}
	s.wantFigures(t, "acknowledgements AA 1")
	rec := httptest.NewRecorder()
	metrics.Handler("", func() bool { return true }, s.core).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if want := `pulsegate_left_out_total{input="hl7",reason="another_source"} 2`; !strings.Contains(rec.Body.String(),
		want) {
		t.Errorf("metrics without %s", want)
	}
	if all, _ := s.list.Newest(1, func(*rejections.Rejection) bool { return true }); len(all) != 0 {
		t.Error("a rejection is listed")
	}
}
