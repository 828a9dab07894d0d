//go:build !race && linux

package ingest_test

import (
	"io"
	"runtime"
	"testing"

	"github.com/pulsegate/pulsegate/internal/ingest"
	"github.com/pulsegate/pulsegate/internal/store"
)

// After the first requests, the lane takes requests from socket to answer without
// allocating: single readings, small batches, refusals and pipelined ones.
//
// The loop and the committer run on their own goroutines, so that the process's
// allocations are counted. Other goroutines may allocate now and then: what is
// asserted is fewer than one allocation in ten requests.
func TestLaneAllocations(t *testing.T) {
	srv := serveOn(t, settleAs(store.Stored), ingest.Config{}, &ingest.FastLaneConfig{})
	conn := dial(t, srv)
	for _, tt := range []struct{ name, requests string }{
		{"single", request(good)},
		{"array of 20", request(batch("d", 20))},
		{"refused", request(`{"device":"d","time":1,"spo2_pct":0}`)},
		{"pipelined", request(good) + request(batch("d", 3)) + request(good)},
	} {
		text, answer := []byte(tt.requests), make([]byte, 64<<10)
		const rounds = 300
		var before, after runtime.MemStats
		for i := range 2 * rounds {
			if i == rounds {
				runtime.ReadMemStats(&before)
			}
			if _, err := conn.Write(text); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAtLeast(conn, answer, 100); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		if n := after.Mallocs - before.Mallocs; n > rounds/10 {
			t.Errorf("%s: %d allocations in %d rounds, want none", tt.name, n, rounds)
		}
	}
}
