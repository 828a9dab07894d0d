package query

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// A timeReader reads the times in the parameters of one request.
type timeReader struct {
	nowUnixMs int64
	zone      *time.Location // in which dates begin
}

// times returns the timeReader of a request, with the zone in the parameter tz, by default
// UTC.
func (h *Handler) times(values url.Values) (timeReader, error) {
	c := timeReader{h.opt.Now().UnixMilli(), time.UTC}
	// A + in a query is a space, and some zones have one, such as Etc/GMT+5.
	if name := strings.ReplaceAll(values.Get("tz"), " ", "+"); values.Has("tz") && name != "UTC" {
		zone, ok := h.zones.load(name)
		if !ok {
			return c, &paramError{"tz", "neither a zone of the IANA database, such as Europe/Berlin, nor an offset from UTC of up to 23:59, such as +05:30"}
		}
		c.zone = zone
	}
	return c, nil
}

// errTime explains which times there are.
const errTime = "neither RFC 3339 with zone, nor integer Unix milliseconds, nor a date such as 2026-11-21, nor now, nor a time before now such as -24h or -7d"

// param returns the time in a parameter, in Unix ms, or fallback if it is missing.
func (c timeReader) param(values url.Values, name string, fallback int64) (int64, error) {
	if !values.Has(name) {
		return fallback, nil
	}
	ms, ok := c.parse(values.Get(name))
	if !ok {
		return 0, &paramError{name, errTime}
	}
	return ms, nil
}

// span returns the times in the parameters from and to, in Unix ms.
func (c timeReader) span(values url.Values) (fromUnixMs, toUnixMs int64, err error) {
	if fromUnixMs, err = c.param(values, "from", 0); err != nil {
		return 0, 0, err
	}
	if toUnixMs, err = c.param(values, "to", math.MaxInt64); err != nil {
		return 0, 0, err
	}
	if fromUnixMs > toUnixMs {
		return 0, 0, &paramError{"to", "is before from"}
	}
	// Readings before 1970 are rejected on write, so there are none.
	return max(fromUnixMs, 0), toUnixMs, nil
}

func (c timeReader) parse(text string) (unixMs int64, ok bool) {
	if text == "now" {
		return c.nowUnixMs, true
	}
	if ms, ok := parseDate(text); ok {
		return firstInstant(ms, c.zone), true
	}
	if ago, ok := parseAgo(text); ok {
		return c.nowUnixMs - ago, true
	}
	// A + in a query is a space, and zones are often sent as +02:00 unescaped.
	ms, _, err := vitals.ParseTime(strings.ReplaceAll(text, " ", "+"))
	return ms, err == nil
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
	if len(text) < 3 || text[0] != '-' {
		return 0, false
	}
	unit, ok := unitMs[text[len(text)-1]]
	n, err := strconv.ParseUint(text[1:len(text)-1], 10, 32)
	return int64(n) * unit, ok && err == nil
}
