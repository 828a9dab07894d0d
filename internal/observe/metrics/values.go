package metrics

import (
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Gauge returns a Collector of a gauge.
func Gauge(name, help string, value func() int64) Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
		func() float64 { return float64(value()) })
}

// Limits returns a Collector of limits beyond which the server rejects, by the name of their flag.
func Limits(most map[string]int) Collector {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "pulsegate_limit", Help: "Limits beyond which the server rejects, by the name of their flag.",
	}, []string{"flag"})
	for name, n := range most {
		v.WithLabelValues(name).Set(float64(n))
	}
	return v
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

// A Series is one time series. A counter and a gauge have a Value, a histogram has the other
// members.
type Series struct {
	Labels  map[string]string `json:"labels,omitempty"`
	Value   *float64          `json:"value,omitempty"`
	Count   *uint64           `json:"count,omitempty"`
	Sum     *float64          `json:"sum,omitempty"`
	Buckets [][2]float64      `json:"buckets,omitempty"` // inclusive upper bound, cumulative count
}

// Number returns the value of a counter or gauge, the count of a histogram, or 0 for the zero Series.
func (s Series) Number() float64 {
	switch {
	case s.Value != nil:
		return *s.Value
	case s.Count != nil:
		return float64(*s.Count)
	}
	return 0
}

// Quantile returns a quantile of the values that a histogram has counted since before, which may be
// the zero Series. It is interpolated within a bucket, at most the largest bound, and NaN if there are
// no values.
func (s Series) Quantile(before Series, q float64) float64 {
	want := q * (s.Number() - before.Number())
	if want <= 0 {
		return math.NaN()
	}
	low, below := 0.0, 0.0
	for i, b := range s.Buckets {
		bound, n := b[0], b[1]
		if before.Buckets != nil {
			n -= before.Buckets[i][1]
		}
		if n >= want {
			return low + (bound-low)*(want-below)/(n-below)
		}
		low, below = bound, n
	}
	return low
}

// Snapshot has the series of each metric by its name. Metrics that nothing exports are missing.
type Snapshot map[string][]Series

// Find returns the series of a metric with a label, or its first series if label is "". If there is
// none, it returns the zero Series.
func (s Snapshot) Find(name, label, value string) Series {
	for _, series := range s[name] {
		if label == "" || series.Labels[label] == value {
			return series
		}
	}
	return Series{}
}

// Snapshot returns the current values.
func (v *Values) Snapshot() (Snapshot, error) {
	families, err := v.registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	all := Snapshot{}
	for _, f := range families {
		if !slices.Contains(v.names, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			var s Series
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
	return all, nil
}
