package query

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pulsegate/pulsegate/vitals"
)

// Limits of a page.
const (
	DefaultDevices  = 100       // default number of devices in a page
	MaxDevices      = 1000      // maximum number of devices in a page
	MaxListed       = 100       // maximum number of devices that a request may list
	DefaultReadings = 1000      // default number of readings in a JSON page
	MaxReadings     = 1_000_000 // maximum value of limit for readings
)

// Params are the parameters of a request. Its methods return a parameter, or a default if it is
// missing. After the first parameter that is not valid, Err is set and they return zero values.
type Params struct {
	values url.Values
	Err    error // a [ParamError]
}

// ReadParams reads a query. It rejects unknown parameters, so that a misspelt bound
// does not silently widen the result, and repeated ones unless they are in lists.
func ReadParams(raw string, lists []string, known ...string) *Params {
	if raw == "" {
		return &Params{}
	}
	p := &Params{}
	if p.values, p.Err = url.ParseQuery(raw); p.Err != nil {
		p.Err = nil
		p.fail("", "the query is not well formed")
	}
	for name, all := range p.values {
		if list := slices.Contains(lists, name); !list && !slices.Contains(known, name) {
			p.fail("", "unknown parameter; known here: "+strings.Join(slices.Concat(lists, known), ", "))
		} else if !list && len(all) > 1 {
			p.fail(name, "given more than once")
		}
	}
	return p
}

// fail sets Err, unless it is set.
func (p *Params) fail(name, reason string) {
	if p.Err == nil {
		p.Err = &ParamError{name, reason}
	}
}

// get returns a parameter. It reports false if it is missing.
func (p *Params) get(name string) (string, bool) {
	if p.Err != nil || !p.values.Has(name) {
		return "", false
	}
	return p.values.Get(name), true
}

// Name returns a parameter that is a name, or the beginning of one.
func (p *Params) Name(name string) (parsed vitals.Name) {
	if all := p.Names(name); len(all) > 0 {
		return all[0]
	}
	return parsed
}

// Names returns the values of a parameter that may be repeated, each once.
func (p *Params) Names(name string) (all []vitals.Name) {
	seen := map[vitals.Name]bool{}
	for _, text := range p.values[name] {
		parsed, err := vitals.ParseName(text)
		if err != nil {
			p.fail(name, badName)
			return nil
		}
		if !seen[parsed] {
			seen[parsed] = true
			all = append(all, parsed)
		}
	}
	return all
}

// Count returns how often a parameter is given.
func (p *Params) Count(name string) int { return len(p.values[name]) }

// Limit returns the parameter limit, from 1 to most.
func (p *Params) Limit(fallback, most int) int {
	text, ok := p.get("limit")
	if !ok {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		p.fail("limit", fmt.Sprintf("not a whole number from 1 to %d", most))
	}
	return n
}

// text returns a parameter of at most most characters.
func (p *Params) text(name string, most int) string {
	text, _ := p.get(name)
	if utf8.RuneCountInString(text) > most || !utf8.ValidString(text) {
		p.fail(name, fmt.Sprintf("not at most %d characters", most))
	}
	return text
}

// choice returns the index of a parameter's value in choices, or fallback.
func (p *Params) choice(name string, fallback int, choices ...string) int {
	text, ok := p.get(name)
	if !ok {
		return fallback
	}
	i := slices.Index(choices, text)
	if i < 0 {
		p.fail(name, "not one of "+strings.Join(choices, ", "))
		return fallback
	}
	return i
}

// cursor calls parse with the parameter cursor, if there is one. of names the list that a cursor
// must belong to.
func (p *Params) cursor(of string, parse func(text string) error) {
	if text, ok := p.get("cursor"); ok {
		if err := parse(text); err != nil {
			p.fail("cursor", err.Error()+of)
		}
	}
}

// flag returns the flags in the parameter flag, or none if it is missing.
func (p *Params) flag(signs *vitals.Signs) vitals.FlagSet {
	choices, sets := []string{"any"}, []vitals.FlagSet{{}}
	for set, f := range signs.EveryFlag() {
		choices, sets = append(choices, f.String()), append(sets, set)
		sets[0] = sets[0].Union(set)
	}
	if i := p.choice("flag", -1, choices...); i >= 0 {
		return sets[i]
	}
	return vitals.FlagSet{}
}

// end returns the parameter end, for an answer in a format. Only what the client has chosen itself is not in the answer
// before its end.
func (p *Params) end(format Format) string {
	end := p.Name("end")
	if !end.IsZero() && format == JSON {
		p.fail("end", "not with the format json, whose text shows its end")
	}
	return end.String()
}

// receivedFrom and receivedTo are the parameters of the time at which readings arrived.
const receivedFrom, receivedTo = "received_from", "received_to"

// times sets the times of measurement and of receipt, and returns the parameters of the latter.
func (q *Selection) times(c timeReader, p *Params) (receipt string) {
	q.Range.FromUnixMs, q.Range.ToUnixMs = c.span(p)
	from, given := p.get(receivedFrom)
	to, bounded := p.get(receivedTo)
	if given || bounded {
		fromUnixMs, toUnixMs := c.spanOf(p, receivedFrom, receivedTo)
		q.ReceivedFromUnixMs, q.ReceivedToUnixMs = fromUnixMs, max(toUnixMs, 1) // nothing arrived before 1970
	}
	return from + " " + to
}

// parse implements page.
func (q *Selection) parse(h *Handler, raw string, format Format) error {
	p := q.params(raw, "from", "to", "tz", "limit", "order", "format", "flags", "flag", "end", receivedFrom, receivedTo)
	receipt := q.times(h.times(p), p)
	q.Range.Descending = p.choice("order", 0, "asc", "desc") == 1
	q.Format = Format(p.choice("format", int(format), formatNames[:q.formats()]...))
	q.end = p.end(q.Format)
	q.NoFlags = p.choice("flags", 0, "true", "false") == 1 || q.Format == OMH
	q.Only = p.flag(h.opt.Flags.Signs)
	fallback := 0 // no limit
	if q.Format == JSON {
		fallback = DefaultReadings
	}
	q.Limit = p.Limit(fallback, MaxReadings)
	flag, _ := p.get("flag")
	q.list = newList(q.timeCursor(), q.owner(), flag, receipt)
	p.cursor(" with this order, flag and time of receipt", q.continueAfter)
	return p.Err
}

// parse implements page.
func (a *Aggregation) parse(h *Handler, raw string, format Format) error {
	p := a.params(raw, "from", "to", "step", "tz", "limit", "format", "end", receivedFrom, receivedTo)
	now := h.times(p)
	a.NoFlags, a.Zone = true, now.zone
	a.Step, _ = p.get("step")
	var ok bool
	if a.StepMs, ok = parseStep(a.Step); !ok {
		p.fail("step", errStep)
	}
	receipt := a.times(now, p)
	a.Format = Format(p.choice("format", int(format), formatNames[:TextFormats]...))
	a.end = p.end(a.Format)
	fallback := 0 // no limit
	if a.Format == JSON {
		fallback = DefaultBuckets
	}
	a.Limit = p.Limit(fallback, MaxBuckets)
	kind := byte(cursorBucket)
	if a.worn != nil {
		kind = cursorWornBucket
	}
	a.list = newList(kind, a.owner(), strconv.FormatInt(a.StepMs, 10), a.Zone.String(), receipt)
	p.cursor(" with this step, tz and time of receipt", func(text string) error {
		from, err := a.list.parseMs(text)
		a.Range.FromUnixMs = max(a.Range.FromUnixMs, from)
		return err
	})
	return p.Err
}
