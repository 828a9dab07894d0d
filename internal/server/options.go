package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options are the options of a server. Their tags describe them as flags.
type Options struct {
	Addr      string `default:"127.0.0.1:8080" help:"Address of the public listener. Port 0 picks a free one."`
	AdminAddr string `default:"127.0.0.1:6060" help:"Address of the admin listener, with profiles. Empty: none."`
	Data      string `default:"pulsegate-data" type:"path" help:"Data directory. It is made where it is missing."`
	Insecure  bool   `help:"Take readings from anybody on addresses other than loopback."`

	AccessOptions `embed:""`

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
	Retain         settings.Days `placeholder:"400d" help:"How long readings are kept, by their time: in days, such as 400d, or as a duration of at least 1h. Older ones are removed in the background, and refused. Default: for ever."`
	MinFreeBytes   int64         `default:"${min_free_bytes}" help:"Free disk space, in bytes, below which writes are refused with 503."`

	FastLane string `enum:"on,off" default:"on" help:"Whether usual POSTs of readings are served by an event loop, on Linux: on or off. Everything else is served by net/http in any case."`
	Loops    int    `default:"1" help:"Event loops of the fast lane."`
	MaxConns int    `placeholder:"N" help:"Connections open at one time. The next 64 get one answer each, 503 for readings, and are closed; further ones wait. Default: ${max_conns}, or less to fit into the memory limit."`
	MaxReads int    `default:"${max_reads}" help:"Questions about devices and readings that are answered at one time. Further ones wait for a second, and are refused with 503."`

	ReadTimeout  time.Duration `default:"60s" help:"Time for a request to arrive."`
	IdleTimeout  time.Duration `default:"120s" help:"Time for which a connection may stay open between two requests."`
	DrainDelay   time.Duration `default:"0s" help:"Time after SIGTERM for which requests are still taken, while readyz says no already, so that a load balancer can turn away. A second signal ends it early."`
	DrainTimeout time.Duration `default:"30s" help:"Time for requests under way to be answered after SIGTERM."`

	LogOptions   `embed:""`
	TraceOptions `embed:""`

	Version string `kong:"-"`
	// Getenv is os.Getenv. nil, as in demo: there is no service manager, and no reload.
	Getenv func(name string) string `kong:"-"`
	// Reload reads the settings of the log anew, and returns the names of other settings
	// that have changed. nil: they do not change.
	Reload func() (log *LogOptions, needRestart []string, err error) `kong:"-"`

	memTableBytes int64      // 0: the store's default
	life          *lifecycle // nil: none
}

// Defaults are the defaults that packages decide, by the names that tags of [Options]
// have for them.
func Defaults() map[string]string {
	n := func(v int) string { return fmt.Sprint(v) }
	return map[string]string{
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
		"default_audit":    DefaultAudit,
		"log_budget":       n(logbudget.DefaultLinesPerMinute),
		"log_budget_bytes": n(logbudget.DefaultBytesPerMinute),
	}
}

// Check refuses what Start would refuse without a look at anything but the options.
func (c *Options) Check() error {
	_, ingestErr := c.ingestConfig()
	_, flagErr := c.flagLimits()
	return cmp.Or(c.checkLogging(), c.check(slog.New(slog.DiscardHandler)), ingestErr, flagErr)
}

// A UsageError means options that cannot be meant.
type UsageError struct{ Reason string }

func (e UsageError) Error() string { return e.Reason }

// check refuses addresses, times and tracing that cannot be meant. It opens nothing.
func (c *Options) check(log *slog.Logger) error {
	return cmp.Or(c.AccessOptions.check(), c.checkAddr(log), c.checkTimes(), c.TraceOptions.check())
}

// checkTimes refuses times that would cut off everything, or that net/http takes for
// "no limit".
func (c *Options) checkTimes() error {
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
			return UsageError{bound.flag + " must be " + bound.want}
		}
	}
	return nil
}

// checkAddr refuses to take readings from anybody on an address that others can
// reach, unless that is asked for.
func (c *Options) checkAddr(log *slog.Logger) error {
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return UsageError{fmt.Sprintf("--addr: %v", err)}
	}
	if _, _, err := net.SplitHostPort(c.AdminAddr); err != nil && c.AdminAddr != "" {
		return UsageError{fmt.Sprintf("--admin-addr: %v", err)}
	}
	if IsLoopback(host) || !c.AccessOptions.open() {
		return nil
	}
	if !c.Insecure {
		return UsageError{fmt.Sprintf("--addr %s can be reached from other machines, and this server has no tokens: anybody could write and read. "+
			"Name a token file with --tokens, listen on 127.0.0.1, or add --insecure if something in front of it decides who gets in.", c.Addr)}
	}
	log.Warn("INSECURE: anybody who reaches this address can write and read health data", "addr", c.Addr)
	return nil
}

// IsLoopback reports whether a listener on host is reached from this machine
// only. An empty host is every address.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// limits returns the limits that readings must keep to.
func (c *Options) limits() (vitals.Limits, error) {
	limits := vitals.DefaultLimits()
	limits.MaxAhead = c.MaxAhead
	limits.MaxAge = time.Duration(c.Retain)
	if err := setRanges(&limits.Accepted, "--accept", c.Accept); err != nil {
		return limits, err
	}
	if err := limits.Validate(); err != nil {
		return limits, UsageError{err.Error()}
	}
	return limits, nil
}

// flagLimits returns the limits outside of which values are flagged.
func (c *Options) flagLimits() (vitals.FlagLimits, error) {
	limits := vitals.DefaultFlagLimits()
	if err := setRanges(&limits.Usual, "--usual", c.Usual); err != nil {
		return limits, err
	}
	if err := limits.Validate(); err != nil {
		return limits, UsageError{err.Error()}
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
				return UsageError{fmt.Sprintf("%s %s: %v", flag, field, err)}
			}
		}
		if !known {
			return UsageError{fmt.Sprintf("%s: %q is no vital sign", flag, field)}
		}
	}
	return nil
}

// ingestConfig returns the bounds of the write side.
func (c *Options) ingestConfig() (ingest.Config, error) {
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
			return ingest.Config{}, UsageError{bound.flag + " must be at least 1"}
		}
	}
	if c.MaxWait <= 0 {
		return ingest.Config{}, UsageError{"--max-wait must be above 0"}
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
func (c *Options) storeOptions(log *slog.Logger, fatal func(string)) pebblestore.Options {
	return pebblestore.Options{
		MaxDevices:    c.MaxDevices,
		MinFreeBytes:  c.MinFreeBytes,
		CacheBytes:    c.CacheBytes,
		MemTableBytes: int(c.memTableBytes),
		Log:           log,
		Fatal:         fatal,
	}
}
