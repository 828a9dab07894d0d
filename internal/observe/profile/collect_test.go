package profile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/porttest"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// admin returns the handler of an admin listener with real profiles. Its counters show
// the value of requests.
func admin(requests *atomic.Uint64) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "pulsegate_build_info{version=\"1.2.3\",goversion=\"go1.26\"} 1\n"+
			"pulsegate_http_requests_total{route=\"POST /v1/readings\",code=\"2xx\"} %d\n"+
			"pulsegate_readings_total{outcome=\"stored\"} %d\n", requests.Load(), requests.Load())
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.Handle(pg.ContentionPath, new(pg.Contention))
	return mux
}

// sink keeps the allocations of load from being optimized away.
var sink []byte

// load uses CPU time and allocates until ctx is done, and counts requests.
func load(ctx context.Context, requests *atomic.Uint64) {
	var mu sync.Mutex
	for ctx.Err() == nil {
		sink = make([]byte, 10_000)
		for i := range sink {
			sink[i] = byte(i * 7)
		}
		waited := make(chan struct{})
		go func() { defer close(waited); mu.Lock(); defer mu.Unlock() }()
		<-waited
		requests.Add(1)
	}
}

func TestCollect(t *testing.T) {
	var requests atomic.Uint64
	srv := httptest.NewServer(admin(&requests))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var loading sync.WaitGroup
	loading.Go(func() { load(ctx, &requests) })
	var capture *pg.Capture
	var r *pg.Report
	var loadRow pg.Cost
	// Beside other load a second can pass without a sample of it.
	polltest.Until(t, "the load's lines have CPU time", func() bool {
		var err error
		capture, err = pg.Collect(t.Context(), srv.URL, time.Second)
		try(t, err)
		r = pg.Analyze(capture)
		loadRow = pg.Cost{}
		for _, row := range r.Lines {
			if strings.HasSuffix(row.Name, " load") {
				loadRow.CPUSamples += row.CPUSamples
				loadRow.Bytes += row.Bytes
			}
		}
		return loadRow.CPUSamples > 0
	})
	cancel()
	loading.Wait()
	if r.Problem != nil || r.Version != "1.2.3" || r.Requests == 0 || r.Readings["stored"] != r.Requests {
		t.Fatalf("got problem %v, version %q, load %+v", r.Problem, r.Version, r.Load)
	}
	if r.Total.CPUSamples == 0 || r.CPUSeconds < 0.9 {
		t.Errorf("got %d CPU samples in %v s", r.Total.CPUSamples, r.CPUSeconds)
	}
	// Per request, load allocates 10,000 bytes, in a size class of 10,240, and a little for
	// its goroutine. The total has more: what the profiles themselves allocate.
	if got := loadRow.Bytes; got < 5_000 || got > 20_000 || r.Total.Bytes < got {
		t.Errorf("got %.0f bytes per request of %.0f in all, want about 10,300", got, r.Total.Bytes)
	}
	if capture.Heap == nil || capture.Goroutine == nil {
		t.Error("got no heap or no goroutines")
	}
}

