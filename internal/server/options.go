package server

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/access/signin"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/influx"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/mapping"
	"github.com/pulsegate/pulsegate/internal/api/mqtt"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/signsfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options are the options of a server. The tags describe them as flags for the command that
// embeds them. [Defaults] has the defaults that other packages define.
type Options struct {
	Addr      string        `group:"first" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address of the public listener. Port 0 chooses a free port."`
	AdminAddr string        `group:"first" default:"127.0.0.1:6060" placeholder:"HOST:PORT" help:"Address of the admin listener, with metrics and profiles; empty for none."`
	Data      string        `group:"first" default:"pulsegate-data" type:"path" placeholder:"DIR" help:"Data directory. It is created if it does not exist."`
	Retain    time.Duration `group:"first" unit:"d" help:"How long to keep readings, by their time, such as 400d; at least 1h. Older readings are removed and rejected. Default: keep for ever."`
	PublicURL []string      `name:"public-url" group:"first" placeholder:"URL" help:"URLs under which browsers and clients reach this server, such as https://vitals.example/. The first is in links of alerts and FHIR, and people sign in there if there is an --oidc-issuer. A server without tokens and TLS answers requests for these hosts, the one of --addr, localhost and IP addresses only, so that a web page cannot reach it by a name of its own. Default: none."`

	AccessOptions `embed:""`
	AlertOptions  `embed:""`

	MQTTAddr string `name:"mqtt-addr" group:"first" placeholder:"HOST:PORT" help:"Address on which gateways publish readings with MQTT, such as 127.0.0.1:1883. The TLS files, tokens and limits of the public listener hold there too. Default: none."`

	Store          string        `group:"store" placeholder:"URL" help:"Address of a PostgreSQL database to use in place of --data, such as postgres://user@host1,host2,host3/db; several servers may share it. The password comes from the file that PGPASSFILE names."`
	PostgresSingle bool          `group:"store" help:"Accept a database without synchronous standbys: what is acknowledged is on one machine, or on storage that is replicated itself."`
	SealAfter      time.Duration `group:"store" default:"1h" help:"With --store: the age, by measured time, from which on readings are moved into segments, which take a tenth of the disk; 0s for never. Nothing is moved while a server of an earlier release is connected."`
	Remember       time.Duration `group:"store" default:"10m" help:"With --store: how long to remember what was acknowledged, so that a database that has forgotten it is repaired; 0s for not at all, so that such a database is refused."`
	RememberDir    string        `group:"store" type:"path" placeholder:"DIR" help:"Directory that keeps what --remember has, so that it survives a restart; of this server alone. It is created if it does not exist. Default: it is kept in memory."`
	ChangesKeep    time.Duration `group:"store" unit:"d" default:"7d" help:"How long to keep assignments, erasures and expiries for clients that read changes (GET /v1/changes). The event of an erasure has the name of the device. 0 keeps none, and changes cannot be read."`
	MaxDevices     int           `group:"store" help:"Devices in the store; readings of further devices are rejected. Default: ${max_devices}, or less to fit the memory limit."`
	MinFreeBytes   int64         `group:"store" default:"${min_free_bytes}" help:"Free disk space below which readings are rejected with 503."`
	Scrub          time.Duration `group:"store" unit:"d" default:"7d" help:"Time in which the checksums of all stored tables are verified once, slowly, while the server runs; at least 1m, or 0s for never."`

	Insecure       bool     `group:"access" help:"Without tokens, listen on addresses other than loopback: anybody who can reach the address can write and read."`
	CORSOrigins    []string `name:"cors-origin" group:"access" placeholder:"ORIGIN" help:"Origins of web pages that may read from this server, such as https://ward.example, or * for all. Default: none."`
	TrustedProxies []string `group:"access" placeholder:"CIDR" help:"Networks of reverse proxies. Requests from them count for the client address in X-Forwarded-For or Forwarded when memory and queries are shared out, and have the scheme in X-Forwarded-Proto or Forwarded when an Origin is compared. Default: none."`

	Signs         string            `group:"readings-limits" type:"path" placeholder:"FILE" help:"TOML file that defines signs of your own."`
	UnknownFields string            `group:"readings-limits" enum:"refuse,ignore" default:"refuse" help:"What to do with a reading that has an unknown field: reject it (refuse), or ignore the field."`
	Questionable  string            `group:"readings-limits" enum:"reject,store" default:"reject" help:"What to do with a value that its device calls questionable, in HL7 v2, FHIR and characteristics of Bluetooth: leave it out as one that was not measured (reject), or store it."`
	PulseAs       string            `group:"readings-limits" enum:"pulse-rate,heart-rate" default:"pulse-rate" help:"How to store what HL7 v2, FHIR or a mapping names a pulse rate, such as the one of an oximeter or a cuff: as a pulse rate, or as a heart rate like the one of an ECG."`
	Oldest        time.Time         `group:"readings-limits" default:"2001-01-01T00:00:00Z" placeholder:"TIME" help:"Oldest accepted time of a reading, in RFC 3339. Devices whose clock was never set send times of 1970 or 2000. Integers below 10^11 are rejected too, because they look like seconds; 1970-01-01T00:00:00Z disables both checks."`
	MaxAhead      time.Duration     `group:"readings-limits" default:"5m" help:"How far the time of a reading may be ahead of the server's clock."`
	Accept        map[string]string `group:"readings-limits" mapsep:"," placeholder:"SIGN=MIN..MAX,..." help:"Accepted ranges; a sign that is not named keeps its default. Default: ${accept}."`
	Usual         map[string]string `group:"readings-limits" mapsep:"," placeholder:"SIGN=MIN..MAX,..." help:"Ranges outside of which a stored value is flagged when it is read. Default: ${usual}."`
	StaleAfter    time.Duration     `group:"readings-limits" default:"15m" help:"How long after its newest reading, by measured time, a device is listed as stale."`
	Devices       string            `env:"-" group:"readings-limits" type:"path" placeholder:"FILE" help:"TOML file with labels, groups and ranges of devices, for people. It is read again when it changes. Default: none."`

	Mapping       []string `group:"inputs" type:"path" placeholder:"FILE" help:"TOML file that maps payloads that others designed to readings, for topics, for POST /v1/mapped/NAME and for lines in InfluxDB's line protocol. It may be given several times."`
	MQTTTopic     string   `name:"mqtt-topic" group:"inputs" default:"${mqtt_topic}" placeholder:"TOPIC" help:"Topic of publications. The levels {device} and {gateway} stand for names that a payload need not repeat."`
	InfluxTag     string   `name:"influx-device-tag" group:"inputs" default:"${influx_device_tag}" placeholder:"TAG" help:"Tag that names the device of a line in InfluxDB's line protocol."`
	MLLPAddr      string   `name:"mllp-addr" group:"inputs" placeholder:"HOST:PORT" help:"Address on which gateways send HL7 v2 messages with MLLP, such as 127.0.0.1:2575. The TLS files and limits of the public listener hold there too. MLLP has no tokens: beyond this machine, clients need a certificate (--tls-client-ca). Default: none."`
	MLLPZone      string   `name:"mllp-zone" group:"inputs" placeholder:"ZONE" help:"Time zone of times without an offset in HL7 v2 messages, such as Europe/Berlin. Default: they are rejected."`
	MLLPAuthority string   `name:"mllp-authority" group:"inputs" placeholder:"NAME" help:"Assigning authority of the patients' identifiers in PID-3 of HL7 v2 messages, by its name or universal ID, and after ^ their type if it assigns several: HOSPITAL^MR. Default: identifiers without an authority."`
	MLLPAssign    bool     `name:"mllp-assign" group:"inputs" help:"Assign a device that is assigned to nobody to the patient in PID-3 of an HL7 v2 message, from the time of its first reading that is stored, but at most a day before the message arrived. A PID without a patient ends that assignment."`

	MaxQueued    int           `group:"limits" help:"Readings that wait for a commit; more are rejected with 503. Default: ${max_queued}, or less to fit the memory limit."`
	MaxWait      time.Duration `group:"limits" default:"${max_wait}" help:"How long a reading may wait for its commit before more are rejected with 503."`
	CacheBytes   int64         `group:"limits" help:"Memory for the cache of the store; with --store, for what --remember keeps, of which the oldest goes first. Default: ${cache_bytes}, or less to fit the memory limit."`
	MaxConns     int           `group:"limits" help:"Open connections. The next 64 get one answer each, 503 for readings; more wait. Default: ${max_conns}, or less to fit the memory limit and the limit of open files."`
	ReadTimeout  time.Duration `group:"limits" default:"60s" help:"Time for a request to arrive. A connection may be idle for twice as long."`
	DrainDelay   time.Duration `group:"limits" default:"0s" help:"Time after SIGTERM during which readyz fails and requests are still accepted, so that a load balancer can stop sending. A second signal ends it."`
	DrainTimeout time.Duration `group:"limits" default:"30s" help:"Time after SIGTERM for pending requests to be answered."`
	FastLane     string        `group:"limits" enum:"on,off" default:"on" help:"Serve common POSTs of readings from an event loop, with TLS or without (Linux only). net/http serves all other requests."`

	LogOptions   `embed:"" group:"observe"`
	TraceOptions `embed:"" group:"observe"`

	// Version is the version of the program.
	Version string `kong:"-"`

	// Getenv is os.Getenv. It reads what the memory limit and the service manager set.
	Getenv func(name string) string `kong:"-"`

	// Reload is called at SIGHUP. It reads the log options again, and returns the names of
	// other options that have changed and require a restart. nil: SIGHUP is not caught.
	Reload func() (log *LogOptions, needRestart []string, err error) `kong:"-"`
	// Hangups receives SIGHUP, if it is caught already. Run catches it otherwise.
	Hangups chan os.Signal `kong:"-"`

	// MLLPBack is how long before its message an assignment of MLLPAssign may begin. 0 means a day.
	MLLPBack time.Duration `kong:"-"`

	usableBytes   int64 // of memory, set by Fit
	maxBodyBytes  int   // of all request bodies; 0 means the default, as below
	maxBatchBytes int
	memTableBytes int64
	windowRows    int   // likewise
	alertBytes    int64 // of states of alerts; 0 means no bound
}

