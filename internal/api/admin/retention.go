package admin

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// An Expirer is a store from which old readings can be removed.
type Expirer interface {
	// Expire removes the readings before a time. It takes its time, so that others
	// do not notice.
	Expire(ctx context.Context, beforeUnixMs int64) (storage.Expiry, error)

	// NewestUnixMs returns when the newest reading was measured, and 0 when there is
	// none.
	NewestUnixMs() int64
}

// clockSlack is how far the clock is believed beyond the newest stored reading. A
// clock that is wrong by years would otherwise remove everything.
const clockSlack = 7 * 24 * time.Hour

// A Retention removes readings that are older than Keep, again and again. Its fields
// must not change once Run was called.
type Retention struct {
	Store Expirer
	Keep  time.Duration
	Log   *slog.Logger
	Now   func() time.Time // nil: time.Now

	mu     sync.Mutex
	status RetentionStatus
	behind bool // the last run did not believe the clock; belongs to Run
}

// A RetentionStatus tells how a Retention fares.
type RetentionStatus struct {
	LastDone time.Time // when the last run came to its end; zero: none has
	Failed   int64     // runs that did not
}

// Status returns how r fares. It may be called beside Run.
func (r *Retention) Status() RetentionStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Describe implements prometheus.Collector.
func (r *Retention) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, ch) }

// Collect implements prometheus.Collector.
func (r *Retention) Collect(ch chan<- prometheus.Metric) {
	status, last := r.Status(), 0.0
	if !status.LastDone.IsZero() {
		last = float64(status.LastDone.UnixMilli()) / 1000
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("pulsegate_retention_last_run_timestamp_seconds",
		"Unix time at which old readings were last looked for, to the end. 0 before the first time.", nil, nil), prometheus.GaugeValue, last)
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("pulsegate_retention_failures_total",
		"Runs that could not remove all old readings.", nil, nil), prometheus.CounterValue, float64(status.Failed))
}

// Every returns the time between two runs: a hundredth of what is kept, at least a
// minute and at most a day. A reading is thus removed at most so much later than it
// is due, and as long as the run takes.
func (r *Retention) Every() time.Duration {
	return min(max(r.Keep/100, time.Minute), 24*time.Hour)
}

// Run removes what is old, at once and then every [Retention.Every], until ctx ends.
func (r *Retention) Run(ctx context.Context) {
	tick := time.NewTicker(r.Every())
	defer tick.Stop()
	for {
		err := r.once(ctx)
		if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
			return
		}
		r.note(err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *Retention) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.status.Failed++
		r.Log.Error("old readings cannot be removed; it is tried again", "in", r.Every(), "error", err)
		return
	}
	r.status.LastDone = r.now()
}

func (r *Retention) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

// once removes what is old now.
func (r *Retention) once(ctx context.Context) error {
	newestUnixMs := r.Store.NewestUnixMs()
	if newestUnixMs == 0 {
		return nil
	}
	now := r.now()
	believed := time.UnixMilli(newestUnixMs).Add(clockSlack)
	behind := now.After(believed)
	if behind {
		if !r.behind {
			r.Log.Warn("the newest reading is more than a week older than the clock: old readings are removed as if it were a week younger than now, "+
				"in case that the clock is wrong", "newest", time.UnixMilli(newestUnixMs).UTC(), "clock", now.UTC())
		}
		now = believed
	}
	r.behind = behind
	before, begun := now.Add(-r.Keep), time.Now()
	x, err := r.Store.Expire(ctx, before.UnixMilli())
	if x.Readings > 0 {
		r.Log.Info("old readings removed", "readings", x.Readings, "devices", x.Devices, "before", before.UTC(), "took", time.Since(begun))
	}
	return err
}
