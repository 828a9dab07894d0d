package ingest

import (
	"cmp"
	"context"
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

// An Appender makes groups of readings durable. Package storage defines its contract.
type Appender interface {
	Append(group []*storage.Entry) error
}

// A Config sets the bounds of a [Core]. Zero fields take the default.
type Config struct {
	Limits        vitals.Limits // accepted ranges; the zero Limits means those of the built-in signs
	IgnoreUnknown bool          // leave out unknown fields instead of rejecting the reading

	MaxSingleBytes int // limit for a reading, alone or in a batch, decompressed; default 16 KiB
	MaxBatchBytes  int // limit for a batch, decompressed; default 32 MiB
	MaxReadings    int // in a batch; default 262,144
	MaxGroup       int // readings in one commit; default 4096
	MaxQueued      int // readings admitted and not yet answered; default 262,144
	MaxBodyBytes   int // memory of all bodies that are read or decoded concurrently; default 256 MiB

	Gate *gate.Gate // decides who may write; nil means every client

	// MaxWait bounds how long the oldest admitted reading may wait for its commit before
	// further readings are rejected. So it bounds the duration of an admitted request,
	// whatever the throughput of the store. Default 2 s.
	MaxWait time.Duration

	Holders *share.Holders // divide MaxBodyBytes; nil means no shares

	// BodyTimeout bounds the time for receiving a compressed body. Default 60 s, like the
	// ReadTimeout of the server.
	BodyTimeout time.Duration

	Trace *tracing.Tracer // records the phases of requests; nil disables them

	// OnCommitted, if not nil, is called with every group that is durable, before its requests
	// are answered and before the next commit begins: it must not block. It must not retain
	// the group or its entries.
	OnCommitted func(group []*storage.Entry)

	// StoreQuestionable stores values that their devices call questionable, instead of leaving them out.
	StoreQuestionable bool

	// OnFull, if not nil, is called for each reading that is rejected because the store has its maximum number of
	// devices or gateways. It must not block.
	OnFull func()

	// OnLeftOut, if not nil, is called with values that devices disown, of a message that was not rejected as a whole.
	// covered reports whether the client may write for the device. It must not block or retain the value.
	OnLeftOut func(l *LeftOut, gateway vitals.Name, covered bool)

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
		cfg.Limits = vitals.NewSigns().DefaultLimits()
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

// A Core processes the readings of requests. Its methods may be called from many goroutines.
type Core struct {
	cfg       Config
	rules     *vitals.Validator
	answers   *answers
	committer *groupcommit.Committer[*storage.Entry]
	queue     *admission // bounds the committer's queue
	jobsMu    sync.Mutex
	jobs      jobList // guarded by jobsMu
	draining  atomic.Bool
	counters  counters

	memory Memory

	// decoding limits how many large bodies are decoded concurrently. Decoding takes up to
	// six times the body's length of memory that is not counted yet, and is limited by the
	// processors: more concurrency would not make it faster.
	decoding chan struct{}

	// waiting is the context in which handlers wait for commits. It ends when Close stops
	// waiting for the store. A request's own context is not used: a client that
	// disconnects does not cancel its commit, and the Done channel of each request would
	// cost an allocation (docs/profiling.md). queue bounds the number of waiting handlers.
	waiting     context.Context
	stopWaiting context.CancelFunc
}

// New returns a Core that commits through appender and answers refusals with problems. The
// caller must Close it before it closes appender's store.
func New(appender Appender, problems *problem.Set, cfg Config) (*Core, error) {
	cfg.setDefaults()
	rules, err := vitals.NewValidator(cfg.Limits)
	if err != nil {
		return nil, err
	}
	c := &Core{
		cfg:      cfg,
		rules:    rules,
		answers:  newAnswers(problems, &cfg),
		queue:    newAdmission(cfg.MaxQueued),
		counters: newCounters(),
		memory:   Memory{most: int64(cfg.MaxBodyBytes), small: cfg.MaxSingleBytes + 1},
		decoding: make(chan struct{}, maxDecoding),
	}
	c.committer = groupcommit.New(groupcommit.Options[*storage.Entry]{MaxGroup: cfg.MaxGroup, OnFlush: c.committed},
		appender.Append)
	c.waiting, c.stopWaiting = context.WithCancel(context.Background())
	return c, nil
}

// committed is called with each group after its commit, also one that failed, on the committer's goroutine.
func (c *Core) committed(f groupcommit.Flush, group []*storage.Entry) {
	c.counters.groupReadings.Observe(int64(f.Items))
	c.counters.commitDuration.Observe(f.End.Sub(f.Start).Nanoseconds())
	if c.cfg.OnCommitted != nil && f.Err == nil {
		c.cfg.OnCommitted(group)
	}
}

// Drain makes the Core reject new requests. Admitted requests are answered.
func (c *Core) Drain() { c.draining.Store(true) }

// Close drains the Core, waits until everything admitted is committed and answered, and stops
// the committer. If ctx ends first, the waiting requests are answered with outcome-unknown.
func (c *Core) Close(ctx context.Context) error {
	c.Drain()
	defer c.stopWaiting()
	return c.committer.Close(ctx)
}

// full reports whether all readings are rejected now: the queue is full, or its oldest reading
// has waited too long.
func (c *Core) full() bool { return c.queue.full() || c.stalled() }

// stalled reports whether the oldest admitted reading has waited too long.
func (c *Core) stalled() bool { return c.committer.Waited() > c.cfg.MaxWait }