const defaultMaxConns = 1 << 16

// Defaults returns the defaults that other packages define, by their names in the tags of
// [Options].
func Defaults() map[string]string {
	n := func(v int) string { return fmt.Sprint(v) }
	size := settings.FormatBytes
	return map[string]string{
		"influx_device_tag": influx.DefaultDeviceTag,
		"mqtt_topic":        mqtt.DefaultTopic,
		"max_queued":        n(ingest.DefaultMaxQueued),
		"max_conns":         n(defaultMaxConns),
		"cache_bytes":       size(pebblestore.DefaultCacheBytes),
		"max_wait":          settings.FormatDuration(ingest.DefaultMaxWait),
		"max_devices":       n(pebblestore.DefaultMaxDevices),
		"min_free_bytes":    size(pebblestore.DefaultMinFreeBytes),
		"default_audit":     DefaultAudit,

		"max_contradictions": n(token.DefaultContradictions),
		"log_budget":         n(logbudget.DefaultLinesPerMinute),

		"accept": rangesText(func(d *vitals.Definition) vitals.Range { return d.Accepted }),
		"usual":  rangesText(func(d *vitals.Definition) vitals.Range { return d.Usual }),
	}
}

// rangesText returns the default ranges of the built-in signs as setRanges parses them.
func rangesText(of func(*vitals.Definition) vitals.Range) string {
	var texts []string
	for _, d := range vitals.NewSigns().All() {
		texts = append(texts, d.Field+"="+d.FormatRange(of(d)))
	}
	return strings.Join(texts, ",")
}

