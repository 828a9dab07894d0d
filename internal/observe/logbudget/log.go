package logbudget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// MaxLineBytes bounds a line, its end included. So much is written to a pipe in one
// piece on Linux (PIPE_BUF, pipe(7)): lines of several processes are not mixed.
const MaxLineBytes = 4096

// Defaults and bounds of Options.
const (
	DefaultLinesPerMinute = 30
	DefaultBytesPerMinute = 1 << 20
	MinBytesPerMinute     = 256 << 10
)

// Parts of the bytes of a minute that lines may not take.
const (
	// queueBytes is what may be queued for the writer, or on its way to it. A
	// reader who comes back gets it on top of a minute's lines.
	queueBytes = 64 << 10

	maxSummaryBytes = 800 // TestSummaryBytes finds the longest

	// A round of summaries has a line for each kind and one for lost lines. One
	// minute may see two rounds: that of the clock, and that of Close.
	summaryBytes = 2 * (maxKinds + 2) * maxSummaryBytes
)

// ErrOptions means that Options cannot be meant.
var ErrOptions = errors.New("logbudget: options")

// Options set a Log's form and budgets. Zero fields take the default.
type Options struct {
	Level slog.Leveler // the least level; default slog.LevelInfo
	JSON  bool         // JSON lines; otherwise key=value

	LinesPerMinute int // of one kind
	BytesPerMinute int // of everything; at least MinBytesPerMinute

	// Own holds the lines per minute of kinds that have a budget of their own, by
	// message. It is not modified.
	Own map[string]int
}

// Stats count since New.
type Stats struct {
	Lines      int64 // that were handed to the writer
	Bytes      int64 // of these lines
	Suppressed int64 // lines beyond a budget
	Dropped    int64 // lines that did not fit into the queue, or that the writer refused
}

// A Log writes lines within a budget. Its methods may be called from many
// goroutines.
type Log struct {
	out   io.Writer
	level slog.Leveler
	bare  slog.Handler // formats records without attributes of WithAttrs
	start time.Time
	done  chan struct{} // closed when the writing goroutine has ended
	wake  chan struct{} // tells it of lines and of closing; never waited for

	lineBytes int64 // that lines may take of a minute

	mu             sync.Mutex // guards what follows
	line           lineBuffer
	linesPerMinute int64
	own            map[string]int64
	kinds          kinds
	bytes          window // of all lines
	lowBytes       window // of those below slog.LevelWarn
	lost           int64  // lines that the writer refused, and that were not told
	summary        *time.Timer
	queue          []byte // whole lines that wait for the writer
	spare          []byte // the memory of lines that were written
	writing        int    // bytes that it is being given
	closing        bool
	stats          Stats
}

// New returns a Log that writes to out, from a goroutine of its own that Close
// ends. Out is not written to by several goroutines at one time; each Write has
// whole lines.
//
// The error wraps ErrOptions.
func New(out io.Writer, opt Options) (*Log, error) {
	if opt.Level == nil {
		opt.Level = slog.LevelInfo
	}
	if opt.LinesPerMinute == 0 {
		opt.LinesPerMinute = DefaultLinesPerMinute
	}
	if opt.BytesPerMinute == 0 {
		opt.BytesPerMinute = DefaultBytesPerMinute
	}
	if opt.BytesPerMinute < MinBytesPerMinute {
		return nil, fmt.Errorf("%w: %d bytes per minute are less than %d", ErrOptions, opt.BytesPerMinute, MinBytesPerMinute)
	}
	l := &Log{
		out:       out,
		level:     opt.Level,
		start:     time.Now(),
		done:      make(chan struct{}),
		wake:      make(chan struct{}, 1),
		lineBytes: int64(opt.BytesPerMinute) - queueBytes - summaryBytes,
		kinds:     newKinds(),
	}
	if err := l.SetLines(opt.LinesPerMinute, opt.Own); err != nil {
		return nil, err
	}
	// Whether a level is on was decided before.
	all := &slog.HandlerOptions{Level: slog.Level(-1 << 30)}
	l.bare = slog.NewTextHandler(&l.line, all)
	if opt.JSON {
		l.bare = slog.NewJSONHandler(&l.line, all)
	}
	go l.write()
	return l, nil
}

