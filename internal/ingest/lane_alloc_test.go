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
	t.Run("open", func(t *testing.T) {
		testLaneAllocations(t, ingest.Config{}, []laneLoad{
			{"single", request(good)},
			{"array of 20", request(batch("d", 20))},
			{"refused", request(`{"device":"d","time":1,"spo2_pct":0}`)},
			{"pipelined", request(good) + request(batch("d", 3)) + request(good)},
		})
	})
	t.Run("with tokens", func(t *testing.T) {
		k := newKeyring(t)
		k.gate.Audit = nil // to know the peer costs one
		testLaneAllocations(t, ingest.Config{Gate: k.gate}, []laneLoad{
			{"single", authorized(good, k.write)},
			{"for some devices", authorized(good, k.ppg)},
			{"array of 20", authorized(batch("d", 20), k.write)},
			{"array of 20 for other devices", authorized(batch("d", 20), k.ppg)},
			{"limited", authorized(good, k.slow)},
			{"no token", request(good)},
			{"revoked", authorized(good, k.revoked)},
			{"no right", authorized(good, k.read)},
			{"pipelined", authorized(good, k.write) + request(good) + authorized(batch("d", 3), k.write)},
		})
	})
}

// A laneLoad is what is sent again and again.
type laneLoad struct{ name, requests string }

func testLaneAllocations(t *testing.T, cfg ingest.Config, loads []laneLoad) {
	srv := serveOn(t, settleAs(store.Stored), cfg, &ingest.FastLaneConfig{})
	conn := dial(t, srv)
	for _, tt := range loads {
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
	if n := srv.lane.Stats().Moved; n != 0 {
		t.Errorf("%d connections have left the lane, want none", n)
	}
}
