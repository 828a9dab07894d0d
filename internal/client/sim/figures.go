package sim

import (
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Bounds of measured latency, in µs. Longer ones count as the longest.
const (
	shortestUs = 1
	longestUs  = int64(10 * time.Minute / time.Microsecond)
)

// newHistogram returns an empty histogram of latencies in µs, exact to three
// digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(shortestUs, longestUs, 3) }

// record adds a latency.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	us := min(max(int64(d/time.Microsecond), shortestUs), longestUs)
	_ = h.RecordValue(us) // fails outside its bounds only
}

// A failure is why a request was not answered. Except for garbage, it is sent
// again.
type failure uint8

const (
	failedConnect failure = iota
	failedBroken          // the connection ended before the answer
	failedTimeout
	failedUncertain // 408, or 500 outcome-unknown
	failedGarbage   // not HTTP
	numFailures
)

var failureNames = [numFailures]string{
	failedConnect: "not connected", failedBroken: "connection lost", failedTimeout: "timed out",
	failedUncertain: "outcome unknown", failedGarbage: "not HTTP",
}

// A tally counts what one loop did.
type tally struct {
	// Readings. Invariant: when a run has ended, sent is the sum of the other
	// four. TestCountsAddUp checks it.
	sent, stored, duplicate, rejected, failed uint64

	requests        uint64 // answered for good
	tries           uint64 // sent, repetitions included
	refused429      uint64
	refused503      uint64
	failures        [numFailures]uint64
	undocumented    uint64
	wronglyAccepted uint64 // malformed requests that the server took
	givenUp         uint64 // requests
	givenUpRefused  uint64 // of those, after a refusal: the server said why
	unsent          uint64 // requests of the schedule
	behaviours      [numBehaviours]uint64
	waits           [maxWaitSeconds + 1]uint64 // refusals by the seconds of their Retry-After
}

// maxWaitSeconds is the longest Retry-After that is counted by itself. Longer ones
// count as this.
const maxWaitSeconds = 120

// plus adds u to t.
func (t *tally) plus(u *tally) {
	t.sent += u.sent
	t.stored += u.stored
	t.duplicate += u.duplicate
	t.rejected += u.rejected
	t.failed += u.failed
	t.requests += u.requests
	t.tries += u.tries
	t.refused429 += u.refused429
	t.refused503 += u.refused503
	for i := range t.failures {
		t.failures[i] += u.failures[i]
	}
	t.undocumented += u.undocumented
	t.wronglyAccepted += u.wronglyAccepted
	t.givenUp += u.givenUp
	t.givenUpRefused += u.givenUpRefused
	t.unsent += u.unsent
	for i := range t.behaviours {
		t.behaviours[i] += u.behaviours[i]
	}
	for i := range t.waits {
		t.waits[i] += u.waits[i]
	}
}

// errors returns the number of failed tries.
func (t *tally) errors() (n uint64) {
	for _, f := range t.failures {
		n += f
	}
	return n + t.undocumented
}

// A Point is what happened in one step of a run's time.
type Point struct {
	Seconds  float64 `json:"seconds"`  // from the start to the step's end
	Requests uint64  `json:"requests"` // answered
	Readings uint64  `json:"readings"` // safe
	Refused  uint64  `json:"refused"`
	Errors   uint64  `json:"errors"`
	P50Us    int64   `json:"p50_us"` // latency
	P99Us    int64   `json:"p99_us"`
	MaxUs    int64   `json:"max_us"`

	length time.Duration
}

// maxPoints bounds the series of points. Longer runs get longer steps.
const maxPoints = 1200

// A collector gathers the figures of all loops.
type collector struct {
	mu     sync.Mutex      // guards what follows
	tally  []tally         // the last one of each loop
	told   []time.Duration // up to when
	total  *hdrhistogram.Histogram
	late   *hdrhistogram.Histogram // how late the simulator itself sent
	served *hdrhistogram.Histogram // from sending a try to its acceptance
	step   time.Duration
	points []Point

	open     *hdrhistogram.Histogram // of the step under way
	openEnd  time.Duration
	previous tally // at the start of the step
}

func newCollector(loops int) *collector {
	return &collector{
		tally: make([]tally, loops), told: make([]time.Duration, loops), total: newHistogram(), late: newHistogram(), served: newHistogram(),
		open: newHistogram(), step: time.Second, openEnd: time.Second,
	}
}

// sumLocked returns what all loops have counted.
func (c *collector) sumLocked() tally {
	var t tally
	for i := range c.tally {
		t.plus(&c.tally[i])
	}
	return t
}

// add takes over the figures of a loop up to elapsed: its whole tally, and the
// latencies since the last call, which it empties. A step ends when all loops
// have told of it; then add returns its point.
func (c *collector) add(loop int, elapsed time.Duration, t *tally, latency, late, served *hdrhistogram.Histogram) (ended *Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally[loop] = *t
	c.told[loop] = elapsed
	c.open.Merge(latency)
	c.total.Merge(latency)
	c.late.Merge(late)
	c.served.Merge(served)
	latency.Reset()
	late.Reset()
	served.Reset()
	if all := slices.Min(c.told); all >= c.openEnd {
		end := all.Truncate(time.Second) // later than openEnd, if a loop stood still
		ended = c.endStepLocked(end)
		c.openEnd = end + c.step
	}
	return ended
}

// endStepLocked turns the step under way into a point.
func (c *collector) endStepLocked(end time.Duration) *Progress {
	now := c.sumLocked()
	p := Point{
		Seconds:  end.Seconds(),
		Requests: now.requests - c.previous.requests,
		Readings: now.stored + now.duplicate - c.previous.stored - c.previous.duplicate,
		Refused:  now.refused429 + now.refused503 - c.previous.refused429 - c.previous.refused503,
		Errors:   now.errors() - c.previous.errors(),
		length:   c.step,
	}
	if n := len(c.points); n > 0 {
		p.length = end - time.Duration(c.points[n-1].Seconds*float64(time.Second))
	} else {
		p.length = end
	}
	if c.open.TotalCount() > 0 {
		p.P50Us, p.P99Us, p.MaxUs = c.open.ValueAtPercentile(50), c.open.ValueAtPercentile(99), c.open.Max()
	}
	c.open.Reset()
	c.previous = now
	c.points = append(c.points, p)
	if len(c.points) == maxPoints {
		c.halveLocked()
	}
	return &Progress{Point: p, Elapsed: end, PerSecond: float64(p.Requests) / p.length.Seconds(),
		Refusals: now.refused429 + now.refused503, Failures: now.errors(), Requests: now.requests}
}

// halveLocked joins each two points and doubles the step.
func (c *collector) halveLocked() {
	half := c.points[:0]
	for i := 0; i+1 < len(c.points); i += 2 {
		a, b := c.points[i], c.points[i+1]
		half = append(half, Point{
			Seconds: b.Seconds, Requests: a.Requests + b.Requests, Readings: a.Readings + b.Readings,
			Refused: a.Refused + b.Refused, Errors: a.Errors + b.Errors,
			// Percentiles cannot be joined; the worse one is said.
			P50Us: max(a.P50Us, b.P50Us), P99Us: max(a.P99Us, b.P99Us), MaxUs: max(a.MaxUs, b.MaxUs),
			length: a.length + b.length,
		})
	}
	c.points = half
	c.step *= 2
}

// A Progress is what a run shows while it goes on, about once a second.
type Progress struct {
	Point
	Elapsed   time.Duration
	PerSecond float64 // requests answered in the last step
	Requests  uint64  // since the start
	Refusals  uint64
	Failures  uint64
}
