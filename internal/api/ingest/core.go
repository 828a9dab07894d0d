package ingest

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// An Appender makes groups of readings durable. Package storage states what it
// promises.
type Appender interface {
	Append(group []*storage.Entry) error
}

// A Config sets the bounds of a [Core]. Zero fields take the default.
type Config struct {
	Limits        vitals.Limits // accepted ranges; the zero Limits means vitals.DefaultLimits
	IgnoreUnknown bool          // leave out unknown fields instead of refusing the reading

	MaxSingleBytes int // of a reading, alone or in a batch, decompressed; default 16 KiB
	MaxBatchBytes  int // of a batch, decompressed; default 32 MiB
	MaxReadings    int // in a batch; default 262,144
	MaxGroup       int // readings in one commit; default 4096
	MaxQueued      int // readings admitted and not yet answered; default 262,144
	MaxBodyBytes   int // bytes of all bodies being read or decoded at one time; default 256 MiB

	Gate *gate.Gate // decides who may write; nil: everybody

	// MaxWait is how long the oldest admitted reading may have waited for its commit
	// before further ones are refused. It bounds the time that a request takes once it
	// is admitted, whatever the store can do in a second. Default 2 s.
	MaxWait time.Duration

	Holders *share.Holders // divide MaxBodyBytes; nil: it is not divided

	// BodyTimeout bounds the time for a body that is compressed. Default 60 s, as the
	// ReadTimeout of the server in front.
	BodyTimeout time.Duration

	Trace *tracing.Tracer // records where the time of requests went; nil: nobody does

	Now func() time.Time // the server's clock; default time.Now
}

// Defaults of a Config.
const (
	DefaultMaxSingleBytes = 16 << 10
	DefaultMaxBatchBytes  = 32 << 20
	DefaultMaxReadings    = vitals.DefaultMaxReadings
	DefaultMaxGroup       = 4096
	DefaultMaxQueued      = 1 << 18
	DefaultMaxBodyBytes   = 256 << 20
	DefaultMaxWait        = 2 * time.Second
)

func (cfg *Config) setDefaults() {
	if cfg.Limits == (vitals.Limits{}) {
		cfg.Limits = vitals.DefaultLimits()
	}
	cfg.MaxSingleBytes = cmp.Or(cfg.MaxSingleBytes, DefaultMaxSingleBytes)
	cfg.MaxBatchBytes = cmp.Or(cfg.MaxBatchBytes, DefaultMaxBatchBytes)
	cfg.MaxReadings = cmp.Or(cfg.MaxReadings, DefaultMaxReadings)
	cfg.MaxGroup = cmp.Or(cfg.MaxGroup, DefaultMaxGroup)
	cfg.MaxQueued = cmp.Or(cfg.MaxQueued, DefaultMaxQueued)
	cfg.MaxBodyBytes = cmp.Or(cfg.MaxBodyBytes, DefaultMaxBodyBytes)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, DefaultMaxWait)
	cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, 60*time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
}

// A Core decides what becomes of the readings of a request. Its methods may be
// called from many goroutines.
type Core struct {
	cfg       Config
	rules     *vitals.Validator
	answers   *answers
	committer *groupcommit.Committer[*storage.Entry]
	queue     *admission // bounds what the committer is given
	jobsMu    sync.Mutex
	jobs      jobList // guarded by jobsMu
	draining  atomic.Bool
	counters  counters

	tooLargeSingle, tooMany string   // details that name a limit
	errTooLarge             *refusal // of a batch's body

	// bodyBytes counts the memory of bodies that are being read.
	//
	// Invariant: at most cfg.MaxBodyBytes.
	bodyBytes   atomic.Int64
	bodiesTight atomic.Bool // there was no memory for one; see noMemoryFor

	// decoding has room for the large bodies that are decoded at one time.
	// Decoding takes memory that is not counted yet, up to six times the body's
	// length, and nothing but processor time: more at once would not be faster.
	decoding chan struct{}

	// waiting ends when Close gives up waiting for the store. Handlers wait for
	// their commits with it, and not with their request's context: whether the
	// client is still there changes nothing about what is being written, and the
	// Done channel of each request would cost an allocation (docs/profiling.md).
	// How many wait is bounded by queue.
	waiting context.Context
	giveUp  context.CancelFunc
}

// New returns a Core that commits through appender and refuses with problems.
// The caller must Close it before it closes the store behind appender.
func New(appender Appender, problems *problem.Set, cfg Config) (*Core, error) {
	cfg.setDefaults()
	rules, err := vitals.NewValidator(cfg.Limits)
	if err != nil {
		return nil, fmt.Errorf("ingest: %w", err)
	}
	c := &Core{
		cfg:            cfg,
		rules:          rules,
		answers:        newAnswers(problems),
		queue:          newAdmission(cfg.MaxQueued),
		counters:       newCounters(),
		tooLargeSingle: fmt.Sprintf("A reading may have %d bytes.", cfg.MaxSingleBytes),
		tooMany:        fmt.Sprintf("A batch may have %d readings.", cfg.MaxReadings),
		errTooLarge: &refusal{
			kind:   refusedTooLarge,
			detail: fmt.Sprintf("A batch may have %d bytes, decompressed.", cfg.MaxBatchBytes),
		},
		decoding: make(chan struct{}, maxDecoding),
	}
	c.committer = groupcommit.New(groupcommit.Options{MaxGroup: cfg.MaxGroup, OnFlush: c.counters.committed}, appender.Append)
	c.waiting, c.giveUp = context.WithCancel(context.Background())
	return c, nil
}

// Drain makes the Core refuse what comes from now on. Requests that were admitted
// are answered.
func (c *Core) Drain() { c.draining.Store(true) }

// Close drains the Core, waits until everything admitted is committed and
// answered, and stops the committer. ctx bounds the wait; when it ends first,
// those who still wait are told that the outcome is unknown.
func (c *Core) Close(ctx context.Context) error {
	c.Drain()
	defer c.giveUp()
	return c.committer.Close(ctx)
}

// full reports whether every reading is refused now: there is no room in the queue,
// or the oldest in it has waited for too long.
func (c *Core) full() bool { return c.queue.full() || c.stalled() }

// stalled reports whether the oldest admitted reading has waited for too long.
func (c *Core) stalled() bool { return c.committer.Waited() > c.cfg.MaxWait }
