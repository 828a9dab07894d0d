package profile

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// ErrNotPulsegate means that an address answers, but not as the admin listener of
// a Pulsegate server does.
var ErrNotPulsegate = errors.New("profile: not the admin listener of a Pulsegate server")

// Counters are a server's counters at one moment.
type Counters struct {
	At        time.Time         `json:"at"`         // by the clock of whoever read them
	Version   string            `json:"version"`    // of the server
	GoVersion string            `json:"go_version"` // that it was built with
	Started   float64           `json:"started"`    // Unix seconds; 0 if the server does not tell
	CPU       float64           `json:"cpu_s"`      // user and system time of the process, in seconds
	Bytes     float64           `json:"bytes"`      // allocated on the heap, by the runtime's own count; 0 if the server does not tell
	Objects   float64           `json:"objects"`    // the same in objects
	Requests  map[string]uint64 `json:"requests"`   // of the public listener, by route pattern and status class
	Readings  map[string]uint64 `json:"readings"`   // by outcome
}

// Names of the metrics that a report needs. docs/metrics.md lists them all.
const (
	buildInfoMetric = "pulsegate_build_info"
	requestsMetric  = "pulsegate_http_requests_total"
	readingsMetric  = "pulsegate_readings_total"
	cpuMetric       = "process_cpu_seconds_total"
	startedMetric   = "process_start_time_seconds"
	bytesMetric     = "go_memstats_alloc_bytes_total"
	objectsMetric   = "go_memstats_mallocs_total"
)

// ReadCounters reads counters in the Prometheus text format. It returns an error
// that wraps [ErrNotPulsegate] when the text is something else, or that of another
// program.
func ReadCounters(r io.Reader) (Counters, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return Counters{}, fmt.Errorf("%w: read metrics: %v", ErrNotPulsegate, err)
	}
	info := families[buildInfoMetric]
	if info == nil || len(info.Metric) == 0 {
		return Counters{}, fmt.Errorf("%w: there is no metric %s", ErrNotPulsegate, buildInfoMetric)
	}
	c := Counters{
		Version:   label(info.Metric[0], "version"),
		GoVersion: label(info.Metric[0], "goversion"),
		Requests:  map[string]uint64{},
		Readings:  map[string]uint64{},
	}
	requests := families[requestsMetric]
	if requests == nil {
		return Counters{}, fmt.Errorf("%w: there is no metric %s", ErrNotPulsegate, requestsMetric)
	}
	for _, m := range requests.Metric {
		if err := count(c.Requests, requestsMetric, label(m, "route")+" "+label(m, "code"), m); err != nil {
			return Counters{}, err
		}
	}
	for _, m := range families[readingsMetric].GetMetric() {
		if err := count(c.Readings, readingsMetric, label(m, "outcome"), m); err != nil {
			return Counters{}, err
		}
	}
	c.CPU = single(families[cpuMetric])
	c.Started = single(families[startedMetric])
	c.Bytes = single(families[bytesMetric])
	c.Objects = single(families[objectsMetric])
	return c, nil
}

// maxCount is the largest whole number up to which a float64, which is what the
// text format carries, misses none.
const maxCount = 1 << 53

// count sets the value of a counter, which is a whole number, into m.
func count(into map[string]uint64, metric, name string, m *dto.Metric) error {
	v := value(m)
	if !(v >= 0 && v <= maxCount) || v != math.Trunc(v) {
		return fmt.Errorf("%w: metric %s is not a count", ErrNotPulsegate, metric)
	}
	if _, ok := into[name]; ok {
		return fmt.Errorf("%w: metric %s has a series twice", ErrNotPulsegate, metric)
	}
	into[name] = uint64(v)
	return nil
}

// single returns the value of a metric without labels, or 0 if it is missing or
// not a number that can be used.
func single(f *dto.MetricFamily) float64 {
	if len(f.GetMetric()) != 1 {
		return 0
	}
	v := value(f.Metric[0])
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0
	}
	return v
}

// value returns a metric's value, whatever its TYPE line said; NaN if it has
// several.
func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Untyped != nil:
		return m.Untyped.GetValue()
	}
	return math.NaN()
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// A Load is what a server did between two readings of its counters.
type Load struct {
	Duration time.Duration
	CPU      time.Duration     // of the process; 0 if it is not known
	Bytes    float64           // allocated, by the runtime's own count; 0 if it is not known
	Objects  float64           // allocated, likewise
	Requests uint64            // of the public listener
	Routes   map[string]uint64 // the same by route pattern and status class; without zeros
	Readings map[string]uint64 // by outcome; without zeros
}

// errRestarted means that counters are of two processes.
var errRestarted = errors.New("profile: the server was restarted in the window")

// loadBetween returns what happened from a to b.
func loadBetween(a, b Counters) (Load, error) {
	l := Load{Duration: b.At.Sub(a.At)}
	if a.Started != b.Started || b.CPU < a.CPU {
		return Load{}, errRestarted
	}
	l.CPU = time.Duration((b.CPU - a.CPU) * float64(time.Second))
	l.Bytes, l.Objects = max(0, b.Bytes-a.Bytes), max(0, b.Objects-a.Objects)
	var ok1, ok2 bool
	l.Routes, ok1 = difference(a.Requests, b.Requests)
	l.Readings, ok2 = difference(a.Readings, b.Readings)
	if !ok1 || !ok2 {
		return Load{}, errRestarted
	}
	for _, n := range l.Routes {
		l.Requests += n
	}
	return l, nil
}

// difference returns b-a without zeros, and false if a counter has gone back.
func difference(a, b map[string]uint64) (map[string]uint64, bool) {
	d := map[string]uint64{}
	for name, n := range b {
		switch before := a[name]; {
		case n < before:
			return nil, false
		case n > before:
			d[name] = n - before
		}
	}
	for name := range a {
		if _, ok := b[name]; !ok {
			return nil, false
		}
	}
	return d, true
}

// sortedKeys returns the keys of m, those of large values first.
func sortedKeys(m map[string]uint64) []string {
	keys := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(keys, func(a, b string) int {
		switch {
		case m[a] > m[b]:
			return -1
		case m[a] < m[b]:
			return 1
		}
		return 0
	})
	return keys
}
