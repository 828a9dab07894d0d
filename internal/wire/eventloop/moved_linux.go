package eventloop

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"golang.org/x/sys/unix"
)

// An unread connection first returns the input that the loop had read.
//
// It embeds the interface, not the *net.TCPConn, whose WriteTo would skip bytes.
type unread struct {
	net.Conn
	bytes []byte // owned; of Read only

	// held is the reservation of the buffer of bytes. It is released when all is read or
	// the connection is closed, whichever comes first: clients of the other server may be
	// slow, too.
	held   atomic.Int64 // bytes
	memory Memory
	holder *share.Holder
}

// release releases the reservation.
func (c *unread) release() {
	if n := c.held.Swap(0); n > 0 {
		c.memory.Release(c.holder, int(n))
	}
}

// Read is for one goroutine at a time, as net/http uses it.
func (c *unread) Read(p []byte) (int, error) {
	if len(c.bytes) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.bytes)
	if c.bytes = c.bytes[n:]; len(c.bytes) == 0 {
		c.bytes = nil
		c.release()
	}
	return n, nil
}

// Close closes the connection.
func (c *unread) Close() error {
	c.release()
	return c.Conn.Close()
}

// SyscallConn returns the socket of the connection.
func (c *unread) SyscallConn() (syscall.RawConn, error) { return listen.SyscallConn(c.Conn) }

// CloseWrite half-closes the connection. net/http calls it before it closes a connection
// that may have unread input.
func (c *unread) CloseWrite() error { return listen.CloseWrite(c.Conn) }

// A movedTLS is a moved connection with TLS. The connection below its TLS has its place
// and releases it.
type movedTLS struct {
	*unread
	tls *tls.Conn
}

// ConnectionState returns the state of TLS, from which net/http sets Request.TLS.
func (c *movedTLS) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// NetConn returns the connection below TLS.
func (c *movedTLS) NetConn() net.Conn { return c.tls.NetConn() }

// closeNow closes a connection without a goodbye, for which TLS would wait.
func closeNow(c net.Conn) {
	if moved, ok := c.(*movedTLS); ok {
		moved.release()
	}
	_ = listen.Below(c).Close()
}

// give moves c to the other server.
func (l *Loop) give(c *Conn) {
	if err := l.poller.unwatch(c.fd); err != nil {
		l.broken(c)
		return
	}
	conn, err := l.spare.adopt(c.fd)
	if err != nil {
		l.detach(c)
		l.server.left(c.place)
		return
	}
	rest := unread{Conn: conn, holder: c.place.Holder, memory: l.server.cfg.Memory}
	// The buffer goes along, and so does what it has taken of the memory.
	rest.bytes, c.in = c.in, nil
	rest.held.Store(int64(cap(rest.bytes)))
	session := c.session
	l.detach(c)
	if session == nil {
		l.server.giveAway(listen.NewConn(&rest, c.place, l.server.left), c.State)
		return
	}
	session.below.Exchange(conn)
	rest.Conn = session.tls
	l.server.giveAway(&movedTLS{unread: &rest, tls: session.tls}, c.State)
}

// giveAway passes a connection to the other server.
func (s *Server) giveAway(c net.Conn, state any) {
	s.movedCount.Add(1) // before the other server can answer
	if !s.moved.push(movedConn{c, state}) {
		s.movedCount.Add(^uint64(0))
		closeNow(c) // the other server no longer accepts connections
	}
}

// A spare is an unused descriptor, or -1. Moving a connection needs a second descriptor for a
// moment: if none is left, the spare one is closed to make room.
type spare struct{ fd int }

func (s *spare) open() (err error) {
	s.fd, err = newEventFD()
	return err
}

// adopt makes a net.Conn of a socket, whose descriptor fd it closes.
func (s *spare) adopt(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "connection")
	conn, err := net.FileConn(file) // with a descriptor of its own
	if s.fd >= 0 && (errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) {
		closeFD(&s.fd)
		conn, err = net.FileConn(file)
	}
	_ = file.Close() // which leaves the other one open
	if s.fd < 0 {
		_ = s.open() // without one, the next connection may be lost
	}
	return conn, err
}

// A movedConn is a connection with the state that its handler gave it.
type movedConn struct {
	conn  net.Conn
	state any
}

// moved is a queue of connections for the other server. It is bounded by the number of
// open connections.
type moved struct {
	mu     sync.Mutex
	change sync.Cond   // signalled when conns or closed changes
	conns  []movedConn // guarded by mu
	closed bool        // guarded by mu
}

// push adds a connection, and reports false if the queue is closed.
func (q *moved) push(c movedConn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.conns = append(q.conns, c)
	q.change.Broadcast()
	return true
}

// pop waits for a connection. It returns none if the queue is closed.
func (q *moved) pop() movedConn {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.conns) == 0 && !q.closed {
		q.change.Wait()
	}
	if q.closed {
		return movedConn{}
	}
	c := q.conns[0]
	q.conns[0] = movedConn{}
	q.conns = q.conns[1:]
	return c
}

// close closes the queued connections and ends every pop.
func (q *moved) close() {
	q.mu.Lock()
	left := q.conns
	q.conns, q.closed = nil, true
	q.change.Broadcast()
	q.mu.Unlock()
	for _, c := range left {
		closeNow(c.conn) // none of them is owed an answer
	}
}
