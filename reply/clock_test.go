package reply_test

import (
	"net/http"
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
