package reply_test

import (
	"math"
	"math/rand/v2"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

func TestAppendInt(t *testing.T) {
	check := func(n int64) {
		if got, want := string(reply.AppendInt([]byte("x"), n)), "x"+strconv.FormatInt(n, 10); got != want {
			t.Errorf("AppendInt(%d) = %s, want %s", n, got, want)
		}
	}
	for n := int64(-11_000); n <= 11_000; n++ {
		check(n)
	}
	check(math.MaxInt64)
	check(math.MinInt64)
}

func TestAppendQuotedString(t *testing.T) {
	for _, tt := range []struct {
		in, quoted, token string
		ok                bool
	}{
		{"", `""`, `""`, true},
		{"gate-1", `"gate-1"`, "gate-1", true},
		{"a b", `"a b"`, `"a b"`, true},
		{`a"b\c`, `"a\"b\\c"`, `"a\"b\\c"`, true},
		{"tab\t", "\"tab\t\"", "\"tab\t\"", true},
		{"é", `"é"`, `"é"`, true},
		{"a\r\nX: y", "", "", false},
		{"\x7f", "", "", false},
		{"\x00", "", "", false},
	} {
		got, ok := reply.AppendQuotedString([]byte("="), tt.in)
		if string(got) != "="+tt.quoted || ok != tt.ok {
			t.Errorf("AppendQuotedString(%q) = %s, %v, want =%s, %v", tt.in, got, ok, tt.quoted, tt.ok)
		}
		got, ok = reply.AppendToken([]byte("="), tt.in)
		if string(got) != "="+tt.token || ok != tt.ok {
			t.Errorf("AppendToken(%q) = %s, %v, want =%s, %v", tt.in, got, ok, tt.token, tt.ok)
		}
	}
}

// Package mime reads back every parameter that was written.
func FuzzAppendToken(f *testing.F) {
	f.Add(`a "b" \c`)
	f.Fuzz(func(t *testing.T, s string) {
		field, ok := reply.AppendToken([]byte("a/b; p="), s)
		if !ok {
			return
		}
		_, params, err := mime.ParseMediaType(string(field))
		if err != nil || params["p"] != s {
			t.Errorf("%q as %q is read as %q (%v)", s, field, params["p"], err)
		}
	})
}

func TestAppendETag(t *testing.T) {
	for _, tt := range []struct {
		opaque string
		weak   bool
		want   string
		ok     bool
	}{
		{"", false, `""`, true},
		{"v1", false, `"v1"`, true},
		{"v1", true, `W/"v1"`, true},
		{`a"b`, false, "", false},
		{"a b", true, "", false},
		{"a\x7f", true, "", false},
	} {
		got, ok := reply.AppendETag(nil, tt.opaque, tt.weak)
		if string(got) != tt.want || ok != tt.ok {
			t.Errorf("AppendETag(%q, %v) = %s, %v, want %s, %v", tt.opaque, tt.weak, got, ok, tt.want, tt.ok)
		}
	}
}

func TestAppendHTTPDate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	first := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
	zone := time.FixedZone("", 5*3600+1800)
	for range 20_000 {
		at := time.Unix(first+rng.Int64N(last-first+1), rng.Int64N(1e9)).In(zone)
		if got, want := string(reply.AppendHTTPDate(nil, at)), at.UTC().Format(http.TimeFormat); got != want {
			t.Fatalf("AppendHTTPDate = %s, want %s", got, want)
		}
	}
	for _, tt := range []struct {
		unix int64
		want string
	}{
		{first, "Sat, 01 Jan 0000 00:00:00 GMT"},
		{first - 1, "Sat, 01 Jan 0000 00:00:00 GMT"},
		{last, "Fri, 31 Dec 9999 23:59:59 GMT"},
		{last + 1, "Fri, 31 Dec 9999 23:59:59 GMT"},
		{784111777, "Sun, 06 Nov 1994 08:49:37 GMT"}, // RFC 9110, section 5.6.7
	} {
		if got := string(reply.AppendHTTPDate(nil, time.Unix(tt.unix, 0))); got != tt.want {
			t.Errorf("AppendHTTPDate(%d) = %s, want %s", tt.unix, got, tt.want)
		}
	}
}

// A value that a header holds does not change when the second does.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := reply.NewClock(time.Now)
		held := c.Date()
		before := held[0]
		for range 5 {
			want := time.Now().UTC().Format(http.TimeFormat)
			if got := c.Date()[0]; got != want {
				t.Errorf("Date = %s, want %s", got, want)
			}
			if got := string(c.AppendDate(nil)); got != want {
				t.Errorf("AppendDate = %s, want %s", got, want)
			}
			time.Sleep(700 * time.Millisecond)
		}
		if held[0] != before {
			t.Errorf("a held value changed to %s", held[0])
		}
	})
	// A clock that is set back is followed.
	at := time.Unix(1000, 0)
	c := reply.NewClock(func() time.Time { return at })
	c.Date()
	at = time.Unix(500, 0)
	if got, want := c.Date()[0], "Thu, 01 Jan 1970 00:08:20 GMT"; got != want {
		t.Errorf("Date after the clock was set back = %s, want %s", got, want)
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
				if _, err := http.ParseTime(c.Date()[0]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
