package query_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net/url"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
)

func TestAggregates(t *testing.T) {
	srv := serve(t, fill(t,
		`{"device":"a","time":"2026-11-21T10:00:00.5Z","heart_rate_bpm":54.9}`,
		`{"device":"a","time":"2026-11-21T10:01:00Z","heart_rate_bpm":60,"spo2_pct":97}`,
		`{"device":"a","time":"2026-11-21T10:59:59.999Z","heart_rate_bpm":50.01}`,
		`{"device":"a","time":"2026-11-21T11:00:00Z","systolic_mmhg":120,"diastolic_mmhg":80}`,
		`{"device":"a","time":"2026-11-21T23:30:00Z","heart_rate_bpm":70}`,
	))
	const (
		ten    = `{"from":"2026-11-21T10:00:00Z","to":"2026-11-21T11:00:00Z","signs":{"spo2_pct":{"count":1,"min":97,"max":97,"mean":97,"first":{"time":"2026-11-21T10:01:00.000Z","value":97},"last":{"time":"2026-11-21T10:01:00.000Z","value":97}},"heart_rate_bpm":{"count":3,"min":50.01,"max":60,"mean":54.97,"first":{"time":"2026-11-21T10:00:00.500Z","value":54.9},"last":{"time":"2026-11-21T10:59:59.999Z","value":50.01}}}}`
		eleven = `{"from":"2026-11-21T11:00:00Z","to":"2026-11-21T12:00:00Z","signs":{"systolic_mmhg":{"count":1,"min":120,"max":120,"mean":120,"first":{"time":"2026-11-21T11:00:00.000Z","value":120},"last":{"time":"2026-11-21T11:00:00.000Z","value":120}},"diastolic_mmhg":{"count":1,"min":80,"max":80,"mean":80,"first":{"time":"2026-11-21T11:00:00.000Z","value":80},"last":{"time":"2026-11-21T11:00:00.000Z","value":80}}}}`
		header = "device,from,to,sign,count,min,max,mean,first_time,first,last_time,last\r\n"
	)
	for _, tt := range []struct{ name, query, wantType, want string }{
		{"JSON", "step=1h&to=2026-11-21T12:00:00Z", "application/json", "{\"device\":\"a\",\"step\":\"1h\",\"tz\":\"UTC\",\"buckets\":[\n" + ten + ",\n" + eleven + "\n]}\n"},
		{"the edges of the range", "step=1h&from=2026-11-21T10:30:00Z&to=2026-11-21T10:59:59.999Z", "application/json", "{\"device\":\"a\",\"step\":\"1h\",\"tz\":\"UTC\",\"buckets\":[\n]}\n"},
		{"nothing in the range", "step=1h&from=2027-01-01", "application/json", "{\"device\":\"a\",\"step\":\"1h\",\"tz\":\"UTC\",\"buckets\":[\n]}\n"},
		{"local days", "step=1d&tz=Europe/Berlin&from=2026-11-22", "application/json", "{\"device\":\"a\",\"step\":\"1d\",\"tz\":\"Europe/Berlin\",\"buckets\":[\n" +
			`{"from":"2026-11-22T00:00:00+01:00","to":"2026-11-23T00:00:00+01:00","signs":{"heart_rate_bpm":{"count":1,"min":70,"max":70,"mean":70,"first":{"time":"2026-11-22T00:30:00.000+01:00","value":70},"last":{"time":"2026-11-22T00:30:00.000+01:00","value":70}}}}` + "\n]}\n"},
		{"days of an offset", "step=1d&tz=%2B05:30&from=2026-11-22", "application/json", "{\"device\":\"a\",\"step\":\"1d\",\"tz\":\"+05:30\",\"buckets\":[\n" +
			`{"from":"2026-11-22T00:00:00+05:30","to":"2026-11-23T00:00:00+05:30","signs":{"heart_rate_bpm":{"count":1,"min":70,"max":70,"mean":70,"first":{"time":"2026-11-22T05:00:00.000+05:30","value":70},"last":{"time":"2026-11-22T05:00:00.000+05:30","value":70}}}}` + "\n]}\n"},
		{"NDJSON", "step=30m&format=ndjson&from=2026-11-21T11:00:00Z&tz=Etc/GMT+2", "application/x-ndjson",
			`{"device":"a","from":"2026-11-21T09:00:00-02:00","to":"2026-11-21T09:30:00-02:00","sign":"systolic_mmhg","count":1,"min":120,"max":120,"mean":120,"first":{"time":"2026-11-21T09:00:00.000-02:00","value":120},"last":{"time":"2026-11-21T09:00:00.000-02:00","value":120}}` + "\n" +
				`{"device":"a","from":"2026-11-21T09:00:00-02:00","to":"2026-11-21T09:30:00-02:00","sign":"diastolic_mmhg","count":1,"min":80,"max":80,"mean":80,"first":{"time":"2026-11-21T09:00:00.000-02:00","value":80},"last":{"time":"2026-11-21T09:00:00.000-02:00","value":80}}` + "\n" +
				`{"device":"a","from":"2026-11-21T21:30:00-02:00","to":"2026-11-21T22:00:00-02:00","sign":"heart_rate_bpm","count":1,"min":70,"max":70,"mean":70,"first":{"time":"2026-11-21T21:30:00.000-02:00","value":70},"last":{"time":"2026-11-21T21:30:00.000-02:00","value":70}}` + "\n"},
		{"CSV", "step=1w&format=csv&to=2026-11-21T11:00:00Z", "text/csv; charset=utf-8; header=present", header +
			"a,2026-11-16T00:00:00Z,2026-11-23T00:00:00Z,spo2_pct,1,97,97,97,2026-11-21T10:01:00.000Z,97,2026-11-21T10:01:00.000Z,97\r\n" +
			"a,2026-11-16T00:00:00Z,2026-11-23T00:00:00Z,heart_rate_bpm,3,50.01,60,54.97,2026-11-21T10:00:00.500Z,54.9,2026-11-21T10:59:59.999Z,50.01\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, got := get(t, srv, "/v1/devices/a/aggregates?"+tt.query)
			if ct := resp.Header.Get("Content-Type"); ct != tt.wantType {
				t.Errorf("content type %q, want %q", ct, tt.wantType)
			}
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// A group has the values of one sign in one bucket, in hundredths, in the order of their
// times.
type group struct {
	values      []int64
	first, last time.Time
}

func (g *group) String() string {
	sum, least, most := int64(0), int64(math.MaxInt64), int64(0)
	for _, v := range g.values {
		sum, least, most = sum+v, min(least, v), max(most, v)
	}
	decimal := func(v int64) string {
		text := big.NewRat(v, 100).FloatString(2)
		return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	mean := big.NewRat(sum, 100*int64(len(g.values))).FloatString(2) // rounds halves away from 0
	mean = strings.TrimSuffix(strings.TrimRight(mean, "0"), ".")
	const layout = "2006-01-02T15:04:05.000Z07:00"
	return fmt.Sprintf(`{%d %s %s %s {%s %s} {%s %s}}`, len(g.values), decimal(least), decimal(most), mean,
		g.first.Format(layout), decimal(g.values[0]), g.last.Format(layout), decimal(g.values[len(g.values)-1]))
}

// TestAggregatesModel compares pages of aggregates of random readings with groups formed
// by the date and hour that time.Time shows.
func TestAggregatesModel(t *testing.T) {
	for _, tt := range []struct {
		zone  string
		clock time.Time // when the clock changes
	}{
		{"Europe/Berlin", time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)},
		{"Europe/Berlin", time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC)},
		{"America/St_Johns", time.Date(2026, 11, 1, 4, 30, 0, 0, time.UTC)},
		{"Asia/Kathmandu", time.Date(1985, 12, 31, 18, 30, 0, 0, time.UTC)},
		{"Pacific/Apia", time.Date(2011, 12, 30, 10, 0, 0, 0, time.UTC)},
		{"UTC", time.Date(2026, 12, 31, 23, 0, 0, 0, time.UTC)},
	} {
		for step, layout := range map[string]string{"1h": "2006-01-02 15 -0700", "1d": "2006-01-02"} {
			t.Run(tt.zone+" "+step, func(t *testing.T) {
				zone, err := time.LoadLocation(tt.zone)
				try(t, err)
				rnd := rand.New(rand.NewPCG(7, uint64(tt.clock.Unix())))
				at := tt.clock.Add(-3 * 24 * time.Hour)
				want := map[string]*group{}
				var lines []string
				for range 3000 {
					at = at.Add(time.Duration(1+rnd.IntN(360_000)) * time.Millisecond)
					line := fmt.Sprintf(`{"device":"a","time":%d`, at.UnixMilli())
					without := rnd.IntN(3)
					for i, sign := range []string{"spo2_pct", "heart_rate_bpm"} {
						if i == without {
							continue
						}
						v := 2000 + rnd.Int64N(8000)
						line += fmt.Sprintf(`,"%s":%d.%02d`, sign, v/100, v%100)
						key := at.In(zone).Format(layout) + sign
						if want[key] == nil {
							want[key] = &group{first: at.In(zone)}
						}
						want[key].values, want[key].last = append(want[key].values, v), at.In(zone)
					}
					lines = append(lines, line+"}")
				}
				srv := serve(t, fill(t, lines...))
				cursor := ""
				for pages := 1; ; pages++ {
					_, text := get(t, srv, fmt.Sprintf("/v1/devices/a/aggregates?step=%s&tz=%s&limit=%d%s", step, url.QueryEscape(tt.zone), 1+rnd.IntN(9), cursor))
					page := decodeAggregates(t, text)
					for _, b := range page.Buckets {
						for sign, got := range b.Signs {
							key := b.From.In(zone).Format(layout) + sign
							if w := want[key]; w == nil || got.text() != w.String() || w.first.Before(b.From) || !w.last.Before(b.To) {
								t.Errorf("%s: %s, want %s, in %v to %v", key, got.text(), w, b.From, b.To)
							}
							delete(want, key)
						}
					}
					if page.Next == "" {
						break
					}
					cursor = "&cursor=" + page.Next
				}
				for key := range want {
					t.Errorf("%s is missing", key)
				}
			})
		}
	}
}

type aggregatesPage struct {
	Buckets []struct {
		From, To time.Time
		Signs    map[string]*aggregate
	}
	Next string `json:"next_cursor"`
}

type aggregate struct {
	Count          int
	Min, Max, Mean json.Number
	First, Last    struct {
		Time  string
		Value json.Number
	}
}

func (a *aggregate) text() string {
	return fmt.Sprint(struct {
		n              int
		min, max, mean json.Number
		first, last    any
	}{a.Count, a.Min, a.Max, a.Mean, a.First, a.Last})
}

func decodeAggregates(t *testing.T, text string) (page aggregatesPage) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return page
}

// Pages in all formats have the same buckets, whatever their length, and bounds that no
// cursor moves.
func TestAggregatesPages(t *testing.T) {
	var lines []string
	for i := range 5000 { // several chunks
		lines = append(lines, fmt.Sprintf(`{"device":"a","time":%d,"heart_rate_bpm":%d}`, 1000+i*1700, 60+i%40))
	}
	srv := serve(t, fill(t, lines...))
	for _, format := range []string{"csv", "ndjson"} {
		_, want := get(t, srv, "/v1/devices/a/aggregates?step=1m&format="+format)
		for _, limit := range []int{1, 7, 142, 143} {
			got, cursor := "", ""
			for {
				resp, text := get(t, srv, fmt.Sprintf("/v1/devices/a/aggregates?step=1m&format=%s&limit=%d%s", format, limit, cursor))
				if got != "" && format == "csv" {
					_, text, _ = strings.Cut(text, "\n")
				}
				got += text
				next := resp.Trailer.Get("Pulsegate-Next-Cursor")
				if next == "" {
					break
				}
				cursor = "&cursor=" + next
			}
			if got != want {
				t.Errorf("%s with limit %d differs from one page", format, limit)
			}
		}
	}
	if _, text := get(t, srv, "/v1/devices/a/aggregates?step=1s"); len(decodeAggregates(t, text).Buckets) != 1000 {
		t.Errorf("the default page has %d buckets", len(decodeAggregates(t, text).Buckets))
	}
}

// decoded is a Reader of records that are decoded already.
type decoded struct {
	query.Reader
	records []storage.Record
}

func (d *decoded) Scan(_ context.Context, r storage.Range, dst []storage.Record) (int, error) {
	i := sort.Search(len(d.records), func(i int) bool { return d.records[i].TimeUnixMs >= r.FromUnixMs })
	return copy(dst, d.records[i:]), nil
}
