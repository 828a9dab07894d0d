package query

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func mustZone(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, ok := new(zones).load(name)
	if !ok {
		t.Fatalf("no zone %q", name)
	}
	return zone
}

func mustStep(t testing.TB, text string) int64 {
	t.Helper()
	ms, ok := parseStep(text)
	if !ok {
		t.Fatalf("%q is not a step", text)
	}
	return ms
}

// TestCalendar lists the buckets around changes of the clock.
func TestCalendar(t *testing.T) {
	for _, tt := range []struct{ name, zone, step, from, want string }{
		{"UTC", "UTC", "15m", "2026-11-21T00:00:00Z", "00:00Z 00:15Z 00:30Z 00:45Z 01:00Z"},
		{"seconds", "UTC", "90s", "2026-11-21T00:00:00Z", "00:00Z 00:01Z 00:03Z 00:04Z 00:06Z"},
		{"a day of 23 h", "Europe/Berlin", "1d", "2026-03-28T12:00:00Z", "28.00:00+01 29.00:00+01 30.00:00+02"},
		{"a day of 25 h", "Europe/Berlin", "1d", "2026-10-24T12:00:00Z", "24.00:00+02 25.00:00+02 26.00:00+01"},
		{"hours of a day of 23 h", "Europe/Berlin", "1h", "2026-03-29T00:00:00Z", "01:00+01 03:00+02 04:00+02"},
		{"hours of a day of 25 h", "Europe/Berlin", "1h", "2026-10-24T23:30:00Z", "01:00+02 02:00+02 02:00+01 03:00+01"},
		{"6 h in spring", "Europe/Berlin", "6h", "2026-03-28T23:00:00Z", "00:00+01 06:00+02 12:00+02"},
		{"6 h in autumn", "Europe/Berlin", "6h", "2026-10-24T22:00:00Z", "00:00+02 06:00+01 12:00+01"},
		{"the end of a bucket in autumn, in the hour that is repeated", "Europe/Berlin", "2h", "2026-10-25T01:59:00Z", "02:00+02 04:00+01"},
		{"weeks begin on Mondays", "Europe/Berlin", "1w", "2026-11-22T12:00:00Z", "16.00:00+01 23.00:00+01 30.00:00+01"},
		{"7 d are a week", "UTC", "7d", "2026-11-22T12:00:00Z", "16.00:00Z 23.00:00Z"},
		// The clock was set back from 00:01 to 23:01 of the day before.
		{"midnight twice", "America/St_Johns", "1d", "2010-11-06T12:00:00Z", "06.00:00-02:30 07.00:00-02:30 08.00:00-03:30"},
		{"hours around midnight twice", "America/St_Johns", "1h", "2010-11-07T02:00:00Z", "06.23:00-02:30 07.00:00-02:30 07.00:00-03:30 07.01:00-03:30"},
		{"a day that begins at 00:00 although the clock is set to 01:01 at 00:01", "America/St_Johns", "1d", "2010-03-13T12:00:00Z", "13.00:00-03:30 14.00:00-03:30 15.00:00-02:30"},
		{"since 2011 at 02:00", "America/St_Johns", "1d", "2026-10-31T12:00:00Z", "31.00:00-02:30 01.00:00-02:30 02.00:00-03:30"},
		{"an offset of 45 min", "Asia/Kathmandu", "1h", "2026-11-21T00:00:00Z", "05:00+05:45 06:00+05:45"},
		{"an offset of 45 min, by day", "Asia/Kathmandu", "1d", "2026-11-21T00:00:00Z", "21.00:00+05:45 22.00:00+05:45"},
		{"15 min were skipped", "Asia/Kathmandu", "1h", "1985-12-31T17:45:00Z", "23:00+05:30 00:15+05:45 01:00+05:45"},
		{"15 min were skipped, by day", "Asia/Kathmandu", "1d", "1985-12-31T12:00:00Z", "31.00:00+05:30 01.00:15+05:45 02.00:00+05:45"},
		{"a skipped day", "Pacific/Apia", "1d", "2011-12-29T12:00:00Z", "29.00:00-10 31.00:00+14 01.00:00+14"},
		{"hours of a skipped day", "Pacific/Apia", "12h", "2011-12-29T12:00:00Z", "29.00:00-10 29.12:00-10 31.00:00+14 31.12:00+14"},
		{"two days with a skipped one", "Pacific/Apia", "2d", "2011-12-28T12:00:00Z", "27.00:00-10 29.00:00-10 31.00:00+14 02.00:00+14"},
		{"no midnight", "America/Sao_Paulo", "1d", "2018-11-03T12:00:00Z", "03.00:00-03 04.01:00-02 05.00:00-02"},
		{"half an hour in autumn", "Australia/Lord_Howe", "1h", "2026-04-04T14:00:00Z", "01:00+11 02:00+10:30 03:00+10:30"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			zone := mustZone(t, tt.zone)
			from, err := time.Parse(time.RFC3339, tt.from)
			if err != nil {
				t.Fatal(err)
			}
			layout := "15:04Z07"
			if strings.Contains(tt.want, ".") {
				layout = "02." + layout
			}
			c := newCalendar(from.UnixMilli(), mustStep(t, tt.step), zone)
			if from.UnixMilli() < c.fromMs || from.UnixMilli() >= c.toMs {
				t.Errorf("the first bucket, %d to %d, does not contain %d", c.fromMs, c.toMs, from.UnixMilli())
			}
			var got []string
			for range strings.Fields(tt.want) {
				at := time.UnixMilli(c.fromMs).In(zone)
				text := at.Format(layout)
				if _, offset := at.Zone(); offset%3600 != 0 {
					text = at.Format(layout + ":00")
				}
				got = append(got, text)
				c.seek(c.toMs)
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A model finds boundaries minute by minute, from what time.Time shows.
type model struct {
	zone   *time.Location
	stepMs int64
	atMs   int64 // current minute
	offset int   // of the zone, in seconds
	keptMs int64 // changes of the clock by multiples of the step
	bucket int64 // latest one that the clock has reached
	fromMs int64 // start of bucket
}

func newModel(fromMs, stepMs int64, zone *time.Location) *model {
	m := &model{zone: zone, stepMs: stepMs, atMs: fromMs - fromMs%60_000}
	_, m.offset = time.UnixMilli(m.atMs).In(zone).Zone()
	return m
}

func (m *model) next() {
	m.atMs += 60_000
	_, offset := time.UnixMilli(m.atMs).In(m.zone).Zone()
	if change := int64(offset-m.offset) * 1000; change%m.stepMs == 0 {
		m.keptMs += change
	}
	m.offset = offset
	monday := time.Date(1969, 12, 29, 0, 0, 0, 0, time.UTC).UnixMilli()
	if b := (m.atMs + int64(offset)*1000 - m.keptMs - monday) / m.stepMs; b > m.bucket {
		m.bucket, m.fromMs = b, m.atMs
	}
}

// TestCalendarModel compares calendars with the model at random times around changes of
// the clock.
func TestCalendarModel(t *testing.T) {
	steps := []string{"1m", "5m", "15m", "16m", "30m", "45m", "1h", "90m", "2h", "3h", "6h", "8h", "12h", "1d", "2d", "3d", "1w", "10d"}
	for _, name := range []string{
		"UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "America/Sao_Paulo", "Australia/Lord_Howe",
		"Africa/Casablanca", "Pacific/Kwajalein", "Asia/Pyongyang", "America/Caracas", "Antarctica/Troll", "Europe/Dublin", "Asia/Gaza",
	} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, uint64(len(name))))
			zone := mustZone(t, name)
			for range 8 {
				at := time.Date(1975, 1, 1, 0, 0, rnd.IntN(75*366*86400), 0, time.UTC)
				if _, end := at.In(zone).ZoneBounds(); !end.IsZero() {
					at = end
				}
				compare(t, rnd, at.UnixMilli(), mustStep(t, steps[rnd.IntN(len(steps))]), zone)
			}
		})
	}
}

