// Package fronttest has the tests that the front of every input passes: what it acknowledges is stored, a client that
// is gone or has too many connections harms no other one, and a stop waits for what has begun.
//
// # Not here
//
// What is particular to a protocol: its answers, and what it says to a client whose connection it ends.
package fronttest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
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

// A Front is the front of an input.
type Front struct {
	// Serve serves the connections of a listener.
	Serve func(t testing.TB, l net.Listener, opt front.Options) Server

	// what a connection begins with, and the answer; both may be empty
	Hello, Welcome string
	// with one reading, which is another one for each n; of less than 300 bytes
	Message func(n int) string
	Next    func(in *bufio.Reader) (string, error) // the next answer
	Stored  func(n int) string                     // the answer if the reading of Message(n) is stored
	// a message waits while there is no room for it, instead of being rejected
	Holds bool
}

// A Server is a running front.
type Server interface {
	Addr() net.Addr
	Shutdown(context.Context) error
}

// A Lane is how the connections of a front are served.
type Lane struct{ Loop, TLS bool }

// Run runs the tests with every lane.
func Run(t *testing.T, f Front, lanes ...Lane) {
	for name, test := range map[string]func(*testing.T, *suite){
		"stop": stop, "stop while the store hangs": stopWhileTheStoreHangs, "failure": failure, "full queue": fullQueue,
		"guests": guests, "unread answers": unreadAnswers,
	} {
		for _, lane := range lanes {
			t.Run(fmt.Sprintf("%s, loop %v, TLS %v", name, lane.Loop, lane.TLS), func(t *testing.T) {
				t.Parallel()
				test(t, &suite{T: t, Front: f, lane: lane, began: make(chan struct{}, 1000), release: make(chan struct{})})
			})
		}
	}
}

// A suite is a test with one lane.
type suite struct {
	*testing.T
	Front
	lane Lane

	server Server
	core   *ingest.Core
	conns  *share.Conns
	stored atomic.Int64

	fails   bool          // the store fails
	blocks  bool          // commits wait for release
	began   chan struct{} // receives a value for each commit
	release chan struct{}
}

// Append implements ingest.Appender with a store in memory that is empty at each commit.
func (s *suite) Append(group []*storage.Entry) error {
	s.began <- struct{}{}
	if s.blocks {
		<-s.release
	}
	if s.fails {
		return errors.New("the disk is gone")
	}
	s.stored.Add(int64(len(group)))
	return storetest.NewMemory().Append(group)
}

// start starts the front, and stops it at the end of the test.
func (s *suite) start(cfg ingest.Config, opt front.Options) {
	s.Helper()
	cfg.Limits, cfg.MaxWait = vitals.NewSigns().DefaultLimits(), polltest.Patience
	cfg.Limits.OldestUnixMs = 0
	problems := problem.New()
	var err error
	s.core, err = ingest.New(s, problems, cfg)
	polltest.Try(s, err)
	if s.conns = opt.Conns; s.conns == nil {
		s.conns = &share.Conns{Max: 1000, MaxGuests: 1}
	}
	opt.Core, opt.Gate, opt.Problems, opt.Rejections, opt.Conns = s.core, new(gate.Gate), problems,
		rejections.New(rejections.Max), s.conns
	opt.FastLane, opt.TLS = s.lane.Loop, s.lane.TLS
	l, err := net.Listen("tcp", "127.0.0.1:0")
	polltest.Try(s, err)
	if s.lane.TLS {
		config := &tls.Config{Certificates: []tls.Certificate{certtest.New("ca").Server(1).TLS()}}
		l = listen.TLS(l, s.conns, listen.Handshakes{Config: config, Slots: 64, Timeout: polltest.Patience})
	}
	s.server = s.Serve(s, l, opt)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
		defer cancel()
		s.core.Drain()
		if err := errors.Join(s.server.Shutdown(ctx), s.core.Close(ctx)); err != nil {
			s.Error(err)
		}
		if n := s.conns.Open(); n != 0 {
			s.Errorf("%d connections are open at the end", n)
		}
	})
}

// A client is a connection to the front.
type client struct {
	net.Conn
	suite *suite
	in    *bufio.Reader
}

// dial connects. The connection is closed at the end of the test.
func (s *suite) dial() *client {
	s.Helper()
	conn, err := net.Dial("tcp", s.server.Addr().String())
	polltest.Try(s, err)
	s.Cleanup(func() { _ = conn.Close() })
	polltest.Try(s, conn.SetDeadline(time.Now().Add(polltest.Patience)))
	if s.lane.TLS {
		secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		polltest.Try(s, secured.Handshake())
		conn = secured
	}
	return &client{conn, s, bufio.NewReader(conn)}
}

// greet connects, and reads the answer to Hello.
func (s *suite) greet() *client {
	s.Helper()
	c := s.dial()
	if s.Hello != "" {
		c.send(s.Hello)
		c.want(s.Welcome)
	}
	return c
}

