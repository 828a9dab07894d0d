package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// Handshakes bound what has no place among the connections yet: those with which a
// handshake is under way.
type Handshakes struct {
	Config  *tls.Config
	Slots   int            // handshakes at one time
	Timeout time.Duration  // of each
	Holders *share.Holders // divide the slots by address; nil: they are not divided

	// Done is told of each handshake that has succeeded. It is called by several
	// goroutines. Nil: nobody is told.
	Done func(tls.ConnectionState)

	// Failed is told of each handshake that has failed, and with [ErrRefused] of each
	// connection that is closed for want of a slot or a place. It is called by several
	// goroutines. Nil: nobody is told.
	Failed func(c net.Conn, err error)
}

// ErrRefused means that there is no slot for a handshake, or no place for its connection,
// or that its address has its share of them.
var ErrRefused = errors.New("listen: too many handshakes or connections")

// A secured listener returns connections whose handshake is over.
type secured struct {
	net.Listener
	cfg   Handshakes
	conns *share.Conns
	slots share.Conns
	free  chan struct{} // holds one for each handshake
	turns chan struct{} // holds one for each handshake that computes
	ready chan accepted
	ctx   context.Context // ends at Close
	stop  context.CancelFunc
	tasks sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// TLS returns a listener of the connections of l that speak TLS, which takes a place of
// conns for each whose handshake has succeeded. So a peer that does not go on with its
// handshake takes nothing but a slot, for a short time. l and conns belong to it from now
// on. What Accept returns is a *tls.Conn, as an http.Server needs it for HTTP/2. The
// connection below it has the methods Place and Exchange, with which an event loop can take
// it.
func TLS(l net.Listener, conns *share.Conns, cfg Handshakes) net.Listener {
	s := &secured{
		Listener: l, cfg: cfg, conns: conns,
		slots: share.Conns{Of: share.Handshakes, Max: cfg.Slots, Holders: cfg.Holders},
		free:  make(chan struct{}, cfg.Slots),
		turns: make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1)),
		ready: make(chan accepted),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.tasks.Go(s.run)
	return s
}

// Accept returns the next connection whose handshake has succeeded.
func (s *secured) Accept() (net.Conn, error) {
	select {
	case a := <-s.ready:
		return a.conn, a.err
	case <-s.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close closes the listener, and ends handshakes that are under way.
func (s *secured) Close() error {
	s.stop()
	err := s.Listener.Close()
	s.tasks.Wait()
	return err
}

// run accepts connections as long as there are slots.
func (s *secured) run() {
	for {
		select {
		case s.free <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		c, err := s.Listener.Accept()
		if err != nil {
			<-s.free
			if !s.deliver(accepted{err: err}) { // the server waits a while, or ends
				return
			}
			continue
		}
		slot, ok := s.slots.Enter(addrOf(c))
		if !ok {
			s.failed(c, ErrRefused)
			_ = c.Close()
			<-s.free
			continue
		}
		s.tasks.Go(func() {
			conn := s.handshake(c)
			s.slots.Leave(slot)
			<-s.free
			if conn != nil && !s.deliver(accepted{conn: conn}) {
				_ = conn.Close()
			}
		})
	}
}

func (s *secured) deliver(a accepted) bool {
	select {
	case s.ready <- a:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// handshake returns a connection with a place, or nil.
func (s *secured) handshake(c net.Conn) net.Conn {
	inner := &bounded{Conn: &computing{c, s.turns}}
	conn := tls.Server(inner, s.cfg.Config)
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Timeout)
	defer cancel()
	s.turns <- struct{}{}
	defer func() { <-s.turns }()
	if err := conn.HandshakeContext(ctx); err != nil {
		s.fail(conn, err)
		_ = inner.Close()
		return nil
	}
	inner.Exchange(c)
	if s.cfg.Done != nil {
		s.cfg.Done(conn.ConnectionState())
	}
	place, ok := s.conns.Enter(addrOf(c))
	if !ok {
		s.failed(c, ErrRefused)
		_ = inner.Close()
		return nil
	}
	inner.place, inner.leave = place, func() { s.conns.Leave(place) }
	return conn
}

// A computing connection is one whose handshake holds a turn, except while it waits for
// the peer.
//
// A handshake costs as much CPU time as many requests. If all of those under way computed
// at once, the goroutines that serve the established connections would wait behind them
// for a processor: one processor is left to them, where there are several.
type computing struct {
	net.Conn
	turns chan struct{}
}

func (c *computing) Read(p []byte) (int, error) {
	<-c.turns
	n, err := c.Conn.Read(p)
	c.turns <- struct{}{}
	return n, err
}

func (c *computing) Write(p []byte) (int, error) {
	<-c.turns
	n, err := c.Conn.Write(p)
	c.turns <- struct{}{}
	return n, err
}

// fail answers one who does not speak TLS but HTTP as net/http does.
func (s *secured) fail(conn *tls.Conn, err error) {
	if re, ok := errors.AsType[tls.RecordHeaderError](err); ok && re.Conn != nil && looksLikeHTTP(re.RecordHeader) {
		_ = re.Conn.SetWriteDeadline(time.Now().Add(s.cfg.Timeout))
		_, _ = io.WriteString(re.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
		err = ErrHTTP
	}
	s.failed(conn, err)
}

func (s *secured) failed(c net.Conn, err error) {
	if s.cfg.Failed != nil {
		s.cfg.Failed(c, err)
	}
}

// ErrHTTP means that a client of a TLS listener spoke HTTP without TLS.
var ErrHTTP = errors.New("client sent an HTTP request to an HTTPS server")

// looksLikeHTTP reports whether what should be the header of a record is a method.
func looksLikeHTTP(b [5]byte) bool {
	switch string(b[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}
