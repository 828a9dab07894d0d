// Package front serves the connections of an input that has a listener of its own, such as MQTT and MLLP.
//
// # Promise
//
//   - Shutdown ends each connection once what has begun is answered.
//   - Connections that are idle give way to others. Those beyond the bound are guests.
//   - After a failed write, what has arrived can still be read.
//   - What cannot be stored now is held for a while, during which its connection is not read: see [ingest.Hold].
//
// # Not here
//
// Protocols: an input reads messages from a [Conn], passes them to Hold, and writes the answers. Handshakes of TLS, and
// the loops that serve most connections of MQTT: see packages listen and eventloop. Package fronttest has the tests
// that every front passes.
package front

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// Options configure a [Server]. Fields without a default are required.
type Options struct {
	Core       *ingest.Core
	Gate       *gate.Gate // the zero Gate lets every client send
	Problems   *problem.Set
	Rejections *rejections.List
	Conns      *share.Conns
	Idle       *listen.Idle // gets the idle connections that have a goroutine; nil means that none of them is evicted
	Holders    *share.Holders

	TLS      bool // the listener is one of listen.TLS
	FastLane bool // use event loops, if the input has them
	Loops    int  // event loops; default 1

	MaxBytes     int           // of a message; default ingest.DefaultMaxBatchBytes
	ReadTimeout  time.Duration // for a message; default 60 s
	WriteTimeout time.Duration // for a client to read an answer; default 60 s

	Now func() time.Time // default time.Now
}

// Loops are the event loops that a listener's connections begin in.
type Loops interface {
	AcceptState() (net.Conn, any, error) // the connections that leave the loops
	Close() error
	Shutdown(context.Context) error
	Beat() bool
}

// A Server serves the connections of a listener. Call [ingest.Core.Drain] and then Shutdown before the Core is closed.
type Server struct {
	Hold     ingest.Hold
	Held     atomic.Uint64   // times that a connection was not read for a while
	Draining context.Context // ends when Shutdown begins
	Waiting  context.Context // ends when Shutdown stops waiting

	drain, stopWaiting context.CancelFunc

	opt    Options
	origin net.Listener
	loops  Loops // nil means that every connection has a goroutine

	mu    sync.Mutex
	open  map[net.Conn]struct{} // that have a goroutine; guarded by mu
	tasks sync.WaitGroup
}

// New returns a Server that serves nothing yet. It sets the defaults of opt.
func New(opt *Options) *Server {
	opt.Loops = max(opt.Loops, 1)
	opt.MaxBytes = cmp.Or(opt.MaxBytes, ingest.DefaultMaxBatchBytes)
	opt.ReadTimeout = cmp.Or(opt.ReadTimeout, 60*time.Second)
	opt.WriteTimeout = cmp.Or(opt.WriteTimeout, 60*time.Second)
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Idle == nil {
		opt.Idle = new(listen.Idle)
	}
	s := &Server{opt: *opt, open: map[net.Conn]struct{}{}}
	s.Draining, s.drain = context.WithCancel(context.Background())
	s.Waiting, s.stopWaiting = context.WithCancel(context.Background())
	s.Hold = ingest.Hold{Core: opt.Core, Until: s.Draining, Held: &s.Held}
	return s
}

// Serve serves the connections of l, which it takes ownership of, or if loops is not nil, those that leave the loops of
// l. The caller must call Shutdown. Each connection has a goroutine, which calls serve, with the connection's state in
// the loops, and then closes it. serve must return once a read has failed.
func (s *Server) Serve(l net.Listener, loops Loops, serve func(c *Conn, state any)) {
	if s.origin, s.loops = l, loops; loops == nil && !s.opt.TLS {
		s.origin = listen.Bound(l, s.opt.Conns)
	}
	s.tasks.Go(func() {
		for {
			c, state, err := s.accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(acceptAgain) // no descriptors
				continue
			}
			s.mu.Lock()
			s.open[c] = struct{}{}
			s.mu.Unlock()
			s.tasks.Go(func() {
				s.serve(c, state, serve)
				s.mu.Lock()
				delete(s.open, c)
				s.mu.Unlock()
			})
		}
	})
}

// acceptAgain is the time after a failed accept.
const acceptAgain = 50 * time.Millisecond

func (s *Server) accept() (c net.Conn, state any, err error) {
	if s.loops != nil {
		return s.loops.AcceptState()
	}
	c, err = s.origin.Accept()
	return c, nil, err
}

func (s *Server) serve(nc net.Conn, state any, serve func(*Conn, any)) {
	c := &Conn{Outlasting: &listen.Outlasting{Conn: nc}, server: s}
	c.In = bufio.NewReader(c.Outlasting)
	c.Client = gate.Credentials{TLS: listen.TLSState(nc),
		Peer: gate.PeerOf(&http.Request{RemoteAddr: nc.RemoteAddr().String()})}
	c.Holder = s.opt.Holders.Addr(c.Client.Peer.PeerAddr())
	serve(c, state)
	s.opt.Holders.Put(c.Holder)
	s.opt.Idle.ConnState(nc, http.StateClosed)
	_ = nc.Close()
}

// Drains reports whether Shutdown was called.
func (s *Server) Drains() bool { return s.Draining.Err() != nil }

// Shutdown stops accepting, and ends each connection once what has begun is answered. If ctx ends first, it closes the
// rest and returns an error that wraps ctx's.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drain()
	defer s.stopWaiting()
	var err error
	if s.loops != nil {
		err = errors.Join(s.loops.Shutdown(ctx), s.loops.Close())
	} else if err = s.origin.Close(); errors.Is(err, net.ErrClosed) {
		err = nil
	}
	s.each(func(c net.Conn) { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	done := make(chan struct{})
	go func() { s.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return err
	case <-ctx.Done():
		s.stopWaiting()
		s.each(func(c net.Conn) { _ = listen.Below(c).Close() }) // without the goodbye of TLS, which could wait
		<-done
		return errors.Join(err, ctx.Err())
	}
}

func (s *Server) each(f func(net.Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		f(c)
	}
}

// Beat reports whether the event loops are alive: see eventloop.Server.Beat.
func (s *Server) Beat() bool { return s.loops == nil || s.loops.Beat() }

// Addr returns the address of the listener.
func (s *Server) Addr() net.Addr { return s.origin.Addr() }

// A Conn is a connection that has a goroutine.
type Conn struct {
	*listen.Outlasting
	In     *bufio.Reader // of the connection
	Client gate.Credentials
	Holder *share.Holder

	server *Server
}

// Guest reports whether the connection was accepted beyond the bound: it should end with its first answer.
func (c *Conn) Guest() bool {
	guest, ok := listen.Below(c.Conn).(interface{ Guest() bool })
	return ok && guest.Guest()
}

// Await bounds the time for the next message, while which the connection may be evicted, or for the rest of one. While
// the server drains, what has not arrived does not count.
func (c *Conn) Await(state http.ConnState, d time.Duration) {
	c.server.opt.Idle.ConnState(c.Conn, state)
	_ = c.SetReadDeadline(time.Now().Add(d)) // a closed connection fails at the next read
	if c.server.Drains() {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
}

// Send reports whether b was sent. After a failure, what has arrived can still be read, and nothing else is sent.
func (c *Conn) Send(b []byte) bool {
	_ = c.SetWriteDeadline(time.Now().Add(c.server.opt.WriteTimeout))
	_, err := c.Outlasting.Write(b)
	return err == nil
}
