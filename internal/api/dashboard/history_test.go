package dashboard_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// commits exports a histogram, after a pause.
type commits struct {
	metrics.Histogram
	pause atomic.Int64 // nanoseconds
}

func (c *commits) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c *commits) Collect(ch chan<- prometheus.Metric) {
	time.Sleep(time.Duration(c.pause.Load()))
	ch <- c.Metric(prometheus.NewDesc("pulsegate_commit_duration_seconds", "Commits.", nil, nil))
}

// The history has a value for each step of the last hour: rates and quantiles of what was counted in
// the step, and null if it was missed.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readings := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pulsegate_readings_total"}, []string{"outcome"})
		readings.WithLabelValues("conflict").Add(1000)
		stored := readings.WithLabelValues("stored")
		connections := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pulsegate_connections"})
		commit := &commits{Histogram: metrics.NewHistogram(metrics.DurationBounds(time.Millisecond, time.Second), 1e9)}
		h := newHandler(t, &gate.Gate{}, readings, connections, commit)
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.Run(ctx) })

		const step = 5 * time.Second
		time.Sleep(step / 2) // apart from the ticks
		check := func(wantStored, wantCommits, wantP50, wantConnections []float64) {
			t.Helper()
			var body struct {
				History struct {
					To          time.Time
					StepSeconds float64    `json:"step_seconds"`
					Stored      []*float64 `json:"stored_per_second"`
					Commits     []*float64 `json:"commits_per_second"`
					P50         []*float64 `json:"commit_p50_seconds"`
					P99         []*float64 `json:"commit_p99_seconds"`
					Connections []*float64
				}
			}
			try(t, json.Unmarshal([]byte(text(t, do(http.HandlerFunc(h.System), "GET", "/v1/system", "").Body)), &body))
			got := body.History
			if want := began.Add(time.Since(began).Truncate(step)); got.StepSeconds != 5 || !got.To.Equal(want) {
				t.Errorf("got steps of %v s to %v, want 5 s to %v", got.StepSeconds, got.To, want)
			}
			for _, column := range []struct {
				name string
				got  []*float64
				want []float64
			}{{"stored", got.Stored, wantStored}, {"commits", got.Commits, wantCommits}, {"median", got.P50, wantP50},
				{"connections", got.Connections, wantConnections}} {
				values := make([]float64, len(column.got))
				for i, v := range column.got {
					if values[i] = -1; v != nil {
						values[i] = *v
					}
				}
				if !slices.Equal(values, column.want) {
					t.Errorf("%s: got %v, want %v", column.name, values, column.want)
				}
			}
			if len(got.P99) != len(wantStored) {
				t.Errorf("got %d quantiles, want %d", len(got.P99), len(wantStored))
			}
		}
		check(nil, nil, nil, nil)

		stored.Add(20)
		for range 10 {
			commit.Observe(int64(2 * time.Millisecond)) // in the bucket from 1 to 2.5 ms
		}
		connections.Set(70_001)
		time.Sleep(step)
		check([]float64{4}, []float64{2}, []float64{0.00175}, []float64{70_001})
		time.Sleep(step)
		check([]float64{4, 0}, []float64{2, 0}, []float64{0.00175, -1}, []float64{70_001, 70_001})

		// The step from 10 to 15 s ends at 26 s, so that two are missed: the rate is the mean of 16 s.
		commit.pause.Store(int64(2*step + time.Second))
		connections.Set(1)
		stored.Add(24)
		time.Sleep(step)
		synctest.Wait()
		commit.pause.Store(0)
		time.Sleep(2 * step)
		check([]float64{4, 0, -1, -1, 1.5}, []float64{2, 0, -1, -1, 0}, []float64{0.00175, -1, -1, -1, -1},
			[]float64{70_001, 70_001, -1, -1, 1})

		stored.Add(1)
		time.Sleep(time.Hour - step)
		want := make([]float64, 720)
		ones, none := slices.Repeat([]float64{1}, 720), slices.Repeat([]float64{-1}, 720)
		want[0], want[1] = 1.5, 0.25 // the next step has 4 s
		check(want, make([]float64, 720), none, ones)
		cancel()
		running.Wait()
	})
}
