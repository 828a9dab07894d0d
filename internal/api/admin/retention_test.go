package admin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// An expirer notes what it is asked to remove.
type expirer struct {
	newest time.Time
	before []time.Time
	at     []time.Time
	err    error
}

func (e *expirer) NewestUnixMs() int64 {
	if e.newest.IsZero() {
		return 0
	}
	return e.newest.UnixMilli()
}

func (e *expirer) Expire(_ context.Context, beforeUnixMs int64) (storage.Expiry, error) {
	e.before = append(e.before, time.UnixMilli(beforeUnixMs))
	e.at = append(e.at, time.Now())
	return storage.Expiry{Readings: 5, Devices: 1}, e.err
}

const day = 24 * time.Hour

// run runs a retention for some time, and returns its log.
func run(e *expirer, keep, howLong time.Duration) (log string, status admin.RetentionStatus) {
	var b bytes.Buffer
	r := &admin.Retention{Store: e, Keep: keep, Log: slog.New(slog.NewTextHandler(&b, nil))}
	ctx, cancel := context.WithTimeout(context.Background(), howLong)
	defer cancel()
	r.Run(ctx)
	return b.String(), r.Status()
}

// TestRetention runs at once, and then as often as is written.
func TestRetention(t *testing.T) {
	for _, tt := range []struct{ keep, every time.Duration }{
		{400 * day, day}, {100 * day, day}, {10 * day, 144 * time.Minute}, {time.Hour, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			e := &expirer{newest: begun}
			log, status := run(e, tt.keep, 3*tt.every+tt.every/2)
			var want []time.Time
			for n := range time.Duration(4) {
				want = append(want, begun.Add(n*tt.every))
			}
			if !slices.EqualFunc(e.at, want, time.Time.Equal) {
				t.Errorf("keep %v: it ran at %v, want %v", tt.keep, e.at, want)
			}
			for i, before := range e.before {
				if got := e.at[i].Sub(before); got < tt.keep || got > tt.keep+time.Millisecond {
					t.Errorf("keep %v: what is older than %v was removed", tt.keep, got)
				}
			}
			if status.Failed != 0 || !status.LastDone.Equal(want[3]) {
				t.Errorf("keep %v: status %+v", tt.keep, status)
			}
			if !strings.Contains(log, "old readings removed") || !strings.Contains(log, "readings=5") {
				t.Errorf("the log says %q", log)
			}
		})
	}
}

// TestRetentionClock has a clock that is years ahead. It may cost a week of readings.
func TestRetentionClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newest := time.Now().Add(-10 * 365 * day)
		e := &expirer{newest: newest}
		log, _ := run(e, 400*day, 2*day+time.Hour)
		for _, before := range e.before {
			if got := newest.Sub(before); got != 393*day {
				t.Errorf("what is %v older than the newest reading was removed, want 393 days", got)
			}
		}
		if len(e.before) != 3 || strings.Count(log, "in case that the clock is wrong") != 1 {
			t.Errorf("%d runs, and the log says %q", len(e.before), log)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a clock that is behind removes nothing too much
		e := &expirer{newest: time.Now().Add(1000 * day)}
		run(e, 400*day, time.Hour)
		if len(e.before) != 1 || e.before[0].After(time.Now().Add(-400*day)) {
			t.Errorf("what is before %v was removed", e.before)
		}
	})
	synctest.Test(t, func(t *testing.T) { // nothing is stored
		e := &expirer{}
		if _, status := run(e, 400*day, time.Hour); len(e.before) != 0 || status.LastDone.IsZero() {
			t.Errorf("what is before %v was removed; status %+v", e.before, status)
		}
	})
}

// TestRetentionFails goes on after a failure, and ends with the store.
func TestRetentionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &expirer{newest: time.Now(), err: errors.New("input/output error")}
		log, status := run(e, time.Hour, 150*time.Second)
		if status.Failed != 3 || !status.LastDone.IsZero() || strings.Count(log, "level=ERROR") != 3 {
			t.Errorf("status %+v, and the log says %q", status, log)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		e := &expirer{newest: begun, err: storage.ErrClosed}
		if _, status := run(e, time.Hour, time.Hour); status.Failed != 0 || time.Since(begun) != 0 {
			t.Errorf("it ran for %v after the store was closed; status %+v", time.Since(begun), status)
		}
	})
}
