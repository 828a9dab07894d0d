package tracing

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/url"
	"sync/atomic"
	"time"
)

// A Config says what is recorded, and where it goes.
type Config struct {
	Endpoint *url.URL          // takes OTLP over HTTP; required. Used as it is
	Headers  map[string]string // of each export, such as Authorization

	Sample float64       // share of the requests without a parent that are recorded, 0 to 1
	Slow   time.Duration // a request that took as long is recorded; 0: none is for that

	// Forced is how many requests a second are recorded because their parent is; anybody
	// can send one. Of further ones the share is recorded that Sample says. Default
	// DefaultForced; less than 0: none.
	Forced int

	Service, Version string       // service.name and service.version
	Log              *slog.Logger // told when exporting begins to fail and when it works again; nil: nobody is

	// Every is the longest that a recorded request waits for others to be exported
	// with; default 2 s.
	Every time.Duration
}

// DefaultForced is the default of Config.Forced.
const DefaultForced = 10

// Bounds.
const (
	maxQueued = 1024 // requests that wait to be exported; about 400 bytes each
	maxBatch  = 256  // requests of one export
)

// A Tracer records requests. Its methods may be called by many goroutines. The nil
// Tracer records nothing.
type Tracer struct {
	cfg      Config
	below    uint64 // a trace whose number is smaller is sampled
	queue    chan Request
	exporter *exporter
	stop     context.CancelFunc
	closing  chan struct{} // closed by Close
	ended    chan struct{} // closed when run has ended

	// forced is a second since 1970, times 2³², and how many requests were recorded in it
	// because of their parents.
	forced atomic.Uint64

	exported, dropped, failed atomic.Uint64
}

// Stats count requests that were to be recorded.
type Stats struct {
	Exported uint64 // that a collector took
	Dropped  uint64 // for which the queue had no room
	Failed   uint64 // that no collector took
}