// TestCollectBadTargets checks the error and the partial capture for servers that
// misbehave.
func TestCollectBadTargets(t *testing.T) {
	send := func(body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Write(body) }
	}
	hangUp := func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
	emptyCPU := func(w http.ResponseWriter, _ *http.Request) {
		p := &profile.Profile{SampleType: cpuTypes, DurationNanos: 1e9, Period: 1e7}
		p.Write(w)
	}
	for _, tt := range []struct {
		name     string
		replace  map[string]http.HandlerFunc // handlers that replace those of a good server
		want     string                      // substring of the error
		isOther  bool                        // the error is ErrNotPulsegate
		achieved func(c *pg.Capture) bool
	}{
		{"another site", map[string]http.HandlerFunc{"/metrics": send([]byte("<html>hello</html>"))}, "/metrics", true, nil},
		{"no metrics", map[string]http.HandlerFunc{"/metrics": http.NotFound}, "404", true, nil},
		{"another program", map[string]http.HandlerFunc{"/metrics": send([]byte("up 1\n"))},
			"pulsegate_build_info", true, nil},
		{"hangs up at once", map[string]http.HandlerFunc{"/metrics": hangUp}, "/metrics", false, nil},
		{"forbidden profile",
			map[string]http.HandlerFunc{"/debug/pprof/profile": func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "profiles are served to loopback peers only\nsecond line", http.StatusForbidden)
			}}, `403: "profiles are served to loopback peers only"`, false, gotAllocs},
		{"garbage profile", map[string]http.HandlerFunc{"/debug/pprof/profile": send([]byte("\x00\x01garbage"))},
			"/debug/pprof/profile", false, gotAllocs},
		{"hangs up in the window", map[string]http.HandlerFunc{"/debug/pprof/profile": hangUp}, "/debug/pprof/profile",
			false, gotAllocs},
		{"answer cut off", map[string]http.HandlerFunc{"/debug/pprof/profile": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.Write([]byte("short"))
		}}, "unexpected EOF", false, gotAllocs},
		{"no heap", map[string]http.HandlerFunc{"/debug/pprof/profile": emptyCPU, "/debug/pprof/heap": http.NotFound},
			"/debug/pprof/heap", false,
			func(c *pg.Capture) bool { return c.CPU != nil && c.Allocs == nil && c.After != nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // each takes a whole window
			good := admin(new(atomic.Uint64))
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if h := tt.replace[r.URL.Path]; h != nil {
					h(w, r)
					return
				}
				good.ServeHTTP(w, r)
			}))
			srv.Config.ErrorLog = nil
			srv.Start()
			defer srv.Close()
			c, err := pg.Collect(t.Context(), srv.URL, time.Second)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
			if got := errors.Is(err, pg.ErrNotPulsegate); got != tt.isOther {
				t.Errorf("ErrNotPulsegate: got %v, want %v (%v)", got, tt.isOther, err)
			}
			if tt.achieved != nil && !tt.achieved(c) {
				t.Errorf("got %+v", c)
			}
			// A partial capture can be shown and saved.
			r := pg.Analyze(c)
			dir := t.TempDir()
			if err := errors.Join(r.WriteText(io.Discard, 5), r.WriteJSON(io.Discard), c.Save(dir, r)); err != nil {
				t.Errorf("show the partial capture: %v", err)
			}
		})
	}
}

func gotAllocs(c *pg.Capture) bool { return c.CPU == nil && c.Allocs != nil && c.After != nil }

func TestCollectRefusedConnection(t *testing.T) {
	_, err := pg.Collect(t.Context(), "http://"+porttest.Addr(t), time.Second)
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got error %v, want that the connection was refused", err)
	}
}

// TestCollectInterrupted ends the wait in the middle of the window.
func TestCollectInterrupted(t *testing.T) {
	var requests atomic.Uint64
	good := admin(&requests)
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/debug/pprof/profile" {
			cancel()
			<-r.Context().Done()
			return
		}
		good.ServeHTTP(w, r)
	}))
	defer srv.Close()
	c, err := pg.Collect(ctx, srv.URL, 600*time.Second)
	if !errors.Is(err, context.Canceled) || c.Before == nil {
		t.Errorf("got error %v, capture %+v", err, c)
	}
}

func TestParseTarget(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"127.0.0.1:6060", "http://127.0.0.1:6060"},
		{"http://127.0.0.1:6060/", "http://127.0.0.1:6060"},
		{"https://gate.example:6060", "https://gate.example:6060"},
		{"http://[::1]:6060", "http://[::1]:6060"},
		{"localhost", "http://localhost"},
		{"", ""}, {"http://", ""}, {"ftp://x", ""}, {"http://x/debug/pprof", ""}, {"http://x?a=b", ""},
		{"http://user:secret@x", ""}, {"http://x:port", ""}, {"http://a b", ""}, {"://", ""},
	} {
		got, err := pg.ParseTarget(tt.in)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q: got %q, %v, want %q", tt.in, got, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error contains the password: %v", tt.in, err)
		}
	}
}
