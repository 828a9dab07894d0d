package listen

import (
	"errors"
	"net"
	"os"
	"time"
)

// Outlasting is a Conn whose input outlasts its output: after a failed write or CloseWrite, data that has arrived can
// still be read. How much has arrived is not known, so reads end after MaxUnread bytes, or after waiting for maxWaited
// in total. Further writes fail at once. One goroutine reads and writes.
type Outlasting struct {
	net.Conn

	noOutput bool          // a write has failed, or CloseWrite was called
	read     int           // bytes since
	waited   time.Duration // by reads since
}

const (
	// MaxUnread is more than the bytes that Linux keeps of a connection by default: see tcp_rmem in tcp(7).
	MaxUnread = 8 << 20

	// MaxStalled is the part of MaxUnread for a client that does not read, because it may go on sending.
	MaxStalled = 1 << 20

	maxWaited = 2 * time.Second
)

var errNoOutput = errors.New("the connection has no output")

// Write implements io.Writer.
func (o *Outlasting) Write(b []byte) (n int, err error) {
	if o.noOutput {
		return 0, errNoOutput
	}
	if len(b) > 0 {
		n, err = o.Conn.Write(b)
	}
	if o.noOutput = err != nil; errors.Is(err, os.ErrDeadlineExceeded) {
		o.read = MaxUnread - MaxStalled
	}
	return n, err
}

// CloseWrite half-closes the connection, if it can be.
func (o *Outlasting) CloseWrite() error {
	o.noOutput = true
	return CloseWrite(o.Conn)
}

// Read implements io.Reader. Without output, it replaces the deadline, and no error is a timeout.
func (o *Outlasting) Read(b []byte) (n int, err error) {
	if !o.noOutput {
		return o.Conn.Read(b)
	}
	if o.read >= MaxUnread || o.waited >= maxWaited {
		return 0, errNoOutput
	}
	begun := time.Now()
	_ = o.SetReadDeadline(begun.Add(maxWaited))
	n, err = o.Conn.Read(b)
	o.read += n
	o.waited += time.Since(begun)
	if err != nil {
		err = errNoOutput
	}
	return n, err
}
