package query

import (
	"math"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/localtime"
	"github.com/pulsegate/pulsegate/vitals"
)

// A timeReader reads the times in the parameters of one request.
type timeReader struct {
	nowUnixMs int64
	zone      *time.Location // in which dates begin
	limits    *vitals.Limits
}

// Times are what the times in a request depend on.
type Times struct {
	NowUnixMs int64
	Limits    *vitals.Limits
}

func (h *Handler) times(p *Params) timeReader {
	return newTimeReader(p, h.opt.Now().UnixMilli(), &h.opt.Limits)
}

// newTimeReader returns the timeReader of a request, with the zone in the parameter tz, by default UTC.
func newTimeReader(p *Params, nowUnixMs int64, limits *vitals.Limits) timeReader {
	c := timeReader{nowUnixMs, time.UTC, limits}
	text, ok := p.get("tz")
	// A + in a query is a space, and some zones have one, such as Etc/GMT+5.
	if name := strings.ReplaceAll(text, " ", "+"); ok && name != "UTC" {
		var err error
		if c.zone, err = localtime.Zone(name); err != nil {
			p.fail("tz",
				"neither a zone of the IANA database, such as Europe/Berlin, nor an offset from UTC of up to 23:59, such as +05:30")
		}
	}
	return c
}

// errTime explains which times there are.
const errTime = "neither RFC 3339 with zone, nor integer Unix milliseconds, nor a date such as 2026-11-21, nor now, " +
	"nor a time before now such as -24h or -7d"

// param returns the time in a parameter, in Unix ms.
func (c timeReader) param(p *Params, name string, fallback int64) int64 {
	text, ok := p.get(name)
	if !ok {
		return fallback
	}
	ms, err := c.parse(text)
	switch {
	case err == vitals.ErrSeconds, err == vitals.ErrFiner:
		p.fail(name, (&vitals.FieldError{Err: err}).Reason())
	case err != nil:
		p.fail(name, errTime)
	}
	return ms
}

// span returns the times in the parameters from and to, in Unix ms.
func (c timeReader) span(p *Params) (fromUnixMs, toUnixMs int64) { return c.spanOf(p, "from", "to") }

// spanOf returns the times in two parameters, in Unix ms.
func (c timeReader) spanOf(p *Params, from, to string) (fromUnixMs, toUnixMs int64) {
	fromUnixMs, toUnixMs = c.param(p, from, 0), c.param(p, to, math.MaxInt64)
	if fromUnixMs > toUnixMs {
		p.fail(to, "is before "+from)
	}
	// Readings before 1970 are rejected on write, so there are none.
	return max(fromUnixMs, 0), toUnixMs
}

func (c timeReader) parse(text string) (unixMs int64, err error) {
	if text == "now" {
		return c.nowUnixMs, nil
	}
	if ms, ok := parseDate(text); ok {
		return firstInstant(ms, c.zone), nil
	}
	if ago, ok := parseAgo(text); ok {
		return c.nowUnixMs - ago, nil
	}
	// A + in a query is a space, and zones are often sent as +02:00 unescaped.
	ms, _, err := c.limits.ParseTime(strings.ReplaceAll(text, " ", "+"))
	return localtime.Bound(text, ms), err
}

// parseDate parses a date, such as 2026-11-21, and returns its midnight in UTC.
func parseDate(text string) (unixMs int64, ok bool) {
	if len(text) != len(time.DateOnly) {
		return 0, false
	}
	ms, _, err := vitals.ParseRFC3339(text + "T00:00:00Z")
	return ms, err == nil
}

// parseAgo parses a time before now, such as -24h. Days have 24 hours here.
func parseAgo(text string) (ms int64, ok bool) {
	rest, ok := strings.CutPrefix(text, "-")
	n, unit, valid := parseUnits(rest)
	return n * unit, ok && valid
}
