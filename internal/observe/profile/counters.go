package profile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// ErrNotPulsegate means that an address responds, but is not the admin listener of a
// Pulsegate server.
var ErrNotPulsegate = errors.New("not the admin listener of a Pulsegate server")

// Counters are a server's counters at one instant.
type Counters struct {
	At        time.Time `json:"at"`         // by the clock of the client
	Version   string    `json:"version"`    // of the server
	GoVersion string    `json:"go_version"` // Go version of the server's build
	Started   float64   `json:"started"`    // start of the process in Unix seconds; 0 if missing
	CPU       float64   `json:"cpu_s"`      // user and system time of the process, in seconds
	Bytes     float64   `json:"bytes"`      // allocated on the heap, as counted by the runtime; 0 if missing
	Objects   float64   `json:"objects"`    // the same in objects
	// of the public listener, by route pattern and status class, publications of MQTT by QoS, and messages of MLLP by
	// their answer
	Requests map[string]uint64 `json:"requests"`
	Readings map[string]uint64 `json:"readings"` // by outcome
}

// Names of the metrics that a report needs. docs/metrics.md lists all metrics.
const (
	buildInfoMetric = "pulsegate_build_info"
	requestsMetric  = "pulsegate_http_requests_total"
	mqttMetric      = "pulsegate_mqtt_publications_total"
	mllpMetric      = "pulsegate_mllp_acknowledgements_total"
	readingsMetric  = "pulsegate_readings_total"
	cpuMetric       = "process_cpu_seconds_total"
	startedMetric   = "process_start_time_seconds"
	bytesMetric     = "go_memstats_alloc_bytes_total"
	objectsMetric   = "go_memstats_mallocs_total"
)

// ReadCounters reads counters in the Prometheus text format. It returns an error that
// wraps [ErrNotPulsegate] if the text has another format or comes from another program.
func ReadCounters(r io.Reader) (Counters, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return Counters{}, fmt.Errorf("%w: read metrics: %v", ErrNotPulsegate, err)
	}
	for _, name := range []string{buildInfoMetric, requestsMetric} {
		if len(families[name].GetMetric()) == 0 {
			return Counters{}, fmt.Errorf("%w: there is no metric %s", ErrNotPulsegate, name)
		}
	}
	requests := counts(families[requestsMetric], "", "route", "code")
	maps.Copy(requests, counts(families[mqttMetric], "MQTT QoS ", "qos"))
	maps.Copy(requests, counts(families[mllpMetric], "MLLP ", "code"))
	info := families[buildInfoMetric].Metric[0]
	return Counters{
		Version: label(info, "version"), GoVersion: label(info, "goversion"),
		CPU: single(families[cpuMetric]), Started: single(families[startedMetric]),
		Bytes: single(families[bytesMetric]), Objects: single(families[objectsMetric]),
		Requests: requests, Readings: counts(families[readingsMetric], "", "outcome"),
	}, nil
}

// counts returns the values of a metric's series by a prefix and their labels.
func counts(f *dto.MetricFamily, prefix string, labels ...string) map[string]uint64 {
	all := map[string]uint64{}
	for _, m := range f.GetMetric() {
		var values []string
		for _, l := range labels {
			values = append(values, label(m, l))
		}
		all[prefix+strings.Join(values, " ")] = uint64(max(value(m), 0))
	}
	return all
}

// single returns the value of a metric without labels, or 0 if it is missing.
func single(f *dto.MetricFamily) float64 {
	if len(f.GetMetric()) == 1 {
		return value(f.Metric[0])
	}
	return 0
}

// value returns a metric's value, whatever its TYPE line says, or 0 for histograms and
// summaries.
func value(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// A Load is the work of a server between two scrapes of its counters. Costs are per
// request, or per second if there was no request. They are 0 if the server does not
// export them.
type Load struct {
	Seconds float64 `json:"seconds"`
	// of the public listener, publications of MQTT and messages of MLLP
	Requests       uint64            `json:"requests"`
	Routes         map[string]uint64 `json:"routes"`          // the same by route pattern and status class; without zeros
	Readings       map[string]uint64 `json:"readings"`        // by outcome; without zeros
	ProcessCPUUs   float64           `json:"process_cpu_us"`  // CPU time as counted by the process
	CountedBytes   float64           `json:"counted_bytes"`   // allocated, as counted by the runtime
	CountedObjects float64           `json:"counted_objects"` // allocated, likewise
}

// errRestarted means that the counters are from two processes.
var errRestarted = errors.New("the server was restarted in the window")

// loadBetween returns the load from a to b.
func loadBetween(a, b *Counters) (Load, error) {
	routes, ok1 := difference(a.Requests, b.Requests)
	readings, ok2 := difference(a.Readings, b.Readings)
	if a.Started != b.Started || b.CPU < a.CPU || !ok1 || !ok2 {
		return Load{}, errRestarted
	}
	l := Load{Seconds: b.At.Sub(a.At).Seconds(), Requests: total(routes), Routes: routes, Readings: readings}
	n := l.perSecond() * l.Seconds
	if n > 0 {
		l.ProcessCPUUs, l.CountedBytes, l.CountedObjects = (b.CPU-a.CPU)*1e6/n, max(0, b.Bytes-a.Bytes)/n,
			max(0, b.Objects-a.Objects)/n
	}
	return l, nil
}

// perSecond returns the requests per second. It returns 1 if there were none, so that
// costs are per second.
func (l *Load) perSecond() float64 {
	if l.Requests == 0 || l.Seconds <= 0 {
		return 1
	}
	return float64(l.Requests) / l.Seconds
}

// difference returns b-a without zeros, or false if a counter has decreased.
func difference(a, b map[string]uint64) (map[string]uint64, bool) {
	d := maps.Clone(b)
	for name, n := range a {
		if d[name] < n {
			return nil, false
		}
		d[name] -= n
	}
	maps.DeleteFunc(d, func(_ string, n uint64) bool { return n == 0 })
	return d, true
}

// sortedKeys returns the keys of m in descending order of their values.
func sortedKeys(m map[string]uint64) []string {
	return slices.SortedFunc(maps.Keys(m),
		func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
}

// total returns the sum of all values of m.
func total(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}
