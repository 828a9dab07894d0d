package logbudget

import (
	"io"
	"time"
)

// LastWait bounds the wait for the reader of standard error when a process exits.
const LastWait = 2 * time.Second

// LastLine writes a line to standard error, but waits at most LastWait for its reader.
// It reports why a process is exiting, after its Log was closed.
func LastLine(stderr io.Writer, line string) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.WriteString(stderr, line) // an error cannot be reported anywhere
	}()
	select {
	case <-written:
	case <-time.After(LastWait):
	}
}
