package server

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options are the options of a server. The tags describe them as flags, for the command
// that embeds them; the defaults that packages decide are those of [Defaults].
type Options struct {
	Addr      string `default:"127.0.0.1:8080" help:"Address of the public listener. Port 0 picks a free one."`
	AdminAddr string `default:"127.0.0.1:6060" help:"Address of the admin listener, with profiles. Empty: none."`
	Data      string `default:"pulsegate-data" type:"path" help:"Data directory. It is made where it is missing."`
	Insecure  bool   `help:"Take readings from anybody on addresses other than loopback, and under every host name."`

	AccessOptions `embed:""`

	UnknownFields string            `enum:"refuse,ignore" default:"refuse" help:"What to do with a reading that has an unknown field: refuse or ignore the field."`
	Oldest        time.Time         `default:"2001-01-01T00:00:00Z" placeholder:"TIME" help:"Oldest time of a reading that is accepted, RFC 3339 with zone. Devices whose clock was never set send times of 1970 or 2000. Integers below 10^11 are refused too: they look like seconds. 1970-01-01T00:00:00Z turns both checks off."`
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
	Retain         time.Duration `placeholder:"400d" help:"How long readings are kept, by their time, such as 400d; at least 1h. Older ones are removed in the background, and refused. Default: for ever."`
	Scrub          time.Duration `default:"168h" help:"Time in which every stored table is read once, slowly, to verify its checksums while the server runs, such as 7d; at least 1m. 0s: never."`
	MinFreeBytes   int64         `default:"${min_free_bytes}" help:"Free disk space, in bytes, below which writes are refused with 503."`

	FastLane string `enum:"on,off" default:"on" help:"Whether usual POSTs of readings are served by an event loop, on Linux: on or off. Everything else is served by net/http in any case."`
	Loops    int    `default:"1" help:"Event loops of the fast lane."`
	MaxConns int    `placeholder:"N" help:"Connections open at one time. The next 64 get one answer each, 503 for readings, and are closed; further ones wait. Default: ${max_conns}, or less to fit into the memory limit."`
	MaxReads int    `default:"${max_reads}" help:"Questions about devices and readings that are answered at one time. Further ones wait for a second, and are refused with 503."`

	TrustedProxies []string `placeholder:"CIDR,..." help:"Networks of proxies in front of this server. Of their requests, the address that X-Forwarded-For or Forwarded names gets a share of places and memory; their connections are not divided by address."`

	HandshakeTimeout time.Duration `default:"5s" help:"Time for a TLS handshake."`

	ReadTimeout  time.Duration `default:"60s" help:"Time for a request to arrive."`
	IdleTimeout  time.Duration `default:"120s" help:"Time for which a connection may stay open between two requests."`
	DrainDelay   time.Duration `default:"0s" help:"Time after SIGTERM for which requests are still taken, while readyz says no already, so that a load balancer can turn away. A second signal ends it early."`
	DrainTimeout time.Duration `default:"30s" help:"Time for requests under way to be answered after SIGTERM."`

	LogOptions   `embed:""`
	TraceOptions `embed:""`

	// Version is that of the program.
	Version string `kong:"-"`

	// Getenv is os.Getenv. The memory limit and the service manager are found by it.
	Getenv func(name string) string `kong:"-"`

	// Reload is called at SIGHUP. It reads the options of the log anew, and returns the
	// names of others that have changed, which need a restart. nil: SIGHUP is not caught.
	Reload func() (log *LogOptions, needRestart []string, err error) `kong:"-"`

	memTableBytes int64 // 0: the store's default
}

const defaultMaxConns = 1 << 16

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
		"trace_forced":     n(tracing.DefaultForced),
		"default_audit":    DefaultAudit,

		"max_contradictions": n(token.DefaultContradictions),
		"audit_reads":        n(token.DefaultReads),

		"log_budget":       n(logbudget.DefaultLinesPerMinute),
		"log_budget_bytes": n(logbudget.DefaultBytesPerMinute),
	}
}

// A rule is what options must keep to.
type rule struct {
	kept bool
	text string
}

// firstBroken returns an error about the first rule that is not kept.
func firstBroken(rules ...rule) error {
	for _, r := range rules {
		if !r.kept {
			return settings.Usagef("%s", r.text)
		}
	}
	return nil
}

// Check returns a [settings.UsageError] for options that make no sense. It opens nothing.
func (c *Options) Check() error {
	_, limitsErr := c.limits()
	_, usualErr := c.flagLimits()
	_, tracingErr := c.tracing()
	_, proxiesErr := c.trustedProxies()
	return cmp.Or(c.LogOptions.check(), c.AccessOptions.check(), c.checkAddr(), c.checkBounds(), limitsErr, usualErr, tracingErr, proxiesErr)
}

