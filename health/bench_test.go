package health_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/pulsegate/pulsegate/health"
)

// A discard is a ResponseWriter that allocates nothing.
type discard struct {
	header http.Header
	status int
	n      int // bytes of body
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { d.n += len(p); return len(p), nil }

// Neither an answer nor the refusal of a method allocates, before and after the
// state has changed.
func TestNoAllocations(t *testing.T) {
	h := health.New(health.Options{}, health.Check{Name: "store"})
	for _, method := range []string{"GET", "HEAD", "POST"} {
		r := httptest.NewRequest(method, "/", nil)
		for what, handler := range map[string]http.Handler{"livez": h.Livez(), "healthz": h.Healthz(), "readyz": h.Readyz()} {
			d := &discard{header: make(http.Header)}
			handler.ServeHTTP(d, r)
			if got := testing.AllocsPerRun(100, func() { handler.ServeHTTP(d, r) }); got != 0 {
				t.Errorf("%s %s: %v allocations, want 0", method, what, got)
			}
		}
		h.Reporter("store")(nil)
	}
}

// BenchmarkHealthz compares an endpoint that marshals per request, one that
// writes bytes prepared at start, and this package's.
func BenchmarkHealthz(b *testing.B) {
	prepared := []byte(`{"status":"ok"}`)
	h := health.New(health.Options{}, health.Check{Name: "store"})
	h.Reporter("store")(nil)
	for _, bb := range []struct {
		name string
		h    http.Handler
	}{
		{"impl=marshal", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			body, err := json.Marshal(&struct {
				Status string `json:"status"`
			}{"ok"})
			if err != nil {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Write(body)
		})},
		{"impl=bytes", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write(prepared)
		})},
		{"impl=healthz", h.Healthz()},
		{"impl=readyz", h.Readyz()},
	} {
		b.Run(bb.name, func(b *testing.B) {
			d := &discard{header: make(http.Header)}
			r := httptest.NewRequest(http.MethodGet, "/healthz", nil)
			b.ReportAllocs()
			for b.Loop() {
				bb.h.ServeHTTP(d, r)
			}
			if d.n == 0 || d.header.Get("Content-Type") != "application/json" {
				b.Fatalf("%d bytes of %q", d.n, d.header.Get("Content-Type"))
			}
		})
	}
}
