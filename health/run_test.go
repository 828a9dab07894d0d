package health_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/health"
)

func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var runs []time.Duration
		var fail atomic.Bool
		h := health.New(health.Options{}, health.Check{
			Name: "disk",
			Run: func(ctx context.Context) error {
				runs = append(runs, time.Since(begin))
				if d, ok := ctx.Deadline(); !ok || time.Until(d) != 500*time.Millisecond {
					t.Errorf("deadline in %v (%v), want in 500ms", time.Until(d), ok)
				}
				time.Sleep(100 * time.Millisecond)
				if fail.Load() {
					return errSecret
				}
				return nil
			},
			Every:   time.Second,
			Timeout: 500 * time.Millisecond,
		})
		wantReady(t, h, `503 {"status":"unavailable","pending":["disk"]}`)
		h.Start(t.Context())
		time.Sleep(99 * time.Millisecond)
		wantReady(t, h, `503 {"status":"unavailable","pending":["disk"]}`)
		time.Sleep(2 * time.Millisecond)
		wantReady(t, h, `200 {"status":"ready"}`)
		fail.Store(true)
		time.Sleep(time.Second)
		wantReady(t, h, `503 {"status":"unavailable","failing":["disk"]}`)
		fail.Store(false)
		time.Sleep(time.Second)
		wantReady(t, h, `200 {"status":"ready"}`)
		mustClose(t, h)
		want := []time.Duration{0, time.Second, 2 * time.Second}
		if !slices.Equal(runs, want) {
			t.Errorf("runs started at %v, want %v", runs, want)
		}
	})
}

// A check that hangs fails at its deadline, is not started a second time, and runs
// again at the next due time after it has returned.
func TestOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		var running atomic.Int32
		hang := 3500 * time.Millisecond // ignores its context
		var changes []string
		h := health.New(health.Options{OnChange: func(name string, err error) {
			changes = append(changes, fmt.Sprint(time.Since(begin), " ", name, " ", err))
		}}, health.Check{
			Name: "nfs",
			Run: func(context.Context) error {
				if running.Add(1) != 1 {
					t.Error("two runs overlap")
				}
				defer running.Add(-1)
				at = append(at, time.Since(begin))
				time.Sleep(hang)
				hang = 0
				return nil
			},
			Every:   time.Second,
			Timeout: 300 * time.Millisecond,
		}, health.Check{Name: "other", Run: func(context.Context) error { return nil }})
		h.Start(t.Context())
		time.Sleep(299 * time.Millisecond)
		wantReady(t, h, `503 {"status":"unavailable","pending":["nfs"]}`)
		time.Sleep(2 * time.Millisecond)
		wantReady(t, h, `503 {"status":"unavailable","failing":["nfs"]}`)
		// It returns nil, but too late to count.
		time.Sleep(3400 * time.Millisecond)
		wantReady(t, h, `503 {"status":"unavailable","failing":["nfs"]}`)
		time.Sleep(time.Second)
		wantReady(t, h, `200 {"status":"ready"}`)
		mustClose(t, h)
		if want := []time.Duration{0, 4 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("runs started at %v, want %v", at, want)
		}
		want := []string{"0s other <nil>", "300ms nfs " + health.ErrOverrun.Error(), "4s nfs <nil>"}
		if !slices.Equal(changes, want) {
			t.Errorf("changes = %q, want %q", changes, want)
		}
	})
}

// A result that is reported during a run is newer than the result of that run. Only its
// deadline still counts.
func TestReportDuringRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var run atomic.Int64
		run.Store(int64(100 * time.Millisecond))
		h := health.New(health.Options{}, health.Check{
			Name:    "store",
			Run:     func(context.Context) error { time.Sleep(time.Duration(run.Load())); return nil },
			Every:   time.Second,
			Timeout: 500 * time.Millisecond,
		})
		report := h.Reporter("store")
		h.Start(t.Context())
		time.Sleep(50 * time.Millisecond)
		report(errSecret)
		wantReady(t, h, `503 {"status":"unavailable","failing":["store"]}`)
		time.Sleep(100 * time.Millisecond) // the run passes, but started before the report
		wantReady(t, h, `503 {"status":"unavailable","failing":["store"]}`)
		time.Sleep(time.Second) // the next run counts
		wantReady(t, h, `200 {"status":"ready"}`)
		run.Store(int64(800 * time.Millisecond))
		time.Sleep(900 * time.Millisecond) // t = 2.05 s: a run that will hang has started
		report(nil)
		time.Sleep(500 * time.Millisecond)
		wantReady(t, h, `503 {"status":"unavailable","failing":["store"]}`)
		mustClose(t, h)
	})
}

