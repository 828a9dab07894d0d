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

// ErrOptions means that Options are invalid.
var ErrOptions = errors.New("logbudget: invalid options")

// Options configure a [Log]. Zero fields mean the default.
type Options struct {
	Level slog.Leveler // minimum level; default slog.LevelInfo
	JSON  bool         // JSON lines; otherwise key=value

	LinesPerMinute int // per kind
	BytesPerMinute int // for all lines; at least MinBytesPerMinute

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
	out   io.Writer
	level slog.Leveler
	bare  slog.Handler // formats records without the attributes of WithAttrs
	start time.Time
	done  chan struct{} // closed when the writing goroutine has ended
	wake  chan struct{} // wakes that goroutine for lines and for closing; never blocks

	lineBytes int64 // bytes per minute available to lines

	mu             sync.Mutex // guards the following fields
	line           lineBuffer
	linesPerMinute int64
	own            map[string]int64
	kinds          kinds
	bytes          window // of all lines
	lowBytes       window // of lines below slog.LevelWarn
	lost           int64  // unreported lines that could not be written
	summary        *time.Timer
	queue          []byte // complete lines that wait for the writer
	spare          []byte // buffer of written lines, for reuse
	writing        int    // bytes that are being written
	closing        bool
	stats          Stats
}

// New returns a Log that writes to out from its own goroutine, which Close ends. Calls
// of out.Write are serialized, and each has complete lines.
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
		return nil, fmt.Errorf("%w: %d bytes per minute is less than %d", ErrOptions, opt.BytesPerMinute, MinBytesPerMinute)
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
	// Enabled has checked the level already.
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

// SetLines replaces Options.LinesPerMinute and Options.Own. If it returns an error,
// which wraps ErrOptions, the budgets are unchanged.
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

// Print queues a line as it is, regardless of level and budgets of lines. It is for the
// few lines that a program prints for scripts. The budget of bytes applies.
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
	l.missedLocked(&k.suppressed, &l.stats.Suppressed)
	return false
}

// withinBudgetLocked reports whether a line of any length is within all budgets.
func (l *Log) withinBudgetLocked(k *kind, level slog.Level, second int64) bool {
	budget, ok := l.own[k.message]
	if !ok {
		budget = l.linesPerMinute
	}
	return k.lines.total(second) < budget &&
		l.bytes.total(second)+MaxLineBytes <= l.lineBytes &&
		(level >= slog.LevelWarn || l.lowBytes.total(second)+MaxLineBytes <= l.lineBytes/2)
}

// missedLocked counts a line that is not written, and schedules a summary.
func (l *Log) missedLocked(ofKind, all *int64) {
	*ofKind++
	*all++
	if l.summary == nil && !l.closing {
		l.summary = time.AfterFunc(windowSeconds*time.Second, l.summarise)
	}
}

// acceptLocked queues a line that was admitted. It checks the budgets again, because
// other lines may have used them meanwhile.
func (l *Log) acceptLocked(level slog.Level, message string, line []byte) {
	second := l.second()
	k := l.kinds.of(level, message, second)
	switch {
	case !l.withinBudgetLocked(k, level, second):
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
	_ = h.Handle(ctx, r) // a lineBuffer never fails
	return l.line.b
}

// A lineBuffer holds the most recently formatted line.
type lineBuffer struct{ b []byte }

func (b *lineBuffer) Write(p []byte) (int, error) {
	b.b = append(b.b, p...)
	return len(p), nil
}
