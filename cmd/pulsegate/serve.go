package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

type serveCommand struct {
	Addr      string `default:"127.0.0.1:8080" help:"Address of the public listener. Port 0 picks a free one."`
	AdminAddr string `default:"127.0.0.1:6060" help:"Address of the admin listener, with profiles. Empty: none."`
	Data      string `default:"pulsegate-data" type:"path" help:"Data directory. It is made where it is missing."`
	Insecure  bool   `help:"Take readings from anybody on addresses other than loopback."`

	accessFlags `embed:""`

	UnknownFields string            `enum:"refuse,ignore" default:"refuse" help:"What to do with a reading that has an unknown field: refuse or ignore the field."`
	MaxAhead      time.Duration     `default:"5m" help:"How far a reading's time may lie ahead of the server's clock."`
	Accept        map[string]string `mapsep:"," placeholder:"FIELD=MIN..MAX,..." help:"Accepted range of a sign in its unit, such as spo2_pct=1..100. Others keep their default."`
	Usual         map[string]string `mapsep:"," placeholder:"FIELD=MIN..MAX,..." help:"Range outside of which a value is flagged when it is read, such as heart_rate_bpm=40.01..130.99."`

	MaxSingleBytes int           `default:"${max_single_bytes}" help:"Length of a reading at most, in bytes, decompressed."`
	MaxBatchBytes  int           `placeholder:"N" help:"Length of a batch at most, in bytes, decompressed. Default: ${max_batch_bytes}, or less to fit into the memory limit."`
	MaxReadings    int           `default:"${max_readings}" help:"Readings in a batch at most."`
	MaxGroup       int           `default:"${max_group}" help:"Readings in one commit at most."`
	MaxQueued      int           `placeholder:"N" help:"Readings that may wait for a commit. Further ones are refused with 503. Default: ${max_queued}, or less to fit into the memory limit."`
	MaxBodyBytes   int           `placeholder:"N" help:"Memory of all request bodies at one time, in bytes. Default: ${max_body_bytes}, or less to fit into the memory limit."`
	MaxWait        time.Duration `default:"${max_wait}" help:"How long the oldest reading may have waited for its commit before further ones are refused with 503."`
	MaxDevices     int           `placeholder:"N" help:"Devices that the store takes. Readings of further ones are refused. Default: ${max_devices}, or less to fit into the memory limit."`
	CacheBytes     int64         `placeholder:"N" help:"Memory of the store's cache, in bytes. Default: ${cache_bytes}, or less to fit into the memory limit."`
	Retain         keepFor       `placeholder:"400d" help:"How long readings are kept, by their time: in days, such as 400d, or as a duration of at least 1h. Older ones are removed in the background, and refused. Default: for ever."`
	MinFreeBytes   int64         `default:"${min_free_bytes}" help:"Free disk space, in bytes, below which writes are refused with 503."`

	FastLane string `enum:"on,off" default:"on" help:"Whether usual POSTs of readings are served by an event loop, on Linux: on or off. Everything else is served by net/http in any case."`
	Loops    int    `default:"1" help:"Event loops of the fast lane."`
	MaxConns int    `placeholder:"N" help:"Connections open at one time. The next 64 get one answer each, 503 for readings, and are closed; further ones wait. Default: ${max_conns}, or less to fit into the memory limit."`
	MaxReads int    `default:"${max_reads}" help:"Questions about devices and readings that are answered at one time. Further ones wait for a second, and are refused with 503."`

	ReadTimeout  time.Duration `default:"60s" help:"Time for a request to arrive."`
	IdleTimeout  time.Duration `default:"120s" help:"Time for which a connection may stay open between two requests."`
	DrainDelay   time.Duration `default:"0s" help:"Time after SIGTERM for which requests are still taken, while readyz says no already, so that a load balancer can turn away. A second signal ends it early."`
	DrainTimeout time.Duration `default:"30s" help:"Time for requests under way to be answered after SIGTERM."`

	loggingFlags `embed:""`
	tracingFlags `embed:""`

	memTableBytes int64      // 0: the store's default
	life          *lifecycle // nil: none
	PrintConfig   bool       `action:"" help:"Print the settings as they would take effect, as a file for --config, with where each comes from; check them, and exit."`
}

