package admin

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// An Expirer is a store from which old readings can be removed.
type Expirer interface {
	// Expire removes readings before a time, at most atMost of them. It works slowly,
	// so as not to disturb other requests.
	Expire(ctx context.Context, beforeUnixMs, atMost int64) (storage.Expiry, error)

	// NewestUnixMs returns the time of the newest reading of each device, in any order.
	NewestUnixMs(ctx context.Context) ([]int64, error)

	// EstimateReadings returns an estimate of the number of stored readings.
	EstimateReadings(ctx context.Context) (int64, error)
}

// A clock that is years ahead would remove everything. These constants limit the
// damage.
const (
	// settleShare and maxSettle: before the first run and after an adjustment, the wall
	// clock must agree with the monotonic clock for a thousandth of the retention period,
	// at most one hour.
	settleShare = 1000
	maxSettle   = time.Hour

	// recentShare and recentDevices: the clock is compared with the latest time that a
	// fiftieth of the devices, at least two, have reached with their newest reading. The
	// newest reading of all may come from a device with a wrong clock.
	recentShare   = 50
	recentDevices = 2

	// slackShare: the clock may be ahead of that time by a fortieth of the retention
	// period.
	slackShare = 40

	// lateShare: a clock further ahead is reported if readings are therefore kept longer
	// than due by more than a tenth of the retention period.
	lateShare = 10

	// runShare and runReadings: a run removes at most a tenth of the readings, or
	// runReadings if that is more.
	runShare    = 10
	runReadings = 1000
)

// A Retention periodically removes readings that are older than Keep. Its fields must
// not change after Run is called.
type Retention struct {
	Store Expirer
	Keep  time.Duration
	Log   *slog.Logger
	Now   func() time.Time // nil means time.Now

	mu     sync.Mutex
	status RetentionStatus
}

// A RetentionStatus is the status of a Retention.
type RetentionStatus struct {
	LastDone time.Time // end of the last completed run; zero means none
	Failed   int64     // number of failed runs
	Held     Held      // why fewer readings were removed than are due
}

// Held has the reasons why fewer readings are removed than are due, for operators.
type Held struct {
	ClockSet   bool // the clock was adjusted, and nothing was removed since
	ClockAhead bool // nearly all devices are silent, or the clock is ahead of theirs
	TooMany    bool // more readings are due than one run removes
}

// Status returns the status of r. It may be called concurrently with Run.
func (r *Retention) Status() RetentionStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Describe implements prometheus.Collector.
func (r *Retention) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, ch) }

// Collect implements prometheus.Collector.
func (r *Retention) Collect(ch chan<- prometheus.Metric) {
	status, last, to := r.Status(), 0.0, metrics.Sink(ch)
	if !status.LastDone.IsZero() {
		last = float64(status.LastDone.UnixMilli()) / 1000
	}
	to.Gauge("pulsegate_retention_last_run_timestamp_seconds",
		"Unix time of the last completed removal of old readings. 0 before the first one.", last)
	to.Counter("pulsegate_retention_failures_total", "Runs that failed to remove all old readings.",
		float64(status.Failed))
	oneIf := map[bool]float64{true: 1}
	for reason, is := range map[string]bool{"clock_set": status.Held.ClockSet, "clock_ahead": status.Held.ClockAhead,
		"too_many": status.Held.TooMany} {
		to.Gauge("pulsegate_retention_held", "1 while fewer readings are removed than are due, by reason.", oneIf[is],
			"reason", reason)
	}
}

// Every returns the interval between runs: a hundredth of the retention period, at
// least one minute and at most one day. A reading is removed at most that much later
// than it is due, plus the duration of a run.
func (r *Retention) Every() time.Duration {
	return min(max(r.Keep/100, time.Minute), 24*time.Hour)
}

// settle returns how long the clock must run steadily before a run.
func (r *Retention) settle() time.Duration { return min(r.Keep/settleShare, maxSettle) }

// Run removes old readings every [Retention.Every] until ctx is done, for the first time
// when the clock has run steadily for a while.
func (r *Retention) Run(ctx context.Context) {
	begun, wall := time.Now(), r.now()
	timer := time.NewTimer(r.settle())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		elapsed, shown := time.Since(begun), r.now().Sub(wall)
		begun, wall = time.Now(), r.now()
		if set := (shown - elapsed).Abs(); set > r.Every() {
			r.Log.Warn("the clock was set: no readings are removed until it has run steadily for a while", "by", shown-elapsed,
				"for", r.settle())
			r.hold(Held{ClockSet: true})
			timer.Reset(r.settle())
			continue
		}
		err := r.once(ctx)
		if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
			return
		}
		r.note(err)
		timer.Reset(r.Every())
	}
}

func (r *Retention) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.status.Failed++
		r.Log.Error("old readings cannot be removed; will retry", "in", r.Every(), "error", err)
		return
	}
	r.status.LastDone = r.now()
}

// hold sets why fewer readings are removed than are due, and returns the previous
// reasons.
func (r *Retention) hold(h Held) (before Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.status.Held = r.status.Held, h
	return before
}

// now returns the wall clock time, without a monotonic clock reading.
func (r *Retention) now() time.Time {
	if r.Now == nil {
		return time.Now().Round(0)
	}
	return r.Now().Round(0)
}

// once removes the readings that are old now.
func (r *Retention) once(ctx context.Context) error {
	newestUnixMs, err := r.Store.NewestUnixMs(ctx)
	if err != nil {
		return err
	}
	if len(newestUnixMs) == 0 {
		r.hold(Held{})
		return nil
	}
	stored, err := r.Store.EstimateReadings(ctx)
	if err != nil {
		return err
	}
	now := r.now()
	trusted := now
	if latest := recent(newestUnixMs).Add(r.Keep / slackShare); now.After(latest) {
		trusted = latest
	}
	begun := time.Now()
	before := trusted.Add(-r.Keep)
	x, err := r.Store.Expire(ctx, before.UnixMilli(), max(stored/runShare, runReadings))
	if x.Readings > 0 {
		r.Log.Info("old readings removed", "readings", x.Readings, "devices", x.Devices, "before", before.UTC(), "took",
			time.Since(begun))
	}
	held := Held{ClockAhead: now.Sub(trusted) > r.Keep/lateShare, TooMany: x.More}
	was := r.hold(held)
	if held.ClockAhead && !was.ClockAhead {
		r.Log.Warn(
			"nearly all devices are silent, or the clock is ahead of theirs: readings are kept longer than configured, in "+
				"case the clock is wrong",
			"clock", now.UTC(), "trusted", trusted.UTC())
	}
	if held.TooMany && !was.TooMany {
		r.Log.Warn(
			"a large part of the stored readings is too old: one run removes a tenth at most, in case the clock is wrong",
			"before", before.UTC())
	}
	return err
}

// recent returns the latest time that enough devices have reached with their newest
// reading. It sorts its argument.
func recent(newestUnixMs []int64) time.Time {
	slices.Sort(newestUnixMs)
	n := len(newestUnixMs)
	return time.UnixMilli(newestUnixMs[n-min(n, max((n+recentShare-1)/recentShare, recentDevices))])
}
