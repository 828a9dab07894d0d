package logbudget

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// A queue passes lines to a writer from its own goroutine, so that nobody waits for the
// writer.
type queue struct {
	out  io.Writer
	lost func(lines int64) // called when lines could not be written
	last func()            // called once, when q is closed and empty; may push lines

	wake chan struct{} // wakes the goroutine for lines and for closing; never blocks
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // guards the following fields
	waiting []byte     // complete lines
	writing int        // bytes that are being written
	closed  bool
	lines   int64 // accepted, unless they could not be written
	bytes   int64 // of these lines
}

// push queues a line. It returns false if q is full or closed. Only last may push to a
// closed queue.
func (q *queue) push(line []byte, last bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting)+q.writing+len(line) > queueBytes || q.closed && !last {
		return false
	}
	q.waiting = append(q.waiting, line...)
	q.lines++
	q.bytes += int64(len(line))
	q.signal()
	return true
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// run is the goroutine that writes.
func (q *queue) run() {
	defer close(q.done)
	for closed := false; !closed; {
		<-q.wake
		closed = q.drain()
	}
	q.last()
	q.drain()
}

// drain writes the waiting lines, and reports whether q is closed.
func (q *queue) drain() (closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		lines := q.waiting
		q.waiting, q.writing = nil, len(lines)
		q.mu.Unlock()
		q.write(lines)
		q.mu.Lock()
	}
	return q.closed
}

// write writes complete lines, at most MaxLineBytes per Write.
func (q *queue) write(lines []byte) {
	for len(lines) > 0 {
		n := len(lines)
		if n > MaxLineBytes {
			n = bytes.LastIndexByte(lines[:MaxLineBytes], '\n') + 1
		}
		lost := int64(0)
		if _, err := q.out.Write(lines[:n]); err != nil {
			lost = int64(bytes.Count(lines[:n], []byte{'\n'}))
			q.lost(lost)
		}
		q.mu.Lock()
		q.writing -= n
		if lost > 0 {
			q.lines -= lost
			q.bytes -= int64(n)
		}
		q.mu.Unlock()
		lines = lines[n:]
	}
}

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
