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
	Holders *share.Holders // divide the slots by address; nil means not divided

	// Requests, if not nil, returns how many requests the established connections have
	// made. While they make any, a handshake pauses after each of its turns, for as long
	// as it computed, but 1 ms at most. It must be safe for concurrent use.
	Requests func() uint64

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
var ErrRefused = errors.New("too many handshakes or connections")

// A secured listener returns connections after their handshakes.
type secured struct {
	net.Listener
	cfg   Handshakes
	conns *share.Conns
	slots share.Conns
	free  chan struct{} // holds one for each handshake
	turns chan struct{} // holds one for each handshake that computes or pauses
	pace  pace
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
// *tls.Conn, which an http.Server needs for HTTP/2. The connection below it is a [*Conn], from
// which an event loop takes over the socket.
func TLS(l net.Listener, conns *share.Conns, cfg Handshakes) net.Listener {
	s := &secured{
		Listener: l, cfg: cfg, conns: conns,
		slots: share.Conns{Of: share.Handshakes, Max: cfg.Slots, Holders: cfg.Holders},
		free:  make(chan struct{}, cfg.Slots),
		turns: make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1)),
		ready: make(chan accepted),
		pace:  pace{requests: cfg.Requests},
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
	computing := &computing{Conn: c, turns: s.turns, pace: &s.pace}
	inner := &Conn{Conn: computing}
	conn := tls.Server(inner, s.cfg.Config)
	// A deadline and one function for Close cost less than HandshakeContext, which starts a
	// goroutine for each handshake.
	closing := context.AfterFunc(s.ctx, func() { _ = c.Close() })
	defer closing()
	err := c.SetDeadline(time.Now().Add(s.cfg.Timeout))
	computing.take()
	defer computing.give()
	if err == nil {
		err = conn.Handshake()
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		s.fail(conn, err)
		_ = inner.Close()
		return nil
	}
	inner.Exchange(c)
	inner.HandshakeBytes, inner.RecordBegun = computing.received, computing.records.begun()
	if s.cfg.Done != nil {
		s.cfg.Done(conn.ConnectionState())
	}
	place, ok := s.conns.Enter(addrOf(c))
	if !ok {
		s.failed(c, ErrRefused)
		_ = inner.Close()
		return nil
	}
	inner.place, inner.leave = place, s.conns.Leave
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
//
// Whoever returns a turn pauses first if there are requests. Otherwise the threads that the
// requests need, of this program, of the kernel and of other programs, would wait until the
// kernel takes the processor from the handshakes, several milliseconds for each thread.
type computing struct {
	net.Conn
	turns    chan struct{}
	pace     *pace
	since    time.Time // of the turn
	received int       // bytes
	records  records
}

func (c *computing) take() {
	c.turns <- struct{}{}
	runtime.Gosched()
	c.since = time.Now()
}

func (c *computing) give() {
	if d := c.pace.pause(time.Since(c.since)); d > 0 {
		time.Sleep(d)
	}
	<-c.turns
}

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

// A pace says how long a handshake pauses. It is safe for concurrent use.
type pace struct {
	requests func() uint64 // nil means no pauses

	mu      sync.Mutex
	counted uint64    // requests, at changed
	changed time.Time // when the number of requests was last found to have changed
}

const (
	leastPause = 50 * time.Microsecond  // shorter ones are left out
	mostPause  = time.Millisecond       // after a turn during which the processor was lost
	busyFor    = 100 * time.Millisecond // after a request
)

// pause returns the pause after a turn of the given length.
func (p *pace) pause(turn time.Duration) time.Duration {
	if p.requests == nil || turn < leastPause {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if n := p.requests(); n != p.counted {
		p.counted, p.changed = n, now
	} else if now.Sub(p.changed) > busyFor {
		return 0
	}
	return min(turn, mostPause)
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
