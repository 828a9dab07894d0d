package alertmanager

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// Senders are the senders of a server.
type Senders []*Sender

// Check returns an error if one of the Alertmanagers does not accept alerts. It is a check of package
// health.
func (all Senders) Check(context.Context) error {
	for _, s := range all {
		if since, cause := s.Failing(); cause != nil {
			return fmt.Errorf("%s does not accept alerts since %s: %w", s.URL(), since.UTC().Format(time.RFC3339), cause)
		}
	}
	return nil
}

// Describe implements prometheus.Collector.
func (all Senders) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(all, ch) }

// Collect implements prometheus.Collector.
func (all Senders) Collect(ch chan<- prometheus.Metric) {
	to := metrics.Sink(ch)
	for _, s := range all {
		var since float64
		if at, cause := s.Failing(); cause != nil {
			since = float64(at.UnixMilli()) / 1000
		}
		to.Counter("pulsegate_alertmanager_sent_total",
			"Alerts that an Alertmanager has accepted, by its URL. Active ones are sent again every minute.",
			float64(s.sent.Load()), "url", s.URL())
		to.Counter("pulsegate_alertmanager_failed_requests_total", "Requests that an Alertmanager has not accepted.",
			float64(s.failed.Load()), "url", s.URL())
		to.Gauge("pulsegate_alertmanager_failing_since_seconds",
			"Unix time since when an Alertmanager has accepted no alerts; 0 if it has accepted the last ones.", since,
			"url", s.URL())
	}
}