// A rule is a condition on options.
type rule struct {
	kept bool
	text string // of the error
}

// firstBroken returns the error of the first broken rule.
func firstBroken(rules ...rule) error {
	for _, r := range rules {
		if !r.kept {
			return settings.Usagef("%s", r.text)
		}
	}
	return nil
}

// parsed is what the texts of options mean.
type parsed struct {
	own     []vitals.Definition // signs of the user's own
	limits  vitals.Limits
	flags   vitals.FlagLimits // outside of which values get flags
	tracing *tracing.Options  // nil means no tracing
	proxies []netip.Prefix    // trusted ones
	origins *origins          // nil means none
	topic   mqtt.Topic
	zone    *time.Location // of HL7 v2 messages; nil means none

	mappings *mapping.Set
	lines    *influx.Mappings
}

// Check returns a [settings.UsageError] for invalid options. It opens nothing.
func (c *Options) Check() error {
	_, err := c.parse()
	return err
}

// Notes returns sentences about bounds that have no setting, and unless the options are invalid a line about each sign.
// [Options.Fit] must have been called.
func (c *Options) Notes() []string {
	lines := []string{c.Note(), fmt.Sprintf("Request bodies have %s of memory; a batch has at most %s, decompressed.",
		settings.FormatBytes(int64(c.maxBodyBytes)), settings.FormatBytes(int64(c.maxBatchBytes)))}
	p, err := c.parse()
	if err != nil {
		return lines
	}
	for s, d := range p.limits.Signs.All() {
		lines = append(lines, fmt.Sprintf("sign %s: unit %s, decimals %d, accepted %s, usual %s",
			d.Field, d.Unit, d.Decimals, d.FormatRange(p.limits.Accepted[s]), d.FormatRange(p.flags.Usual[s])))
	}
	return lines
}

