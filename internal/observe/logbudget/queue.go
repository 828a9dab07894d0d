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

	waiting chan []byte   // lines; nil closes the queue
	done    chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex // guards the following fields
	held   int        // bytes that are waiting or being written
	closed bool
	lines  int64 // accepted, unless they could not be written
	bytes  int64 // of these lines
}

// queueLines bounds the lines that wait, which are of 48 bytes or more.
const queueLines = queueBytes / 48

// push queues a line. It returns false if q is full or closed. Only last may push to a
// closed queue.
func (q *queue) push(line []byte, last bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held+len(line) > queueBytes || len(q.waiting) >= queueLines || q.closed && !last {
		return false
	}
	q.waiting <- bytes.Clone(line) // does not block
	q.held += len(line)
	q.lines++
	q.bytes += int64(len(line))
	return true
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		q.waiting <- nil // there is always a place for it
	}
}

// run is the goroutine that writes.
func (q *queue) run() {
	defer close(q.done)
	for line := <-q.waiting; line != nil; line = <-q.waiting {
		q.write(line)
	}
	q.last()
	for len(q.waiting) > 0 {
		q.write(<-q.waiting)
	}
}

func (q *queue) write(line []byte) {
	_, err := q.out.Write(line)
	if err != nil {
		q.lost(1)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held -= len(line)
	if err != nil {
		q.lines--
		q.bytes -= int64(len(line))
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
