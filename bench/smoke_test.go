//go:build !race

// The race detector makes sync.Pool drop items, so allocations are counted only without
// it.

// Package bench_test asserts the allocations per operation of parts of Pulsegate. These
// tests can fail a build, because unlike times, allocations do not depend on the
// machine.
package bench_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/bench/answers"
	"github.com/pulsegate/pulsegate/health"
	"github.com/pulsegate/pulsegate/mux"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// wantAllocs checks that f has exactly the wanted allocations in steady state. Fewer
// than wanted is an improvement that should be recorded here.
func wantAllocs(t *testing.T, what string, want float64, f func()) {
	t.Helper()
	f() // fills pools and tables
	if got := testing.AllocsPerRun(500, f); got != want {
		t.Errorf("%s: %v allocations, want %v", what, got, want)
	}
}

func TestReplyAllocations(t *testing.T) {
	d := answers.NewDiscard()
	get, head := httptest.NewRequest("GET", "/", nil), httptest.NewRequest("HEAD", "/", nil)
	fixed := reply.JSON(200, answers.Status{Status: "stored"})
	varying := reply.NewHead(200, "application/json")
	invalid := reply.NewProblem(422, "https://pulsegate.example/problems/invalid", "Invalid reading")
	clock := reply.NewClock(time.Now)
	body := []byte(answers.VitalsAnswer)
	buf := make([]byte, 0, 1024)
	n := 0
	for what, f := range map[string]func(){
		"fixed answer":              func() { fixed.ServeHTTP(d, get) },
		"fixed answer to HEAD":      func() { fixed.ServeHTTP(d, head) },
		"fixed answer, as bytes":    func() { buf = fixed.AppendHTTP1(buf[:0], reply.HTTP1{}) },
		"fixed answer, Retry-After": func() { fixed.WriteRetryAfter(d, get, time.Second) },
		"varying body":              func() { varying.Write(d, get, body) },
		"problem with field and reason": func() {
			invalid.Write(d, get, "", reply.String("field", "spo2_pct"), reply.String("reason", "outside the accepted range"))
		},
		"date": func() { buf = clock.AppendDate(buf[:0]) },
	} {
		clear(d.Header())
		wantAllocs(t, what, 0, f)
	}
	for _, form := range answers.HeaderForms() {
		if form.Impl != answers.Pulsegate {
			continue
		}
		clear(d.Header())
		wantAllocs(t, "three fixed fields", 0, func() { form.Fixed(d.Header()) })
		wantAllocs(t, "three fields, one dynamic", 0, func() { n = (n + 1) & answers.MaxDynamic; form.Dynamic(d.Header(), n) })
	}
}

func TestHealthAllocations(t *testing.T) {
	h := health.New(health.Options{}, health.Check{Name: "store"})
	d, r := answers.NewDiscard(), httptest.NewRequest("GET", "/", nil)
	for _, state := range []string{"pending", "passing"} {
		for what, handler := range map[string]http.Handler{"livez": h.Livez(), "readyz": h.Readyz(), "healthz": h.Healthz()} {
			wantAllocs(t, what+", check "+state, 0, func() { handler.ServeHTTP(d, r) })
		}
		h.Reporter("store")(nil)
	}
}

// A request on a route with variables costs one allocation, whether the handler reads one
// or not. The map of all variables costs three more: the map, its table, and the value
// that keeps it for further calls of Vars.
func TestMuxAllocations(t *testing.T) {
	d := answers.NewDiscard()
	var route *mux.Route
	var one, all string
	r := mux.NewRouter()
	r.HandleFunc("/static", func(_ http.ResponseWriter, r *http.Request) { route = mux.CurrentRoute(r) })
	r.HandleFunc("/unread/{device}", func(http.ResponseWriter, *http.Request) {})
	r.HandleFunc("/one/{device}", func(_ http.ResponseWriter, r *http.Request) { one = mux.Var(r, "device") })
	r.HandleFunc("/all/{device}", func(_ http.ResponseWriter, r *http.Request) { all = mux.Vars(r)["device"] })
	for _, tt := range []struct {
		path string
		want float64
	}{{"/static", 0}, {"/unread/ppg-1", 1}, {"/one/ppg-1", 1}, {"/all/ppg-1", 4}} {
		req := httptest.NewRequest("GET", tt.path, nil)
		wantAllocs(t, tt.path, tt.want, func() { r.ServeHTTP(d, req) })
	}
	if route == nil || one != "ppg-1" || all != "ppg-1" {
		t.Errorf("the handlers got route %v and devices %q and %q", route, one, all)
	}
}

func TestDecodeAllocations(t *testing.T) {
	rules, err := vitals.NewValidator(vitals.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	d := vitals.NewDecoder(rules, vitals.DecoderOptions{})
	body := []byte(`{"device":"ppg-000123","time":"2026-11-21T10:00:00.123Z","systolic_mmhg":121,"diastolic_mmhg":79,` +
		`"spo2_pct":97.5,"heart_rate_bpm":72,"resting_heart_rate_bpm":58}`)
	var batch vitals.Batch
	wantAllocs(t, "decode", 0, func() {
		if err := d.Decode(body, 1_795_255_205_123, &batch); err != nil || len(batch.Readings) != 1 {
			t.Fatal(err, len(batch.Readings))
		}
	})
}

// The whole path of a reading except the store: body, decoder, group commit, answer.
func TestVitalsHandlerAllocations(t *testing.T) {
	forms, stop, err := answers.Vitals()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	posts, d := answers.NewPosts(64), answers.NewDiscard()
	for _, form := range forms {
		if form.Impl == answers.Pulsegate {
			wantAllocs(t, "vitals handler", 0, func() { form.Handler.ServeHTTP(d, posts.Next()) })
			if err := answers.Check(form.Handler, posts.Next(), "application/json", answers.VitalsAnswer); err != nil {
				t.Error(err)
			}
		}
	}
}
