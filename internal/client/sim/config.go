package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"
)

// Bounds of a [Config].
const (
	MaxUsers   = 100_000
	MaxDevices = 5_000_000
	MaxBatch   = 10_000

	// maxInFlight bounds the readings in all requests at one time, and with them
	// the memory of a run.
	maxInFlight = 4_000_000
)

// ErrConfig is wrapped by the errors of a [Config] that makes no sense.
var ErrConfig = errors.New("sim: bad configuration")

// A Config describes a run. With Posts or without Rate it is a closed loop: each
// gateway sends its next request when the last one was answered. With Rate it is
// an open loop: requests are sent when they are due.
type Config struct {
	Target *Target
	Token  string // sent as a bearer token; "": none

	Users   int // gateways, each a connection
	Devices int // 0: as many as Users
	Batch   int // readings in a batch; 0: 1
	Mix     Mix

	Posts int64         // requests of each gateway, closed loop; 0: until For is over
	Rate  float64       // requests per second, open loop
	For   time.Duration // how long to send

	Seed       uint64
	Run        string        // stands in the devices' names; 1 to 20 letters and digits
	Start      time.Time     // of the wearers' time; zero: so that it ends now
	Interval   time.Duration // between two readings of a device; 0: 1 min or the recording's
	Recording  *Recording    // repeated by all wearers; nil: wearers of our own
	Ledger     *Ledger       // may be nil
	Timeout    time.Duration // for one answer; 0: 30 s
	Patience   time.Duration // without any answer, before the run is ended; 0: 10 s
	MaxTries   int           // of one request; 0: 20
	OnProgress func(Progress)

	// dial replaces the network in tests.
	dial  func(context.Context) (net.Conn, error)
	pacer Pacer // of Rate
}

var runName = regexp.MustCompile(`^[A-Za-z0-9]{1,20}$`)

// Validate returns an error that wraps [ErrConfig] if cfg makes no sense.
func (cfg Config) Validate() error { return cfg.prepare() }

// prepare checks cfg and fills in what was left open.
func (cfg *Config) prepare() (err error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	cfg.Devices = cmp.Or(cfg.Devices, cfg.Users)
	cfg.Batch = cmp.Or(cfg.Batch, 1)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.Patience = cmp.Or(cfg.Patience, 10*time.Second)
	cfg.MaxTries = cmp.Or(cfg.MaxTries, 20)
	if cfg.Batch > 1 && cfg.Mix[Batching] == 0 {
		cfg.Mix[Batching] = whole
	}
	largest := cfg.Batch
	if cfg.Mix[Buffering] > 0 {
		largest = max(largest, mostBuffered)
	}
	switch {
	case cfg.Target == nil && cfg.dial == nil:
		return bad("there is no target")
	case cfg.Users < 1 || cfg.Users > MaxUsers:
		return bad("users are not from 1 to %d", MaxUsers)
	case cfg.Devices < 1 || cfg.Devices > MaxDevices:
		return bad("devices are not from 1 to %d", MaxDevices)
	case cfg.Batch < 1 || cfg.Batch > MaxBatch:
		return bad("readings in a batch are not from 1 to %d", MaxBatch)
	case cfg.Users*largest > maxInFlight:
		return bad("users with batches of that size would need too much memory: at most %d readings in all", maxInFlight)
	case cfg.Rate != 0 && cfg.Posts != 0:
		return bad("a number of posts belongs to a closed loop, a rate to an open one")
	case cfg.Rate != 0 && cfg.For <= 0, cfg.Rate == 0 && cfg.Posts == 0 && cfg.For <= 0:
		return bad("it is not said how long to send")
	case cfg.Posts < 0 || cfg.For < 0 || cfg.Timeout < 0 || cfg.Patience < 0 || cfg.MaxTries < 1 || cfg.Interval < 0:
		return bad("a number is negative")
	case !runName.MatchString(cfg.Run):
		return bad("the name of the run is not made of 1 to 20 letters and digits")
	case strings.ContainsFunc(cfg.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return bad("the token holds a character that cannot be sent")
	case cfg.Rate != 0:
		cfg.pacer, err = NewPacer(cfg.Rate)
	}
	return err
}

// Speeds that the length of an unlimited closed loop's recording is planned by.
const (
	plannedPerUser = 20_000  // requests per second of one gateway
	plannedInAll   = 200_000 // of all
)

// longestSpanMs is how far back the wearers' time starts at most.
const longestSpanMs = 365 * dayMs

// model plans the wearers' time: it should end about now, when the run ends, and
// readings should not come from years ago.
func (cfg *Config) model(now time.Time) model {
	m := model{skewed: cfg.Mix[Skew], intervalMs: minuteMs, recorded: cfg.Recording}
	if m.recorded != nil {
		m.intervalMs = m.recorded.meanMs
	}
	if cfg.Interval > 0 {
		m.intervalMs = max(cfg.Interval.Milliseconds(), 1)
	}
	requests := float64(cfg.Users) * float64(cfg.Posts)
	switch {
	case cfg.Rate > 0:
		requests = cfg.Rate * cfg.For.Seconds()
	case cfg.Posts == 0:
		requests = min(float64(cfg.Users)*plannedPerUser, plannedInAll) * cfg.For.Seconds()
	}
	perRequest := 1 + float64(cfg.Batch-1)*float64(cfg.Mix[Batching])/whole
	perRequest += float64(leastBuffered+mostBuffered) / 2 / 35 * float64(cfg.Mix[Buffering]) / whole
	perDevice := int64(requests*perRequest/float64(cfg.Devices)*1.05) + 2
	if cfg.Interval == 0 {
		m.intervalMs = clamp(longestSpanMs/perDevice, 1, m.intervalMs)
	}
	if !cfg.Start.IsZero() {
		m.startMs = cfg.Start.UnixMilli()
		return m
	}
	// Time off the wrist adds about 2 %.
	m.endMs = now.UnixMilli()
	m.startMs = max(now.UnixMilli()-perDevice*m.intervalMs*103/100-hourMs, dayMs)
	return m
}
