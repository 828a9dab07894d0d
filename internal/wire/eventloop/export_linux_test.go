package eventloop

import "golang.org/x/sys/unix"

// This file exports internals for the tests.

// A State is the state on which Conn.next decides.
type State struct {
	Open, Unsent, Ended, Readable, Lingering, Offerable, Paused bool
	Owed                                                        int
	Goal                                                        string // serve, end or move
}

// Next returns what a loop does next with a connection in state s.
func Next(s State) string {
	c := Conn{fd: -1, ended: s.Ended, readable: s.Readable, lingering: s.Lingering, offerable: s.Offerable,
		paused: s.Paused, owed: s.Owed}
	if s.Open {
		c.fd = 3
	}
	if s.Unsent {
		c.out = []byte{1}
	}
	c.goal = map[string]goal{"serve": serve, "end": end, "move": move}[s.Goal]
	return [...]string{wait: "wait", read: "read", offer: "offer", give: "give", linger: "linger", discard: "discard",
		shut: "shut", forget: "forget"}[c.next()]
}

// MaxOwed is the most answers that may be owed on a connection.
const MaxOwed = maxOwed

// A Stock is a loop's stock of buffers.
type Stock struct{ p buffers }

// NewStock returns a stock on m.
func NewStock(m Memory) *Stock { return &Stock{buffers{memory: m}} }

// Get lends a buffer.
func (s *Stock) Get(n int) []byte { return s.p.get(nil, n) }

// Put takes back a buffer.
func (s *Stock) Put(b []byte) { s.p.put(nil, b) }

// Grown replaces a buffer by a larger one.
func (s *Stock) Grown(b []byte, n int) []byte { return s.p.grown(nil, b, n) }

// Send is send.
func Send(fd int, b []byte) (int, error) { return asError(send(fd, b)) }

// Recv is recv.
func Recv(fd int, b []byte) (int, error) { return asError(recv(fd, b)) }

func asError(n int, err unix.Errno) (int, error) {
	if err != 0 {
		return n, err
	}
	return n, nil
}
