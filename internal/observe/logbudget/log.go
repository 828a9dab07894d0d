package logbudget

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// MaxLineBytes bounds the length of a line, including its newline. On Linux, writes of
// this size to a pipe are atomic (PIPE_BUF, pipe(7)), so lines of several processes are
// not mixed.
const MaxLineBytes = 4096

// Defaults and bounds of Options.
const (
	DefaultLinesPerMinute = 30
	DefaultBytesPerMinute = 1 << 20
	MinBytesPerMinute     = 256 << 10
)

// Parts of the bytes of a minute that are reserved.
const (
	// queueBytes bounds the lines that are queued or being written. A stuck reader that
	// resumes gets them in addition to a minute's lines.
	queueBytes = 64 << 10

	maxSummaryBytes = 800 // TestSummaryBytes checks it

	// A round of summaries has one line per kind and one for lost lines. There may be
	// two rounds in a minute: the periodic one and that of Close.
	summaryBytes = 2 * (maxKinds + 2) * maxSummaryBytes
)

// Options configure a [Log]. Zero fields mean the default.
type Options struct {
	Level slog.Leveler // minimum level; default slog.LevelInfo
	JSON  bool         // JSON lines; otherwise key=value

	LinesPerMinute int // per kind
	BytesPerMinute int // for all lines; MinBytesPerMinute if it is less

	// Own has the lines per minute of kinds with a budget of their own, by message. It
	// is not modified.
	Own map[string]int
}

// Stats are counters that start with New.
type Stats struct {
	Lines      int64 // lines accepted for the writer
	Bytes      int64 // bytes of these lines
	Suppressed int64 // lines beyond a budget
	Dropped    int64 // lines that did not fit into the queue or that could not be written
}

// A Log writes lines within a budget. It is safe for concurrent use.
type Log struct {
	level slog.Leveler
	bare  slog.Handler // formats records without the attributes of WithAttrs
	start time.Time
	queue queue

	lineBytes int64 // bytes per minute available to lines

	mu             sync.Mutex // guards the following fields: the budgets, and the line to be charged
	line           bytes.Buffer
	linesPerMinute int
	own            map[string]int
	kinds          kinds
	bytes          window // of all lines
	lowBytes       window // of lines below slog.LevelWarn
	lost           int64  // unreported lines that could not be written
	summary        *time.Timer
	closing        bool
	suppressed     int64 // for Stats
	dropped        int64 // likewise
}

// New returns a Log that writes to out from its own goroutine, which Close ends. Calls
// of out.Write are serialized, and each has complete lines.
func New(out io.Writer, opt Options) *Log {
	l := &Log{
		level: opt.Level,
		start: time.Now(),
		lineBytes: int64(max(cmp.Or(opt.BytesPerMinute, DefaultBytesPerMinute), MinBytesPerMinute)) - queueBytes -
			summaryBytes,
		kinds: kinds{byKey: make(map[kindKey]*kind, maxKinds), other: kind{kindKey: kindKey{message: otherKinds}}},
	}
	if l.level == nil {
		l.level = slog.LevelInfo
	}
	l.SetLines(cmp.Or(opt.LinesPerMinute, DefaultLinesPerMinute), opt.Own)
	// Enabled has checked the level already.
	all := &slog.HandlerOptions{Level: slog.Level(-1 << 30)}
	l.bare = slog.NewTextHandler(&l.line, all)
	if opt.JSON {
		l.bare = slog.NewJSONHandler(&l.line, all)
	}
	l.queue = queue{out: out, lost: l.linesLost, last: l.lastSummaries, waiting: make(chan []byte, queueLines+1),
		done: make(chan struct{})}
	go l.queue.run()
	return l
}

// Handler returns the handler that writes to l.
func (l *Log) Handler() slog.Handler { return &handler{l, l.bare} }

// SetLines replaces Options.LinesPerMinute and Options.Own.
func (l *Log) SetLines(perMinute int, own map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.linesPerMinute, l.own = perMinute, maps.Clone(own)
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	return Stats{Lines: l.queue.lines, Bytes: l.queue.bytes, Suppressed: l.suppressed, Dropped: l.dropped}
}

// Print queues a line as it is, regardless of level and budgets of lines. It is for the
// few lines that a program prints for scripts. The budget of bytes applies.
func (l *Log) Print(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := append([]byte(line[:min(len(line), MaxLineBytes-1)]), '\n')
	second := l.second()
	switch {
	case l.bytes.total(second)+int64(len(text)) > l.lineBytes:
		l.suppressed++
	case l.queue.push(text, false):
		l.bytes.add(second, int64(len(text)))
	default:
		l.dropped++
	}
}

// second returns the time since New in seconds. It is not affected by clock
// adjustments.
func (l *Log) second() int64 { return int64(time.Since(l.start) / time.Second) }

// admit reports whether the budgets allow a line, and counts the line as suppressed if
// they do not. It allocates only for a new kind.
func (l *Log) admit(level slog.Level, message string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	second := l.second()
	k := l.kinds.of(level, message, second)
	if l.withinBudgetLocked(k, level, second) {
		return true
	}
	l.missedLocked(&k.suppressed, &l.suppressed)
	return false
}

// withinBudgetLocked reports whether a line of any length is within all budgets.
func (l *Log) withinBudgetLocked(k *kind, level slog.Level, second int64) bool {
	budget, ok := l.own[k.message]
	if !ok {
		budget = l.linesPerMinute
	}
	return k.lines.total(second) < int64(budget) &&
		l.bytes.total(second)+MaxLineBytes <= l.lineBytes &&
		(level >= slog.LevelWarn || l.lowBytes.total(second)+MaxLineBytes <= l.lineBytes/2)
}

// missedLocked counts a line that is not written, and schedules a summary.
func (l *Log) missedLocked(ofKind, all *int64) {
	*ofKind++
	*all++
	l.scheduleLocked()
}

// linesLost counts lines that could not be written.
func (l *Log) linesLost(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost += n
	l.dropped += n
	l.scheduleLocked()
}

// acceptLocked queues a line that was admitted. It checks the budgets again, because
// other lines may have used them since.
func (l *Log) acceptLocked(level slog.Level, message string, line []byte) {
	second := l.second()
	k := l.kinds.of(level, message, second)
	switch {
	case !l.withinBudgetLocked(k, level, second):
		l.missedLocked(&k.suppressed, &l.suppressed)
	case !l.queue.push(line, false):
		l.missedLocked(&k.dropped, &l.dropped)
	default:
		k.lines.add(second, 1)
		l.bytes.add(second, int64(len(line)))
		if level < slog.LevelWarn {
			l.lowBytes.add(second, int64(len(line)))
		}
	}
}

// formatLocked returns the line of a record. It is valid until the next call.
func (l *Log) formatLocked(ctx context.Context, h slog.Handler, r slog.Record) []byte {
	l.line.Reset()
	_ = h.Handle(ctx, r) // a Buffer never fails
	return l.line.Bytes()
}

// Close writes the summaries and waits until the queue is written, or until ctx is
// done. In the latter case it returns an error that wraps ctx's, and the writing
// goroutine stays blocked in the writer. Lines logged after Close are dropped.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closing = true
	if l.summary != nil {
		l.summary.Stop()
	}
	l.mu.Unlock()
	l.queue.close()
	select {
	case <-l.queue.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write out the log: %w", ctx.Err())
	}
}
