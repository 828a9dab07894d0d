package logbudget

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"time"
)

// pushLocked queues a line. It returns false if the queue is full or l is closing.
func (l *Log) pushLocked(line []byte) bool {
	if len(l.queue)+l.writing+len(line) > queueBytes || l.closing {
		return false
	}
	l.queue = append(l.queue, line...)
	l.stats.Lines++
	l.stats.Bytes += int64(len(line))
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return true
}

// write runs in the only goroutine that writes to l.out.
func (l *Log) write() {
	defer close(l.done)
	for range l.wake {
		if l.drain() {
			return
		}
	}
}

// drain writes the queue. It reports whether l is closed and all summaries are written.
func (l *Log) drain() (closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for summarised := false; ; {
		if l.closing && len(l.queue) == 0 && !summarised {
			summarised = true
			l.summariseLocked() // all summaries fit into an empty queue
		}
		if len(l.queue) == 0 {
			return l.closing
		}
		lines := l.queue
		l.queue, l.writing = l.spare[:0], len(lines)
		l.mu.Unlock()
		l.writeLines(lines)
		l.mu.Lock()
		l.spare = lines
	}
}

// writeLines writes complete lines, at most MaxLineBytes per Write.
func (l *Log) writeLines(lines []byte) {
	for len(lines) > 0 {
		n := len(lines)
		if n > MaxLineBytes {
			n = bytes.LastIndexByte(lines[:MaxLineBytes], '\n') + 1
		}
		_, err := l.out.Write(lines[:n])
		l.mu.Lock()
		if err != nil {
			count := int64(bytes.Count(lines[:n], []byte{'\n'}))
			l.stats.Lines -= count
			l.stats.Bytes -= int64(n)
			l.lost += count - 1
			l.stats.Dropped += count - 1
			l.missedLocked(&l.lost, &l.stats.Dropped)
		}
		l.writing -= n
		l.mu.Unlock()
		lines = lines[n:]
	}
}

// summarise is called by a timer once a minute while there are lines to report.
func (l *Log) summarise() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return // drain writes the summaries
	}
	l.summary = nil
	if !l.summariseLocked() {
		l.summary = time.AfterFunc(windowSeconds*time.Second, l.summarise)
	}
}

// summariseLocked queues a summary for each kind with unreported lines. It returns
// false if the queue is full; the remaining summaries must be written later.
func (l *Log) summariseLocked() bool {
	all := true
	emit := func(level slog.Level, message string, attrs ...slog.Attr) bool {
		r := slog.NewRecord(time.Now(), level, message, 0)
		r.AddAttrs(attrs...)
		line := l.formatLocked(context.Background(), l.bare, r)
		closing := l.closing
		l.closing = false // pushLocked must accept summaries while closing
		all = l.pushLocked(line)
		l.closing = closing
		return all
	}
	l.kinds.unreported(func(k *kind) bool {
		attrs := make([]slog.Attr, 0, 3)
		if k.suppressed > 0 {
			attrs = append(attrs, slog.Int64("suppressed", k.suppressed))
		}
		if k.dropped > 0 {
			attrs = append(attrs, slog.Int64("dropped", k.dropped))
		}
		attrs = append(attrs, slog.String("like", k.message))
		if !emit(k.level, "suppressed lines like this", attrs...) {
			return false
		}
		k.suppressed, k.dropped = 0, 0
		return true
	})
	if all && l.lost > 0 && emit(slog.LevelWarn, "log lines could not be written", slog.Int64("lines", l.lost)) {
		l.lost = 0
	}
	return all
}

// Close writes the summaries and waits until the queue is written, or until ctx is
// done. In the latter case it returns an error that wraps ctx's, and the writing
// goroutine stays blocked in the writer. Lines logged after Close are dropped.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closing {
		l.closing = true
		if l.summary != nil {
			l.summary.Stop()
		}
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	l.mu.Unlock()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write out the log: %w", ctx.Err())
	}
}
