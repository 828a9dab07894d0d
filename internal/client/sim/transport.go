package sim

import (
	"errors"
	"time"
)

// A transport moves the bytes of a loop's connections, which have numbers. None
// of its methods but wait blocks. It belongs to one goroutine.
type transport interface {
	// open starts to connect. The outcome is an event: opened or lost.
	open(id int32)

	// write sends as much of p as it can at once. After less than all of it, a
	// writable event comes. It does not retain p.
	write(id int32, p []byte) (int, error)

	// read returns what has arrived, 0 and nil if nothing has, and io.EOF after
	// the end.
	read(id int32, p []byte) (int, error)

	// shut closes a connection. No event of it comes any more. It does nothing to
	// one that is closed.
	shut(id int32)

	// wait returns the next events, at the latest after d without any. The slice
	// is valid until the next call.
	wait(d time.Duration) ([]event, error)

	// close closes all connections and waits for what the transport started.
	close() error
}

// An event tells what has become possible.
type event struct {
	id   int32
	kind eventKind
}

type eventKind uint8

const (
	opened   eventKind = iota
	lost               // the connection could not be opened
	readable           // there is something to read, the end included
	writable           // after a write that was not whole
)

// eventsAtOnce is how many events wait returns at most.
const eventsAtOnce = 512

// errBusy means that a connection takes no more before it has sent what it has.
var errBusy = errors.New("sim: the connection is still sending")
