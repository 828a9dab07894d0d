package eventloop

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"golang.org/x/sys/unix"
)

// A session is the TLS of a connection: the net.Conn below its tls.Conn while a loop has
// it. The handshake is over when it begins.
//
// Goal: the loop drives crypto/tls, which was written for connections that block, without
// ever blocking.
//
// Invariants:
//
//   - Read returns os.ErrDeadlineExceeded when the kernel has no more. crypto/tls then
//     keeps the incomplete record and continues with the next Read.
//   - Write never fails and never waits: it appends to the loop's staged bytes, which
//     the loop sends like the answers of any connection, counted against the same bound.
//     crypto/tls would never write again after an error. It also writes while it reads,
//     alerts and answers to key updates, so that the loop sends what is staged after
//     reading too.
//   - While bytes are unsent nothing is read (Conn.next), so that a peer that asks for
//     answers and does not read them cannot make the loop hold more than those of one
//     turn.
//   - One turn decrypts at most maxRecordsPerTurn records with data, and stops at the
//     first record that has made crypto/tls write.
//   - What crypto/tls keeps for input beyond freeInputBytes is reserved in Memory: its
//     largest record, and what has come of handshake messages, which it bounds.
//
// TestCryptoTLS checks what is assumed of crypto/tls, for the Go version in use.
//
// Rejected: a goroutine for each connection that runs tls.Conn over a pipe to the loop. It
// costs the wake-ups that the loop is there to save, and a stack for each idle connection.
type session struct {
	net.Conn // nil; crypto/tls calls none of its methods but those below
	tls      *tls.Conn
	below    *listen.Conn
	state    *tls.ConnectionState // nil means the client has shown no certificate
	version  uint16

	conn    *Conn // set by the loop
	drained bool  // the kernel had no more
	failed  bool  // the socket has failed
	err     error // of the last read, for the next turn; nil means none
	silent  int   // bytes that were read since there was data, from the handshake on
	begun   bool  // a record was read since there was data, or a part of one
	input   int   // bytes that crypto/tls may keep for input, at most
	held    int   // bytes of Memory that are reserved for them
}

const (
	// maxRecordsPerTurn bounds how long tiny records keep other connections waiting.
	maxRecordsPerTurn = 32

	// maxHandBytes is what crypto/tls holds of a handshake message at most: 64 KiB, in a
	// buffer that has grown by doubling.
	maxHandBytes = 128 << 10

	// freeInputBytes is what a buffer of crypto/tls may hold without being reserved. It is
	// part of what any connection costs, which the bound on connections covers.
	freeInputBytes = 8 << 10
)

// newSession takes the socket from below conn. It returns the socket's descriptor. After
// an error conn is as it was.
func newSession(conn *tls.Conn, below *listen.Conn) (s *session, fd int, err error) {
	s = &session{tls: conn, below: below, silent: below.HandshakeBytes, begun: below.RecordBegun}
	// Read may not be called before the first data, which may have come with the handshake.
	s.input = min(s.silent, maxHandBytes)
	state := conn.ConnectionState()
	s.version = state.Version
	if len(state.PeerCertificates) > 0 {
		s.state = &state
	}
	old := below.Exchange(s)
	if fd, err = duplicate(old); err != nil {
		below.Exchange(old)
		return nil, -1, err
	}
	_ = old.Close() // the duplicate keeps the socket open
	return s, fd, nil
}

// Read reads what the kernel has.
func (s *session) Read(p []byte) (int, error) {
	if s.drained {
		return 0, os.ErrDeadlineExceeded
	}
	s.input = max(s.input, len(p))
	for {
		n, err := recv(s.conn.fd, p)
		s.conn.readLeft -= n
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			s.drained = true
			return 0, os.ErrDeadlineExceeded
		case err != 0:
			s.failed = true
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		// As in receive: input after a short read is another event.
		s.drained = n < len(p) && !s.conn.hangsUp
		s.silent += n
		s.input = max(s.input, min(s.silent, maxHandBytes))
		s.begun = true
		return n, nil
	}
}

