package eventloop

import (
	"crypto/tls"
	"net/netip"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
	"golang.org/x/sys/unix"
)

// A goal is what happens to a connection when all owed answers are sent.
type goal uint8

const (
	serve goal = iota // it continues
	end               // it is closed
	move              // it is moved
)

// A Conn is a connection of a [Loop]. Its methods must be called on the loop's goroutine,
// that is, by the methods of its [Handler].
//
// A Conn may be used until all answers owed on it are sent, even if the connection is
// closed; Send then only counts. After that it belongs to the loop.
type Conn struct {
	// User is for the handler. It is 0 for a new connection.
	User uint32

	// State is for the handler, of a protocol in which connections have a state. It goes along with a
	// moved connection: see Server.AcceptState.
	State any

	slot int32 // in the loop's table
	loop *Loop
	fd   int // -1: closed or moved

	in   []byte // unfinished input; nil means none
	out  []byte // unsent output; nil means none
	sent int    // bytes at the front of out that are sent already
	need int    // bytes of in that the handler waits for
	owed int    // answers that Owe has promised and Send has not given

	readLeft int // bytes that may still be read after a failed write: see Loop.outlast

	place share.Place // see Config.Conns

	session *session // nil means no TLS, or closed

	// Of the session. They outlive it: messages that were read before the connection is
	// closed are authorized by them.
	tlsState   *tls.ConnectionState // nil means the client has shown no certificate
	tlsVersion uint16               // 0 means no TLS

	goal      goal
	fresh     bool // no input yet
	idle      bool // nothing is owed or unread, and goal is end: no need to linger
	readable  bool // the kernel, or crypto/tls, may hold unread input
	hangsUp   bool // the kernel has reported the end of the peer's stream
	ended     bool // the end of the peer's stream was read
	offerable bool // in holds what the handler could not consume yet, or must see again
	lingering bool // half-closed; waiting for the peer to close
	noOutput  bool // a write has failed, and none follows
	paused    bool // no input is read before pauseEnd
	listed    bool // in the loop's list of connections to step
	turn      uint // of the loop when the connection was last read

	within   int64 // ticks for the unfinished message, from began on
	quiet    int64 // ticks between two messages, if the handler has set them; otherwise 0
	expect   int64 // tick by which the handler expects input; 0 means none
	idleEnd  int64 // tick by which the next message must begin; 0 means not determined
	began    int64 // tick when the unfinished message began
	pauseEnd int64 // tick when a pause ends by itself
}

// never is the tick of events that do not occur.
const never int64 = 1<<63 - 1

// maxOwed bounds the answers owed on one connection. A peer that pipelines more requests
// is read again when all of these are answered.
const maxOwed = 64

// Owe promises an answer. While one is owed the connection is not closed because
// it is idle or because the peer has ended its stream.
func (c *Conn) Owe() { c.owed++ }

// Owed returns how many answers are promised.
func (c *Conn) Owed() int { return c.owed }

// Full reports whether the handler must consume no more messages: too many answers are
// owed, or the connection has paused or is ending.
func (c *Conn) Full() bool { return c.owed >= maxOwed || c.goal != serve || c.paused }

// Guest reports whether the connection was accepted beyond the bound. The handler should
// End or Move it at its first message.
func (c *Conn) Guest() bool { return c.place.Guest }

// TLS returns the state of the connection's TLS if the client has shown a certificate,
// otherwise nil. It must not be modified.
func (c *Conn) TLS() *tls.ConnectionState { return c.tlsState }

// TLSVersion returns the version of the connection's TLS, such as tls.VersionTLS13, or 0.
func (c *Conn) TLSVersion() uint16 { return c.tlsVersion }

// Need postpones the next call of Receive until there are n bytes, including those that it
// leaves, or the peer has ended its stream. By default Receive is called when there is one
// byte more than it has left.
func (c *Conn) Need(n int) { c.need = n }

// Within bounds the time from the first byte of the message that Receive has
// left unfinished to its last.
func (c *Conn) Within(d time.Duration) { c.within = c.loop.timers.ticks(d) }

// Idle replaces Config.IdleTimeout for this connection.
func (c *Conn) Idle(d time.Duration) { c.quiet = c.loop.timers.ticks(d) }

// Expect bounds the time for input of which Receive leaves nothing, such as a skipped body.
// 0 ends it.
func (c *Conn) Expect(d time.Duration) {
	if c.expect = 0; d > 0 {
		c.expect = c.loop.timers.now + c.loop.timers.ticks(d)
	}
}

