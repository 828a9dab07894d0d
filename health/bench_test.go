package health_test

import (
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

// Neither an answer nor a 405 allocates, before and after the state has changed.
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

// BenchmarkHealth serves the endpoints of a ready service. bench/answers has the
// comparison with other packages.
func BenchmarkHealth(b *testing.B) {
	h := health.New(health.Options{}, health.Check{Name: "store"})
	h.Reporter("store")(nil)
	for _, bb := range []struct {
		name string
		h    http.Handler
		want string
	}{
		{"endpoint=healthz", h.Healthz(), "{\"status\":\"ok\"}\n"},
		{"endpoint=readyz", h.Readyz(), "{\"status\":\"ready\"}\n"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			rec := httptest.NewRecorder()
			bb.h.ServeHTTP(rec, r)
			if got := rec.Body.String(); rec.Code != 200 || got != bb.want ||
				rec.Result().Header.Get("Content-Type") != "application/json" {
				b.Fatalf("got %d %v %s, want 200, application/json, %s", rec.Code, rec.Result().Header, got, bb.want)
			}
			d := &discard{header: make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				bb.h.ServeHTTP(d, r)
			}
		})
	}
}