// helpVars are the defaults that packages decide.
func helpVars() kong.Vars {
	n := func(v int) string { return fmt.Sprint(v) }
	return kong.Vars{
		"max_single_bytes": n(ingest.DefaultMaxSingleBytes),
		"max_batch_bytes":  n(ingest.DefaultMaxBatchBytes),
		"max_readings":     n(ingest.DefaultMaxReadings),
		"max_group":        n(ingest.DefaultMaxGroup),
		"max_queued":       n(ingest.DefaultMaxQueued),
		"max_body_bytes":   n(ingest.DefaultMaxBodyBytes),
		"max_conns":        n(defaultMaxConns),
		"cache_bytes":      n(pebblestore.DefaultCacheBytes),
		"max_wait":         ingest.DefaultMaxWait.String(),
		"max_reads":        n(query.DefaultMaxReads),
		"max_devices":      n(pebblestore.DefaultMaxDevices),
		"min_free_bytes":   n(pebblestore.DefaultMinFreeBytes),
		"default_audit":    defaultAudit,
		"log_budget":       n(logbudget.DefaultLinesPerMinute),
		"log_budget_bytes": n(logbudget.DefaultBytesPerMinute),
	}
}

func (c *serveCommand) Run(ctx context.Context, std stdio, kctx *kong.Context, cmds *commands) error {
	if c.PrintConfig {
		return c.printConfig(std.out, kctx, cmds.file)
	}
	logs, err := openLogging(std.err, &c.loggingFlags)
	if err != nil {
		return err
	}
	defer logs.close()
	logs.takeOthers()
	if logs.settings, err = newSettingsReader(kctx, cmds.file); err != nil {
		return err
	}
	for _, text := range unknownVariables(os.Environ(), kctx.Model.Node) {
		logs.log.Warn("unknown environment variable", "what", text)
	}
	life, err := newLifecycle(c, logs.log)
	if err != nil {
		return err
	}
	defer life.end()
	c.life = life
	hangups := catchHangups() // from now on: a store may take long to open
	defer signal.Stop(hangups)
	takeResources(c, logs.log)
	srv, err := startServer(c, logs)
	if err != nil {
		return err
	}
	defer onHangup(hangups, func() { life.reload(srv.reload) })()
	life.serving(srv)
	return srv.run(ctx)
}

// printConfig prints the settings, and refuses what startServer would refuse
// without a look at anything but them.
func (c *serveCommand) printConfig(out io.Writer, kctx *kong.Context, file *configFile) error {
	takeResources(c, slog.New(slog.DiscardHandler))
	if err := printConfig(out, kctx, file, c.loggingFlags.note()); err != nil {
		return err
	}
	_, ingestErr := c.ingestConfig()
	_, flagErr := c.flagLimits()
	return cmp.Or(c.checkLogging(), c.check(slog.New(slog.DiscardHandler)), ingestErr, flagErr)
}

// check refuses addresses, times and tracing that cannot be meant. It opens nothing.
func (c *serveCommand) check(log *slog.Logger) error {
	return cmp.Or(c.accessFlags.check(), c.checkAddr(log), c.checkTimes(), c.tracingFlags.check())
}

// checkTimes refuses times that would cut off everything, or that net/http takes for
// "no limit".
func (c *serveCommand) checkTimes() error {
	for _, bound := range []struct {
		flag         string
		value, least time.Duration
		want         string
	}{
		{"--read-timeout", c.ReadTimeout, 1, "above 0"},
		{"--idle-timeout", c.IdleTimeout, 1, "above 0"},
		{"--drain-delay", c.DrainDelay, 0, "at least 0s"},
		{"--drain-timeout", c.DrainTimeout, 0, "at least 0s"},
	} {
		if bound.value < bound.least {
			return usageError{bound.flag + " must be " + bound.want}
		}
	}
	return nil
}

// checkAddr refuses to take readings from anybody on an address that others can
// reach, unless that is asked for.
func (c *serveCommand) checkAddr(log *slog.Logger) error {
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return usageError{fmt.Sprintf("--addr: %v", err)}
	}
	if _, _, err := net.SplitHostPort(c.AdminAddr); err != nil && c.AdminAddr != "" {
		return usageError{fmt.Sprintf("--admin-addr: %v", err)}
	}
	if isLoopback(host) || !c.accessFlags.open() {
		return nil
	}
	if !c.Insecure {
		return usageError{fmt.Sprintf("--addr %s can be reached from other machines, and this server has no tokens: anybody could write and read. "+
			"Name a token file with --tokens, listen on 127.0.0.1, or add --insecure if something in front of it decides who gets in.", c.Addr)}
	}
	log.Warn("INSECURE: anybody who reaches this address can write and read health data", "addr", c.Addr)
	return nil
}

