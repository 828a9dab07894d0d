package eventloop

import (
	"crypto/tls"
	"errors"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// ErrUnsupported means that there is no event loop for this system or for this
// kind of listener.
var ErrUnsupported = errors.New("eventloop: not supported here")

// A Handler decides over what arrives on the connections of one loop. Its
// methods are called on the loop's goroutine, and must not block.
type Handler interface {
	// Receive takes messages from the front of b, all that c has sent and that was
	// not taken yet, and returns how many bytes it took. What is left is offered
	// again when c.Need says so, once when the Server begins to drain, and when the
	// peer has ended its stream: ended is then true, nothing more will come, and a
	// message that is left unfinished then is dropped with the connection, unless c
	// was moved.
	//
	// b is not empty. It is valid until Receive returns, and may be modified.
	// Receive must stop when c.Full returns true.
	Receive(c *Conn, b []byte, ended bool) (taken int)

	// Round is called after each turn in which Receive was called.
	Round()

	// Woken is called after Wake.
	Woken()

	// GiveUp is called for a connection whose unfinished message b will not be
	// waited for. The connection is closed when it returns, after what it sends.
	GiveUp(c *Conn, b []byte, why Reason)
}

// A Reason tells why a message is not waited for.
type Reason uint8

// The reasons.
const (
	TooSlow  Reason = iota // its time is over
	NoMemory               // Memory has no room for it
)

// A Config says how a [Server] serves. Zero fields take the default, where there
// is one.
type Config struct {
	// Handler returns the handler of a loop. Required.
	Handler func(*Loop) Handler

	// Memory bounds the buffers of unfinished messages and unsent answers.
	// Required.
	Memory Memory

	// MaxMessage is the number of bytes of an unfinished message at most. One
	// that is longer than that is moved. Required.
	MaxMessage int

	Loops    int // goroutines; default 1
	MaxConns int // connections open, those given away included; default 65,536

	// MaxGuests is the number of connections that are taken beyond MaxConns, for
	// one message each, so that new peers can be told that there are too many. The
	// Handler looks at Conn.Guest. Default 0.
	MaxGuests int

	// Conns bounds the connections in place of MaxConns and MaxGuests, and may divide
	// them by address. It must not be used by another listener.
	Conns *share.Conns

	// TLS says that the listener's connections are *tls.Conn whose handshake is over, as
	// those of listen.TLS, which have taken a place of Conns. It reports whether the loops
	// speak the protocol of one; others are given away at once. Nil: no TLS.
	TLS func(tls.ConnectionState) bool

	StartTimeout  time.Duration // for the first byte of a new connection; default 10 s
	IdleTimeout   time.Duration // between two messages; default 120 s
	WriteTimeout  time.Duration // for a peer to take what is sent; default 60 s
	LingerTimeout time.Duration // for a peer to go after the last answer; default 500 ms

	// CrowdedTimeout takes the place of StartTimeout and of IdleTimeout, if it is
	// shorter, while there are too many connections. Default 1 s.
	CrowdedTimeout time.Duration

	Tick time.Duration // to which timeouts are rounded up; default 100 ms
}

func (cfg *Config) setDefaults() {
	setDefault(&cfg.Loops, 1)
	setDefault(&cfg.MaxConns, 1<<16)
	if cfg.Conns == nil {
		cfg.Conns = &share.Conns{Max: cfg.MaxConns, MaxGuests: cfg.MaxGuests}
	}
	setDefault(&cfg.StartTimeout, 10*time.Second)
	setDefault(&cfg.IdleTimeout, 120*time.Second)
	setDefault(&cfg.WriteTimeout, 60*time.Second)
	setDefault(&cfg.LingerTimeout, 500*time.Millisecond)
	setDefault(&cfg.CrowdedTimeout, time.Second)
	setDefault(&cfg.Tick, 100*time.Millisecond)
}

func setDefault[T int | time.Duration](v *T, value T) {
	if *v <= 0 {
		*v = value
	}
}

// Stats count what a [Server] has done since its start.
type Stats struct {
	Accepted     uint64 // connections
	Guests       uint64 // those of them beyond MaxConns
	Moved        uint64 // connections given away
	Expired      uint64 // connections closed because their time was over
	AcceptErrors uint64 // times that no connection could be accepted, for want of descriptors or memory
	Open         int64  // connections open now, those given away included
}
