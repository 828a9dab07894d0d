package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Gateways lose answers and send again, forward readings of others at the same time, and send out
// of order. Everything is stored once, and a later repetition is answered as duplicate
// throughout.
//
// Seen to fail with the mutants skip-lookup and drop-a-reading.
func TestRetries(t *testing.T) {
	onEitherLane(t, func(t *testing.T, lane lane) {
		t.Parallel()
		b := newHarness(t, lane)
		b.start()
		first := b.load("--users=30", "--devices=10", "--posts=30", "--batch=5", "--mix=real",
			"--share=drop=0.2,forward=0.3,reorder=0.3,malformed=0.02").wait()
		if first.Duplicate == 0 || first.Behaviours["drop"] == 0 || first.Behaviours["forward"] == 0 ||
			first.Behaviours["reorder"] == 0 {
			t.Errorf("the load did not do what it was configured for: %d duplicates, %v", first.Duplicate, first.Behaviours)
		}
		// A seed determines the readings if no gateway forwards.
		args := []string{"--users=30", "--posts=30", "--batch=5", "--seed=7", "--run=again", "--start=2026-01-01T00:00:00Z",
			"--share=batch=0.3,drop=0.2,reorder=0.3"}
		second := b.load(args...).wait()
		b.verify()
		b.server.kill()
		b.start()
		if third := b.load(args...).wait(); third.Stored != 0 || third.Duplicate != second.Stored+second.Duplicate {
			t.Errorf("sent again, %d readings are stored and %d duplicates; want 0 and %d", third.Stored, third.Duplicate,
				second.Stored+second.Duplicate)
		}
		b.finish()
	})
}

// Gateways send contradictory readings of one device and time at the same moment, in both lanes.
// One is stored, the others are conflicts, and a restart does not change that.
//
// Seen to fail with the mutants overwrite-conflicts and swap-outcomes.
func TestConflicts(t *testing.T) {
	onBothLanes(t, func(t *testing.T, lane lane) {
		t.Parallel()
		const gateways, times = 8, 30
		b := newHarness(t, lane)
		b.start()
		body := func(ms, gateway int) string {
			return fmt.Sprintf(`{"device":"d","time":%d,"heart_rate_bpm":%d,"gateway":"g%d"}`, ms, 60+gateway, gateway)
		}
		winners := make([]int, times)
		for ms := range times {
			var wg sync.WaitGroup
			answers := make([]string, gateways)
			for g := range gateways {
				wg.Go(func() {
					status, text, err := b.post(body(ms, g), g%2 == 0)
					answers[g] = fmt.Sprintf("%d %s %v", status, text, err)
				})
			}
			wg.Wait()
			winners[ms] = -1
			for g, answer := range answers {
				switch {
				case answer == `200 {"status":"stored"} <nil>` && winners[ms] < 0:
					winners[ms] = g
				case strings.HasPrefix(answer, "409 ") && strings.Contains(answer, "#conflict"):
				default:
					t.Errorf("of %d contradictory readings, one is answered %s; want one stored and the others in conflict",
						gateways, answer)
				}
			}
			if winners[ms] < 0 {
				t.Fatalf("none of %d readings was stored", gateways)
			}
		}
		b.server.kill()
		b.start()
		for ms, winner := range winners {
			b.mustPost(body(ms, winner), `200 {"status":"duplicate"}`)
			if status, text, err := b.post(body(ms, (winner+1)%gateways), false); err != nil || status != 409 {
				t.Errorf("a contradiction is answered %d %s, %v; want 409", status, text, err)
			}
		}
		lines := b.readings("d")
		if len(lines) != times {
			t.Fatalf("%d readings are there, want %d", len(lines), times)
		}
		for ms, line := range lines {
			var r struct {
				HR float64 `json:"heart_rate_bpm"`
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.HR != float64(60+winners[ms]) {
				t.Errorf("reading %d is %s, %v; the one of gateway %d was acknowledged", ms, line, err, winners[ms])
			}
		}
		b.term()
		b.check()
	})
}

// A gateway without an answer sends its reading again, also in the other lane, while the first
// request waits for its sync. Neither may be answered before the sync, and readers do not see the
// reading.
//
// Seen to fail with the mutants duplicate-before-durable, answer-before-sync and
// readers-before-sync.
func TestRetryWhileSyncing(t *testing.T) {
	onBothLanes(t, func(t *testing.T, lane lane) {
		t.Parallel()
		b := newHarness(t, lane, "--max-wait=60s")
		b.start()
		b.mustPost(reading(1), `200 {"status":"stored"}`)
		_, before := b.log()
		heal := b.tamper("fdatasync:delay_enter=60s")
		answers := make(chan string, 3)
		send := func(chunked bool) {
			status, text, err := b.post(reading(2), chunked)
			answers <- fmt.Sprintf("%d %s %v", status, text, err)
		}
		go send(false)
		b.server.await("the reading is written, or answered", func() bool {
			_, now := b.log()
			return now != before || len(answers) > 0
		})
		go send(false)
		go send(true)
		select {
		case got := <-answers:
			t.Fatalf("answered before the sync: %s", got)
		case <-time.After(300 * time.Millisecond): // a correct server never answers here
		}
		if got := b.readings("d2"); len(got) > 0 {
			t.Errorf("a reader sees what is not synced: %s", got)
		}
		heal()
		got := map[string]int{}
		for range 3 {
			got[<-answers]++
		}
		if got[`200 {"status":"stored"} <nil>`] != 1 || got[`200 {"status":"duplicate"} <nil>`] != 2 {
			t.Errorf("the answers are %v, want stored and twice duplicate", got)
		}
		b.server.signal(syscall.SIGKILL)
		b.ended()
		b.start()
		if got := b.readings("d2"); len(got) != 1 {
			t.Errorf("%d readings are there, want 1", len(got))
		}
	})
}