// Handler returns the handler that writes to l.
func (l *Log) Handler() slog.Handler { return &handler{l, l.bare} }

// SetLines changes the budgets of lines, as Options do. The error wraps ErrOptions;
// the budgets are then as they were.
func (l *Log) SetLines(perMinute int, own map[string]int) error {
	budgets := make(map[string]int64, len(own))
	for message, lines := range own {
		if lines < 1 {
			return fmt.Errorf("%w: a budget of %d lines per minute", ErrOptions, lines)
		}
		budgets[message] = int64(lines)
	}
	if perMinute < 1 {
		return fmt.Errorf("%w: a budget of %d lines per minute", ErrOptions, perMinute)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.linesPerMinute, l.own = int64(perMinute), budgets
	return nil
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// Print queues a line as it is, whatever the level and the budgets of lines: for
// the few lines that a program prints for scripts. The budget of bytes holds.
func (l *Log) Print(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line.b = append(l.line.b[:0], line[:min(len(line), MaxLineBytes-1)]...)
	l.line.b = append(l.line.b, '\n')
	second := l.second()
	if l.bytes.total(second)+int64(len(l.line.b)) > l.lineBytes {
		l.stats.Suppressed++
		return
	}
	if l.pushLocked(l.line.b) {
		l.bytes.add(second, int64(len(l.line.b)))
	} else {
		l.stats.Dropped++
	}
}

// second returns the time since New in seconds. Steps of the clock do not concern
// it.
func (l *Log) second() int64 { return int64(time.Since(l.start) / time.Second) }

// admit reports whether a budget has room for a line, and counts the line if none
// has. It does not allocate, but for a new kind.
func (l *Log) admit(level slog.Level, message string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	second := l.second()
	k := l.kinds.of(level, message, second)
	if l.roomLocked(k, level, second) {
		return true
	}
	l.missedLocked(&k.suppressed, &l.stats.Suppressed)
	return false
}

// roomLocked reports whether a line of any length is within all budgets.
func (l *Log) roomLocked(k *kind, level slog.Level, second int64) bool {
	budget, ok := l.own[k.message]
	if !ok {
		budget = l.linesPerMinute
	}
	return k.lines.total(second) < budget &&
		l.bytes.total(second)+MaxLineBytes <= l.lineBytes &&
		(level >= slog.LevelWarn || l.lowBytes.total(second)+MaxLineBytes <= l.lineBytes/2)
}

// missedLocked counts a line that is not written, and sees to it that this is
// told.
func (l *Log) missedLocked(ofKind, all *int64) {
	*ofKind++
	*all++
	if l.summary == nil && !l.closing {
		l.summary = time.AfterFunc(windowSeconds*time.Second, l.summarise)
	}
}

// acceptLocked queues a line that was admitted. Meanwhile others may have spent
// the budget.
func (l *Log) acceptLocked(level slog.Level, message string, line []byte) {
	second := l.second()
	k := l.kinds.of(level, message, second)
	switch {
	case !l.roomLocked(k, level, second):
		l.missedLocked(&k.suppressed, &l.stats.Suppressed)
	case !l.pushLocked(line):
		l.missedLocked(&k.dropped, &l.stats.Dropped)
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
	l.line.b = l.line.b[:0]
	_ = h.Handle(ctx, r) // a lineBuffer takes everything
	return l.line.b
}

// A lineBuffer holds the line that was formatted last.
type lineBuffer struct{ b []byte }

func (b *lineBuffer) Write(p []byte) (int, error) {
	b.b = append(b.b, p...)
	return len(p), nil
}
