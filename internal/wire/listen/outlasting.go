package listen

import (
	"errors"
	"net"
	"os"
	"time"
)

// Outlasting is a Conn whose input outlasts its output: after a write has failed, data that has arrived can still be
// read. How much has arrived is not known, so reads end after maxArrived bytes, or after waiting for maxWaited in
// total. Further writes fail at once. One goroutine reads and writes.
type Outlasting struct {
	net.Conn

	broken  bool
	arrived int           // bytes read since
	waited  time.Duration // by reads since
}

const (
	maxArrived  = 8 << 20 // more than Linux keeps of a connection by default: see tcp_rmem in tcp(7)
	maxFromDeaf = 1 << 20 // of these, from a client that does not read and may go on sending
	maxWaited   = 2 * time.Second
)

var errBroken = errors.New("listen: a write has failed before")

// Write implements io.Writer.
func (o *Outlasting) Write(b []byte) (n int, err error) {
	if o.broken {
		return 0, errBroken
	}
	if len(b) > 0 {
		n, err = o.Conn.Write(b)
	}
	if o.broken = err != nil; errors.Is(err, os.ErrDeadlineExceeded) {
		o.arrived = maxArrived - maxFromDeaf
	}
	return n, err
}

// Read implements io.Reader. After a failed write, it replaces the deadline, and no error is a timeout.
func (o *Outlasting) Read(b []byte) (n int, err error) {
	if !o.broken {
		return o.Conn.Read(b)
	}
	if o.arrived >= maxArrived || o.waited >= maxWaited {
		return 0, errBroken
	}
	begun := time.Now()
	_ = o.SetReadDeadline(begun.Add(maxWaited))
	n, err = o.Conn.Read(b)
	o.arrived += n
	o.waited += time.Since(begun)
	if err != nil {
		err = errBroken
	}
	return n, err
}
