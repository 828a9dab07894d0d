//go:build !race

package tracing_test

import (
	"context"
	"net/http"
	"testing"

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
