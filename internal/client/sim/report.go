package sim

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Report describes a run and its outcome. Sent is the sum of Stored, Duplicate,
// Rejected and Failed, which count readings.
type Report struct {
	Sent      uint64 `json:"sent"`
	Stored    uint64 `json:"stored"`    // acknowledged as stored
	Duplicate uint64 `json:"duplicate"` // acknowledged as duplicates
	Rejected  uint64 `json:"rejected"`  // rejected for good
	Failed    uint64 `json:"failed"`    // without a final answer; stored or not

	Loop     string  `json:"loop"` // "closed" or "open"
	Target   string  `json:"target"`
	Run      string  `json:"run"`
	Seed     uint64  `json:"seed"`
	StartMs  int64   `json:"start_ms"` // start of the wearers' time
	Users    int     `json:"users"`
	Devices  int     `json:"devices"`
	Batch    int     `json:"batch"`
	Mix      string  `json:"mix"`
	Rate     float64 `json:"rate,omitempty"` // requested rate, requests/s
	ElapsedS float64 `json:"elapsed_s"`

	Requests          uint64  `json:"requests"` // with a final answer
	RequestsPerSecond float64 `json:"requests_per_s"`
	ReadingsPerSecond float64 `json:"readings_per_s"` // stored or duplicate

	Tries           uint64            `json:"tries"`
	Refused429      uint64            `json:"refused_429"`
	Refused503      uint64            `json:"refused_503"`
	RetryAfter      map[int]uint64    `json:"retry_after_s"` // refusals by Retry-After in seconds; 120: 120 or more
	Errors          map[string]uint64 `json:"errors"`        // tries without a documented answer, by cause
	Problems        map[string]uint64 `json:"problems"`      // answers by problem type
	Undocumented    uint64            `json:"undocumented"`
	Faults          []string          `json:"faults,omitempty"` // the first undocumented answers
	WronglyAccepted uint64            `json:"wrongly_accepted"` // malformed requests that were accepted
	GivenUp         uint64            `json:"given_up"`         // requests
	GivenUpRefused  uint64            `json:"given_up_refused"` // of these, after a refusal
	Unsent          uint64            `json:"unsent"`           // due but never sent
	Behaviours      map[string]uint64 `json:"behaviours"`       // requests

	// Latency of answers. In an open loop it is measured from the intended send time,
	// and includes requests without an answer with the time that they waited. In a
	// closed loop it is the service time of the last try, not corrected for coordinated
	// omission.
	Latency   Latency `json:"latency"`
	Corrected bool    `json:"latency_from_intended_send_time"`
	Lateness  Latency `json:"send_lateness"` // delay of sending caused by the simulator

	// Served is the time from sending an accepted try to its answer. It excludes the
	// waits for a connection and for Retry-After, so it is the server's own part of an
	// open loop's latency.
	Served Latency `json:"served"`

	CPUPerRequestUs float64 `json:"cpu_per_request_us"` // CPU time of this process
	Interrupted     bool    `json:"interrupted"`

	MQTT *MQTTReport `json:"mqtt,omitempty"` // nil means HTTP

	Ledger       string        `json:"ledger,omitempty"`
	Verification *Verification `json:"verification,omitempty"`
}

// An MQTTReport says how readings were sent over MQTT.
type MQTTReport struct {
	Version  string `json:"version"`
	QoS      int    `json:"qos"`
	InFlight int    `json:"in_flight"` // publications of a gateway, at most
}

// A Latency is a distribution, in µs.
type Latency struct {
	Count  int64   `json:"count"`
	MeanUs float64 `json:"mean_us"`
	P50Us  int64   `json:"p50_us"`
	P90Us  int64   `json:"p90_us"`
	P99Us  int64   `json:"p99_us"`
	P999Us int64   `json:"p99_9_us"`
	MaxUs  int64   `json:"max_us"`
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	return Latency{h.TotalCount(), h.Mean(), h.ValueAtPercentile(50), h.ValueAtPercentile(90),
		h.ValueAtPercentile(99), h.ValueAtPercentile(99.9), h.Max()}
}

