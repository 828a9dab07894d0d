package query_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestReceived selects readings by when their last part arrived, in pages of each size: the reading of 1 s arrived
// at 100 s and was completed at 300 s, that of 2 s arrived at 100 s, and that of 3 s at 200 s.
func TestReceived(t *testing.T) {
	m := storetest.NewMemory()
	device, err := vitals.ParseName("a")
	try(t, err)
	store := func(timeUnixMs, receivedUnixMs int64, s vitals.Sign, v vitals.Value) {
		r := vitals.Reading{Device: device, TimeUnixMs: timeUnixMs}
		r.Values.Set(s, v)
		try(t, m.Append([]*storage.Entry{{Reading: &r, ReceivedUnixMs: receivedUnixMs}}))
	}
	store(1000, 100_000, vitals.HeartRate, 60_00)
	store(2000, 100_000, vitals.HeartRate, 61_00)
	store(3000, 200_000, vitals.HeartRate, 62_00)
	store(1000, 300_000, vitals.SpO2, 97_00)
	srv := serve(t, m)

	for _, tt := range []struct{ query, want string }{
		{"", "60 61 62"},
		{"received_from=1970-01-01T00:01:40Z&received_to=1970-01-01T00:03:20Z", "61"},
		{"received_from=1970-01-01T00:03:20Z", "60 62"},
		{"received_from=1970-01-01T00:03:20Z&order=desc", "62 60"},
		{"received_from=1970-01-01T00:03:20Z&to=1970-01-01T00:00:02Z", "60"},
		{"received_to=1970-01-01T00:05:00Z", "61 62"},
		{"received_to=1970-01-01T00:00:00Z", ""},
		{"received_from=1970-01-01T00:05:00.001Z", ""},
	} {
		for _, limit := range []string{"1", "2", "3"} {
			var got []string
			for cursor := "&limit=" + limit; cursor != ""; {
				resp, text := get(t, srv, "/v1/devices/a/readings?flags=false&"+tt.query+cursor)
				if resp.StatusCode != 200 {
					t.Fatalf("%s: %s", tt.query, text)
				}
				cursor = ""
				for _, line := range strings.Split(text, "\n") {
					if _, rate, ok := strings.Cut(line, `"heart_rate_bpm":`); ok {
						got = append(got, rate[:2])
					}
					if _, next, ok := strings.Cut(line, `"next_cursor":"`); ok {
						cursor = "&limit=" + limit + "&cursor=" + strings.TrimRight(next, `"}`)
					}
				}
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("%s, %s a page: %s, want %s", tt.query, limit, s, tt.want)
			}
		}
	}
	_, text := get(t, srv, "/v1/devices/a/aggregates?step=1h&format=csv&received_from=1970-01-01T00:03:20Z")
	if !strings.Contains(text, ",heart_rate_bpm,2,60.0,62.0,61.0,") || !strings.Contains(text, ",spo2_pct,1,") {
		t.Error(text)
	}
	_, text = get(t, srv, "/v1/devices/a/readings?flags=false&limit=1&received_from=1970-01-01T00:03:20Z")
	_, cursor, _ := strings.Cut(text, `"next_cursor":"`)
	cursor = strings.TrimRight(cursor, "\"}\n")
	for query, want := range map[string]string{
		"/v1/devices/a/readings?limit=1&cursor=" +
			cursor: "cursor: not a cursor of this list with this order, flag and time of receipt",
		"/v1/devices/a/readings?received_from=seconds": "received_from: " +
			"neither RFC 3339",
		"/v1/devices/a/readings?received_from=1970-01-01T00:03:20Z&received_to=1970-01-01T00:03:19Z": "received_to: is " +
			"before received_from",
	} {
		resp, text := get(t, srv, query)
		field, reason, _ := strings.Cut(want, ": ")
		if resp.StatusCode != 400 || !strings.Contains(text, `"field":"`+field+`","reason":"`+reason) {
			t.Errorf("%s: %d %s, want %s", query, resp.StatusCode, text, want)
		}
	}
}
