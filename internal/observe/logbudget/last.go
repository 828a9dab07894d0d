package logbudget

import (
	"io"
	"time"
)

// LastWait bounds the wait for the reader of standard error, at the end of a process.
const LastWait = 2 * time.Second

// LastLine writes a line to standard error, and waits for its reader for a while. It is
// for the reason for which a process ends, after its Log was closed.
func LastLine(stderr io.Writer, line string) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.WriteString(stderr, line) // there is nowhere else to say it
	}()
	select {
	case <-written:
	case <-time.After(LastWait):
	}
}
