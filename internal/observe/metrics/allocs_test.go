//go:build !race

package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// TestNoAllocations does not run with the race detector, under which sync.Pool drops
// items at random.
func TestNoAllocations(t *testing.T) {
	requests := new(metrics.Requests)
	route := requests.Route("/v1/readings")
	body := []byte("{}")
	handler := requests.Handler(matched("/v1/readings", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		w.Write(body)
	}))
	w := &nopWriter{header: http.Header{}}
	r := httptest.NewRequest("POST", "/v1/readings", nil)
	histogram := metrics.NewHistogram(metrics.DurationBounds(time.Millisecond, time.Second), 1e9)
	for _, tt := range []struct {
		name string
		do   func()
	}{
		{"Handler", func() { handler.ServeHTTP(w, r) }},
		{"Route.Observe", func() { route.Observe(503, 3*time.Second) }},
		{"Histogram.Observe", func() { histogram.Observe(12) }},
	} {
		if got := testing.AllocsPerRun(1000, tt.do); got != 0 {
			t.Errorf("%s: got %v allocations, want 0", tt.name, got)
		}
	}
}
