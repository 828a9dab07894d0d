package tracing

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// Options configure a [Tracer].
type Options struct {
	Endpoint *url.URL          // OTLP over HTTP endpoint; required; used unchanged
	Headers  map[string]string // sent with each export, such as Authorization

	Sample float64       // fraction of the requests without a parent that are recorded, 0 to 1
	Slow   time.Duration // requests that took at least this long are recorded; 0 disables it

	// Forced bounds how many requests per second are recorded because their parent is
	// sampled, which any client can claim. Further ones are sampled as Sample says.
	Forced int

	Service, Version string       // service.name and service.version
	Log              *slog.Logger // logs when exports begin to fail and when they succeed again; nil means no log

	// Every is the longest time that a recorded request waits to be batched with
	// others; default 2 s.
	Every time.Duration
}

// DefaultForced is the usual Options.Forced.
const DefaultForced = 10

// Bounds.
const (
	maxQueued = 1024 // requests waiting to be exported; about 400 bytes each
	maxBatch  = 256  // requests per export
)

// A Tracer records requests. It is safe for concurrent use. The nil Tracer records
// nothing.
type Tracer struct {
	opt      Options
	below    uint64 // traces with a smaller number are sampled
	queue    chan Request
	exporter *exporter
	stop     context.CancelFunc
	closing  chan struct{} // closed by Close
	ended    chan struct{} // closed when run has ended

	// forced has a Unix time in its upper 32 bits and, in its lower 32 bits, the number
	// of requests recorded in that second because of their parents.
	forced atomic.Uint64

	exported, dropped, failed atomic.Uint64
}

// Stats count the requests to record, by outcome.
type Stats struct {
	Exported uint64 // accepted by a collector
	Dropped  uint64 // dropped because the queue was full
	Failed   uint64 // accepted by no collector
}

// New returns a Tracer and starts its exporting goroutine, which [Tracer.Close] ends.
func New(opt Options) *Tracer {
	opt.Every = cmp.Or(opt.Every, 2*time.Second)
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &Tracer{
		opt:      opt,
		below:    uint64(opt.Sample * (1 << 63)),
		queue:    make(chan Request, maxQueued),
		exporter: newExporter(opt),
		stop:     stop,
		closing:  make(chan struct{}),
		ended:    make(chan struct{}),
	}
	go t.run(ctx)
	return t
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

// A Period is a time interval. The zero Period means that the phase did not take place.
type Period struct{ Start, End time.Time }

// A Request is the record of one request. [Tracer.Begin] returns a new one.
type Request struct {
	Parent  Parent
	Sampled bool // recorded even if it is not slow
	Stream  bool // lasts for as long as the client wants, and so is never slow

	Method string // HTTP method
	Route  string // pattern of the route; "": no route matched
	Lane   string // "full" or "fast"
	Status int    // HTTP status; negative: the connection was closed without a response
	Period        // from the end of the header, or of the body in the fast lane, to the response
	Phases [NumPhases]Period

	Readings int // readings to commit
	Group    int // readings in the committed group, the last one if there were several
	Groups   int // number of groups

	random uint64 // half of the trace ID if there is no parent
}

// Begin returns a new Request and decides whether it is sampled. It does not allocate.
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

// force reports whether one more request may be recorded in this second because of its
// parent.
func (t *Tracer) force(now time.Time) bool {
	second := uint64(now.Unix()) << 32
	for {
		was := t.forced.Load()
		next := max(was, second) // setting the clock back does not reset the count
		if int64(next&math.MaxUint32) >= int64(t.opt.Forced) {
			return false
		}
		if t.forced.CompareAndSwap(was, next+1) {
			return true
		}
	}
}

// Wants reports whether a request that took d is recorded.
func (t *Tracer) Wants(sampled bool, d time.Duration) bool {
	return sampled || t.opt.Slow > 0 && d >= t.opt.Slow
}

// Record records a completed request if it is sampled or was slow. It copies r. It
// neither blocks nor allocates.
func (t *Tracer) Record(r *Request) {
	if !r.Sampled && (r.Stream || !t.Wants(false, r.End.Sub(r.Start))) {
		return
	}
	select {
	case t.queue <- *r:
	default:
		t.dropped.Add(1)
	}
}

// traceID returns the ID of the trace that r belongs to.
func (r *Request) traceID() string {
	if !r.Parent.IsZero() {
		return hex.EncodeToString(r.Parent.TraceID[:])
	}
	return newSpanID() + fmt.Sprintf("%016x", r.random)
}

// newSpanID returns a random nonzero ID.
func newSpanID() string { return fmt.Sprintf("%016x", 1+rand.Uint64N(math.MaxUint64)) }

// Close exports the recorded requests and stops the Tracer. When ctx is done, it drops
// the remaining ones and returns ctx's error. It must be called only once. Requests
// recorded afterwards are lost.
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

// run exports requests until Close was called and the queue is empty. ctx bounds the
// wait for a collector.
func (t *Tracer) run(ctx context.Context) {
	defer close(t.ended)
	defer t.exporter.close()
	tick := time.NewTicker(t.opt.Every)
	defer tick.Stop()
	var batch []Request
	for closing := false; !closing || len(t.queue) > 0; {
		select {
		case r := <-t.queue:
			batch = append(batch, r)
		case <-tick.C:
			batch = t.export(ctx, batch)
		case <-t.closing:
			closing = true
		}
		if len(batch) == maxBatch {
			batch = t.export(ctx, batch)
		}
	}
	t.export(ctx, batch)
}

// export exports a batch, and returns an empty one.
func (t *Tracer) export(ctx context.Context, batch []Request) []Request {
	if len(batch) > 0 {
		taken := t.exporter.export(ctx, batch)
		t.exported.Add(uint64(taken))
		t.failed.Add(uint64(len(batch) - taken))
	}
	return batch[:0]
}

// Describe implements prometheus.Collector.
func (t *Tracer) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(t, ch) }

// Collect implements prometheus.Collector.
func (t *Tracer) Collect(ch chan<- prometheus.Metric) {
	st := t.Stats()
	for outcome, n := range map[string]uint64{"exported": st.Exported, "dropped": st.Dropped, "failed": st.Failed} {
		metrics.Sink(ch).Counter("pulsegate_traced_requests_total",
			"Traced requests, by outcome: exported to the collector, dropped because the queue was full, or failed because no "+
				"collector accepted them.", float64(n), "outcome", outcome)
	}
}
