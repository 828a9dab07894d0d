package query_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"net/http"
	"net/url"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/vitals"
)

func unchanged(h http.Handler) http.Handler { return h }

func TestTimes(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var lines []string
	for hour := range 72 { // 2026-11-20T00:00Z to 2026-11-22T23:00Z
		at := now.Add(time.Duration(hour-60) * time.Hour)
		lines = append(lines, fmt.Sprintf(`{"device":"a","time":%d,"heart_rate_bpm":60}`, at.UnixMilli()))
	}
	srv := serveOptions(t, fill(t, lines...), query.Options{Now: func() time.Time { return now }}, unchanged)
	for _, tt := range []struct{ query, first, last string }{
		{"from=2026-11-21&to=2026-11-22", "2026-11-21T00:00:00.000Z", "2026-11-21T23:00:00.000Z"},
		{"from=2026-11-21&to=2026-11-22&tz=UTC", "2026-11-21T00:00:00.000Z", "2026-11-21T23:00:00.000Z"},
		{"from=2026-11-21&to=2026-11-22&tz=Europe/Berlin", "2026-11-20T23:00:00.000Z", "2026-11-21T22:00:00.000Z"},
		{"from=2026-11-21&to=2026-11-22&tz=%2B05:45", "2026-11-20T19:00:00.000Z", "2026-11-21T18:00:00.000Z"},
		{"from=2026-11-21&to=2026-11-22&tz=-03:30", "2026-11-21T04:00:00.000Z", "2026-11-22T03:00:00.000Z"},
		{"from=2026-11-21&to=2026-11-22&tz=Asia/Kathmandu", "2026-11-20T19:00:00.000Z", "2026-11-21T18:00:00.000Z"},
		{"from=-24h&to=now", "2026-11-21T12:00:00.000Z", "2026-11-22T11:00:00.000Z"},
		{"from=-1d&to=-90m", "2026-11-21T12:00:00.000Z", "2026-11-22T10:00:00.000Z"},
		{"from=-1w&to=-86400s", "2026-11-20T00:00:00.000Z", "2026-11-21T11:00:00.000Z"},
		{"from=2026-11-21&to=2026-11-22T05:00:00.0001Z", "2026-11-21T00:00:00.000Z", "2026-11-22T05:00:00.000Z"},
		{"from=2026-11-21T00:00:00.0000Z&to=2026-11-22T05:00:00.00000Z", "2026-11-21T00:00:00.000Z",
			"2026-11-22T04:00:00.000Z"},
		{"from=2026-11-21T00:00:00.0009%2B00:00&to=2026-11-22", "2026-11-21T01:00:00.000Z", "2026-11-21T23:00:00.000Z"},
		{"from=-4000000000w&to=2026-11-20T01:30:00%2B01:00", "2026-11-20T00:00:00.000Z", "2026-11-20T00:00:00.000Z"},
	} {
		_, text := get(t, srv, "/v1/devices/a/readings?flags=false&format=csv&"+tt.query)
		rows := strings.Split(strings.TrimSpace(text), "\r\n")[1:]
		if first, last := strings.Split(rows[0], ",")[1], strings.Split(rows[len(rows)-1], ",")[1]; first != tt.first ||
			last != tt.last {
			t.Errorf("%s: %s to %s, want %s to %s", tt.query, first, last, tt.first, tt.last)
		}
	}
}

func TestFlagFilter(t *testing.T) {
	var lines []string
	for i := range 3000 { // several chunks
		bpm := 60
		if i%700 == 0 {
			bpm = 140
		}
		lines = append(lines, fmt.Sprintf(`{"device":"a","time":%d,"heart_rate_bpm":%d}`, 1000+i, bpm))
	}
	lines = append(lines, `{"device":"a","time":9000,"spo2_pct":80}`)
	srv := serve(t, fill(t, lines...))
	for _, tt := range []struct{ query, want string }{
		{"flag=any", "[1000 1700 2400 3100 3800 9000]"},
		{"flag=any&limit=2", "[1000 1700 2400 3100 3800 9000]"},
		{"flag=any&limit=6", "[1000 1700 2400 3100 3800 9000]"},
		{"flag=any&order=desc&limit=1", "[9000 3800 3100 2400 1700 1000]"},
		{"flag=heart_rate_bpm+high&flags=false", "[1000 1700 2400 3100 3800]"},
		{"flag=" + url.QueryEscape("spo2_pct low"), "[9000]"},
		{"flag=heart_rate_bpm%20low", "[]"},
		{"flag=any&from=2000&to=3101", "[2400 3100]"},
	} {
		if got := fmt.Sprint(times(t, srv, tt.query, nil)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.query, got, tt.want)
		}
	}
}

// Offsets are those of RFC 3339, wherever a zone is named: with others, aggregates would have times
// that no client could send back. Mutant: time.Parse alone, which takes +24:59 and +05:60.
func TestZoneOffsets(t *testing.T) {
	srv := serve(t, fill(t, `{"device":"a","time":"2026-11-21T10:00:00Z","heart_rate_bpm":60}`))
	for offset, status := range map[string]int{
		"+00:00": 200, "-00:00": 200, "+23:59": 200, "-23:59": 200, "+05:30": 200,
		"+24:00": 400, "+24:30": 400, "+24:59": 400, "-24:00": 400, "-24:59": 400, "+25:00": 400, "+05:60": 400,
		"-23:60": 400, "+5:30": 400, "+0530": 400, "05:30": 400,
	} {
		for _, path := range []string{"aggregates?step=1d&format=csv&", "readings?from=2026-11-21&"} {
			resp, text := get(t, srv, "/v1/devices/a/"+path+"tz="+url.QueryEscape(offset))
			if resp.StatusCode != status || status == 400 && !strings.Contains(text, `"field":"tz"`) {
				t.Errorf("%s%s: %s %s, want %d", path, offset, resp.Status, text, status)
			}
			if status == 200 && strings.HasPrefix(path, "aggregates") {
				from := strings.Split(strings.Split(text, "\r\n")[1], ",")[1]
				if resp, text := get(t, srv, "/v1/devices/a/readings?from="+url.QueryEscape(from)); resp.StatusCode != 200 {
					t.Errorf("a bucket of %s as from: %s %s", offset, resp.Status, text)
				}
			}
		}
	}
}

// An integer that a reading could not have as its time, because it looks like another unit, is none of a query.
func TestSeconds(t *testing.T) {
	lines := []string{`{"device":"a","time":1795255200000,"heart_rate_bpm":60}`}
	srv := serveOptions(t, fill(t, lines...), query.Options{Limits: vitals.NewSigns().DefaultLimits()}, unchanged)
	for _, path := range []string{"readings?", "aggregates?step=1d&"} {
		for _, name := range []string{"from", "to"} {
			const seconds, finer = "looks like seconds; send milliseconds",
				"looks like microseconds or nanoseconds; send milliseconds"
			for value, want := range map[string]string{
				"1795255200": seconds, "0": seconds, "99999999999": seconds, "-1": seconds,
				"100000000000": "", "1795255200000": "", "1970-01-01T00:00:00Z": "",
				"253402300799999": "", "9999-12-31T23:59:59Z": "", "now": "",
				"253402300800000": finer, "1795895752000000": finer, "1795895752000000000": finer, "17958957520000000000": finer,
			} {
				resp, text := get(t, srv, "/v1/devices/a/"+path+name+"="+value)
				if (resp.StatusCode == 200) != (want == "") || !strings.Contains(text, want) {
					t.Errorf("%s%s=%s: %s %s", path, name, value, resp.Status, text)
				}
			}
		}
	}
}
