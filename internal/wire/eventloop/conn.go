package eventloop

import (
	"crypto/tls"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A goal is what becomes of a connection when all that is owed is sent.
type goal uint8

const (
	serve goal = iota // it goes on
	end               // it is closed
	move              // it is given away
)

// A Conn is a connection of a [Loop]. Its methods are called on the loop's
// goroutine only, that is, by the methods of its [Handler].
//
// A Conn may be used until everything that is owed on it was sent, also when the
// peer has gone; Send then does nothing but count. After that it belongs to the
// loop again, which may use it for another connection.
type Conn struct {
	// User is the handler's. It is 0 for a new connection.
	User uint32

	loop *Loop
	fd   int   // -1: closed, or given away
	slot int32 // in the loop's table

	in   []byte // unfinished input; nil: none
	out  []byte // unsent output; nil: none
	sent int    // bytes at the front of out that are sent already
	need int    // bytes of in that the handler waits for
	owed int    // answers that Owe has promised and Send has not given

	place share.Place // see Config.Conns

	session    *session // nil: no TLS, or closed
	tlsVersion uint16   // 0: no TLS

	goal      goal
	fresh     bool // nothing has come yet
	idle      bool // nothing is owed or unread, and goal is end: no need to linger
	readable  bool // the kernel may hold bytes that were not read
	hangsUp   bool // the kernel has told of the end of the peer's stream
	ended     bool // the end of the peer's stream was read
	offerable bool // in holds what the handler could not take yet, or is to look at again
	lingering bool // nothing more is sent; waiting for the peer to go
	paused    bool // takes no input before pauseEnd
	listed    bool // in the loop's list of connections to step
	turn      uint // of the loop when the connection was last read

	within   int64 // ticks for the unfinished message, from began on
	expect   int64 // tick when what the handler expects must have come; 0: nothing
	began    int64 // tick when the unfinished message began
	deadline int64 // tick when the connection is closed, or never
	armed    int64 // tick of its timer, or never; at most deadline
	pauseEnd int64 // tick when a pause ends by itself
}

// never is the tick of what does not come.
const never int64 = 1<<63 - 1

// maxOwed bounds the answers owed on one connection. A peer that sends more
// requests without waiting is read again when all of them are answered.
const maxOwed = 64

// Owe promises an answer. While one is owed the connection is not closed because
// it is idle or because the peer has ended its stream.
func (c *Conn) Owe() { c.owed++ }

// Owed returns how many answers are promised.
func (c *Conn) Owed() int { return c.owed }

// Full reports whether the handler must take no more messages: so many answers are
// owed, or the connection pauses or goes on no more.
func (c *Conn) Full() bool { return c.owed >= maxOwed || c.goal != serve || c.paused }

// Guest reports whether the connection was taken beyond its bound. The
// handler should End or Move it at its first message.
func (c *Conn) Guest() bool { return c.place.Guest }

// TLS returns the state of the connection's TLS if the client has shown a certificate,
// otherwise nil. It must not be modified.
func (c *Conn) TLS() *tls.ConnectionState {
	if c.session == nil {
		return nil
	}
	return c.session.state
}

// TLSVersion returns the version of the connection's TLS, such as tls.VersionTLS13, or 0.
func (c *Conn) TLSVersion() uint16 { return c.tlsVersion }

// Need says that Receive is not to be called before n bytes are there, those that it
// leaves included, or the peer has ended its stream. Without it Receive is called when
// there is one more than it leaves.
func (c *Conn) Need(n int) { c.need = n }

// Within bounds the time from the first byte of the message that Receive has
// left unfinished to its last.
func (c *Conn) Within(d time.Duration) { c.within = c.loop.ticks(d) }

// End takes no more input. When everything owed is sent, the connection is
// closed.
func (c *Conn) End() {
	if c.goal == serve {
		c.goal = end
	}
}

// Ending reports whether the last answer owed is the last one of the connection.
func (c *Conn) Ending() bool { return c.goal == end || c.goal == serve && c.loop.draining }

// Move takes no more input. When everything owed is sent, the connection is given
// away with what Receive has left, to be served by another server for good.
func (c *Conn) Move() {
	if c.goal == serve {
		c.goal = move
	}
}

// Gone reports whether there is nobody to send to any more.
func (c *Conn) Gone() bool { return c.fd < 0 }

// An action is what a loop does next with a connection.
type action uint8

const (
	wait    action = iota // for an event, an answer, or the deadline
	read                  // what the kernel holds, and offer it
	offer                 // what is kept
	give                  // the connection away
	linger                // end the own stream, and wait for the peer's end
	discard               // read, and forget what was read
	shut                  // close the descriptor
	forget                // the connection's place is free
)

// next is the state machine of a connection: what to do next, from what is known.
//
// Invariants, all checked by TestNext over every state:
//
//   - A closed connection is forgotten when nothing is owed, and not before.
//   - Nothing is read while output is unsent, while as many answers are owed as
//     may be, during a pause, or, but to be discarded, when the connection goes on
//     no more.
//   - A connection is given away only when nothing is owed and nothing unsent,
//     so that its answers are in order.
//   - It is closed only when nothing is owed and nothing unsent, errors and
//     deadlines aside.
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