func compare(t *testing.T, rnd *rand.Rand, aroundMs, stepMs int64, zone *time.Location) {
	t.Helper()
	begin := aroundMs - stepMs - 2*msPerDay
	m := newModel(begin-stepMs-3*msPerDay, stepMs, zone)
	var c *calendar
	for at := begin + rnd.Int64N(stepMs); at < aroundMs+stepMs+2*msPerDay; at += 1 + rnd.Int64N(stepMs/2+rnd.Int64N(stepMs*4)) {
		for m.atMs+60_000 <= at {
			m.next()
		}
		if c == nil || rnd.IntN(8) == 0 {
			c = newCalendar(at, stepMs, zone) // as for another page
		}
		c.seek(at)
		if c.fromMs != m.fromMs || at < c.fromMs || at >= c.toMs {
			t.Fatalf("step %v at %v: bucket from %v to %v, want from %v", time.Duration(stepMs)*time.Millisecond, time.UnixMilli(at).In(zone),
				time.UnixMilli(c.fromMs).In(zone), time.UnixMilli(c.toMs).In(zone), time.UnixMilli(m.fromMs).In(zone))
		}
	}
}

// TestDays compares the starts of days with the dates that time.Time shows, day by day.
func TestDays(t *testing.T) {
	for _, tt := range []struct{ zone, from, to string }{
		{"Europe/Berlin", "2026-01-01", "2026-12-31"},
		{"America/St_Johns", "2010-01-01", "2011-12-31"},
		{"Asia/Kathmandu", "1985-12-01", "1986-02-01"},
		{"Pacific/Apia", "2011-01-01", "2012-12-31"},
		{"America/Sao_Paulo", "2017-10-01", "2018-03-01"},
	} {
		zone := mustZone(t, tt.zone)
		date, err := time.Parse(time.DateOnly, tt.from)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(date.Year(), date.Month(), date.Day()-2, 0, 0, 0, 0, zone)
		c := newCalendar(at.UnixMilli(), msPerDay, zone)
		for ; date.Format(time.DateOnly) <= tt.to; date = date.AddDate(0, 0, 1) {
			for at.Format(time.DateOnly) < date.Format(time.DateOnly) {
				at = at.Add(time.Minute)
			}
			if got, ok := (timeReader{zone: zone}).parse(date.Format(time.DateOnly)); !ok || got != at.UnixMilli() {
				t.Errorf("%s: %s begins at %v, want %v", tt.zone, date.Format(time.DateOnly), time.UnixMilli(got).In(zone), at)
			}
			if c.seek(at.UnixMilli()); c.fromMs != at.UnixMilli() {
				t.Errorf("%s: the bucket of %v begins at %v", tt.zone, at, time.UnixMilli(c.fromMs).In(zone))
			}
		}
	}
}

