package token_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

func TestLimit(t *testing.T) {
	type step struct {
		afterMs int64
		n       int
		ok      bool
		waitMs  int64
	}
	for _, tt := range []struct {
		name  string
		limit token.Limit
		steps []step
	}{
		{"a burst, then the rate", token.Limit{PerSecond: 10, Burst: 3}, []step{
			{0, 1, true, 0}, {0, 1, true, 0}, {0, 1, true, 0},
			{0, 1, false, 100}, {40, 1, false, 60}, {60, 1, true, 0}, {0, 1, false, 100},
		}},
		{"a batch above the burst is a debt", token.Limit{PerSecond: 100, Burst: 10}, []step{
			{0, 1010, true, 0},       // 10 from the bucket, 1000 owed
			{0, 1, false, 10_010},    // ten seconds of debt, and one reading
			{10_009, 0, false, 1},    // a check takes nothing
			{1, 0, true, 0},          // the bucket holds one reading
			{0, 5, true, 0},          // and goes into debt again
			{0, 0, false, 50},        // 4 owed, and one reading
			{1_000_000, 11, true, 0}, // full again, not more than full
			{0, 0, false, 20},
		}},
		{"a rejected request costs nothing", token.Limit{PerSecond: 1, Burst: 1}, []step{
			{0, 1, true, 0}, {0, 100, false, 1000}, {999, 100, false, 1}, {1, 1, true, 0},
		}},
		{"a debt is paid in full", token.Limit{PerSecond: 1, Burst: 1}, []step{
			{0, 262_144, true, 0}, {0, 1, false, 262_144_000}, {3_601_000, 1, false, 258_543_000},
			{258_542_999, 1, false, 1}, {1, 1, true, 0},
		}},
		{"the largest charge", token.Limit{PerSecond: 1, Burst: token.MaxBurst}, []step{
			{0, token.MaxBurst - 1, true, 0}, {0, 1 << 40, true, 0}, {0, 1, false, 4_611_686_018_000},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := epoch
			allow := token.NewLimiter(tt.limit, now)
			for i, s := range tt.steps {
				now = now.Add(time.Duration(s.afterMs) * time.Millisecond)
				ok, wait := allow(s.n, now)
				if ok != s.ok || wait != time.Duration(s.waitMs)*time.Millisecond {
					t.Errorf("step %d: allow(%d) = %v, %v; want %v, %d ms", i, s.n, ok, wait, s.ok, s.waitMs)
				}
			}
		})
	}
}

// TestLimitModel compares with a leaky bucket that is simulated step by step, and
// checks the invariant of Bucket between every two requests.
func TestLimitModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// One reading per stepMs milliseconds, so that the model is exact.
		stepMs := rapid.SampledFrom([]int64{1, 2, 10, 100, 1000}).Draw(t, "ms a reading")
		limit := token.Limit{PerSecond: int(1000 / stepMs), Burst: rapid.IntRange(1, 50).Draw(t, "burst")}
		now := epoch
		allow := token.NewLimiter(limit, now)
		fullMs := int64(limit.Burst) * stepMs
		levelMs := fullMs // negative: a debt
		type taken struct {
			at time.Time
			n  int64
		}
		var log []taken
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			pauseMs := rapid.OneOf(rapid.Int64Range(0, 3*fullMs), rapid.Int64Range(0, 2_000_000*stepMs)).Draw(t, "pause")
			now = now.Add(time.Duration(pauseMs) * time.Millisecond)
			levelMs = min(levelMs+pauseMs, fullMs)
			n := rapid.OneOf(rapid.IntRange(0, 3*limit.Burst), rapid.IntRange(0, 1_000_000)).Draw(t, "readings")
			ok, wait := allow(n, now)
			want := levelMs >= stepMs
			wantWait := max(stepMs-levelMs, 0)
			if ok != want || wait != time.Duration(wantWait)*time.Millisecond {
				t.Fatalf("allow(%d) with %d ms in the bucket = %v, %v; want %v, %d ms", n, levelMs, ok, wait, want, wantWait)
			}
			if !ok {
				continue
			}
			sum := int64(0) // admitted before this one, since each earlier one
			for i := len(log) - 1; i >= 0; i-- {
				sum += log[i].n
				if most := now.Sub(log[i].at).Milliseconds()/stepMs + int64(limit.Burst); sum > most {
					t.Fatalf("%d readings were admitted within %v, want at most %d", sum, now.Sub(log[i].at), most)
				}
			}
			levelMs -= int64(n) * stepMs
			log = append(log, taken{now, int64(n)})
		}
	})
}
