package sim_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
)

// A server stalls for two seconds. An open loop shows the effect on all clients; a
// closed loop hides it, and its report says that it may.
func TestStallShows(t *testing.T) {
	stalling := func(begin time.Time) func(int, string) string {
		return func(int, string) string {
			if at := time.Since(begin); at > time.Second && at < 3*time.Second {
				time.Sleep(3*time.Second - at)
			}
			return ok(stored)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		p := &peer{answer: stalling(time.Now())}
		r, err := p.run(t, t.Context(), sim.Options{Users: 5, Rate: 100, For: 10 * time.Second})
		try(t, err, r.Fault())
		if r.Loop != "open" || !r.Corrected || r.Stored != 1000 || r.Latency.Count != 1000 || r.Unsent != 0 {
			t.Errorf("got %+v", r)
		}
		// 200 requests were due during the stall and waited for one second on average.
		if r.Latency.P90Us < 800_000 || r.Latency.MaxUs < 1_900_000 {
			t.Errorf("latency %+v does not show the stall", r.Latency)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := &peer{answer: stalling(time.Now())}
		opt := sim.Options{Users: 5, For: 10 * time.Second}
		answer := p.answer
		p.answer = func(n int, body string) string { time.Sleep(10 * time.Millisecond); return answer(n, body) }
		r, err := p.run(t, t.Context(), opt)
		try(t, err, r.Fault())
		if r.Loop != "closed" || r.Corrected || r.Latency.P99Us > 100_000 || r.Latency.MaxUs < 1_900_000 {
			t.Errorf("got %+v", r.Latency)
		}
	})
}

// An overloaded open loop counts the requests that it could not send, and their waits.
func TestUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{answer: func(int, string) string { time.Sleep(time.Second); return ok(stored) }}
		r, err := p.run(t, t.Context(), sim.Options{Users: 1, Rate: 10, For: 5 * time.Second, Patience: 3 * time.Second})
		try(t, err)
		if r.Unsent == 0 || r.Requests+r.GivenUp+r.Unsent != 50 || uint64(r.Latency.Count) != 50 {
			t.Errorf("%d answered, %d given up, %d unsent, %d latencies; want 50 in all", r.Requests, r.GivenUp, r.Unsent,
				r.Latency.Count)
		}
		if r.Latency.P50Us < 2_000_000 {
			t.Errorf("latency %+v does not show the wait", r.Latency)
		}
		if uint64(r.Served.Count) != r.Requests || r.Served.MaxUs/1000 != 1000 {
			t.Errorf("the server's part of %d answers is %+v, want 1 s each", r.Requests, r.Served)
		}
	})
}

func TestRetryAfterIsRespected(t *testing.T) {
	for _, status := range []int{429, 503} {
		synctest.Test(t, func(t *testing.T) {
			name := map[int]string{429: "too-many-readings", 503: "overloaded"}[status]
			p := &peer{answer: func(n int, _ string) string {
				if n == 0 {
					return refusal(status, name, "Retry-After: 25\r\n")
				}
				return ok(stored)
			}}
			r, err := p.run(t, t.Context(), sim.Options{Users: 1, Posts: 2})
			try(t, err, r.Fault())
			if wait := p.at[1].Sub(p.at[0]); wait < 25*time.Second || wait > 26*time.Second {
				t.Errorf("sent again after %v, want 25 s", wait)
			}
			if p.bodies[0] != p.bodies[1] || p.bodies[1] == p.bodies[2] {
				t.Error("a different request was sent instead of the refused one")
			}
			if r.Refused429+r.Refused503 != 1 || (r.Refused429 == 1) != (status == 429) || len(r.Errors) != 0 || r.Stored != 2 {
				t.Errorf("got %+v", r)
			}
			if len(r.RetryAfter) != 1 || r.RetryAfter[25] != 1 || r.Served.MaxUs > 1000 {
				t.Errorf("waits %v, want one of 25 s, which is not included in %+v", r.RetryAfter, r.Served)
			}
		})
	}
}