// New returns a Tracer, and starts the goroutine that exports, which
// [Tracer.Close] ends.
func New(cfg Config) (*Tracer, error) {
	if cfg.Endpoint == nil || cfg.Endpoint.Host == "" || cfg.Endpoint.Scheme != "http" && cfg.Endpoint.Scheme != "https" {
		return nil, fmt.Errorf("tracing: the endpoint is not of the form http://host:port/path")
	}
	if !(cfg.Sample >= 0 && cfg.Sample <= 1) {
		return nil, fmt.Errorf("tracing: the share of sampled requests is %v, want 0 to 1", cfg.Sample)
	}
	if cfg.Slow < 0 {
		return nil, fmt.Errorf("tracing: the time of a slow request is %v, want at least 0", cfg.Slow)
	}
	if cfg.Forced == 0 {
		cfg.Forced = DefaultForced
	}
	if cfg.Every <= 0 {
		cfg.Every = 2 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &Tracer{
		cfg:      cfg,
		below:    uint64(cfg.Sample * (1 << 63)),
		queue:    make(chan Request, maxQueued),
		exporter: newExporter(cfg),
		stop:     stop,
		closing:  make(chan struct{}),
		ended:    make(chan struct{}),
	}
	go t.run(ctx)
	return t, nil
}

// Stats returns the counters. It does not allocate.
func (t *Tracer) Stats() Stats {
	return Stats{Exported: t.exported.Load(), Dropped: t.dropped.Load(), Failed: t.failed.Load()}
}

// A Phase is a part of a request.
type Phase uint8

// The phases.
const (
	Read   Phase = iota // the body arrives
	Decode              // the body is decoded and checked
	Queue               // the readings wait for a commit
	Commit              // the store makes their group durable
	NumPhases
)

var phaseNames = [NumPhases]string{"read", "decode", "queue", "commit"}

// A Period is a stretch of time. The zero Period did not take place.
type Period struct{ Start, End time.Time }

// A Request is what is recorded of one request. [Tracer.Begin] makes it.
type Request struct {
	Parent  Parent
	Sampled bool // whether it is recorded in any case

	Method string // of HTTP
	Route  string // pattern of the route; "": none took the request
	Lane   string // "full" or "fast"
	Status int    // of HTTP; less than 0: the connection was cut in place of an answer
	Period        // from the end of the header, in the fast lane of the body, to the answer
	Phases [NumPhases]Period

	Readings int // that were to be committed
	Group    int // readings of the group that was committed with them, the last one if there were several
	Groups   int // groups that it took

	random uint64 // half of the trace's ID, where there is no parent
}

// Begin returns a Request that begins now, and decides whether it is sampled. It
// does not allocate.
func (t *Tracer) Begin(parent Parent) Request {
	r := Request{Parent: parent}
	if parent.IsZero() {
		r.random = rand.Uint64()
		r.Sampled = r.random>>1 < t.below
	} else if parent.Flags&flagSampled != 0 {
		r.Sampled = t.force(time.Now()) || rand.Uint64()>>1 < t.below
	}
	return r
}

// force reports whether one more request is recorded in this second because of its
// parent.
func (t *Tracer) force(now time.Time) bool {
	second := uint64(now.Unix()) << 32
	for {
		was := t.forced.Load()
		next := max(was, second) // a clock that is set back does not begin anew
		if int64(next&math.MaxUint32) >= int64(t.cfg.Forced) {
			return false
		}
		if t.forced.CompareAndSwap(was, next+1) {
			return true
		}
	}
}

// Wants reports whether a sampled or unsampled request is recorded that took d.
func (t *Tracer) Wants(sampled bool, d time.Duration) bool {
	return sampled || t.cfg.Slow > 0 && d >= t.cfg.Slow
}

// Record records a request that has been answered, if it is sampled or was slow.
// It copies r, does not wait, and does not allocate.
func (t *Tracer) Record(r *Request) {
	if !t.Wants(r.Sampled, r.End.Sub(r.Start)) {
		return
	}
	select {
	case t.queue <- *r:
	default:
		t.dropped.Add(1)
	}
}

// traceID returns the ID of the trace that r belongs to.
func (r *Request) traceID() (id [16]byte) {
	if !r.Parent.IsZero() {
		return r.Parent.TraceID
	}
	binary.BigEndian.PutUint64(id[:8], 1+rand.Uint64N(math.MaxUint64)) // not all may be 0
	binary.BigEndian.PutUint64(id[8:], r.random)
	return id
}

// newSpanID returns an ID that is not 0.
func newSpanID() (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], 1+rand.Uint64N(math.MaxUint64))
	return id
}

// Close exports what is recorded, and stops. ctx bounds the wait; what is not
// exported by then is dropped, and ctx's error returned. It is called once. What is
// recorded afterwards goes nowhere.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	close(t.closing)
	defer t.stop()
	select {
	case <-t.ended:
		return nil
	case <-ctx.Done():
		t.stop()
		<-t.ended
		return fmt.Errorf("export traces: %w", ctx.Err())
	}
}

// run exports until Close was called and the queue is empty. ctx ends the waiting
// for a collector.
func (t *Tracer) run(ctx context.Context) {
	defer close(t.ended)
	defer t.exporter.close()
	for batch := t.gather(nil); len(batch) > 0; batch = t.gather(batch[:0]) {
		taken := t.exporter.export(ctx, batch)
		t.exported.Add(uint64(taken))
		t.failed.Add(uint64(len(batch) - taken))
	}
}

// gather waits for a request, and for more that are to be exported with it. It
// returns none when there will be none.
func (t *Tracer) gather(batch []Request) []Request {
	select {
	case r := <-t.queue:
		batch = append(batch, r)
	case <-t.closing:
		select {
		case r := <-t.queue:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	full := time.NewTimer(t.cfg.Every)
	defer full.Stop()
	for len(batch) < maxBatch {
		select {
		case r := <-t.queue:
			batch = append(batch, r)
		case <-full.C:
			return batch
		case <-t.closing:
			if len(t.queue) == 0 {
				return batch
			}
		}
	}
	return batch
}
