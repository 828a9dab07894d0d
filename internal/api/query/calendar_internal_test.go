package query

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/localtime"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

func mustZone(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := localtime.Zone(name)
	try(t, err)
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
	steps := []string{"1m", "5m", "15m", "16m", "30m", "45m", "1h", "90m", "2h", "3h", "6h", "8h", "12h", "1d", "2d",
		"3d", "1w", "10d"}
	for _, name := range []string{
		"UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "America/Sao_Paulo",
		"Australia/Lord_Howe",
		"Africa/Casablanca", "Pacific/Kwajalein", "Asia/Pyongyang", "America/Caracas", "Antarctica/Troll",
		"Europe/Dublin", "Asia/Gaza",
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
	for at := begin + rnd.Int64N(stepMs); at < aroundMs+stepMs+2*msPerDay; at += 1 +
		rnd.Int64N(stepMs/2+rnd.Int64N(stepMs*4)) {
		for m.atMs+60_000 <= at {
			m.next()
		}
		if c == nil || rnd.IntN(8) == 0 {
			c = newCalendar(at, stepMs, zone) // as for another page
		}
		c.seek(at)
		if c.fromMs != m.fromMs || at < c.fromMs || at >= c.toMs {
			t.Fatalf("step %v at %v: bucket from %v to %v, want from %v", time.Duration(stepMs)*time.Millisecond,
				time.UnixMilli(at).In(zone),
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
		try(t, err)
		at := time.Date(date.Year(), date.Month(), date.Day()-2, 0, 0, 0, 0, zone)
		c := newCalendar(at.UnixMilli(), msPerDay, zone)
		for ; date.Format(time.DateOnly) <= tt.to; date = date.AddDate(0, 0, 1) {
			for at.Format(time.DateOnly) < date.Format(time.DateOnly) {
				at = at.Add(time.Minute)
			}
			if got, err := (timeReader{zone: zone}).parse(date.Format(time.DateOnly)); err != nil || got != at.UnixMilli() {
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

func TestZones(t *testing.T) {
	for _, name := range []string{"", "Local", "../etc/passwd", "/etc/localtime", "right/Europe/Berlin",
		"Europe/Nowhere", "Europe"} {
		if _, err := localtime.Zone(name); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

var try = polltest.Try
