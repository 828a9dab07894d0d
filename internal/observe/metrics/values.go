package metrics

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Connections returns a collector for the number of open connections.
func Connections(open func() int64) Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pulsegate_connections",
		Help: "Open connections of the public listener, in both lanes.",
	}, func() float64 { return float64(open()) })
}

// Values are the current values of some metrics, for readers other than Prometheus. It is
// safe for concurrent use.
type Values struct {
	registry *prometheus.Registry
	names    []string
}

// NewValues returns the values of the metrics with these names that the collectors, or the
// process, export.
func NewValues(names []string, all ...Collector) *Values {
	v := &Values{registry: prometheus.NewRegistry(), names: names}
	v.registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	v.registry.MustRegister(all...)
	return v
}

// A series is one time series as JSON.
type series struct {
	Labels  map[string]string `json:"labels,omitempty"`
	Value   *float64          `json:"value,omitempty"` // of a counter or a gauge
	Count   *uint64           `json:"count,omitempty"` // of a histogram, as the following ones
	Sum     *float64          `json:"sum,omitempty"`
	Buckets [][2]float64      `json:"buckets,omitempty"` // inclusive upper bound, cumulative count
}

// JSON returns an object with the series of each metric by its name. Metrics that nothing
// exports are missing.
func (v *Values) JSON() ([]byte, error) {
	families, err := v.registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	all := map[string][]series{}
	for _, f := range families {
		if !slices.Contains(v.names, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			var s series
			for _, l := range m.GetLabel() {
				if s.Labels == nil {
					s.Labels = map[string]string{}
				}
				s.Labels[l.GetName()] = l.GetValue()
			}
			switch h := m.GetHistogram(); {
			case h != nil:
				count, sum := h.GetSampleCount(), h.GetSampleSum()
				s.Count, s.Sum = &count, &sum
				for _, b := range h.GetBucket() {
					if !math.IsInf(b.GetUpperBound(), 1) {
						s.Buckets = append(s.Buckets, [2]float64{b.GetUpperBound(), float64(b.GetCumulativeCount())})
					}
				}
			default:
				value := m.GetCounter().GetValue() + m.GetGauge().GetValue() // one of them is missing, and 0
				s.Value = &value
			}
			all[f.GetName()] = append(all[f.GetName()], s)
		}
	}
	return json.Marshal(all)
}
