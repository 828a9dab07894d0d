package listen

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// Handshakes configure and bound the handshakes in progress, whose connections have no
// place yet.
type Handshakes struct {
	Config  *tls.Config
	Slots   int            // concurrent handshakes
	Timeout time.Duration  // of each
	Holders *share.Holders // divide the slots by address; nil: not divided

	// Done, if not nil, is called for each handshake that has succeeded. It must be safe
	// for concurrent use.
	Done func(tls.ConnectionState)

	// Failed, if not nil, is called for each handshake that has failed, and with
	// [ErrRefused] for each connection that is closed for lack of a slot or a place. It
	// must be safe for concurrent use.
	Failed func(c net.Conn, err error)
}

// ErrRefused means that there is no slot for a handshake, or no place for its connection,
// or that its address has its share of them.
var ErrRefused = errors.New("listen: too many handshakes or connections")

// A secured listener returns connections after their handshakes.
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

// TLS returns a listener that completes the TLS handshakes of l's connections and takes a
// place of conns for each that has succeeded. So a peer that stalls its handshake takes
// only a slot, for a short time. TLS takes ownership of l and conns. Accept returns a
// *tls.Conn, which an http.Server needs for HTTP/2. The connection below it has the methods
// Place, HandshakeBytes, RecordBegun and Exchange, with which an event loop takes over the socket.
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

// Close closes the listener and ends the handshakes in progress.
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
			if !s.deliver(accepted{err: err}) { // the server retries after a delay, or ends
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
	computing := &computing{Conn: c, turns: s.turns}
	inner := &bounded{Conn: computing}
	conn := tls.Server(inner, s.cfg.Config)
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Timeout)
	defer cancel()
	computing.take()
	defer computing.give()
	if err := conn.HandshakeContext(ctx); err != nil {
		s.fail(conn, err)
		_ = inner.Close()
		return nil
	}
	inner.Exchange(c)
	inner.handshakeBytes, inner.recordBegun = computing.received, computing.records.begun()
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
// at once, the goroutines that serve the established connections would wait for a
// processor. If there are several, one is left to those goroutines.
//
// Whoever gets a turn yields first. Otherwise the goroutines that hand the turn on to each
// other would run one after another in one time slice of the scheduler, up to 10 ms, while
// an event loop that has returned from epoll_wait is queued.
type computing struct {
	net.Conn
	turns    chan struct{}
	received int // bytes
	records  records
}

func (c *computing) take() {
	c.turns <- struct{}{}
	runtime.Gosched()
}

func (c *computing) give() { <-c.turns }

func (c *computing) Read(p []byte) (int, error) {
	c.give()
	defer c.take()
	n, err := c.Conn.Read(p)
	c.received += n
	c.records.add(p[:n])
	return n, err
}

func (c *computing) Write(p []byte) (int, error) {
	c.give()
	defer c.take()
	return c.Conn.Write(p)
}

// records finds the ends of TLS records in what a peer sends (RFC 8446, section 5.1).
type records struct {
	header [5]byte
	have   int // bytes of the header
	left   int // bytes of the record after it
}

func (r *records) add(b []byte) {
	for len(b) > 0 {
		if r.left > 0 {
			n := min(r.left, len(b))
			r.left -= n
			b = b[n:]
			continue
		}
		n := copy(r.header[r.have:], b)
		b = b[n:]
		if r.have += n; r.have == len(r.header) {
			r.have, r.left = 0, int(binary.BigEndian.Uint16(r.header[3:]))
		}
	}
}

// begun reports whether part of a record was added.
func (r *records) begun() bool { return r.have > 0 || r.left > 0 }

// fail answers a client that speaks HTTP without TLS, as net/http does.
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

// looksLikeHTTP reports whether a record header is the start of an HTTP request.
func looksLikeHTTP(b [5]byte) bool {
	switch string(b[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}
