//go:build !race

package tracing_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
)

// Sampling and recording a request do not allocate.
func TestRecordAllocs(t *testing.T) {
	c := newCollector(t)
	exporting := make(chan struct{}, 1)
	c.answer = func(_ http.ResponseWriter, r *http.Request) {
		exporting <- struct{}{}
		<-r.Context().Done()
	}
	for _, share := range []float64{0, 1} {
		cfg := c.options()
		cfg.Sample = share
		tr := tracing.New(cfg)
		for range 2000 { // until the exporter has its batch and the queue is full
			tr.Record(request(tr, 0))
		}
		if share > 0 {
			<-exporting // the exporter allocates until it waits for an answer
		}
		if got := testing.AllocsPerRun(100, func() {
			r := tr.Begin(tracing.Parent{})
			tr.Record(&r)
		}); got != 0 {
			t.Errorf("share %v: %v allocations, want 0", share, got)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = tr.Close(ctx) // the remaining requests do not matter
	}
}

// A discard is a ResponseWriter that keeps only the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkHandler measures the cost of tracing for a request in the full lane.
func BenchmarkHandler(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer collector.Close()
	endpoint, err := url.Parse(collector.URL)
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name  string
		share float64
		on    bool
	}{{"tracing=off", 0, false}, {"tracing=unsampled", 0, true}, {"tracing=sampled", 1, true}} {
		b.Run(bb.name, func(b *testing.B) {
			var tr *tracing.Tracer
			if bb.on {
				tr = tracing.New(tracing.Options{Endpoint: endpoint, Sample: bb.share})
				defer tr.Close(context.Background())
			}
			served := 0
			h := new(metrics.Requests).Handler(tr.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { served++; w.WriteHeader(204) })))
			r := httptest.NewRequest("POST", "/v1/readings", nil)
			w := &discard{header: http.Header{}}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				h.ServeHTTP(w, r)
				n++
			}
			if served != n || w.status != 204 {
				b.Fatalf("%d of %d requests were served, the last one with status %d", served, n, w.status)
			}
		})
	}
}
