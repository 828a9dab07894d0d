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

	"github.com/pulsegate/pulsegate/vitals"
)

// Bounds of [Options].
const (
	MaxUsers   = 100_000
	MaxDevices = 5_000_000
	MaxBatch   = 10_000

	// maxInFlight bounds the readings in all concurrent requests, and with them the
	// memory of a run.
	maxInFlight = 4_000_000

	maxInFlightPerGateway = 1000
)

// ErrOptions is wrapped by errors about invalid [Options].
var ErrOptions = errors.New("invalid options")

// Options configure a run. Without Rate it is a closed loop: each gateway sends its
// next request when the previous one was answered. With Rate it is an open loop:
// requests are sent when they are due. The struct tags define command-line flags.
type Options struct {
	Target     *Target        `kong:"-"`
	MQTT       *Target        `kong:"-"` // MQTT listener to load instead of Target; may be nil
	MLLP       *Target        `kong:"-"` // MLLP listener to load instead of Target; may be nil
	Token      string         `kong:"-"` // sent as a bearer token, or as the password over MQTT; "": none
	Mix        Mix            `kong:"-"`
	Signs      *vitals.Signs  `kong:"-"` // nil means the built-in ones; a user's own are measured by every wearer
	Start      time.Time      `kong:"-"` // start of the wearers' time; zero means such that the run ends now
	Ledger     *Ledger        `kong:"-"` // may be nil
	OnProgress func(Progress) `kong:"-"`
	Timeout    time.Duration  `kong:"-"` // for one answer; 0: 30 s

	Users    int           `default:"100" help:"Gateways, each with a connection of its own."`
	Posts    int64         `help:"Closed loop: requests of each gateway. Default without --rate and --for: 100."`
	Rate     float64       `help:"Open loop: requests per second, sent when they are due whether or not others were answered."`
	MaxRate  float64       `default:"1000" help:"Highest --rate times --batch, in readings per second, for a target that is not this machine; 0 for no limit."`
	For      time.Duration `help:"How long to send, such as 30s."`
	Devices  int           `help:"Devices of the fleet. Default: as many as users."`
	Batch    int           `help:"Readings in a batch. Default: 1, and 20 with --mix real."`
	Seed     uint64        `help:"Seed of wearers and gateways. Default: a random one, which is reported."`
	Also     []string      `placeholder:"FIELD,..." help:"More built-in signs that wearers measure, by their JSON fields."`
	Run      string        `placeholder:"NAME" help:"Name of the run; devices are called sim-NAME-000000. 1 to 20 letters and digits. Default: a random one."`
	Patience time.Duration `default:"10s" help:"End the run if no answer arrives for this long."`
	MaxTries int           `name:"tries" default:"20" help:"Tries of one request."`

	Influx bool `help:"Send the readings to /api/v2/write, in InfluxDB's line protocol."`

	Mapped string `placeholder:"NAME" help:"Send the readings to /v1/mapped/NAME, as payloads of another design, which a mapping of that name reads."`

	MQTTVersion string `name:"mqtt-version" enum:"3.1.1,5" default:"3.1.1" help:"Version of MQTT: 3.1.1 or 5."`
	QoS         int    `name:"qos" default:"1" help:"Quality of service over MQTT: 0, 1 or 2. Nothing acknowledges a reading with 0."`
	InFlight    int    `default:"32" help:"Publications of a gateway over MQTT that are in flight at the same time, unless the server allows fewer."`

	habits []habit // of wearers

	// dial replaces the network in tests.
	dial func(context.Context) (net.Conn, error)
}

// open reports whether the run is an open loop.
func (opt *Options) open() bool { return opt.Rate > 0 }

var runName = regexp.MustCompile(`^[A-Za-z0-9]{1,20}$`)

// Prepare sets defaults and validates opt. It returns an error that wraps [ErrOptions]
// if opt is invalid.
func (opt *Options) Prepare() (err error) {
	opt.Devices = cmp.Or(opt.Devices, opt.Users)
	opt.Batch = cmp.Or(opt.Batch, 1)
	opt.Timeout = cmp.Or(opt.Timeout, 30*time.Second)
	opt.Patience = cmp.Or(opt.Patience, 10*time.Second)
	opt.MaxTries = cmp.Or(opt.MaxTries, 20)
	opt.MQTTVersion = cmp.Or(opt.MQTTVersion, "3.1.1")
	opt.InFlight = cmp.Or(opt.InFlight, 32)
	opt.Seed = cmp.Or(opt.Seed, uint64(rand.Uint32())+1)
	opt.Run = cmp.Or(opt.Run, fmt.Sprintf("%08x", rand.Uint32()))
	if opt.Signs == nil {
		opt.Signs = vitals.NewSigns()
	}
	if opt.habits, err = habitsOf(opt.Signs, opt.Also); err != nil {
		return err
	}
	if opt.Batch > 1 && opt.Mix[Batching] == 0 {
		opt.Mix[Batching] = whole
	}
	mqtt, mllp := opt.MQTT != nil, opt.MLLP != nil
	if opt.Influx || opt.Mapped != "" || mllp {
		opt.Mix[Malformed] = 0 // the flaws are of readings in JSON
	}
	if mqtt || mllp {
		opt.Mix[Gzip] = 0
	}
	for _, rule := range opt.rules() {
		if rule.broken {
			return fmt.Errorf("%w: %s", ErrOptions, rule.text)
		}
	}
	return nil
}

