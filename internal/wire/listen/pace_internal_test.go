package listen

import (
	"testing"
	"testing/synctest"
	"time"
)

// A handshake pauses for as long as it has computed, within bounds, while there are requests.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := uint64(0)
		p := pace{requests: func() uint64 { return requests }}
		check := func(when string, turn, want time.Duration) {
			t.Helper()
			if got := p.pause(turn); got != want {
				t.Errorf("%s: a pause of %v after a turn of %v, want %v", when, got, turn, want)
			}
		}
		const turn = 300 * time.Microsecond
		check("no request yet", turn, 0)
		requests++
		check("a request", turn, turn)
		check("a request", leastPause-1, 0)
		check("a request", time.Second, mostPause)
		time.Sleep(busyFor)
		check("a request shortly before", turn, turn)
		time.Sleep(time.Nanosecond)
		check("no request for a while", turn, 0)
		requests++
		check("another request", turn, turn)
		p.requests = nil
		check("requests are not counted", turn, 0)
	})
}
