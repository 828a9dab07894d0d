package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
// an open loop: requests are sent when they are due. The tags describe fields as flags.
type Config struct {
	Target     *Target        `kong:"-"`
	Token      string         `kong:"-"` // sent as a bearer token; "": none
	Mix        Mix            `kong:"-"`
	Start      time.Time      `kong:"-"` // of the wearers' time; zero: so that it ends now
	Recording  *Recording     `kong:"-"` // repeated by all wearers; nil: wearers of our own
	Ledger     *Ledger        `kong:"-"` // may be nil
	OnProgress func(Progress) `kong:"-"`

	Users    int           `default:"100" help:"Gateways, each with a connection of its own."`
	Posts    int64         `help:"Closed loop: requests of each gateway. Default without --rate and --for: 100."`
	Rate     float64       `help:"Open loop: requests per second, sent when they are due whether or not others were answered."`
	MaxRate  float64       `default:"1000" help:"Readings per second at most to a target that is not this machine: --rate times --batch. 0: no cap."`
	For      time.Duration `help:"How long to send, such as 30s."`
	Devices  int           `help:"Devices of the fleet. Default: as many as users."`
	Batch    int           `help:"Readings in a batch. Default: 1, and 20 with --mix real."`
	Interval time.Duration `help:"Time between two readings of a device. Default: 1m, or that of the recording."`
	Seed     uint64        `help:"Seed of wearers and gateways. Default: a random one, which is reported."`
	Run      string        `placeholder:"NAME" help:"Name of the run; devices are called sim-NAME-000000. 1 to 20 letters and digits. Default: a random one."`
	Timeout  time.Duration `default:"30s" help:"Time for one answer."`
	Patience time.Duration `default:"10s" help:"End the run after so long without any answer."`
	MaxTries int           `name:"tries" default:"20" help:"Tries of one request."`

	// dial replaces the network in tests.
	dial  func(context.Context) (net.Conn, error)
	pacer Pacer // of Rate
}

var runName = regexp.MustCompile(`^[A-Za-z0-9]{1,20}$`)

// Prepare checks cfg and fills in what was left open. It returns an error that wraps
// [ErrConfig] if cfg makes no sense.
func (cfg *Config) Prepare() (err error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	cfg.Devices = cmp.Or(cfg.Devices, cfg.Users)
	cfg.Batch = cmp.Or(cfg.Batch, 1)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.Patience = cmp.Or(cfg.Patience, 10*time.Second)
	cfg.MaxTries = cmp.Or(cfg.MaxTries, 20)
	cfg.Seed = cmp.Or(cfg.Seed, uint64(rand.Uint32())+1)
	cfg.Run = cmp.Or(cfg.Run, fmt.Sprintf("%08x", rand.Uint32()))
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
	if err == nil && cfg.Target != nil && cfg.Target.Remote() {
		err = cfg.checkRemote()
	}
	return err
}

// checkRemote keeps a fleet from loading another machine with all that it can send, which
// is what a closed loop does, or with more than was agreed.
func (cfg *Config) checkRemote() error {
	perSecond := cfg.Rate * float64(cfg.Batch)
	switch {
	case cfg.MaxRate == 0:
		return nil
	case !(cfg.MaxRate > 0):
		return fmt.Errorf("%w: --max-rate is not a number from 0 on", ErrConfig)
	case cfg.Rate == 0:
		return fmt.Errorf("%w: the target is not this machine: say with --rate how many requests per second it is to get. "+
			"--max-rate caps it, at %g readings per second", ErrConfig, cfg.MaxRate)
	case !(perSecond <= cfg.MaxRate):
		return fmt.Errorf("%w: %g readings per second are more than the cap of %g for a target that is not this machine. "+
			"Ask those who run it, and raise --max-rate to what they agree to", ErrConfig, perSecond, cfg.MaxRate)
	}
	return nil
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