// isLoopback reports whether a listener on host is reached from this machine
// only. An empty host is every address.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// limits returns the limits that readings must keep to.
func (c *serveCommand) limits() (vitals.Limits, error) {
	limits := vitals.DefaultLimits()
	limits.MaxAhead = c.MaxAhead
	limits.MaxAge = time.Duration(c.Retain)
	if err := setRanges(&limits.Accepted, "--accept", c.Accept); err != nil {
		return limits, err
	}
	if err := limits.Validate(); err != nil {
		return limits, usageError{err.Error()}
	}
	return limits, nil
}

// flagLimits returns the limits outside of which values are flagged.
func (c *serveCommand) flagLimits() (vitals.FlagLimits, error) {
	limits := vitals.DefaultFlagLimits()
	if err := setRanges(&limits.Usual, "--usual", c.Usual); err != nil {
		return limits, err
	}
	if err := limits.Validate(); err != nil {
		return limits, usageError{err.Error()}
	}
	return limits, nil
}

// setRanges reads ranges such as spo2_pct=1..100.
func setRanges(ranges *[vitals.NumSigns]vitals.Range, flag string, texts map[string]string) error {
	for field, text := range texts {
		known := false
		for s := range vitals.Sign(vitals.NumSigns) {
			if s.Field() != field {
				continue
			}
			known = true
			if err := ranges[s].UnmarshalText([]byte(text)); err != nil {
				return usageError{fmt.Sprintf("%s %s: %v", flag, field, err)}
			}
		}
		if !known {
			return usageError{fmt.Sprintf("%s: %q is no vital sign", flag, field)}
		}
	}
	return nil
}

// ingestConfig returns the bounds of the write side.
func (c *serveCommand) ingestConfig() (ingest.Config, error) {
	limits, err := c.limits()
	if err != nil {
		return ingest.Config{}, err
	}
	for _, bound := range []struct {
		flag  string
		value int
	}{
		{"--max-single-bytes", c.MaxSingleBytes}, {"--max-batch-bytes", c.MaxBatchBytes},
		{"--max-readings", c.MaxReadings}, {"--max-group", c.MaxGroup},
		{"--max-queued", c.MaxQueued}, {"--max-body-bytes", c.MaxBodyBytes}, {"--max-devices", c.MaxDevices},
		{"--loops", c.Loops}, {"--max-conns", c.MaxConns}, {"--cache-bytes", int(c.CacheBytes)}, {"--max-reads", c.MaxReads},
	} {
		if bound.value < 1 {
			return ingest.Config{}, usageError{bound.flag + " must be at least 1"}
		}
	}
	if c.MaxWait <= 0 {
		return ingest.Config{}, usageError{"--max-wait must be above 0"}
	}
	return ingest.Config{
		Limits:         limits,
		IgnoreUnknown:  c.UnknownFields == "ignore",
		MaxSingleBytes: c.MaxSingleBytes,
		MaxBatchBytes:  c.MaxBatchBytes,
		MaxReadings:    c.MaxReadings,
		MaxGroup:       c.MaxGroup,
		MaxQueued:      c.MaxQueued,
		MaxBodyBytes:   c.MaxBodyBytes,
		MaxWait:        c.MaxWait,
	}, nil
}

// storeOptions returns the options of the embedded store.
func (c *serveCommand) storeOptions(log *slog.Logger, fatal func(string)) pebblestore.Options {
	return pebblestore.Options{
		MaxDevices:    c.MaxDevices,
		MinFreeBytes:  c.MinFreeBytes,
		CacheBytes:    c.CacheBytes,
		MemTableBytes: int(c.memTableBytes),
		Log:           log,
		Fatal:         fatal,
	}
}

// defaultServe returns the serve command with the default of every flag.
func defaultServe() (*serveCommand, error) {
	var c serveCommand
	parser, err := kong.New(&c, kong.Vars(helpVars()))
	if err != nil {
		return nil, fmt.Errorf("read defaults of serve: %w", err)
	}
	if _, err := parser.Parse(nil); err != nil {
		return nil, fmt.Errorf("read defaults of serve: %w", err)
	}
	return &c, nil
}