// parse checks the options and parses their texts.
func (c *Options) parse() (p parsed, err error) {
	if err := cmp.Or(c.LogOptions.check(), c.AccessOptions.check(), c.checkAddr(), c.checkBounds(), c.checkStore(),
		c.checkURLs()); err != nil {
		return p, err
	}
	signs, own, err := signsfile.Table(c.Signs)
	if err != nil {
		return p, settings.Usagef("--signs: %v", err)
	}
	p.own = own
	var tracingErr, proxiesErr, originsErr, topicErr, zoneErr error
	limitsErr := p.setLimits(c, signs)
	p.tracing, tracingErr = c.tracing()
	p.proxies, proxiesErr = c.trustedProxies()
	p.origins, originsErr = newOrigins(c.CORSOrigins)
	if p.topic, topicErr = mqtt.ParseTopic(c.MQTTTopic); topicErr != nil {
		topicErr = settings.Usagef("--mqtt-topic: %v", topicErr)
	}
	if c.MLLPZone != "" {
		if p.zone, zoneErr = time.LoadLocation(c.MLLPZone); zoneErr != nil {
			zoneErr = settings.Usagef("--mllp-zone: %v", zoneErr)
		}
	}
	if err := cmp.Or(limitsErr, tracingErr, proxiesErr, originsErr, topicErr, zoneErr,
		p.setMappings(c, signs)); err != nil {
		return p, err
	}
	if c.Devices != "" {
		if _, err := roster.Read(c.Devices, &p.limits); err != nil {
			return p, settings.Usagef("--devices: %v", err)
		}
	}
	if c.AccessRules != "" {
		if _, err := oidc.ReadRules(c.AccessRules); err != nil {
			return p, settings.Usagef("--access-rules: %v", err)
		}
	}
	if _, err := c.AlertOptions.urls(); err != nil || c.Alerts == "" {
		return p, err
	}
	if _, err := alert.ReadRules(c.Alerts, &p.flags); err != nil {
		return p, settings.Usagef("--alerts: %v", err)
	}
	return p, nil
}

// setMappings reads the mappings for a table of signs.
func (p *parsed) setMappings(c *Options, signs *vitals.Signs) (err error) {
	table := codes.Table{Signs: signs, PulseAsHeartRate: c.pulseAsHeartRate()}
	p.lines = influx.NewMappings(table, &p.limits.Accepted)
	p.mappings, err = mapping.Read(c.Mapping, table, &p.limits.Accepted,
		func(pattern string) (bool, error) {
			t, err := mqtt.ParseTopic(pattern)
			if err == nil && t.Overlaps(&p.topic) {
				err = fmt.Errorf("a topic may have this pattern and that of --mqtt-topic, %s", c.MQTTTopic)
			}
			return t.HasDevice(), err
		}, mapping.Others{influx.Source: p.lines.Add})
	if err != nil {
		return settings.Usagef("--mapping: %v", err)
	}
	return nil
}

