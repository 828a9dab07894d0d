package server

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"

	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
)

// LogOptions are the options that docs/logging.md explains.
type LogOptions struct {
	LogLevel       slog.Level `default:"info" help:"Least level of log lines: debug, info, warn or error. SIGHUP reads it anew."`
	LogFormat      string     `enum:"text,json" default:"text" help:"Format of log lines: text or json."`
	LogBudget      int        `default:"${log_budget}" help:"Lines of one kind in any minute. Further ones are counted and summarised. SIGHUP reads it anew."`
	LogBudgetBytes int        `default:"${log_budget_bytes}" help:"Bytes of log in any minute, whatever happens."`

	AccessLog       string  `enum:"off,errors,all" default:"off" help:"Which answered requests are logged: off, errors (status 400 and above) or all. SIGHUP reads it anew."`
	AccessLogSample float64 `default:"1" help:"Share of these requests that is logged, above 0 and at most 1. SIGHUP reads it anew."`
	AccessLogBudget int     `default:"600" help:"Lines of the access log in any minute. SIGHUP reads it anew."`
}

// Note returns a sentence about how much a server may write.
func (f *LogOptions) Note() string {
	return fmt.Sprintf("The log takes at most %d bytes in any minute, which is %d MiB a day.",
		f.LogBudgetBytes, (int64(f.LogBudgetBytes)*24*60+1<<20-1)>>20)
}

func (f *LogOptions) check() error {
	return firstBroken(
		rule{f.LogBudget > 0, "--log-budget must be at least 1"},
		rule{f.LogBudgetBytes >= logbudget.MinBytesPerMinute, fmt.Sprintf("--log-budget-bytes must be at least %d", logbudget.MinBytesPerMinute)},
		rule{f.AccessLogBudget > 0, "--access-log-budget must be at least 1"},
		rule{f.AccessLogSample > 0 && f.AccessLogSample <= 1, "--access-log-sample must be above 0 and at most 1"},
	)
}

// budgets returns the lines per minute of kinds that have a budget of their own.
func (f *LogOptions) budgets() map[string]int {
	return map[string]int{accessMessage: f.AccessLogBudget}
}

// A Log is where the lines of a server go. None of them waits for the reader of standard
// error.
type Log struct {
	*slog.Logger

	level  *slog.LevelVar
	access accessLog
	lines  *logbudget.Log
	stderr io.Writer // what lines writes to
}

// OpenLog starts to write lines to stderr. The caller must call Close.
//
// From then on the process outlives the reader of its standard error: a line that
// nobody takes is counted, and readings are stored.
func OpenLog(stderr io.Writer, f *LogOptions) (*Log, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	l := &Log{level: new(slog.LevelVar), stderr: stderr}
	l.level.Set(f.LogLevel)
	var err error
	l.lines, err = logbudget.New(stderr, logbudget.Options{
		Level:          l.level,
		JSON:           f.LogFormat == "json",
		LinesPerMinute: f.LogBudget,
		BytesPerMinute: f.LogBudgetBytes,
		Own:            f.budgets(),
	})
	if err != nil {
		return nil, err
	}
	l.Logger = slog.New(l.lines.Handler())
	l.access.log = l.Logger
	l.access.set(f.AccessLog, f.AccessLogSample)
	signal.Ignore(syscall.SIGPIPE)
	return l, nil
}

// Others returns what takes the lines that libraries write to the process's own logger,
// as part of the budget.
func (l *Log) Others() io.Writer {
	return logbudget.NewLogLogger(l.lines.Handler(), logbudget.Class{Level: slog.LevelWarn, Message: "a library says"}).Writer()
}

// apply sets what can change while a server runs.
func (l *Log) apply(f *LogOptions) error {
	if err := f.check(); err != nil {
		return err
	}
	if err := l.lines.SetLines(f.LogBudget, f.budgets()); err != nil {
		return err
	}
	l.level.Set(f.LogLevel)
	l.access.set(f.AccessLog, f.AccessLogSample)
	return nil
}

// httpErrors returns the logger of an http.Server. What clients can cause is at the
// debug level; what is wrong with this program is not.
func (l *Log) httpErrors() *log.Logger {
	const panicked, misused = "request handler panicked", "request handler misused its response"
	class := func(prefix string, level slog.Level, message string) logbudget.Class {
		return logbudget.Class{Prefix: prefix, Level: level, Message: message}
	}
	return logbudget.NewLogLogger(l.lines.Handler(),
		class("http: panic serving ", slog.LevelError, panicked),
		class("http2: panic serving ", slog.LevelError, panicked),
		class("http: Accept error", slog.LevelWarn, "connections cannot be accepted"),
		class("http: superfluous ", slog.LevelWarn, misused),
		class("http: response.", slog.LevelWarn, misused),
		class("http: WriteHeader ", slog.LevelWarn, misused),
		class("http: invalid Content-Length", slog.LevelWarn, misused),
		class("http: TLS handshake error", slog.LevelDebug, "TLS handshake failed"),
		class("", slog.LevelDebug, "http server"),
	)
}

// print writes a line that scripts look for. It comes whatever the level and the format
// are.
func (l *Log) print(format string, args ...any) { l.lines.Print(fmt.Sprintf(format, args...)) }

// Close waits for a while until all lines are written. It reports nothing when they are
// not: nobody would read it.
func (l *Log) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), logbudget.LastWait)
	defer cancel()
	_ = l.lines.Close(ctx)
}

// end closes the log, and then writes why the process is exiting, whatever the budget.
func (l *Log) end(why string) {
	l.Close()
	logbudget.LastLine(l.stderr, "pulsegate: "+strings.TrimSuffix(why, "\n")+"\n")
}
