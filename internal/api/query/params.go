package query

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// Limits of a page.
const (
	DefaultDevices  = 100       // default number of devices in a page
	MaxDevices      = 1000      // maximum number of devices in a page
	DefaultReadings = 1000      // default number of readings in a JSON page
	MaxReadings     = 1_000_000 // maximum value of limit for readings
)

// A paramError reports which parameter is invalid and why. Its text does not contain
// the value sent by the client.
type paramError struct {
	name   string // "" for the query as a whole
	reason string
}

func (e *paramError) Error() string { return e.name + ": " + e.reason }

// parseParams parses a query. It rejects unknown parameters, so that a misspelt bound
// does not silently widen the result, and duplicate ones.
func parseParams(raw string, known ...string) (url.Values, error) {
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, &paramError{"", "the query is not well formed"}
	}
	for name, all := range values {
		if !slices.Contains(known, name) {
			return nil, &paramError{"", "unknown parameter; known here: " + strings.Join(known, ", ")}
		}
		if len(all) > 1 {
			return nil, &paramError{name, "given more than once"}
		}
	}
	return values, nil
}

// limitParam returns the parameter limit, from 1 to most, or fallback if it is missing.
func limitParam(values url.Values, fallback, most int) (int, error) {
	if !values.Has("limit") {
		return fallback, nil
	}
	n, err := strconv.Atoi(values.Get("limit"))
	if err != nil || n < 1 || n > most {
		return 0, &paramError{"limit", fmt.Sprintf("not a whole number from 1 to %d", most)}
	}
	return n, nil
}

// choiceParam returns the index of a parameter's value in choices, or 0 if it is
// missing.
func choiceParam(values url.Values, name string, choices ...string) (int, error) {
	if !values.Has(name) {
		return 0, nil
	}
	if i := slices.Index(choices, values.Get(name)); i >= 0 {
		return i, nil
	}
	return 0, &paramError{name, "not one of " + strings.Join(choices, ", ")}
}

// formatParam returns the parameter format, or fallback if it is missing.
func formatParam(values url.Values, fallback Format, names []string) (Format, error) {
	if !values.Has("format") {
		return fallback, nil
	}
	f, err := choiceParam(values, "format", names...)
	return Format(f), err
}

// parse implements page.
func (q *Selection) parse(h *Handler, device vitals.Name, raw string, format Format) error {
	values, err := parseParams(raw, "from", "to", "tz", "limit", "cursor", "order", "format", "flags", "flag")
	if err != nil {
		return err
	}
	now, err := h.times(values)
	if err != nil {
		return err
	}
	q.Range.Device = device
	if q.Range.FromUnixMs, q.Range.ToUnixMs, err = now.span(values); err != nil {
		return err
	}
	order, err := choiceParam(values, "order", "asc", "desc")
	if err != nil {
		return err
	}
	q.Range.Descending = order == 1
	if q.Format, err = formatParam(values, format, formatNames[:]); err != nil {
		return err
	}
	flags, err := choiceParam(values, "flags", "true", "false")
	if err != nil {
		return err
	}
	q.NoFlags = flags == 1 || q.Format == OMH
	if q.Only, err = flagParam(values); err != nil {
		return err
	}

	fallback := 0 // no limit
	if q.Format == JSON {
		fallback = DefaultReadings
	}
	if q.Limit, err = limitParam(values, fallback, MaxReadings); err != nil {
		return err
	}
	if values.Has("cursor") {
		lastUnixMs, err := parseTimeCursor(values.Get("cursor"), q.Range.Descending)
		if err != nil {
			return &paramError{"cursor", err.Error() + " in this order"}
		}
		q.Range = after(q.Range, lastUnixMs)
	}
	return nil
}

// parse implements page.
func (a *Aggregation) parse(h *Handler, device vitals.Name, raw string, format Format) error {
	a.NoFlags = true
	values, err := parseParams(raw, "from", "to", "step", "tz", "limit", "cursor", "format")
	if err != nil {
		return err
	}
	now, err := h.times(values)
	if err != nil {
		return err
	}
	a.Zone, a.Step, a.Range.Device = now.zone, values.Get("step"), device
	if a.StepMs, err = parseStep(a.Step); err != nil {
		return err
	}
	if a.Range.FromUnixMs, a.Range.ToUnixMs, err = now.span(values); err != nil {
		return err
	}
	if a.Format, err = formatParam(values, format, formatNames[:TextFormats]); err != nil {
		return err
	}
	fallback := MaxBuckets
	if a.Format == JSON {
		fallback = DefaultBuckets
	}
	if a.Limit, err = limitParam(values, fallback, MaxBuckets); err != nil {
		return err
	}
	if values.Has("cursor") {
		from, err := parseBucketCursor(values.Get("cursor"))
		if err != nil {
			return &paramError{"cursor", err.Error()}
		}
		a.Range.FromUnixMs = max(a.Range.FromUnixMs, from)
	}
	return nil
}
