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
	LogLevel  slog.Level `default:"info" placeholder:"debug|info|warn|error" help:"Lowest level to log. SIGHUP reloads it."`
	LogFormat string     `enum:"text,json" default:"text" help:"Format of all log lines."`
	LogBudget int        `default:"${log_budget}" help:"Log lines of one kind per minute; of the access log, 20 times as many. More are counted and summarised. SIGHUP reloads it."`
	AccessLog string     `enum:"off,errors,all" default:"off" help:"Requests to log: none, those answered with status 400 and above, or all. SIGHUP reloads it."`
}

// Note returns a sentence about the size of the log.
func (f *LogOptions) Note() string {
	return fmt.Sprintf("The log takes at most %d bytes per minute, which is %d MiB a day.",
		logbudget.DefaultBytesPerMinute, (int64(logbudget.DefaultBytesPerMinute)*24*60+1<<20-1)>>20)
}

func (f *LogOptions) check() error {
	return firstBroken(rule{f.LogBudget > 0, "--log-budget must be at least 1"})
}

// budgets returns the lines per minute of the kinds with budgets of their own.
func (f *LogOptions) budgets() map[string]int {
	return map[string]int{accessMessage: 20 * f.LogBudget}
}

// A Log writes the log lines of a server. It never waits for the reader of standard error.
type Log struct {
	*slog.Logger

	opt    LogOptions // of OpenLog
	level  *slog.LevelVar
	access accessLog
	lines  *logbudget.Log
	stderr io.Writer // what lines writes to
}

// OpenLog returns a Log that writes to stderr. The caller must call Close.
//
// From then on the process survives the loss of its standard error: lines that cannot be
// written are counted, and the server continues.
func OpenLog(stderr io.Writer, f *LogOptions) (*Log, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	l := &Log{opt: *f, level: new(slog.LevelVar), stderr: stderr}
	l.level.Set(f.LogLevel)
	l.lines = logbudget.New(stderr, logbudget.Options{
		Level:          l.level,
		JSON:           f.LogFormat == "json",
		LinesPerMinute: f.LogBudget,
		BytesPerMinute: logbudget.DefaultBytesPerMinute,
		Own:            f.budgets(),
	})
	l.Logger = slog.New(l.lines.Handler())
	l.access.log = l.Logger
	l.access.set(f.AccessLog)
	signal.Ignore(syscall.SIGPIPE)
	return l, nil
}

// Others returns the destination of lines that libraries write with package log. The budget
// includes them.
func (l *Log) Others() io.Writer {
	return logbudget.NewLogLogger(l.lines.Handler(), logbudget.Class{Level: slog.LevelWarn, Message: "line of a library"}).
		Writer()
}

// apply sets the options that can change while a server runs.
func (l *Log) apply(f *LogOptions) error {
	if err := f.check(); err != nil {
		return err
	}
	l.lines.SetLines(f.LogBudget, f.budgets())
	l.level.Set(f.LogLevel)
	l.access.set(f.AccessLog)
	return nil
}

// httpErrors returns the logger of an http.Server. Errors that clients can cause are logged at
// debug level, errors of this program at higher levels.
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
		class("", slog.LevelDebug, "http server"),
	)
}

// print writes a line that scripts parse, such as msg=listening, at any log level.
func (l *Log) print(message string, attrs ...slog.Attr) {
	l.lines.Print(strings.TrimSuffix(l.opt.line(slog.LevelInfo, message, attrs...), "\n"))
}

// line returns a log line, with its line end.
func (f *LogOptions) line(level slog.Level, message string, attrs ...slog.Attr) string {
	var b strings.Builder
	var h slog.Handler = slog.NewTextHandler(&b, nil)
	if f.LogFormat == "json" {
		h = slog.NewJSONHandler(&b, nil)
	}
	slog.New(h).LogAttrs(context.Background(), level, message, attrs...)
	return b.String()
}

// LastLine writes why the process exits to stderr, in the format of the log. It waits a
// bounded time for stderr.
func LastLine(stderr io.Writer, f *LogOptions, why string) {
	line := "pulsegate: " + why + "\n"
	if f.LogFormat == "json" {
		line = f.line(slog.LevelError, "exiting", slog.String("error", why))
	}
	logbudget.LastLine(stderr, line)
}

// Close waits for a bounded time until all lines are written. It returns no error: there would
// be nowhere to report it.
func (l *Log) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), logbudget.LastWait)
	defer cancel()
	_ = l.lines.Close(ctx)
}

// end closes the log, and then writes why the process exits, regardless of the budget.
func (l *Log) end(why string) {
	l.Close()
	LastLine(l.stderr, &l.opt, strings.TrimSuffix(why, "\n"))
}