// Write stages records to be sent.
func (s *session) Write(p []byte) (int, error) {
	out := &s.conn.loop.output
	out.staged = append(out.staged, p...)
	return len(p), nil
}

// SetWriteDeadline does nothing: writes do not wait.
func (s *session) SetWriteDeadline(time.Time) error { return nil }

// decrypt reads what the peer has sent into b, and returns it.
func (s *session) decrypt(b []byte) []byte {
	c, l := s.conn, s.conn.loop
	s.drained = false
	n, err := 0, s.err
	for i := 0; i < maxRecordsPerTurn && err == nil && n < len(b) && len(l.output.staged) == 0; i++ {
		var m int
		if m, err = s.tls.Read(b[n:]); m > 0 {
			n += m
			s.silent, s.begun = 0, false
		}
	}
	switch {
	case err == nil:
	case err == os.ErrDeadlineExceeded:
		if c.readable = c.noOutput; c.noOutput && n == 0 {
			l.broken(c) // everything that has arrived is read
		}
	case n > 0:
		s.err = err // after the data
	case s.failed:
		l.broken(c) // sendStaged drops what is staged
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		c.ended, c.readable = true, false
	default:
		// The peer has broken the protocol, and an alert is staged. Nothing that it has
		// begun is answered.
		c.readable, c.fresh = false, false // it may have sent more: see linger
		l.buffers.put(c.place.Holder, c.in)
		c.in = nil
		c.goal = end
	}
	l.output.sendStaged(c)
	s.reserveInput()
	if c.fd < 0 {
		return nil
	}
	return b[:n]
}

// reserveInput counts what crypto/tls keeps for input. It does not give that back before the
// connection ends: where there is no memory for it, the connection ends after its answers.
func (s *session) reserveInput() {
	c := s.conn
	if c.session == nil || s.input <= max(freeInputBytes, s.held) {
		return
	}
	if !c.loop.buffers.memory.Reserve(c.place.Holder, s.input-s.held) {
		c.End()
		return
	}
	s.held = s.input
}

// send sends b as records.
func (s *session) send(b []byte) {
	if _, err := s.tls.Write(b); err != nil {
		s.conn.goal = end // Write fails only after an alert
		return
	}
	s.conn.loop.output.sendStaged(s.conn)
}

// end sends close_notify, unless that was sent. The connection may have bytes unsent then.
func (s *session) end() {
	_ = s.tls.CloseWrite() // an error leaves nothing more to send
	s.conn.loop.output.sendStaged(s.conn)
}

// closeNotify sends close_notify on a connection that is closed now, if the kernel takes it.
func (s *session) closeNotify() {
	if s.conn.out != nil || s.conn.noOutput || s.failed {
		return // a record is incomplete, or the connection has failed
	}
	_ = s.tls.CloseWrite()
	if out := &s.conn.loop.output; len(out.staged) > 0 {
		_, _ = send(s.conn.fd, out.staged)
		out.staged = out.staged[:0]
	}
}

// release gives back the memory that s has reserved.
func (s *session) release() {
	if s.held > 0 {
		s.conn.loop.buffers.memory.Release(s.conn.place.Holder, s.held)
	}
}

// acceptSessions takes the connections of origin until it is closed.
func (s *Server) acceptSessions() {
	defer close(s.acceptEnded)
	for {
		c, err := s.origin.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.acceptErrors.Add(1)
			time.Sleep(s.cfg.Tick) // descriptors may become free
		default:
			s.accepted.Add(1)
			s.takeSession(c.(*tls.Conn))
		}
	}
}

// takeSession places a connection with a loop, or gives it away if the loops do not speak
// its protocol.
func (s *Server) takeSession(c *tls.Conn) {
	below, ok := c.NetConn().(*listen.Conn)
	if !ok || !s.cfg.TLS(c.ConnectionState()) {
		s.giveAway(c, nil)
		return
	}
	session, fd, err := newSession(c, below)
	if err != nil {
		s.acceptErrors.Add(1)
		_ = below.Close()
		return
	}
	s.place(arrival{fd, below.Place(), session}, nil)
}
