package admin

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// An Expirer is a store from which old readings can be removed.
type Expirer interface {
	// Expire removes readings before a time, at most so many. It takes its time, so
	// that others do not notice.
	Expire(ctx context.Context, beforeUnixMs, atMost int64) (storage.Expiry, error)

	// NewestUnixMs returns when the newest reading of each device was measured, in no
	// order.
	NewestUnixMs(ctx context.Context) ([]int64, error)

	// EstimateReadings returns about how many readings are stored.
	EstimateReadings(ctx context.Context) (int64, error)
}

// A clock that is wrong by years would remove everything. These bound what it can do.
const (
	// settleShare and maxSettle: before the first run, and after the clock was set, it must
	// run as steadily as the monotonic clock for a thousandth of what is kept, at most
	// an hour.
	settleShare = 1000
	maxSettle   = time.Hour

	// recentShare and recentDevices: the clock is held against the time at which a
	// fiftieth of the devices, at least two, had sent their newest reading or had yet to.
	// The newest of all may be of a device whose clock is wrong.
	recentShare   = 50
	recentDevices = 2

	// slackShare: it is believed beyond that time by a fortieth of what is kept.
	slackShare = 40

	// lateShare: a clock that is not believed is reported when readings are kept longer by
	// more than a tenth of what is kept.
	lateShare = 10

	// runShare and runReadings: a run removes a tenth of the readings, or this many
	// where that is more.
	runShare    = 10
	runReadings = 1000
)

// A Retention removes readings that are older than Keep, again and again. Its fields
// must not change once Run was called.
type Retention struct {
	Store Expirer
	Keep  time.Duration
	Log   *slog.Logger
	Now   func() time.Time // nil: time.Now

	mu     sync.Mutex
	status RetentionStatus
}

// A RetentionStatus tells how a Retention fares.
type RetentionStatus struct {
	LastDone time.Time // when the last run came to its end; zero: none has
	Failed   int64     // runs that did not
	Held     Held      // why less was removed than is due
}

// Held are the reasons for which less is removed than is due, which an operator should
// know.
type Held struct {
	ClockSet   bool // the clock was set, and nothing was removed since
	ClockAhead bool // nearly all devices are silent, or the clock is ahead of theirs
	TooMany    bool // more is due than one run removes
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
	held := prometheus.NewDesc("pulsegate_retention_held",
		"1 while less is removed than is due, by reason.", []string{"reason"}, nil)
	truth := map[bool]float64{true: 1}
	for reason, is := range map[string]bool{"clock_set": status.Held.ClockSet, "clock_ahead": status.Held.ClockAhead, "too_many": status.Held.TooMany} {
		ch <- prometheus.MustNewConstMetric(held, prometheus.GaugeValue, truth[is], reason)
	}
}

// Every returns the time between two runs: a hundredth of what is kept, at least a
// minute and at most a day. A reading is thus removed at most so much later than it
// is due, and as long as the run takes.
func (r *Retention) Every() time.Duration {
	return min(max(r.Keep/100, time.Minute), 24*time.Hour)
}

// settle returns for how long the clock must run steadily before a run.
func (r *Retention) settle() time.Duration { return min(r.Keep/settleShare, maxSettle) }

// Run removes what is old every [Retention.Every] until ctx ends, for the first time when
// the clock has run steadily for a while.
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
			r.Log.Warn("the clock was set: nothing is removed until it has run steadily for a while", "by", shown-elapsed, "for", r.settle())
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
		r.Log.Error("old readings cannot be removed; it is tried again", "in", r.Every(), "error", err)
		return
	}
	r.status.LastDone = r.now()
}

// hold sets why less is removed than is due, and returns why that was before.
func (r *Retention) hold(h Held) (before Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.status.Held = r.status.Held, h
	return before
}

// now returns the time of the wall clock alone.
func (r *Retention) now() time.Time {
	if r.Now == nil {
		return time.Now().Round(0)
	}
	return r.Now().Round(0)
}

// once removes what is old now.
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
	believed := now
	if latest := recent(newestUnixMs).Add(r.Keep / slackShare); now.After(latest) {
		believed = latest
	}
	begun := time.Now()
	before := believed.Add(-r.Keep)
	x, err := r.Store.Expire(ctx, before.UnixMilli(), max(stored/runShare, runReadings))
	if x.Readings > 0 {
		r.Log.Info("old readings removed", "readings", x.Readings, "devices", x.Devices, "before", before.UTC(), "took", time.Since(begun))
	}
	held := Held{ClockAhead: now.Sub(believed) > r.Keep/lateShare, TooMany: x.More}
	was := r.hold(held)
	if held.ClockAhead && !was.ClockAhead {
		r.Log.Warn("nearly all devices are silent, or the clock is ahead of theirs: readings are kept longer than they should be, in case that the clock is wrong",
			"clock", now.UTC(), "believed", believed.UTC())
	}
	if held.TooMany && !was.TooMany {
		r.Log.Warn("a large part of what is stored is too old: one run removes a tenth of it at most, in case that the clock is wrong", "before", before.UTC())
	}
	return err
}

// recent returns the time at or after which enough devices had their newest reading. It
// sorts its argument.
func recent(newestUnixMs []int64) time.Time {
	slices.Sort(newestUnixMs)
	n := len(newestUnixMs)
	return time.UnixMilli(newestUnixMs[n-min(n, max((n+recentShare-1)/recentShare, recentDevices))])
}