// Close waits for a check that hangs no longer than its context. It names the check and
// can be called again.
func TestCloseNamesHangingChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hang := func(context.Context) error { <-release; return nil }
		h := health.New(health.Options{},
			health.Check{Name: "nfs", Run: hang}, health.Check{Name: "fine", Run: func(context.Context) error { return nil }},
			health.Check{Name: "dns", Run: hang})
		h.Start(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := h.Close(ctx)
		if want := "close health: still running: nfs, dns: context deadline exceeded"; err == nil || err.Error() != want ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v, want %s", err, want)
		}
		close(release)
		mustClose(t, h)
	})
}

// Neither a report nor an answer waits for a slow OnChange. Changes that were reverted
// before it is called are skipped, and Close reports the remaining ones.
func TestSlowOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var changes []string
		h := health.New(health.Options{OnChange: func(name string, err error) {
			changes = append(changes, fmt.Sprint(name, " ", err))
			time.Sleep(time.Minute)
		}}, health.Check{Name: "a"}, health.Check{Name: "b"})
		a, b := h.Reporter("a"), h.Reporter("b")
		a(errSecret) // before Start
		h.Start(t.Context())
		synctest.Wait()
		b(nil)
		b(errSecret)
		b(nil)
		a(nil)
		a(errSecret)
		wantReady(t, h, `503 {"status":"unavailable","failing":["a"]}`)
		if d := time.Since(begin); d != 0 {
			t.Errorf("waited %v for OnChange", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v while OnChange hangs, want its context's error", err)
		}
		mustClose(t, h)
		want := []string{"a " + errSecret.Error(), "b <nil>"}
		if !slices.Equal(changes, want) {
			t.Errorf("changes = %q, want %q", changes, want)
		}
	})
}

// A check that panics or ends its goroutine fails, and so does one whose error panics. A check
// that panics is run again.
func TestPanickingCheck(t *testing.T) {
	for name, run := range map[string]func() error{
		"panic":  func() error { panic("nil map") },
		"Goexit": func() error { runtime.Goexit(); return nil },
		"Public": func() error { return panicking{} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failed atomic.Bool
				runs := 0
				h := health.New(health.Options{OnChange: func(_ string, err error) { failed.Store(err != nil) }}, health.Check{
					Name:  "disk",
					Every: time.Second,
					Run: func(context.Context) error {
						if runs++; runs == 2 {
							return run()
						}
						return nil
					},
				})
				h.Start(t.Context())
				synctest.Wait()
				wantReady(t, h, `200 {"status":"ready"}`)
				time.Sleep(time.Second)
				synctest.Wait()
				wantReady(t, h, `503 {"status":"unavailable","failing":["disk"]}`)
				if !failed.Load() {
					t.Error("OnChange was not called with an error")
				}
				time.Sleep(time.Second)
				synctest.Wait()
				want := `200 {"status":"ready"}`
				if name == "Goexit" { // it ended the goroutine that runs the check
					want = `503 {"status":"unavailable","failing":["disk"]}`
				}
				wantReady(t, h, want)
				mustClose(t, h)
			})
		})
	}
}

// panicking is an error whose public text panics.
type panicking struct{}

func (panicking) Error() string  { return "text" }
func (panicking) Public() string { panic("no text") }

// After the context of Start has ended, nothing is checked any more.
func TestStartContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := health.New(health.Options{}, health.Check{Name: "disk", Run: func(context.Context) error { return nil }})
		h.Start(ctx)
		synctest.Wait()
		wantReady(t, h, `200 {"status":"ready"}`)
		cancel()
		synctest.Wait()
		wantReady(t, h, `503 {"status":"draining"}`)
		mustClose(t, h)
	})
}

// The result of a check without Run expires.
func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last error
		h := health.New(health.Options{OnChange: func(_ string, err error) { last = err }},
			health.Check{Name: "heartbeat", MaxAge: time.Minute}, health.Check{Name: "store"})
		h.Start(t.Context())
		h.Reporter("store")(nil)
		beat := h.Reporter("heartbeat")
		for range 3 {
			beat(nil)
			time.Sleep(59 * time.Second)
			synctest.Wait()
			wantReady(t, h, `200 {"status":"ready"}`)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantReady(t, h, `503 {"status":"unavailable","failing":["heartbeat"]}`)
		if !errors.Is(last, health.ErrExpired) {
			t.Errorf("OnChange got %v, want ErrExpired", last)
		}
		beat(nil)
		wantReady(t, h, `200 {"status":"ready"}`)
		mustClose(t, h)
		time.Sleep(2 * time.Minute)
		wantReady(t, h, `503 {"status":"draining"}`)
	})
}
