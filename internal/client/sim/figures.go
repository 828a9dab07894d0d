package sim

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Bounds of measured latency, in µs. Longer ones are counted as longestUs.
const (
	shortestUs = 1
	longestUs  = int64(10 * time.Minute / time.Microsecond)
)

// newHistogram returns an empty histogram of latencies in µs, with three significant
// digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(shortestUs, longestUs, 3) }

// record adds a latency to h.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	us := min(max(int64(d/time.Microsecond), shortestUs), longestUs)
	_ = h.RecordValue(us) // fails only for values out of bounds
}

// A failure is why a request was not answered, as named in a [Report]. The request is
// retried, except after failedGarbage.
type failure = string

const (
	failedConnect   failure = "not connected"
	failedBroken    failure = "connection lost" // before the answer
	failedTimeout   failure = "timed out"
	failedUncertain failure = "outcome unknown" // 408, or 500 outcome-unknown
	failedGarbage   failure = "not HTTP"        // or not MLLP
	failedNotMQTT   failure = "not MQTT"
)

// maxWaitSeconds is the longest Retry-After that is counted separately. Longer ones are
// counted as this one.
const maxWaitSeconds = 120

// figures are the measurements of a run, in addition to the counts in its report.
type figures struct {
	total  *hdrhistogram.Histogram // latency until the last progress
	latest *hdrhistogram.Histogram // latency since then
	late   *hdrhistogram.Histogram // delay of sending caused by the simulator
	served *hdrhistogram.Histogram // time from sending a try to its acceptance

	shown    time.Duration // time of the last progress
	requests uint64        // answered until then
}

func newFigures() *figures {
	return &figures{total: newHistogram(), latest: newHistogram(), late: newHistogram(), served: newHistogram()}
}

// countTry counts a try that was sent.
func (f *figures) countTry(c *connection, r *Report) {
	if c.sent < 0 {
		return
	}
	r.Tries++
	if c.tries == 1 {
		record(f.late, c.sent-max(c.intended, c.free))
	}
}

// advance returns the progress if the last one was a second ago.
func (f *figures) advance(now time.Duration, r *Report) (p Progress, due bool) {
	if now < f.shown+time.Second {
		return p, false
	}
	p = Progress{
		PerSecond: float64(r.Requests-f.requests) / (now - f.shown).Seconds(),
		P50Us:     f.latest.ValueAtPercentile(50),
		P99Us:     f.latest.ValueAtPercentile(99),
		Refusals:  r.Refused429 + r.Refused503,
		Failures:  r.Undocumented,
	}
	for _, n := range r.Errors {
		p.Failures += n
	}
	f.total.Merge(f.latest)
	f.latest.Reset()
	f.shown, f.requests = now, r.Requests
	return p, true
}

// A Progress describes a run in progress, about once a second.
type Progress struct {
	PerSecond    float64 // requests answered since the last one
	P50Us, P99Us int64   // their latency
	Refusals     uint64  // since the start of the run
	Failures     uint64
}