// Requests that are rejected until the end count as failed, but are not a fault of the
// server.
func TestRefusedToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{answer: func(int, string) string { return refusal(503, "disk-low", "Retry-After: 1\r\n") }}
		r, err := p.run(t, t.Context(), sim.Options{Users: 2, Posts: 3, MaxTries: 4})
		try(t, err, r.Fault())
		if r.Failed != 6 || r.GivenUp != 6 || r.GivenUpRefused != 6 || r.Refused503 != 24 || r.Tries != 24 {
			t.Errorf("got %+v", r)
		}
	})
}

// A request without an answer is retried unchanged.
func TestRetries(t *testing.T) {
	for name, first := range map[string]string{
		"closed before the answer":   "",
		"closed during the answer":   "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100\r\n\r\nabc",
		"outcome unknown":            refusal(500, "outcome-unknown", ""),
		"closed during the header":   "HTTP/1.1 200",
		"the server waited too long": refusal(408, "timeout", "Connection: close\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{answer: func(n int, _ string) string {
					if n == 0 {
						return first
					}
					return ok(stored)
				}}
				r, err := p.run(t, t.Context(), sim.Options{Users: 1, Posts: 1, Timeout: 2 * time.Second})
				try(t, err, r.Fault())
				if r.Stored != 1 || r.Tries != 2 || len(r.Errors) != 1 || p.bodies[0] != p.bodies[1] {
					t.Errorf("got %+v, bodies %q", r, p.bodies)
				}
			})
		})
	}
}

func TestGarbage(t *testing.T) {
	for name, text := range map[string]string{
		"not HTTP":      "220 mail.example.com ESMTP\r\n\r\n",
		"not Pulsegate": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{answer: func(int, string) string { return text }}
				r, err := p.run(t, t.Context(), sim.Options{Users: 3, Posts: 1000})
				if !errors.Is(err, transfer.ErrNotPulsegate) {
					t.Errorf("got %v, want ErrNotPulsegate", err)
				}
				if r.Undocumented < 100 || r.Undocumented > 110 || r.Stored != 0 || !errors.Is(r.Fault(), sim.ErrUndocumented) ||
					len(r.Faults) == 0 {
					t.Errorf("got %+v", r)
				}
			})
		})
	}
}

// An interrupted run waits for pending answers, ends soon, and reports what ran.
func TestInterrupt(t *testing.T) {
	for name, opt := range map[string]sim.Options{
		"closed": {Users: 4, Posts: 1 << 30},
		"open":   {Users: 4, Rate: 10, For: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Millisecond)
				defer cancel()
				p := &peer{answer: func(int, string) string { time.Sleep(100 * time.Millisecond); return ok(stored) }}
				begin := time.Now()
				var shown int
				opt.OnProgress = func(p sim.Progress) {
					shown++
					if p.PerSecond < 9 || p.P99Us < 100_000 {
						t.Errorf("second %d shows %+v", shown, p)
					}
				}
				r, err := p.run(t, ctx, opt)
				if !errors.Is(err, sim.ErrInterrupted) || !r.Interrupted {
					t.Errorf("got %v, want ErrInterrupted", err)
				}
				if took := time.Since(begin); took > 6*time.Second {
					t.Errorf("ended after %v, want soon after 5 s", took)
				}
				if r.Failed != 0 || r.Stored < 40 || r.Unsent != 0 {
					t.Errorf("got %+v", r)
				}
				if shown < 4 || shown > 6 {
					t.Errorf("progress was shown %d times in 5 s", shown)
				}
			})
		})
	}
}

func TestNoPulsegate(t *testing.T) {
	opt := sim.Options{Users: 3, Posts: 1, Run: "p"}
	if _, err := sim.Run(t.Context(), opt.WithDial(noDial)); !errors.Is(err, sim.ErrRefusedAll) {
		t.Errorf("got %v, want ErrRefusedAll", err)
	}
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	opt.Target = target(t, srv)
	if _, err := sim.Run(t.Context(), opt); !errors.Is(err, transfer.ErrNotPulsegate) {
		t.Errorf("got %v, want ErrNotPulsegate", err)
	}
	srv.Close()
	if _, err := sim.Run(t.Context(), opt); err == nil || errors.Is(err, transfer.ErrNotPulsegate) {
		t.Errorf("got %v, want an error that the target cannot be reached", err)
	}
}

