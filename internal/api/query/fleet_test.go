package query_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
)

var fleetNow = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func serveFleet(t *testing.T, m *storetest.Memory, g *gate.Gate) *httptest.Server {
	t.Helper()
	return serveOptions(t, m, query.Options{Service: query.Service{Gate: g}, Now: func() time.Time { return fleetNow }},
		unchanged)
}

type devicesPage struct {
	Devices []struct {
		Device string
		Stale  bool
	}
	Counts *struct{ Devices, Fresh, Stale, Flagged int }
	Next   string `json:"next_cursor"`
}

// listed returns the names on all pages of a list.
func listed(t *testing.T, srv *httptest.Server, params string, header ...string) (names []string) {
	t.Helper()
	cursor := ""
	for {
		_, text := get(t, srv, "/v1/devices?"+params+cursor, header...)
		var page devicesPage
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, d := range page.Devices {
			names = append(names, d.Device)
		}
		if page.Next == "" {
			return names
		}
		cursor = "&cursor=" + page.Next
	}
}

func TestDeviceStates(t *testing.T) {
	at := func(ago time.Duration) int64 { return fleetNow.Add(-ago).UnixMilli() }
	srv := serveFleet(t, fill(t,
		fmt.Sprintf(`{"device":"a-fresh","time":%d,"heart_rate_bpm":60}`, at(15*time.Minute)),
		fmt.Sprintf(`{"device":"b-stale","time":%d,"heart_rate_bpm":60}`, at(15*time.Minute+time.Millisecond)),
		fmt.Sprintf(`{"device":"c-flagged","time":%d,"heart_rate_bpm":160}`, at(0)),
		fmt.Sprintf(`{"device":"d-both","time":%d,"spo2_pct":80}`, at(48*time.Hour)),
		fmt.Sprintf(`{"device":"e-older-flag","time":%d,"spo2_pct":80}`, at(time.Hour)),
		fmt.Sprintf(`{"device":"e-older-flag","time":%d,"heart_rate_bpm":60}`, at(time.Minute)),
		fmt.Sprintf(`{"device":"f-ahead","time":%d,"heart_rate_bpm":60}`, at(-time.Minute)),
	), nil)
	for _, tt := range []struct{ query, want string }{
		{"", "a-fresh b-stale c-flagged d-both e-older-flag f-ahead"},
		{"sort=name", "a-fresh b-stale c-flagged d-both e-older-flag f-ahead"},
		{"sort=worst", "c-flagged e-older-flag d-both b-stale a-fresh f-ahead"},
		{"sort=age", "d-both b-stale a-fresh e-older-flag c-flagged f-ahead"},
		{"state=fresh", "a-fresh c-flagged e-older-flag f-ahead"},
		{"state=stale", "b-stale d-both"},
		{"state=stale&sort=age", "d-both b-stale"},
		{"state=flagged", "c-flagged d-both e-older-flag"},
		{"prefix=e-", "e-older-flag"},
		{"prefix=e-older-flag&sort=worst", "e-older-flag"},
		{"prefix=e-older-flags", ""},
		{"prefix=b&state=fresh", ""},
	} {
		for _, limit := range []int{1, 2, 3, 100} {
			if got := strings.Join(listed(t, srv, fmt.Sprintf("%s&limit=%d", tt.query, limit)), " "); got != tt.want {
				t.Errorf("%s, limit %d: %s, want %s", tt.query, limit, got, tt.want)
			}
		}
	}
	_, text := get(t, srv, "/v1/devices?counts=true&state=stale&limit=1")
	var page devicesPage
	try(t, json.Unmarshal([]byte(text), &page))
	if got := fmt.Sprintf("%+v", page); !strings.Contains(text,
		`"counts":{"devices":6,"fresh":4,"stale":2,"flagged":3}`) || len(page.Devices) != 1 || !page.Devices[0].Stale {
		t.Errorf("got %s: %s", got, text)
	}
	if _, text := get(t, srv, "/v1/devices?counts=true&prefix=b"); !strings.Contains(text,
		`"counts":{"devices":1,"fresh":0,"stale":1,"flagged":0}`) {
		t.Errorf("counts of a prefix: %s", text)
	}
}

// Each order is that of a plain sort of all devices, whatever the length of pages.
func TestDeviceOrders(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	type model struct {
		name           string
		unixMs         int64
		stale, flagged bool
	}
	var lines []string
	var all []model
	for i := range 500 {
		d := model{name: fmt.Sprintf("d-%03d", i), unixMs: fleetNow.Add(-time.Duration(rnd.IntN(30)) * time.Minute).
			UnixMilli(), flagged: rnd.IntN(3) == 0}
		d.stale = d.unixMs < fleetNow.Add(-15*time.Minute).UnixMilli()
		bpm := 60
		if d.flagged {
			bpm = 150
		}
		lines = append(lines, fmt.Sprintf(`{"device":"%s","time":%d,"heart_rate_bpm":%d}`, d.name, d.unixMs, bpm))
		all = append(all, d)
	}
	srv := serveFleet(t, fill(t, lines...), nil)
	for _, tt := range []struct {
		query   string
		compare func(a, b model) int
	}{
		{"sort=age", func(a, b model) int { return cmp.Or(cmp.Compare(a.unixMs, b.unixMs), cmp.Compare(a.name, b.name)) }},
		{"counts=true", func(a, b model) int { return cmp.Compare(a.name, b.name) }},
	} {
		slices.SortFunc(all, tt.compare)
		for _, limit := range []int{7, 100, 499, 500, 501} {
			got := listed(t, srv, fmt.Sprintf("%s&limit=%d", tt.query, limit))
			if !slices.EqualFunc(got, all, func(name string, d model) bool { return name == d.name }) {
				t.Errorf("%s, limit %d: wrong order, or %d devices instead of %d", tt.query, limit, len(got), len(all))
			}
		}
	}
}
