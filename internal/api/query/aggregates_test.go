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
					_, text := get(t, srv, fmt.Sprintf("/v1/devices/a/aggregates?step=%s&tz=%s&limit=%d%s", step,
						url.QueryEscape(tt.zone), 1+rnd.IntN(9), cursor))
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
				resp, text := get(t, srv, fmt.Sprintf("/v1/devices/a/aggregates?step=1m&format=%s&limit=%d%s", format,
					limit, cursor))
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

// Aggregates in formats other than JSON have all buckets, with a limit at most that many.
func TestAllBuckets(t *testing.T) {
	var lines []string
	for i := range 12_001 {
		lines = append(lines, fmt.Sprintf(`{"device":"a","time":%d,"spo2_pct":97}`, i*1000))
	}
	srv := serve(t, fill(t, lines...))
	for _, tt := range []struct {
		query string
		lines int
		more  bool
	}{
		{"format=ndjson", 12_001, false},
		{"format=csv", 12_002, false}, // with the header
		{"format=ndjson&limit=10000", 10_000, true},
	} {
		resp, text := get(t, srv, "/v1/devices/a/aggregates?step=1s&"+tt.query)
		if n, more := strings.Count(text, "\n"), resp.Trailer.Get("Pulsegate-Next-Cursor") != ""; resp.StatusCode != 200 ||
			n != tt.lines || more != tt.more {
			t.Errorf("%s: %s, %d lines, more: %v", tt.query, resp.Status, n, more)
		}
	}
}