func (c *client) send(texts ...string) {
	c.suite.Helper()
	_, err := io.WriteString(c, strings.Join(texts, ""))
	polltest.Try(c.suite, err)
}

// next returns the next answer, or how the connection has ended.
func (c *client) next() string {
	answer, err := c.suite.Next(c.in)
	if err != nil {
		return err.Error()
	}
	return answer
}

func (c *client) want(answer string) {
	c.suite.Helper()
	if got := c.next(); got != answer {
		c.suite.Errorf("answer %q, want %q", got, answer)
	}
}

// wantNo checks that the readings of messages from 0 to n are not acknowledged before the connection ends.
func (c *client) wantNo(n int) {
	c.suite.Helper()
	for {
		answer, err := c.suite.Next(c.in)
		if err != nil {
			return
		}
		for i := range n + 1 {
			if answer == c.suite.Stored(i) {
				c.suite.Errorf("acknowledged: %q", answer)
			}
		}
	}
}

// stop stops the front in the background.
func (s *suite) stop(ctx context.Context) (stopped chan error) {
	stopped = make(chan error, 1)
	go func() {
		s.core.Drain()
		stopped <- s.server.Shutdown(ctx)
	}()
	return stopped
}

// An answer follows the sync, also while the front stops. Connections that wait end.
func stop(t *testing.T, s *suite) {
	s.blocks = true
	s.start(ingest.Config{}, front.Options{})
	idle, busy := s.greet(), s.greet()
	busy.send(s.Message(0))
	<-s.began
	stopped := s.stop(t.Context())
	idle.wantNo(0)
	select {
	case <-stopped:
		t.Error("stopped before the sync")
	default:
	}
	close(s.release)
	busy.want(s.Stored(0))
	busy.wantNo(0)
	polltest.Try(t, <-stopped)
}

// Shutdown ends when its context ends, although the store does not, and nothing is acknowledged.
func stopWhileTheStoreHangs(t *testing.T, s *suite) {
	s.blocks = true
	s.start(ingest.Config{}, front.Options{})
	c := s.greet()
	c.send(s.Message(0))
	<-s.began
	ctx, cancel := context.WithCancel(t.Context())
	stopped := s.stop(ctx)
	polltest.Until(t, "the front drains", func() bool {
		conn, err := net.Dial("tcp", s.server.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("stopped with %v", err)
	}
	c.wantNo(0)
	close(s.release)
}

// What the store has failed to write is not acknowledged.
func failure(t *testing.T, s *suite) {
	s.fails = true
	s.start(ingest.Config{}, front.Options{})
	c := s.greet()
	c.send(s.Message(0))
	if got := c.next(); got == s.Stored(0) {
		t.Errorf("acknowledged: %q", got)
	}
}

// A message that finds the queue full waits for room, or is rejected.
func fullQueue(t *testing.T, s *suite) {
	s.blocks = true
	s.start(ingest.Config{MaxQueued: 1}, front.Options{})
	first, second := s.greet(), s.greet()
	first.send(s.Message(0))
	<-s.began
	second.send(s.Message(1))
	if !s.Holds {
		if got := second.next(); got == s.Stored(1) {
			t.Errorf("acknowledged: %q", got)
		}
	}
	close(s.release)
	first.want(s.Stored(0))
	if s.Holds {
		second.want(s.Stored(1))
	}
}

// A connection beyond the bound stores nothing, and the others are unharmed. Its place is free once one of them has
// left.
func guests(t *testing.T, s *suite) {
	s.start(ingest.Config{}, front.Options{Conns: &share.Conns{Max: 1, MaxGuests: 1}})
	first := s.greet()
	// Its place is taken after the handshake, which the client may see the end of earlier.
	polltest.Until(t, "the first one has its place", func() bool { return s.conns.Open() == 1 })
	guest := s.dial()
	_, _ = io.WriteString(guest, s.Hello+s.Message(0)) // it may be closed before
	guest.wantNo(0)
	first.send(s.Message(1))
	first.want(s.Stored(1))
	_ = first.Close()
	_ = guest.Close()
	polltest.Until(t, "both have left", func() bool { return s.conns.Open() == 0 })
	third := s.greet()
	third.send(s.Message(2))
	third.want(s.Stored(2))
}

// What has arrived from a client that is gone is stored.
func unreadAnswers(t *testing.T, s *suite) {
	const messages = 200
	s.blocks = true
	s.start(ingest.Config{}, front.Options{})
	c := s.greet()
	for n := range messages {
		c.send(s.Message(n))
	}
	<-s.began
	tcp := listen.Below(c.Conn).(*net.TCPConn)
	awaitArrival(t, tcp)
	polltest.Try(t, tcp.SetLinger(0)) // Close resets the connection
	polltest.Try(t, tcp.Close())
	close(s.release)
	polltest.Until(t, "the connection has ended", func() bool { return s.conns.Open() == 0 })
	polltest.Until(t, "everything is stored", func() bool { return s.stored.Load() == messages })
}