// A rule is about options that exclude each other, or are out of bounds.
type rule struct {
	broken bool
	text   string
}

// rules returns the rules for opt, which has its defaults.
func (opt *Options) rules() []rule {
	largest, formats, uncoded := opt.Batch, 0, ""
	if opt.Mix[Buffering] > 0 {
		largest = max(largest, maxBuffered)
	}
	if opt.MQTT != nil {
		largest *= opt.InFlight
	}
	for _, chosen := range []bool{opt.MQTT != nil, opt.MLLP != nil, opt.Influx, opt.Mapped != ""} {
		if chosen {
			formats++
		}
	}
	for _, d := range opt.Signs.All() {
		if opt.MLLP != nil && !d.Retired && hl7Code(d) == "" {
			uncoded = d.Field
		}
	}
	// A remote machine is protected from closed loops, which send as fast as they can, and from rates above MaxRate.
	target, perSecond := opt.target(), opt.Rate*float64(opt.Batch)
	remote := target != nil && target.Remote() && opt.MaxRate != 0
	between := func(what string, n, least, most int) rule {
		return rule{n < least || n > most, fmt.Sprintf("%s must be from %d to %d", what, least, most)}
	}
	return []rule{
		{target == nil && opt.dial == nil, "there is no target"},
		{formats > 1, "--mqtt, --mllp, --influx and --mapped exclude each other"},
		{uncoded != "", fmt.Sprintf("--mllp: the sign %s has no LOINC code", uncoded)},
		between("users", opt.Users, 1, MaxUsers),
		between("devices", opt.Devices, 1, MaxDevices),
		between("readings in a batch", opt.Batch, 1, MaxBatch),
		between("the quality of service", opt.QoS, 0, 2),
		between("publications in flight", opt.InFlight, 1, maxInFlightPerGateway),
		{opt.Users*largest > maxInFlight, fmt.Sprintf("so many users with batches of that size need too much memory: "+
			"at most %d readings in total", maxInFlight)},
		{opt.Rate != 0 && opt.Posts != 0, "--posts (closed loop) and --rate (open loop) exclude each other"},
		{opt.For <= 0 && (opt.Rate != 0 || opt.Posts == 0), "the duration or the number of requests is missing"},
		{opt.Posts < 0 || opt.For < 0 || opt.Timeout < 0 || opt.Patience < 0 || opt.MaxTries < 1, "a number is negative"},
		{!runName.MatchString(opt.Run), "the name of the run must have 1 to 20 letters and digits"},
		{strings.ContainsFunc(opt.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }),
			"the token contains a character that cannot be sent"},
		{opt.Rate != 0 && !(opt.Rate >= minRate && opt.Rate <= maxRate),
			fmt.Sprintf("the rate must be from %g to %d requests/s", minRate, maxRate)},
		{remote && !(opt.MaxRate > 0), "--max-rate must be a number of at least 0"},
		{remote && opt.Rate == 0, fmt.Sprintf("the target is not this machine: set the requests per second with --rate. "+
			"--max-rate limits it to %g readings per second", opt.MaxRate)},
		{remote && !(perSecond <= opt.MaxRate),
			fmt.Sprintf("%g readings per second exceed the limit of %g for a target that is not this machine. "+
				"Ask its operators, and raise --max-rate to what they agree to", perSecond, opt.MaxRate)},
	}
}

// target returns the listener to load. It is nil if dial replaces it.
func (opt *Options) target() *Target { return cmp.Or(opt.MQTT, opt.MLLP, opt.Target) }

func (opt *Options) mqttVersion() byte {
	if opt.MQTTVersion == "5" {
		return mqtt5
	}
	return mqtt311
}

// Assumed speeds of a closed loop without a number of posts, for planning the wearers'
// time.
const (
	plannedPerUser = 20_000  // requests per second of one gateway
	plannedInAll   = 200_000 // requests per second of all gateways
)

// longestSpanMs bounds how far in the past the wearers' time starts.
const longestSpanMs = 365 * dayMs

// model plans the wearers' time: it should end about now, at the end of the run, and
// should not start years ago.
func (opt *Options) model(now time.Time) model {
	m := model{skewed: opt.Mix[Skew], habits: opt.habits}
	requests := float64(opt.Users) * float64(opt.Posts)
	switch {
	case opt.Rate > 0:
		requests = opt.Rate * opt.For.Seconds()
	case opt.Posts == 0:
		requests = min(float64(opt.Users)*plannedPerUser, plannedInAll) * opt.For.Seconds()
	}
	perRequest := 1 + float64(opt.Batch-1)*float64(opt.Mix[Batching])/whole
	perRequest += float64(minBuffered+maxBuffered) / 2 / 35 * float64(opt.Mix[Buffering]) / whole
	perDevice := int64(requests*perRequest/float64(opt.Devices)*1.05) + 2
	m.intervalMs = clamp(longestSpanMs/perDevice, 1, minuteMs)
	if !opt.Start.IsZero() {
		m.startMs = opt.Start.UnixMilli()
		return m
	}
	// Gaps while a device is off the wrist add about 2 %.
	m.endMs = now.UnixMilli()
	m.startMs = max(now.UnixMilli()-perDevice*m.intervalMs*103/100-hourMs, dayMs)
	return m
}
