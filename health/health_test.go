package health_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/health"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// errSecret must not appear in answers.
var errSecret = errors.New("open /var/lib/pulsegate: permission denied")

// get returns status and body of the response to a GET.
func get(h http.Handler) string {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	return fmt.Sprint(rec.Code, " ", strings.TrimSuffix(rec.Body.String(), "\n"))
}

// wantReady fails unless /readyz answers want.
func wantReady(t *testing.T, h *health.Health, want string) {
	t.Helper()
	if got := get(h.Readyz()); got != want {
		t.Errorf("readyz = %s, want %s", got, want)
	}
	if got := h.Ready(); got != strings.HasPrefix(want, "200") {
		t.Errorf("Ready = %v with %s", got, want)
	}
}

func mustClose(t *testing.T, h *health.Health) {
	t.Helper()
	if err := h.Close(context.Background()); err != nil {
		t.Errorf("Close = %v", err)
	}
}

func TestHandlers(t *testing.T) {
	h := health.New(health.Options{}, health.Check{Name: "store"})
	ready := health.New(health.Options{})
	for _, tt := range []struct {
		name   string
		h      http.Handler
		method string
		status int
		body   string
		header http.Header
	}{
		{"livez", h.Livez(), "GET", 200, `{"status":"ok"}` + "\n", nil},
		{"healthz", h.Healthz(), "GET", 200, `{"status":"ok"}` + "\n", nil},
		{"healthz, HEAD", h.Healthz(), "HEAD", 200, "", http.Header{"Content-Length": {"16"}}},
		{"readyz", ready.Readyz(), "GET", 200, `{"status":"ready"}` + "\n", nil},
		{"readyz, pending", h.Readyz(), "GET", 503, `{"status":"unavailable","pending":["store"]}` + "\n", nil},
		{"readyz, pending, HEAD", h.Readyz(), "HEAD", 503, "", http.Header{"Content-Length": {"45"}}},
		{"livez, POST", h.Livez(), "POST", 405, `{"type":"about:blank","title":"Method Not Allowed","status":405}` + "\n",
			http.Header{"Allow": {"GET, HEAD"}}},
		{"readyz, DELETE", h.Readyz(), "DELETE", 405, `{"type":"about:blank","title":"Method Not Allowed","status":405}` +
			"\n", http.Header{"Allow": {"GET, HEAD"}}},
		{"healthz, OPTIONS", h.Healthz(), "OPTIONS", 405, `{"type":"about:blank","title":"Method Not Allowed","status":405}` +
			"\n", http.Header{"Allow": {"GET, HEAD"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			tt.h.ServeHTTP(rec, httptest.NewRequest(tt.method, "/", nil))
			if rec.Code != tt.status || rec.Body.String() != tt.body {
				t.Errorf("got %d %s, want %d %s", rec.Code, rec.Body, tt.status, tt.body)
			}
			want := http.Header{"Cache-Control": {"no-store"}, "Content-Type": {"application/json"}}
			if tt.status == 405 {
				want.Set("Content-Type", "application/problem+json")
			}
			if tt.status == 200 && tt.name != "readyz" {
				want["Cache-Control"] = nil
			}
			for name, value := range tt.header {
				want[name] = value
			}
			for name, value := range want {
				if got := rec.Header()[name]; !slices.Equal(got, value) {
					t.Errorf("%s = %q, want %q", name, got, value)
				}
			}
		})
	}
}

// Reported results and Drain take effect before the call returns, and no answer
// contains the text of an error.
func TestReportAndDrain(t *testing.T) {
	h := health.New(health.Options{}, health.Check{Name: "disk"}, health.Check{Name: "store"},
		health.Check{Name: "clock.ntp"})
	disk, store, clock := h.Reporter("disk"), h.Reporter("store"), h.Reporter("clock.ntp")
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, `503 {"status":"unavailable","pending":["disk","store","clock.ntp"]}`},
		{func() { store(nil) }, `503 {"status":"unavailable","pending":["disk","clock.ntp"]}`},
		{func() { clock(errSecret) }, `503 {"status":"unavailable","failing":["clock.ntp"],"pending":["disk"]}`},
		{func() { disk(errSecret) }, `503 {"status":"unavailable","failing":["disk","clock.ntp"]}`},
		{func() { disk(nil) }, `503 {"status":"unavailable","failing":["clock.ntp"]}`},
		{func() { clock(nil) }, `200 {"status":"ready"}`},
		{h.Drain, `503 {"status":"draining"}`},
		{func() { store(errSecret) }, `503 {"status":"draining","failing":["store"]}`},
		{h.Drain, `503 {"status":"draining","failing":["store"]}`},
		{func() { store(nil) }, `503 {"status":"draining"}`},
		{func() { mustClose(t, h) }, `503 {"status":"draining"}`},
		{func() { h.Start(context.Background()) }, `503 {"status":"draining"}`},
		{func() { mustClose(t, h) }, `503 {"status":"draining"}`},
	} {
		step.do()
		wantReady(t, h, step.want)
		if got, want := get(h.Livez()), `200 {"status":"ok"}`; got != want {
			t.Errorf("livez = %s, want %s", got, want)
		}
	}
}

