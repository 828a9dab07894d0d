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
	failedGarbage   failure = "not HTTP"
)

// maxWaitSeconds is the longest Retry-After that is counted separately. Longer ones are
// counted as this one.
const maxWaitSeconds = 120

// A Point describes one time step of a run.
type Point struct {
	Seconds  float64 `json:"seconds"`  // from the start of the run to the end of the step
	Requests uint64  `json:"requests"` // answered
	Readings uint64  `json:"readings"` // stored
	Refused  uint64  `json:"refused"`
	Errors   uint64  `json:"errors"`
	P50Us    int64   `json:"p50_us"` // latency
	P99Us    int64   `json:"p99_us"`
	MaxUs    int64   `json:"max_us"`

	length time.Duration
}

// maxPoints bounds the number of points. Longer runs get longer steps.
const maxPoints = 1200

// figures are the measurements of a run, in addition to the counts in its report.
type figures struct {
	total  *hdrhistogram.Histogram // latency in completed steps
	late   *hdrhistogram.Histogram // delay of sending caused by the simulator
	served *hdrhistogram.Histogram // time from sending a try to its acceptance
	points []Point

	latency *hdrhistogram.Histogram // latency in the current step
	step    time.Duration
	stepEnd time.Duration // end of the current step
	before  Point         // sums at the start of the current step
}

func newFigures() *figures {
	return &figures{total: newHistogram(), late: newHistogram(), served: newHistogram(), latency: newHistogram(),
		step: time.Second, stepEnd: time.Second}
}

// advance ends the current step if it is over, and reports whether it added a point.
// sums returns the sums of the whole run.
func (f *figures) advance(now time.Duration, sums func() Point) bool {
	if now < f.stepEnd {
		return false
	}
	end := now.Truncate(time.Second) // later than stepEnd if the run was stalled
	f.endStep(end, sums())
	f.stepEnd = end + f.step
	return true
}

// endStep turns the current step into a point.
func (f *figures) endStep(end time.Duration, sums Point) {
	p := Point{
		Seconds:  end.Seconds(),
		Requests: sums.Requests - f.before.Requests,
		Readings: sums.Readings - f.before.Readings,
		Refused:  sums.Refused - f.before.Refused,
		Errors:   sums.Errors - f.before.Errors,
		length:   end,
	}
	if n := len(f.points); n > 0 {
		p.length = end - time.Duration(f.points[n-1].Seconds*float64(time.Second))
	}
	if f.latency.TotalCount() > 0 {
		p.P50Us, p.P99Us, p.MaxUs = f.latency.ValueAtPercentile(50), f.latency.ValueAtPercentile(99), f.latency.Max()
	}
	f.total.Merge(f.latency)
	f.latency.Reset()
	f.before = sums
	f.points = append(f.points, p)
	if len(f.points) == maxPoints {
		f.halve()
	}
}

// finish ends the run. Its incomplete last step joins the point before if it is too short to
// compute a rate.
func (f *figures) finish(elapsed time.Duration, sums Point) {
	f.endStep(elapsed, sums)
	if n := len(f.points); n > 1 && f.points[n-1].length <= f.step/5 {
		f.points[n-2] = join(f.points[n-2], f.points[n-1])
		f.points = f.points[:n-1]
	}
}

// halve joins each two points and doubles the step.
func (f *figures) halve() {
	half := f.points[:0]
	for i := 0; i+1 < len(f.points); i += 2 {
		half = append(half, join(f.points[i], f.points[i+1]))
	}
	f.points = half
	f.step *= 2
}

// join returns the point of two successive ones.
func join(a, b Point) Point {
	return Point{
		Seconds: b.Seconds, Requests: a.Requests + b.Requests, Readings: a.Readings + b.Readings,
		Refused: a.Refused + b.Refused, Errors: a.Errors + b.Errors,
		// Percentiles cannot be merged; keep the worse one.
		P50Us: max(a.P50Us, b.P50Us), P99Us: max(a.P99Us, b.P99Us), MaxUs: max(a.MaxUs, b.MaxUs),
		length: a.length + b.length,
	}
}

// A Progress describes a run in progress, about once a second.
type Progress struct {
	Point
	Elapsed   time.Duration
	PerSecond float64 // requests answered in the last step
	Refusals  uint64  // since the start of the run
	Failures  uint64
}
