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

// LogOptions are the flags of serve that docs/logging.md explains.
type LogOptions struct {
	LogLevel       slog.Level `default:"info" help:"Least level of log lines: debug, info, warn or error. SIGHUP reads it anew."`
	LogFormat      string     `enum:"text,json" default:"text" help:"Format of log lines: text or json."`
	LogBudget      int        `default:"${log_budget}" help:"Lines of one kind in any minute. Further ones are counted and summarised. SIGHUP reads it anew."`
	LogBudgetBytes int        `default:"${log_budget_bytes}" help:"Bytes of log in any minute, whatever happens."`

	AccessLog       string  `enum:"off,errors,all" default:"off" help:"Which answered requests are logged: off, errors (status 400 and above) or all. SIGHUP reads it anew."`
	AccessLogSample float64 `default:"1" help:"Share of these requests that is logged, above 0 and at most 1. SIGHUP reads it anew."`
	AccessLogBudget int     `default:"600" help:"Lines of the access log in any minute. SIGHUP reads it anew."`
}

// budgets returns the lines per minute of kinds that have a budget of their own.
func (f *LogOptions) budgets() map[string]int {
	return map[string]int{accessMessage: f.AccessLogBudget}
}

// Note says in one sentence how much a server may write.
func (f *LogOptions) Note() string {
	return fmt.Sprintf("The log takes at most %d bytes in any minute, which is %d MiB a day.",
		f.LogBudgetBytes, (int64(f.LogBudgetBytes)*24*60+1<<20-1)>>20)
}

// checkLogging refuses what cannot be meant.
func (f *LogOptions) checkLogging() error {
	for _, bound := range []struct {
		flag         string
		value, least int
	}{
		{"--log-budget", f.LogBudget, 1},
		{"--log-budget-bytes", f.LogBudgetBytes, logbudget.MinBytesPerMinute},
		{"--access-log-budget", f.AccessLogBudget, 1},
	} {
		if bound.value < bound.least {
			return UsageError{fmt.Sprintf("%s must be at least %d", bound.flag, bound.least)}
		}
	}
	if !(f.AccessLogSample > 0 && f.AccessLogSample <= 1) {
		return UsageError{"--access-log-sample must be above 0 and at most 1"}
	}
	return nil
}

// A Log is where the lines of a server go. None of them waits for whoever reads
// standard error.
type Log struct {
	log    *slog.Logger
	level  *slog.LevelVar
	access accessLog
	lines  *logbudget.Log
	stderr io.Writer // what lines writes to

}

// OpenLog starts to write lines to w. The caller must call Close.
//
// From then on the process outlives whoever reads its standard error: a line that
// nobody takes is counted, and readings are stored.
func OpenLog(w io.Writer, f *LogOptions) (*Log, error) {
	if err := f.checkLogging(); err != nil {
		return nil, err
	}
	l := &Log{level: new(slog.LevelVar), stderr: w}
	l.level.Set(f.LogLevel)
	lines, err := logbudget.New(w, logbudget.Options{
		Level:          l.level,
		JSON:           f.LogFormat == "json",
		LinesPerMinute: f.LogBudget,
		BytesPerMinute: f.LogBudgetBytes,
		Own:            f.budgets(),
	})
	if err != nil {
		return nil, err
	}
	l.lines = lines
	l.log = slog.New(lines.Handler())
	l.access.log = l.log
	l.access.set(f.AccessLog, f.AccessLogSample)
	signal.Ignore(syscall.SIGPIPE)
	return l, nil
}

// Logger returns the log for the lines of others.
func (l *Log) Logger() *slog.Logger { return l.log }

// Others returns what takes the lines that libraries write to the process's own
// loggers, as part of the budget.
func (l *Log) Others() io.Writer {
	return logbudget.NewLogLogger(l.lines.Handler(), logbudget.Class{Level: slog.LevelWarn, Message: "a library says"}).Writer()
}

// apply sets what can change while a server runs. The flags were checked.
func (l *Log) apply(f *LogOptions) error {
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
	const misused = "request handler misused its response"
	return logbudget.NewLogLogger(l.lines.Handler(),
		logbudget.Class{Prefix: "http: panic serving ", Level: slog.LevelError, Message: "request handler panicked"},
		logbudget.Class{Prefix: "http2: panic serving ", Level: slog.LevelError, Message: "request handler panicked"},
		logbudget.Class{Prefix: "http: Accept error", Level: slog.LevelWarn, Message: "connections cannot be accepted"},
		logbudget.Class{Prefix: "http: superfluous ", Level: slog.LevelWarn, Message: misused},
		logbudget.Class{Prefix: "http: response.", Level: slog.LevelWarn, Message: misused},
		logbudget.Class{Prefix: "http: WriteHeader ", Level: slog.LevelWarn, Message: misused},
		logbudget.Class{Prefix: "http: invalid Content-Length", Level: slog.LevelWarn, Message: misused},
		logbudget.Class{Prefix: "http: TLS handshake error", Level: slog.LevelDebug, Message: "TLS handshake failed"},
		logbudget.Class{Level: slog.LevelDebug, Message: "http server"},
	)
}

// printer returns a writer for the lines that scripts look for. They come whatever
// the level and the format are.
func (l *Log) printer() io.Writer { return printer{l.lines} }

type printer struct{ lines *logbudget.Log }

func (p printer) Write(line []byte) (int, error) {
	p.lines.Print(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// Close waits for a while until all lines are written. It says nothing when they
// are not: there is nobody who would read it.
func (l *Log) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), logbudget.LastWait)
	defer cancel()
	_ = l.lines.Close(ctx)
}

// end closes the log, and writes the reason for which the process is about to end
// behind all lines, whatever their budget.
func (l *Log) end(why string) {
	l.Close()
	logbudget.LastLine(l.stderr, why)
}
