//go:build !race && linux

package ingest_test

import (
	"context"
	"io"
	"net/url"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/oidctest"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
	"github.com/pulsegate/pulsegate/vitals"
)

// After the first requests, the lane takes requests from socket to answer without
// a single allocation: single readings, small batches, refusals and pipelined
// ones, with tokens and without. The store here allocates nothing.
//
// The loop and the committer run on their own goroutines, so that the allocations
// of the whole process are counted. The runtime makes some now and then, such as
// for a new thread, so that the best of several windows counts. (Seen to fail when
// the lane made a Job, or the text of an answer, once in a hundred requests.)
func TestLaneAllocations(t *testing.T) {
	t.Run("open", func(t *testing.T) {
		testLaneAllocations(t, ingest.Config{}, []laneLoad{
			{"single", request(good)},
			{"array of 20", request(batch("d", 20))},
			{"refused", request(`{"device":"d","time":1,"spo2_pct":0}`)},
			{"pipelined", request(good) + request(batch("d", 3)) + request(good)},
		})
	})
	t.Run("own signs", func(t *testing.T) {
		signs := vitals.NewSigns()
		try(t, signs.Define(storetest.OwnSigns()))
		limits := signs.DefaultLimits()
		limits.OldestUnixMs = 0
		const reading = `{"device":"d","time":1,"own_0":-5,"own_3":0.125,"heart_rate_bpm":72,"own_20":99999}`
		testLaneAllocations(t, ingest.Config{Limits: limits}, []laneLoad{
			{"single", request(reading)},
			{"array of 2", request("[" + reading + "," + reading + "]")},
			{"refused", request(`{"device":"d","time":1,"own_0":-5.5}`)},
		})
	})
	t.Run("traced", func(t *testing.T) {
		nowhere, err := url.Parse("http://127.0.0.1:1/v1/traces")
		try(t, err)
		// Every request is judged, and none is recorded.
		tracer := tracing.New(tracing.Options{Endpoint: nowhere, Slow: time.Hour})
		defer tracer.Close(context.Background())
		testLaneAllocations(t, ingest.Config{Trace: tracer}, []laneLoad{
			{"single", request(good)},
			{"pipelined", request(good) + request(batch("d", 3)) + request(good)},
		})
	})
	t.Run("with JWTs", func(t *testing.T) {
		house, g, static := newHouse(t)
		text := "Bearer " + house.Token(oidctest.Object{"padding": strings.Repeat("x", 700)})
		testLaneAllocations(t, ingest.Config{Gate: g}, []laneLoad{
			{"single", authorized(good, text)},
			{"beside a token", authorized(good, text) + authorized(good, static)},
		})
	})
	t.Run("with tokens", func(t *testing.T) {
		k := newKeyring(t)
		k.gate.Audit = nil // to know the peer costs one
		testLaneAllocations(t, ingest.Config{Gate: k.gate}, []laneLoad{
			{"single", authorized(good, k.write)},
			{"for some devices", authorized(good, k.ppg)},
			{"array of 20", authorized(batch("d", 20), k.write)},
			{"array of 20, newest first", authorized(backwards("d", 20), k.write)},
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
	const windows, rounds = 50, 300                  // at most: what allocates beside the lane on a busy machine is rare
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties pools, and allocates
	srv := serveOn(t, settleAs(storage.Stored), cfg, &ingest.FastLaneConfig{})
	conn := dial(t, srv)
	for _, tt := range loads {
		text, answer := []byte(tt.requests), make([]byte, 64<<10)
		exchange := func() {
			if _, err := conn.Write(text); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAtLeast(conn, answer, 100); err != nil {
				t.Fatal(err)
			}
		}
		for range rounds {
			exchange()
		}
		// Before an unknown token is rejected its file is checked, once in each RefreshInterval.
		checksAllowed := func(time.Duration) uint64 { return 0 }
		if tt.name == "revoked" {
			checksAllowed = func(elapsed time.Duration) uint64 { return uint64(elapsed/filewatch.RefreshInterval) + 1 }
		}
		const allocsPerCheck = 2
		least := ^uint64(0)
		var before, after runtime.MemStats
		for range windows {
			began := time.Now()
			runtime.ReadMemStats(&before)
			for range rounds {
				exchange()
			}
			runtime.ReadMemStats(&after)
			allocs := after.Mallocs - before.Mallocs
			least = min(least, allocs-min(allocs, allocsPerCheck*checksAllowed(time.Since(began))))
			if least == 0 {
				break
			}
		}
		if least != 0 {
			t.Errorf("%s: %d allocations in the best of %d windows of %d rounds, want 0", tt.name, least, windows, rounds)
		}
	}
	if n := srv.lane.Stats().Moved; n != 0 {
		t.Errorf("%d connections have left the lane, want none", n)
	}
}