// checkBounds rejects bounds that no request could meet, and times that mean "no limit"
// to net/http.
func (c *Options) checkBounds() error {
	return firstBroken(
		rule{c.ReadTimeout > 0, "--read-timeout must be above 0"},
		rule{c.DrainDelay >= 0, "--drain-delay must be at least 0s"},
		rule{c.DrainTimeout >= 0, "--drain-timeout must be at least 0s"},
		rule{c.MaxQueued > 0, "--max-queued must be at least 1"},
		rule{c.MaxDevices > 0, "--max-devices must be at least 1"},
		rule{influx.CheckDeviceTag(c.InfluxTag), "--influx-device-tag must name a tag other than gateway"},
		rule{c.MLLPAddr != "" || c.MLLPZone == "" && c.MLLPAuthority == "" && !c.MLLPAssign,
			"--mllp-zone, --mllp-authority and --mllp-assign require --mllp-addr"},
		rule{c.MaxConns > 0, "--max-conns must be at least 1"},
		rule{c.CacheBytes > 0, "--cache-bytes must be at least 1"},
		rule{c.Remember >= 0, "--remember must be at least 0s"},
		rule{c.SealAfter >= 0, "--seal-after must be at least 0s"},
		rule{c.MaxWait > 0, "--max-wait must be above 0"},
		rule{c.StaleAfter > 0, "--stale-after must be above 0"},
		rule{c.Scrub == 0 || c.Scrub >= time.Minute, "--scrub must be at least 1m, or 0s"},
		rule{c.ChangesKeep == 0 || c.ChangesKeep >= time.Hour, "--changes-keep must be 0s, or at least 1h"},
		rule{c.Retain == 0 || c.Retain >= time.Hour, "--retain must be at least 1h"},
	)
}

// checkAddr rejects a public listener without access control on an address that other machines
// can reach, unless the options allow it.
func (c *Options) checkAddr() error {
	for _, at := range c.addrs() {
		if _, _, err := net.SplitHostPort(*at.addr); err != nil && (*at.addr != "" || at.socket == publicSocket) {
			return settings.Usagef("%s: %v%s", at.flag(), err, AddrHint(*at.addr))
		}
	}
	host, port, _ := net.SplitHostPort(c.Addr) // checked above
	reach := "can be reached from other machines"
	if host == "" {
		reach = "has no host, so it " + reach
	}
	err := firstBroken(append(frontRules(c),
		rule{c.Insecure || !c.exposed(c.Addr),
			fmt.Sprintf("--addr %s %s, and this server has no tokens: anybody could write and read. "+
				"Listen on 127.0.0.1:%s, name a token file with --tokens, or add --insecure if a proxy decides who gets in", c.Addr,
				reach, port)},
	)...)
	if err != nil {
		return err
	}
	page := c.page()
	if page == "" && (c.OIDCSecret != "" || c.OIDCScopes != nil) {
		return settings.Usagef("--oidc-client-secret-file and --oidc-scopes require --oidc-issuer and --public-url")
	}
	if c.OIDCIssuer == "" {
		return nil
	}
	if err := oidc.CheckIssuer(c.OIDCIssuer); err != nil {
		return settings.Usagef("--oidc-issuer: %v", err)
	}
	if page != "" {
		if err := signin.CheckPage(page); err != nil {
			return settings.Usagef("--public-url with --oidc-issuer: %v", err)
		}
	}
	if !isLoopback(c.Addr) && c.TLSCert == "" && len(c.TrustedProxies) == 0 {
		return settings.Usagef("--oidc-issuer with --addr %s: anybody on the network could read the tokens. "+
			"Add --tls-cert and --tls-key, or --trusted-proxies if a proxy has TLS, or listen on 127.0.0.1", c.Addr)
	}
	return nil
}

// AddrHint suggests a host for an address that consists of a port, and a port for one that
// consists of a host. It returns "" for other addresses.
func AddrHint(addr string) string {
	port, err := strconv.Atoi(addr)
	switch isNumber := err == nil; {
	case isNumber && port >= 0 && port <= math.MaxUint16:
		return "; did you mean 127.0.0.1:" + addr + "?"
	case !isNumber && addr != "" && !strings.Contains(addr, ":"):
		return "; did you mean " + addr + ":8080?"
	}
	return ""
}