// checkBounds refuses bounds that would refuse everything, and times that net/http takes
// for "no limit".
func (c *Options) checkBounds() error {
	return firstBroken(
		rule{c.ReadTimeout > 0, "--read-timeout must be above 0"},
		rule{c.HandshakeTimeout > 0, "--handshake-timeout must be above 0"},
		rule{c.IdleTimeout > 0, "--idle-timeout must be above 0"},
		rule{c.DrainDelay >= 0, "--drain-delay must be at least 0s"},
		rule{c.DrainTimeout >= 0, "--drain-timeout must be at least 0s"},
		rule{c.MaxSingleBytes > 0, "--max-single-bytes must be at least 1"},
		rule{c.MaxBatchBytes > 0, "--max-batch-bytes must be at least 1"},
		rule{c.MaxReadings > 0, "--max-readings must be at least 1"},
		rule{c.MaxGroup > 0, "--max-group must be at least 1"},
		rule{c.MaxQueued > 0, "--max-queued must be at least 1"},
		rule{c.MaxBodyBytes > 0, "--max-body-bytes must be at least 1"},
		rule{c.MaxDevices > 0, "--max-devices must be at least 1"},
		rule{c.Loops > 0, "--loops must be at least 1"},
		rule{c.MaxConns > 0, "--max-conns must be at least 1"},
		rule{c.CacheBytes > 0, "--cache-bytes must be at least 1"},
		rule{c.MaxReads > 0, "--max-reads must be at least 1"},
		rule{c.MaxWait > 0, "--max-wait must be above 0"},
		rule{c.Scrub == 0 || c.Scrub >= time.Minute, "--scrub must be at least 1m, or 0s"},
		rule{c.Retain == 0 || c.Retain >= time.Hour, "--retain must be at least 1h"},
	)
}

// checkAddr refuses to take readings from anybody on an address that others can reach,
// unless that is asked for.
func (c *Options) checkAddr() error {
	_, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return settings.Usagef("--addr: %v", err)
	}
	if _, _, err := net.SplitHostPort(c.AdminAddr); err != nil && c.AdminAddr != "" {
		return settings.Usagef("--admin-addr: %v", err)
	}
	if c.anybody() && !c.Insecure {
		return settings.Usagef("--addr %s can be reached from other machines, and this server has no tokens: anybody could write and read. "+
			"Name a token file with --tokens, listen on 127.0.0.1, or add --insecure if something in front of it decides who gets in.", c.Addr)
	}
	return nil
}

// anybody reports whether the options let anybody on other machines write and read.
func (c *Options) anybody() bool { return c.AccessOptions.open() && !isLoopback(c.Addr) }

// problems returns what is answered to what is refused.
func (c *Options) problems() *problem.Set {
	if c.Tokens == "" {
		return problem.New().WithoutTokens()
	}
	return problem.New()
}

// ownHosts returns the hosts for which the public listener answers; nil for all. Where
// anybody may read and write who reaches this machine's own addresses, pages in its
// browsers must not. With --insecure, something in front decides who gets in, and under
// which names. Over TLS, a name needs a certificate.
func (c *Options) ownHosts() *hosts {
	if !c.AccessOptions.open() || c.Insecure || c.TLSCert != "" {
		return nil
	}
	return newHosts(c.Addr)
}

// isLoopback reports whether an address, with or without a port, is this machine's own.
// A listener without a host listens on every address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]")
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// trustedProxies returns the networks of proxies.
func (c *Options) trustedProxies() ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range c.TrustedProxies {
		network, err := netip.ParsePrefix(text)
		if addr, e := netip.ParseAddr(text); err != nil && e == nil {
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, settings.Usagef("--trusted-proxies: %q is no network such as 10.0.0.0/8", text)
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}

// limits returns the limits that readings must keep to.
func (c *Options) limits() (vitals.Limits, error) {
	limits := vitals.DefaultLimits()
	limits.MaxAhead = c.MaxAhead
	limits.MaxAge = c.Retain
	limits.OldestUnixMs = c.Oldest.UnixMilli()
	err := setRanges(&limits.Accepted, "--accept", c.Accept)
	if err == nil {
		err = limits.Validate()
	}
	return limits, settings.Usage(err)
}

// flagLimits returns the limits outside of which values are flagged.
func (c *Options) flagLimits() (vitals.FlagLimits, error) {
	limits := vitals.DefaultFlagLimits()
	err := setRanges(&limits.Usual, "--usual", c.Usual)
	if err == nil {
		err = limits.Validate()
	}
	return limits, settings.Usage(err)
}

// setRanges reads ranges such as spo2_pct=1..100.
func setRanges(ranges *[vitals.NumSigns]vitals.Range, flag string, texts map[string]string) error {
	signs := map[string]vitals.Sign{}
	for s := range vitals.Sign(vitals.NumSigns) {
		signs[s.Field()] = s
	}
	for field, text := range texts {
		s, known := signs[field]
		if !known {
			return fmt.Errorf("%s: %q is no vital sign", flag, field)
		}
		if err := ranges[s].UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("%s %s: %w", flag, field, err)
		}
	}
	return nil
}

// ingest returns the bounds of the write side.
func (c *Options) ingest(limits vitals.Limits) ingest.Config {
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
		BodyTimeout:    c.ReadTimeout,
	}
}
