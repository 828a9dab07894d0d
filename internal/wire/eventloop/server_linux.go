package eventloop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/pulsegate/pulsegate/internal/wire/share"
	"golang.org/x/sys/unix"
)

// A Server accepts connections and serves them in its loops. It is a net.Listener for
// moved connections.
type Server struct {
	cfg    Config
	origin net.Listener
	loops  []*Loop
	moved  moved

	acceptEnded chan struct{} // closed when acceptSessions has ended; nil means no TLS

	orders atomic.Int32 // a stage; only ever rises

	conns                                       *share.Conns
	accepted, movedCount, expired, acceptErrors atomic.Uint64

	crowded atomic.Bool // accepting pauses
}

// The stages of a Server's life.
const (
	running int32 = iota
	drained       // complete what has begun, then end
	killed        // end now
)

// Serve serves the connections of origin, which it takes ownership of; the caller must
// call [Server.Shutdown]. After an error origin is
// unchanged; it wraps errors.ErrUnsupported if the kind of listener is not supported.
func Serve(origin net.Listener, cfg Config) (_ *Server, err error) {
	cfg.setDefaults()
	s := &Server{cfg: cfg, conns: cfg.Conns, origin: origin}
	s.moved.change.L = &s.moved.mu
	defer func() {
		if err != nil {
			for _, l := range s.loops {
				l.close()
			}
		}
	}()
	listener := -1
	if cfg.TLS == nil {
		if listener, err = duplicate(origin); err != nil {
			return nil, err
		}
	}
	for range cfg.Loops {
		l, err := newLoop(s, listener)
		if err != nil {
			return nil, err
		}
		s.loops = append(s.loops, l)
		listener = -1 // the first loop's
	}
	if cfg.TLS == nil {
		if err := s.loops[0].acceptor.listen(); err != nil {
			return nil, err
		}
	}
	for _, l := range s.loops {
		go l.run()
	}
	if cfg.TLS != nil {
		s.acceptEnded = make(chan struct{})
		go s.acceptSessions()
	}
	return s, nil
}

// duplicate returns a non-blocking descriptor of the socket of v, which is a listener or
// a connection.
func duplicate(v any) (fd int, err error) {
	socket, ok := v.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("%w: a socket of type %T", errors.ErrUnsupported, v)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("take socket: %w", err)
	}
	var dupErr error
	// A duplicate is non-blocking as the original is.
	err = raw.Control(func(original uintptr) {
		fd, dupErr = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, dupErr); err != nil {
		return -1, fmt.Errorf("take socket: %w", err)
	}
	return fd, nil
}

// Accept returns the next moved connection.
func (s *Server) Accept() (net.Conn, error) {
	c, _, err := s.AcceptState()
	return c, err
}

// AcceptState returns the next moved connection and its Conn.State.
func (s *Server) AcceptState() (net.Conn, any, error) {
	if m := s.moved.pop(); m.conn != nil {
		return m.conn, m.state, nil
	}
	return nil, nil, net.ErrClosed
}

// Addr returns the address of the listener.
func (s *Server) Addr() net.Addr { return s.origin.Addr() }

// Close makes Accept return an error. Connections moved later are closed. It does not
// end the loops; see Shutdown.
func (s *Server) Close() error {
	s.moved.close()
	return nil
}

// Stats returns the counters. It does not allocate.
func (s *Server) Stats() Stats {
	return Stats{
		Accepted:     s.accepted.Load(),
		Moved:        s.movedCount.Load(),
		Expired:      s.expired.Load(),
		AcceptErrors: s.acceptErrors.Load(),
		Open:         s.conns.Open(),
	}
}

// Beat reports whether every loop has completed a turn since the last Beat, and asks
// each to complete one before the next. The first Beat returns true. It does not wait.
// It is for one caller, a watchdog. A loop that has ended counts as alive.
func (s *Server) Beat() bool {
	alive := true
	for _, l := range s.loops {
		select {
		case <-l.ended:
			continue
		default:
		}
		if l.asked.Swap(true) {
			alive = false
		}
		l.Wake()
	}
	return alive
}

// Shutdown stops accepting, closes idle connections, closes the others once the messages
// that have begun are answered, and waits until all are closed. If ctx ends first, it
// closes the rest and returns an error that wraps ctx's. Shutdown may be called again.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.origin.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // the second call
	}
	if s.acceptEnded != nil {
		<-s.acceptEnded
	}
	s.order(drained)
	cut := false
	for _, l := range s.loops {
		select {
		case <-l.ended:
		case <-ctx.Done():
			cut = true
			s.order(killed)
			<-l.ended
		}
	}
	if cut {
		err = errors.Join(err, fmt.Errorf("drain connections: %w", ctx.Err()))
	}
	return err
}

// order moves every loop to a stage.
func (s *Server) order(stage int32) {
	if s.orders.Load() < stage {
		s.orders.Store(stage)
	}
	for _, l := range s.loops {
		l.Wake()
	}
}

// takeOrders enters the ordered stage, and reports whether the loop continues.
func (l *Loop) takeOrders() bool {
	stage := l.server.orders.Load()
	l.stage = stage
	if stage == running {
		return true
	}
	l.acceptor.stop()
	if !l.draining {
		l.draining = true
		l.startDrain()
	}
	if stage == killed {
		for _, a := range l.inbox.take() {
			l.add(a)
		}
		for _, c := range l.table.conns {
			if c != nil {
				l.shut(c)
			}
		}
		return !l.inbox.close()
	}
	return l.live > 0 || !l.inbox.close()
}

// startDrain makes every connection end once what has begun is answered.
func (l *Loop) startDrain() {
	for _, c := range l.table.conns {
		if c == nil {
			continue
		}
		if c.paused {
			c.endPause()
			l.settle(c)
		}
		// The kernel may hold input without having reported it yet: it is read before
		// the connection counts as idle.
		c.readable = true
		c.drain()
		c.offerable = c.offerable || c.in != nil
		if c.next() != wait && !c.listed {
			c.listed = true
			l.later = append(l.later, c)
		}
	}
}