// Pause stops reading for d. Input stays in the kernel until then; the time for an
// unfinished message starts again after the pause. Pause has no effect on a connection
// that has paused already or is ending.
//
// A handler that rejects a message for lack of a resource pauses the connection, so that
// a peer that retries at once is not rejected again and again at the expense of the
// others.
func (c *Conn) Pause(d time.Duration) {
	l := c.loop
	if c.paused || c.goal != serve || c.fd < 0 || l.draining {
		return
	}
	c.paused = true
	c.pauseEnd = l.timers.now + l.timers.ticks(d)
	l.pauses++
}

// endPause clears a pause.
func (c *Conn) endPause() {
	if c.paused {
		c.paused = false
		c.loop.pauses--
		if c.in != nil {
			c.began = c.loop.timers.now
		}
	}
}

// Send sends b, which contains the given number of complete answers of those owed. It
// does not retain b.
func (c *Conn) Send(b []byte, answers int) {
	c.owed -= answers
	c.idleEnd = 0
	if c.owed < 0 {
		panic("eventloop: more answers than were owed")
	}
	l := c.loop
	switch {
	case c.fd < 0:
	case c.session != nil:
		c.session.send(b)
	default:
		l.output.send(c, b)
	}
	if l.draining && c.owed == 0 {
		c.End()
	}
	l.settle(c)
}

// End stops reading. When all owed answers are sent, the connection is closed.
func (c *Conn) End() {
	if c.goal == serve {
		c.goal = end
	}
}

// Ending reports whether the last answer owed is the last one of the connection.
func (c *Conn) Ending() bool { return c.goal == end || c.goal == serve && c.loop.draining }

// Move stops reading. When all owed answers are sent, the connection is moved for good to
// the other server, with what Receive has left.
func (c *Conn) Move() {
	if c.goal == serve {
		c.goal = move
	}
}

// Gone reports whether the connection is closed.
func (c *Conn) Gone() bool { return c.fd < 0 }

// PeerAddr returns the address of the peer, or the zero Addr if the connection is closed.
func (c *Conn) PeerAddr() netip.Addr {
	if c.Gone() {
		return netip.Addr{}
	}
	peer, err := unix.Getpeername(c.fd)
	if err != nil {
		return netip.Addr{}
	}
	return addrOf(peer)
}

// addrOf returns the address of a peer, or the zero Addr.
func addrOf(peer unix.Sockaddr) netip.Addr {
	switch peer := peer.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(peer.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(peer.Addr).Unmap()
	}
	return netip.Addr{}
}

// An action is what a loop does next with a connection.
type action uint8

const (
	wait    action = iota // for an event, an answer, or the deadline
	read                  // read input and pass it to the handler
	offer                 // pass kept input to the handler
	give                  // move the connection
	linger                // half-close, and wait for the peer to close
	discard               // read and drop input
	shut                  // close the descriptor
	forget                // remove the connection
)

// next is the state machine of a connection: it returns the next action.
//
// Invariants, all checked by TestNext over every state:
//
//   - A closed connection is forgotten when nothing is owed, and not before.
//   - Nothing is read while output is unsent, while maxOwed answers are owed, during
//     a pause, or, except to be dropped, while the connection ends.
//   - A connection is moved only when nothing is owed or unsent, so that its answers
//     stay in order.
//   - It is closed only when nothing is owed or unsent, except after errors and
//     timeouts.
//   - Every action but wait brings the connection nearer to wait or forget.
func (c *Conn) next() action {
	switch {
	case c.fd < 0 && c.owed == 0:
		return forget
	case c.fd < 0, c.out != nil:
		return wait
	case c.lingering && c.ended:
		return shut
	case c.lingering && c.readable:
		return discard
	case c.lingering:
		return wait
	case c.owed > 0 && c.goal != serve:
		return wait
	case c.goal == move:
		return give
	case c.goal == end:
		return linger
	case c.paused:
		return wait
	case c.offerable && c.owed == 0:
		return offer
	case c.offerable, c.owed >= maxOwed:
		return wait
	case c.readable && !c.ended:
		return read
	case c.ended && c.owed == 0:
		return shut
	}
	return wait
}

// drain makes a connection end once what has begun is answered.
func (c *Conn) drain() {
	switch {
	case c.fd < 0 || c.goal != serve:
	case c.in != nil:
		// The rest may still arrive in time.
	case c.owed > 0 || c.out != nil:
		c.goal = end
	case c.readable && !c.ended:
		// It may hold a request.
	case c.session != nil && c.session.begun && !c.ended:
		// The rest of the record may still arrive, within the time for a first message.
		if at := c.loop.timers.now + c.loop.timers.start; c.idleEnd == 0 || at < c.idleEnd {
			c.idleEnd = at
		}
	default:
		c.loop.input.handler.GiveUp(c, nil, Draining)
		c.goal, c.idle = end, true
	}
}
