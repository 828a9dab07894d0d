//go:build !race

// The race detector makes sync.Pool drop items, so allocations are counted only without it. make
// test runs the tests with and without it.

package ingest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// TestAllocations checks that after the first messages, readings are processed without allocating,
// single or in a batch, whether a front uses a Job or Receive.
func TestAllocations(t *testing.T) {
	core, err := newCore(settleAs(storage.Stored), problem.New(), ingest.Config{})
	try(t, err)
	defer core.Close(context.Background())
	for _, tt := range []struct{ name, body string }{
		{"single", good},
		{"array of 100", batch("d", 100)},
		{"array of 100, all refused", strings.ReplaceAll(batch("d", 100), ":97}", ":0}")},
	} {
		body := []byte(tt.body)
		allocs := testing.AllocsPerRun(200, func() {
			job := core.Job()
			if job.Decode(body) {
				job.Commit(context.Background())
			}
			answer := job.Answer()
			if answer.Status() >= 300 {
				t.Fatalf("%s: status %d", tt.name, answer.Status())
			}
			job.Release()
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations, want 0", tt.name, allocs)
		}
		ctx, answered := context.Background(), func(*ingest.Outcome) {}
		if allocs := testing.AllocsPerRun(200,
			func() { core.Receive(ctx, &ingest.Delivery{Message: body}, answered) }); allocs != 0 {
			t.Errorf("%s: %v allocations in Receive, want 0", tt.name, allocs)
		}
	}
}
