package logbudget

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"time"
)

// pushLocked queues a line. It reports false when there is no room, or nobody any
// more who would write it.
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

// write is the goroutine that waits for the writer in place of all others.
func (l *Log) write() {
	defer close(l.done)
	for range l.wake {
		if l.drain() {
			return
		}
	}
}

// drain writes what is queued. It reports whether l is closed, and everything
// told.
func (l *Log) drain() (closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for told := false; ; {
		if l.closing && len(l.queue) == 0 && !told {
			told = true
			l.summariseLocked() // an empty queue has room for all of it
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

// writeLines writes whole lines, as many at one time as a pipe takes in one
// piece.
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

// summarise is the timer that tells once a minute which lines are missing.
func (l *Log) summarise() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return // the writing goroutine does it
	}
	l.summary = nil
	if !l.summariseLocked() {
		l.summary = time.AfterFunc(windowSeconds*time.Second, l.summarise)
	}
}

// summariseLocked queues a line for each kind of which lines are missing. It
// reports false when the queue has no room: what could not be told is told later.
func (l *Log) summariseLocked() bool {
	all := true
	tell := func(level slog.Level, message string, attrs ...slog.Attr) bool {
		r := slog.NewRecord(time.Now(), level, message, 0)
		r.AddAttrs(attrs...)
		line := l.formatLocked(context.Background(), l.bare, r)
		closing := l.closing
		l.closing = false // these lines are the last ones
		all = l.pushLocked(line)
		l.closing = closing
		return all
	}
	l.kinds.untold(func(k *kind) bool {
		attrs := make([]slog.Attr, 0, 3)
		if k.suppressed > 0 {
			attrs = append(attrs, slog.Int64("suppressed", k.suppressed))
		}
		if k.dropped > 0 {
			attrs = append(attrs, slog.Int64("dropped", k.dropped))
		}
		attrs = append(attrs, slog.String("like", k.message))
		if !tell(k.level, "suppressed lines like this", attrs...) {
			return false
		}
		k.suppressed, k.dropped = 0, 0
		return true
	})
	if all && l.lost > 0 && tell(slog.LevelWarn, "log lines could not be written", slog.Int64("lines", l.lost)) {
		l.lost = 0
	}
	return all
}

// Close tells what is missing, and waits until everything that was queued is
// written, but no longer than ctx lasts. Its error wraps ctx's: then the writer
// has not taken it, and the goroutine that waits for it is left behind. Lines that
// come after Close are dropped.
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