// A gap between readings costs no more than the changes of the clock in it.
func TestCalendarGap(t *testing.T) {
	c := newCalendar(0, secondMs, mustZone(t, "Europe/Berlin"))
	const year9999 = 253_370_764_800_000
	if c.seek(year9999); c.fromMs != year9999 || c.toMs != year9999+secondMs {
		t.Errorf("from %d to %d", c.fromMs, c.toMs)
	}
}

func TestParseStep(t *testing.T) {
	for text, want := range map[string]int64{
		"1s": 1000, "15m": 900_000, "90m": 5_400_000, "24h": msPerDay, "48h": 2 * msPerDay, "1d": msPerDay, "366d": 366 * msPerDay, "52w": 364 * msPerDay,
	} {
		if got, ok := parseStep(text); got != want || !ok {
			t.Errorf("%q: %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "h", "0s", "-1h", "+1h", "7m", "25h", "1.5h", "367d", "53w", "1mo", "1M", "1y", "15", "99999999999d", "4294967295w", " 1h"} {
		if ms, ok := parseStep(text); ok {
			t.Errorf("%q is accepted as %d ms", text, ms)
		}
	}
}

func TestZones(t *testing.T) {
	for _, name := range []string{"", "Local", "../etc/passwd", "/etc/localtime", "right/Europe/Berlin", "Europe/Nowhere", "Europe"} {
		if _, ok := new(zones).load(name); ok {
			t.Errorf("%q is accepted", name)
		}
	}
}