// A check that only degrades the service is named but does not change readiness.
func TestDegraded(t *testing.T) {
	h := health.New(health.Options{}, health.Check{Name: "damage", Degrades: true}, health.Check{Name: "store"})
	damage, store := h.Reporter("damage"), h.Reporter("store")
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, `503 {"status":"unavailable","pending":["store"]}`},
		{func() { store(nil) }, `200 {"status":"ready"}`},
		{func() { damage(errSecret) }, `200 {"status":"ready","degraded":["damage"]}`},
		{func() { store(errSecret) }, `503 {"status":"unavailable","failing":["store"],"degraded":["damage"]}`},
		{func() { store(nil); damage(nil) }, `200 {"status":"ready"}`},
		{func() { damage(errSecret); h.Drain() }, `503 {"status":"draining","degraded":["damage"]}`},
	} {
		step.do()
		wantReady(t, h, step.want)
	}
	mustClose(t, h)
}

// A told is an error with a public text.
type told string

func (told) Error() string    { return errSecret.Error() }
func (e told) Public() string { return string(e) }

// The public text of an error is in answers while its check fails, and follows the last result.
func TestPublic(t *testing.T) {
	h := health.New(health.Options{}, health.Check{Name: "loss", Degrades: true}, health.Check{Name: "store"})
	loss, store := h.Reporter("loss"), h.Reporter("store")
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { store(nil); loss(told("from 1 to 2")) },
			`200 {"status":"ready","degraded":["loss"],"details":{"loss":"from 1 to 2"}}`},
		{func() { loss(fmt.Errorf("check: %w", told("from 1 to 3"))) },
			`200 {"status":"ready","degraded":["loss"],"details":{"loss":"from 1 to 3"}}`},
		{func() { store(told("full")) },
			`503 {"status":"unavailable","failing":["store"],"degraded":["loss"],"details":{"loss":"from 1 to 3",` +
				`"store":"full"}}`},
		{func() { loss(told("a\x00b\"\xff")) },
			`503 {"status":"unavailable","failing":["store"],"degraded":["loss"],"details":{"loss":"a\u0000b\"` + "\ufffd" +
				`","store":"full"}}`},
		{func() { loss(errSecret) },
			`503 {"status":"unavailable","failing":["store"],"degraded":["loss"],"details":{"store":"full"}}`},
		{func() { store(nil); loss(nil) }, `200 {"status":"ready"}`},
	} {
		step.do()
		wantReady(t, h, step.want)
	}
	mustClose(t, h)
}

func TestMistakesPanicAtStart(t *testing.T) {
	ok := health.Check{Name: "a"}
	for what, f := range map[string]func(){
		"no name":           func() { health.New(health.Options{}, health.Check{}) },
		"name with a quote": func() { health.New(health.Options{}, health.Check{Name: `a"b`}) },
		"name not ASCII":    func() { health.New(health.Options{}, health.Check{Name: "é"}) },
		"long name":         func() { health.New(health.Options{}, health.Check{Name: strings.Repeat("a", 65)}) },
		"same name twice":   func() { health.New(health.Options{}, ok, ok) },
		"negative schedule": func() { health.New(health.Options{}, health.Check{Name: "a", Every: -1}) },
		"negative timeout":  func() { health.New(health.Options{}, health.Check{Name: "a", Timeout: -1}) },
		"negative age":      func() { health.New(health.Options{}, health.Check{Name: "a", MaxAge: -1}) },
		"age with Run": func() {
			health.New(health.Options{}, health.Check{Name: "a", MaxAge: 1, Run: func(context.Context) error { return nil }})
		},
		"unknown name": func() { health.New(health.Options{}, ok).Reporter("b") },
		"started twice": func() {
			h := health.New(health.Options{}, ok)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			h.Start(ctx)
			h.Start(ctx)
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			f()
		}()
	}
	health.New(health.Options{}, health.Check{Name: strings.Repeat("a", 64)})
}

// For the race detector: answers, reports, runs and a drain run concurrently. The final
// answer is that of the last state.
func TestConcurrent(t *testing.T) {
	var calls atomic.Int64
	h := health.New(health.Options{OnChange: func(string, error) { calls.Add(1) }},
		health.Check{Name: "run", Every: time.Microsecond, Run: func(context.Context) error { return nil }},
		health.Check{Name: "push"})
	report := h.Reporter("push")
	h.Start(t.Context())
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 300 {
				switch {
				case i == 200:
					h.Drain()
				case (g+i)%2 == 0:
					report(errSecret)
				default:
					report(nil)
				}
				if got := get(h.Readyz()); strings.Contains(got, "permission") {
					t.Errorf("readyz = %s", got)
				}
			}
		})
	}
	wg.Wait()
	report(errSecret)
	if got, want := get(h.Readyz()), `{"status":"draining","failing":["push"]`; !strings.Contains(got, want) {
		t.Errorf("readyz = %s, want it to contain %s", got, want)
	}
	mustClose(t, h)
	if calls.Load() == 0 {
		t.Error("OnChange was never called")
	}
}