func newReport(opt *Options) *Report {
	r := &Report{
		Loop: "closed", Run: opt.Run, Seed: opt.Seed, Users: opt.Users, Devices: opt.Devices,
		Batch: opt.Batch, Mix: opt.Mix.String(), Rate: opt.Rate,
		Errors: map[failure]uint64{}, Problems: map[string]uint64{}, Behaviours: map[string]uint64{},
		RetryAfter: map[int]uint64{},
	}
	if t := opt.target(); t != nil {
		r.Target = t.String()
	}
	if opt.MQTT != nil {
		r.MQTT = &MQTTReport{opt.MQTTVersion, opt.QoS, opt.InFlight}
	}
	if opt.Rate > 0 {
		r.Loop, r.Corrected = "open", true
	}
	return r
}

// maxFaults bounds the undocumented answers that are described.
const maxFaults = 5

// describe counts an undocumented answer and records what is wrong with it.
func (r *Report) describe(fault string) {
	r.Undocumented++
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, fault)
	}
}

// finish computes the derived fields at the end of a run.
func (r *Report) finish(f *figures, elapsed, cpu time.Duration) {
	r.ElapsedS = elapsed.Seconds()
	if r.ElapsedS > 0 {
		r.RequestsPerSecond = float64(r.Requests) / r.ElapsedS
		r.ReadingsPerSecond = float64(r.Stored+r.Duplicate) / r.ElapsedS
	}
	if r.Tries > 0 {
		r.CPUPerRequestUs = float64(cpu.Microseconds()) / float64(r.Tries)
	}
	f.total.Merge(f.latest)
	r.Latency, r.Lateness, r.Served = latencyOf(f.total), latencyOf(f.late), latencyOf(f.served)
}

// Faults of a server, as returned by [Report.Fault].
var (
	ErrUndocumented    = errors.New("the server gave undocumented answers")
	ErrWronglyAccepted = errors.New("the server accepted malformed requests")
	ErrFailed          = errors.New("requests got no final answer")
	ErrBroken          = errors.New("stored readings differ from what was acknowledged")
)

// Fault returns what the server did wrong, or nil. Refusals are not faults, and neither
// are requests that were given up after refusals.
func (r *Report) Fault() error {
	var errs error
	if r.Undocumented > 0 {
		errs = errors.Join(errs, fmt.Errorf("%w: %d, such as: %s", ErrUndocumented, r.Undocumented,
			strings.Join(r.Faults, "; ")))
	}
	if r.WronglyAccepted > 0 {
		errs = errors.Join(errs, fmt.Errorf("%w: %d", ErrWronglyAccepted, r.WronglyAccepted))
	}
	if r.GivenUp > r.GivenUpRefused && !r.Interrupted {
		errs = errors.Join(errs, fmt.Errorf("%w: %d requests", ErrFailed, r.GivenUp-r.GivenUpRefused))
	}
	if r.Verification != nil {
		errs = errors.Join(errs, r.Verification.Fault())
	}
	return errs
}

// Fault returns what is wrong with the stored readings, or nil.
func (v *Verification) Fault() error {
	if v.OK() {
		return nil
	}
	return fmt.Errorf("%w: missing=%d altered=%d doubled=%d unknown=%d", ErrBroken, v.Missing, v.Altered,
		v.Doubled, v.Unknown)
}

// Summary returns a one-line summary for scripts.
func (r *Report) Summary() string {
	line := fmt.Sprintf(
		"sent=%d stored=%d duplicate=%d rejected=%d failed=%d requests=%d refused_429=%d refused_503=%d undocumented=%d",
		r.Sent, r.Stored, r.Duplicate, r.Rejected, r.Failed, r.Requests, r.Refused429, r.Refused503, r.Undocumented)
	if r.Verification != nil {
		line += " " + r.Verification.Summary()
	}
	return line
}

// Summary returns a one-line summary for scripts.
func (v *Verification) Summary() string {
	return fmt.Sprintf(
		"acknowledged=%d read_back=%d missing=%d altered=%d doubled=%d unknown=%d unsettled=%d unsettled_stored=%d",
		v.Acknowledged, v.Stored, v.Missing, v.Altered, v.Doubled, v.Unknown, v.Unsettled, v.UnsettledStored)
}

