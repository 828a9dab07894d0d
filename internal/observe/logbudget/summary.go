package logbudget

import (
	"context"
	"log/slog"
	"time"
)

// scheduleLocked makes a summary due in a minute, unless one is.
func (l *Log) scheduleLocked() {
	if l.summary == nil && !l.closing {
		l.summary = time.AfterFunc(windowSeconds*time.Second, l.summarise)
	}
}

// summarise is called by a timer once a minute while there are lines to report.
func (l *Log) summarise() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary = nil
	if !l.closing && !l.summariseLocked(false) {
		l.scheduleLocked()
	}
}

// lastSummaries reports what is left when l is closed. All summaries fit into an empty
// queue.
func (l *Log) lastSummaries() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summariseLocked(true)
}

// summariseLocked queues a summary for each kind with unreported lines. It returns
// false if the queue is full; the remaining summaries must be written later.
func (l *Log) summariseLocked(last bool) bool {
	all := true
	emit := func(level slog.Level, message string, attrs ...slog.Attr) bool {
		r := slog.NewRecord(time.Now(), level, message, 0)
		r.AddAttrs(attrs...)
		all = l.queue.push(l.formatLocked(context.Background(), l.bare, r), last)
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
