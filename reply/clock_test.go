package reply_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

// The text is that of net/http, follows the clock in both directions, and changes each
// second.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := reply.NewClock(time.Now)
		for range 5 {
			want := "x" + time.Now().UTC().Format(http.TimeFormat)
			if got := string(c.AppendDate([]byte("x"))); got != want {
				t.Errorf("AppendDate = %s, want %s", got, want)
			}
			time.Sleep(700 * time.Millisecond)
		}
	})
	at := time.Unix(784111777, 0).In(time.FixedZone("", 5*3600+1800))
	c := reply.NewClock(func() time.Time { return at })
	for _, want := range []string{"Sun, 06 Nov 1994 08:49:37 GMT", "Thu, 01 Jan 1970 00:08:20 GMT"} {
		if got := string(c.AppendDate(nil)); got != want {
			t.Errorf("AppendDate = %s, want %s", got, want)
		}
		at = time.Unix(500, 0)
	}
}

func TestClockConcurrent(t *testing.T) {
	var mu sync.Mutex
	at := time.Unix(0, 0)
	c := reply.NewClock(func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(300 * time.Millisecond)
		return at
	})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				if _, err := http.ParseTime(string(c.AppendDate(nil))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