// WriteTable writes the report as a table for people.
func (r *Report) WriteTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	workload := fmt.Sprintf("closed loop, %d users", r.Users)
	if r.Corrected {
		workload = fmt.Sprintf("open loop, %g requests/s over %d connections", r.Rate, r.Users)
	}
	row("workload", "%s, %d devices, %.1f s", workload, r.Devices, r.ElapsedS)
	if r.MQTT != nil {
		row("MQTT", "%s, QoS %d, %d in flight per gateway", r.MQTT.Version, r.MQTT.QoS, r.MQTT.InFlight)
	}
	row("run", "%s, seed %d", r.Run, r.Seed)
	if r.Mix != "" {
		row("mix", "%s", r.Mix)
	}
	answered := "answered"
	if r.MQTT != nil && r.MQTT.QoS == 0 {
		answered = "sent, which QoS 0 leaves unanswered"
	}
	row("requests", "%d %s, %.0f/s; %d tries", r.Requests, answered, r.RequestsPerSecond, r.Tries)
	row("readings", "%d sent: %d stored, %d duplicate, %d rejected, %d failed; %.0f stored/s",
		r.Sent, r.Stored, r.Duplicate, r.Rejected, r.Failed, r.ReadingsPerSecond)
	row("refusals", "%d with 429, %d with 503", r.Refused429, r.Refused503)
	row("errors", "%s", countsText(r.Errors))
	row("problems", "%s", countsText(r.Problems))
	row("undocumented answers", "%d", r.Undocumented)
	for _, f := range r.Faults {
		row("", "%s", f)
	}
	if len(r.Behaviours) > 0 {
		row("behaviours", "%s", countsText(r.Behaviours))
	}
	if r.WronglyAccepted > 0 {
		row("malformed, accepted", "%d", r.WronglyAccepted)
	}
	how := "service time, not corrected"
	if r.Corrected {
		how = "from the intended send time"
	}
	row("latency", "%s", r.Latency.text())
	row("", "(%s)", how)
	if r.Corrected {
		row("of accepted tries", "%s", r.Served.text())
		row("", "(from the sending of each)")
		row("sent late by", "%s", r.Lateness.text())
		row("", "(delay of the simulator itself)")
		if r.Unsent > 0 {
			row("never sent", "%d requests that were due; they are included in the latency", r.Unsent)
		}
	}
	row("simulator's CPU", "%.1f µs per request", r.CPUPerRequestUs)
	if r.Interrupted {
		row("interrupted", "the report covers what ran")
	}
	if r.Verification != nil {
		r.Verification.rows(row)
	}
	return w.Flush()
}

// WriteTable writes the verification as a table for people.
func (v *Verification) WriteTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	v.rows(func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) })
	return w.Flush()
}

func (v *Verification) rows(row func(name, format string, args ...any)) {
	row("acknowledged", "%d readings of %d devices", v.Acknowledged, v.Devices)
	row("read back", "%d", v.Stored)
	row("missing", "%d", v.Missing)
	row("altered", "%d", v.Altered)
	row("doubled", "%d", v.Doubled)
	row("unknown", "%d", v.Unknown)
	row("without an answer", "%d, of which %d are stored", v.Unsettled, v.UnsettledStored)
	for _, e := range v.Examples {
		row("", "%s", e)
	}
}

func (l Latency) text() string {
	if l.Count == 0 {
		return "nothing measured"
	}
	ms := func(us int64) string { return fmt.Sprintf("%.3g", float64(us)/1000) }
	return fmt.Sprintf("p50 %s, p90 %s, p99 %s, p99.9 %s, max %s ms",
		ms(l.P50Us), ms(l.P90Us), ms(l.P99Us), ms(l.P999Us), ms(l.MaxUs))
}

// countsText formats counts, sorted by name.
func countsText(counts map[string]uint64) string {
	var parts []string
	for name, n := range counts {
		parts = append(parts, fmt.Sprintf("%s %d", name, n))
	}
	if len(parts) == 0 {
		return "none"
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
