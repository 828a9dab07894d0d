//go:build !race

package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/storage"
)

type fastAppender struct{}

func (fastAppender) Append([]*storage.Entry) error { return nil }

// TestNoAllocations needs no race detector, which makes sync.Pool forget at
// random.
func TestNoAllocations(t *testing.T) {
	requests := metrics.NewRequests()
	route := requests.Route("/v1/readings")
	body := []byte("{}")
	handler := requests.Handler(matched("/v1/readings", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		w.Write(body)
	}))
	w := &nopWriter{header: http.Header{}}
	r := httptest.NewRequest("POST", "/v1/readings", nil)
	commits := metrics.NewCommits()
	observed := commits.Appender(fastAppender{})
	group := make([]*storage.Entry, 3)
	for _, tt := range []struct {
		name string
		do   func()
	}{
		{"Handler", func() { handler.ServeHTTP(w, r) }},
		{"Route.Observe", func() { route.Observe(503, 3*time.Second) }},
		{"Commits.Observe", func() { commits.Observe(12, time.Millisecond) }},
		{"Appender", func() {
			if err := observed.Append(group); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		if got := testing.AllocsPerRun(1000, tt.do); got != 0 {
			t.Errorf("%s: got %v allocations, want 0", tt.name, got)
		}
	}
}