// The server is shut down during a run over real connections.
func TestServerShutDown(t *testing.T) {
	t.Parallel() // it waits
	b := &backend{Memory: storetest.NewMemory()}
	srv := serve(t, b, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opt := sim.Options{Target: target(t, srv), Users: 5, For: time.Minute, Run: "t", Patience: 10 * time.Second,
		OnProgress: func(sim.Progress) {
			srv.Listener.Close()
			srv.CloseClientConnections()
		}}
	report, path, err := runLedger(t, opt)
	if !errors.Is(err, sim.ErrSilent) {
		t.Errorf("got %v, want ErrSilent", err)
	}
	if report.Stored == 0 || report.Failed == 0 || report.Errors["not connected"] == 0 {
		t.Errorf("got %+v", report)
	}
	again := serve(t, b, nil) // the same store with a new listener
	v, err := sim.Verify(ctx, path, sim.VerifyOptions{Target: target(t, again)})
	try(t, err)
	if !v.OK() || v.Acknowledged != report.Stored+report.Duplicate {
		t.Errorf("got %+v after a run with %d acknowledged", v, report.Stored+report.Duplicate)
	}
}

func TestResolveTarget(t *testing.T) {
	for _, tt := range []struct {
		target string
		remote bool
		want   error
	}{
		{"http://127.0.0.1:8080", false, nil},
		{"http://127.9.9.9/base/", false, nil},
		{"http://[::1]:8080", false, nil},
		{"http://localhost:8080", false, nil},
		{"http://10.1.2.3:8080", false, sim.ErrRemote},
		{"http://10.1.2.3:8080", true, nil},
		{"http://0.0.0.0:8080", false, sim.ErrRemote},
		{"http://[::ffff:10.1.2.3]:80", false, sim.ErrRemote},
		{"127.0.0.1:8080", false, sim.ErrTarget},
		{"ftp://127.0.0.1", false, sim.ErrTarget},
		{"http://", false, sim.ErrTarget},
		{"http://user:secret@127.0.0.1", false, sim.ErrTarget},
		{"http://127.0.0.1/?a=b", false, sim.ErrTarget},
		{"http://127.0.0.1:99999", false, sim.ErrTarget},
	} {
		target, err := sim.ResolveTarget(t.Context(), tt.target, tt.remote)
		if !errors.Is(err, tt.want) || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s, remote %v: got %v, want %v without a secret", tt.target, tt.remote, err, tt.want)
		}
		// Only targets for which it is allowed are remote.
		if err == nil && target.Remote() != tt.remote {
			t.Errorf("%s: Remote is %v, want %v", tt.target, target.Remote(), tt.remote)
		}
	}
}

func TestInvalidOptions(t *testing.T) {
	for name, opt := range map[string]sim.Options{
		"no duration":           {Users: 1},
		"both loops":            {Users: 1, Posts: 1, Rate: 1, For: time.Second},
		"open without duration": {Users: 1, Rate: 1},
		"no users":              {Posts: 1},
		"too much memory":       {Users: 50_000, Posts: 1, Batch: 10_000},
		"token of two lines":    {Users: 1, Posts: 1, Token: "a\r\nX: b"},
		"negative rate":         {Users: 1, Rate: -1, For: time.Second},
		"no rate":               {Users: 1, Rate: math.NaN(), For: time.Second},
		"QoS 3":                 {Users: 1, Posts: 1, QoS: 3},
		"too much in flight":    {Users: 1, Posts: 1, InFlight: 1001},
		"rate too high":         {Users: 1, Rate: 1e9, For: time.Second},
	} {
		opt.Run = "t"
		if _, err := sim.Run(t.Context(), opt.WithDial(noDial)); !errors.Is(err, sim.ErrOptions) {
			t.Errorf("%s: got %v, want ErrOptions", name, err)
		}
	}
	opt := sim.Options{Users: 1, Posts: 1, Run: "a b"}
	if _, err := sim.Run(t.Context(), opt.WithDial(noDial)); !errors.Is(err, sim.ErrOptions) {
		t.Errorf("run with a space: got %v, want ErrOptions", err)
	}
}