// exposed reports whether anybody on other machines may use the listener with an address; "" means that there is none.
func (c *Options) exposed(addr string) bool {
	return c.AccessOptions.open() && addr != "" && !isLoopback(addr)
}

// problems returns the answers to rejected requests.
func (c *Options) problems() *problem.Set {
	if !c.tokens() {
		return problem.New().WithoutTokens()
	}
	return problem.New()
}

// isLoopback reports whether an address, with or without a port, is a loopback address. An
// address without a host is not: it means every address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]")
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// trustedProxies returns the networks of trusted proxies.
func (c *Options) trustedProxies() ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range c.TrustedProxies {
		network, err := netip.ParsePrefix(text)
		if addr, e := netip.ParseAddr(text); err != nil && e == nil {
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, settings.Usagef("--trusted-proxies: %q is not a network such as 10.0.0.0/8", text)
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}

// setLimits sets the limits of readings for a table of signs, and those outside of which values get
// flags.
func (p *parsed) setLimits(c *Options, signs *vitals.Signs) error {
	p.limits = signs.DefaultLimits()
	p.limits.MaxAhead = c.MaxAhead
	p.limits.MaxAge = c.Retain
	p.limits.OldestUnixMs = c.Oldest.UnixMilli()
	err := setRanges(&p.limits.Accepted, signs, "--accept", c.Accept)
	if err == nil {
		err = p.limits.Validate()
	}
	if err == nil {
		p.flags, err = FlagLimits(c.Usual, signs)
	}
	return settings.Usage(err)
}

// FlagLimits returns the ranges outside of which values get flags, given those of --usual.
func FlagLimits(usual map[string]string, signs *vitals.Signs) (flags vitals.FlagLimits, err error) {
	flags = signs.DefaultFlagLimits()
	if err = setRanges(&flags.Usual, signs, "--usual", usual); err == nil {
		err = flags.Validate()
	}
	return flags, settings.Usage(err)
}

// setRanges parses ranges such as spo2_pct=1..100.
func setRanges(ranges *[vitals.MaxSigns]vitals.Range, signs *vitals.Signs, flag string, texts map[string]string) error {
	for field, text := range texts {
		s, known := signs.Named(field)
		if !known {
			var fields []string
			for _, d := range signs.All() {
				fields = append(fields, d.Field)
			}
			return fmt.Errorf(
				"%s: %q is neither a built-in sign nor one that the file of --signs defines, so no value of it is accepted; the "+
					"signs are %s", flag, field, strings.Join(fields, ", "))
		}
		var err error
		if ranges[s], err = signs.Of(s).ParseRange(text); err != nil {
			return fmt.Errorf("%s %s: %w", flag, field, err)
		}
	}
	return nil
}

// loops returns the number of event loops of a listener: one for every four processors, from 1 to 4. The committer and
// the store use the other processors.
func loops() int { return min(max(1, runtime.GOMAXPROCS(0)/4), 4) }

// pieceTimeout is how long a client may take to read a piece of an answer.
func (c *Options) pieceTimeout() time.Duration { return min(2*c.ReadTimeout, 30*time.Second) }

// pulseAsHeartRate reports whether a pulse rate is stored as a heart rate.
func (c *Options) pulseAsHeartRate() bool { return c.PulseAs == "heart-rate" }

// ingest returns the configuration of the write side.
func (c *Options) ingest(limits vitals.Limits) ingest.Config {
	return ingest.Config{
		Limits:         limits,
		IgnoreUnknown:  c.UnknownFields == "ignore",
		MaxSingleBytes: ingest.DefaultMaxSingleBytes,
		MaxReadings:    ingest.DefaultMaxReadings,
		MaxGroup:       ingest.DefaultMaxGroup,
		MaxBatchBytes:  c.maxBatchBytes,
		MaxQueued:      c.MaxQueued,
		MaxBodyBytes:   c.maxBodyBytes,
		MaxWait:        c.MaxWait,
		BodyTimeout:    c.ReadTimeout,

		StoreQuestionable: c.Questionable == "store",
	}
}
