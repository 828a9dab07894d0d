package eventloop

import (
	"cmp"
	"crypto/tls"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A Handler processes the input of one loop's connections. Its methods are called on
// the loop's goroutine and must not block.
type Handler interface {
	// Receive consumes messages from the front of b, the input of c that has not been
	// consumed yet, and returns the number of bytes consumed. The rest is passed again
	// when there is as much as c.Need asked for, once when the Server starts to drain,
	// and when the peer has ended its stream. In the last case ended is true and no
	// more input follows: an unfinished message is dropped with the connection, unless
	// c was moved.
	//
	// b is not empty. It is valid until Receive returns and may be modified. Receive
	// must stop when c.Full returns true.
	Receive(c *Conn, b []byte, ended bool) (taken int)

	// Round is called after each turn in which Receive was called.
	Round()

	// Woken is called after Wake.
	Woken()

	// GiveUp is called when the unfinished message b of a connection will not be
	// completed, or, with an empty b, when an idle connection is closed. It is closed after
	// GiveUp has returned and its output is sent.
	GiveUp(c *Conn, b []byte, why Reason)
}

// A Reason is why a message or an idle connection is given up.
type Reason uint8

// The reasons.
const (
	TooSlow  Reason = iota // it was not complete in time
	NoMemory               // Memory has no room for it
	Draining               // the Server drains; only of idle connections
)

// A Config configures a [Server]. Zero fields select the default, where there is one.
type Config struct {
	// Handler returns the handler of a loop. Required.
	Handler func(*Loop) Handler

	// Memory bounds the buffers of unfinished messages and unsent answers.
	// Required.
	Memory Memory

	// MaxMessage is the maximum size of an unfinished message, in bytes. The connection
	// of a longer one is moved. Required.
	MaxMessage int

	Loops int // goroutines; default 1

	// Conns bounds the open connections, including moved ones, and its guests: connections
	// accepted beyond the bound, for one message each. The Handler checks Conn.Guest. It must
	// not be used by another listener. Default: 65,536, and no guests.
	Conns *share.Conns

	// TLS is set if the listener returns *tls.Conn after their handshakes, as listen.TLS
	// does, each with a place of Conns. It reports whether the loops serve a connection;
	// others are moved at once. Nil: no TLS.
	TLS func(tls.ConnectionState) bool

	StartTimeout  time.Duration // for the first byte of a new connection; default 10 s
	IdleTimeout   time.Duration // between two messages; default 120 s
	WriteTimeout  time.Duration // for a peer to read its answers; default 60 s
	LingerTimeout time.Duration // for a peer to close after the last answer; default 500 ms

	// CrowdedTimeout replaces StartTimeout and IdleTimeout, if it is shorter, while there
	// are too many connections. Default 1 s.
	CrowdedTimeout time.Duration

	Tick time.Duration // timeouts are rounded up to it; default 100 ms
}

func (cfg *Config) setDefaults() {
	cfg.Loops = cmp.Or(cfg.Loops, 1)
	cfg.Conns = cmp.Or(cfg.Conns, &share.Conns{Max: 1 << 16})
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, 10*time.Second)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 120*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 60*time.Second)
	cfg.LingerTimeout = cmp.Or(cfg.LingerTimeout, 500*time.Millisecond)
	cfg.CrowdedTimeout = cmp.Or(cfg.CrowdedTimeout, time.Second)
	cfg.Tick = cmp.Or(cfg.Tick, 100*time.Millisecond)
}

// Stats are the counters of a [Server] since its start.
type Stats struct {
	Accepted     uint64 // connections
	Moved        uint64 // connections moved
	Expired      uint64 // connections closed after a timeout
	AcceptErrors uint64 // failures to accept a connection, for lack of descriptors or memory
	Open         int64  // open connections, including moved ones
}
