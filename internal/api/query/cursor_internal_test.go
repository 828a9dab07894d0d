package query

import (
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

// FuzzCursor checks that no text causes a panic, and that only cursors in the form
// written by this package are accepted.
func FuzzCursor(f *testing.F) {
	name, err := vitals.ParseName("ppg-1")
	try(f, err)
	ms, devices := []list{newList(cursorAscending, "a", ""), newList(cursorDescending, "a", ""),
		newList(cursorBucket, "a", "60000", "UTC")}, []list{}
	for _, l := range ms {
		f.Add(l.msCursor(1_800_000_000_000))
		f.Add(l.msCursor(0))
	}
	for _, kind := range cursorDevices {
		l := newList(kind, "ppg-", "stale")
		devices = append(devices, l)
		f.Add(l.deviceCursor(&deviceKey{1, name}))
	}
	f.Add("")
	f.Add("AQ==")
	f.Fuzz(func(t *testing.T, text string) {
		for _, l := range ms {
			if ms, err := l.parseMs(text); err == nil {
				if again := l.msCursor(ms); again != text {
					t.Errorf("cursor %q of %x is encoded as %q", text, l, again)
				}
			}
		}
		for _, l := range devices {
			if last, err := l.parseDevice(text); err == nil {
				if again := l.deviceCursor(&last); again != text {
					t.Errorf("device cursor %q is encoded as %q", text, again)
				}
			}
		}
	})
}

// FuzzParams checks that no query causes a panic or a result out of bounds.
func FuzzParams(f *testing.F) {
	f.Add("from=1&to=2026-01-01T00:00:00Z&limit=10&order=desc&format=csv&flags=false")
	f.Add("cursor=AQAAAZzzzzz")
	f.Add("from=%zz;")
	f.Add("from=2026-11-21&to=now&tz=Europe/Berlin&flag=spo2_pct%20low")
	f.Add("from=-7d&to=-1h&tz=UTC&flag=any")
	h := New(nil, nil, Options{})
	f.Fuzz(func(t *testing.T, raw string) {
		var q Selection
		if q.parse(h, raw, JSON) != nil {
			return
		}
		if q.Limit < 0 || q.Limit > MaxReadings || q.Range.FromUnixMs < 0 || int(q.Format) >= len(formatNames) {
			t.Errorf("query %q gives %+v", raw, q)
		}
	})
}

func TestNegotiate(t *testing.T) {
	for _, tt := range []struct {
		accept string
		want   Format
		ok     bool
	}{
		{"application/json", JSON, true},
		{"*/*", JSON, true},
		{"text/*", CSV, true},
		{"application/x-ndjson, application/json;q=0.5", NDJSON, true},
		{"application/json;q=0, */*;q=0.1", NDJSON, true},
		{"text/csv;q=0.5, application/json;q=0.4", CSV, true},
		{"TEXT/CSV", CSV, true},
		{"text/csv;q=-1", JSON, false},
		{"text/csv;q=NaN", JSON, false},
		{"text/csv;q=1.5", CSV, true},
		{"text/csv;q=x", JSON, false},
		{"text/csv;q=0.001", CSV, true},
		{"text/csv; q=0.5; version", CSV, true},
		{"text/csv; profile=http://example.org/x", CSV, true},
		{"application/vnd.apache.parquet", Parquet, true},
		{"image/png", JSON, false},
		{"", JSON, false},
	} {
		if got, ok := negotiate([]string{tt.accept}, Format(len(formatNames))); got != tt.want || ok != tt.ok {
			t.Errorf("Accept %q: %v, %v; want %v, %v", tt.accept, got, ok, tt.want, tt.ok)
		}
	}
	if got, ok := negotiate(nil, TextFormats); got != JSON || !ok {
		t.Errorf("no Accept: %v, %v", got, ok)
	}
}
