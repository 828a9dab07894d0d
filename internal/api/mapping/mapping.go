package mapping

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/strictjson"
	"github.com/pulsegate/pulsegate/vitals"
)

// A mapping says how a payload is read. It is never modified.
type mapping struct {
	name, topic     string
	where           []condition
	device, gateway *string // pointers; nil means none
	time            string  // a pointer, received or characteristic
	timeFormat      string
	zone            *time.Location // of characteristics
	signs           []signRule     // by field

	gatt       *gattCharacteristic // nil means JSON
	value      string              // pointer to the characteristic
	base64     bool                // it is not hex
	userSuffix string              // "" means that the user index is not kept
}

// A condition is a text that a payload must have.
type condition struct{ pointer, is string }

// A signRule says where the value of a sign is.
type signRule struct {
	field      string
	sign       vitals.Sign
	definition *vitals.Definition
	at         string   // a pointer, or a part of a characteristic
	factor     *decimal // nil means 1
	unitAt     *string
	unitIs     string
}

// A use is a pointer of a mapping and the key that has it.
type use struct{ key, pointer string }

// uses returns the pointers of a mapping.
func (m *mapping) uses() (all []use) {
	add := func(key string, pointer *string) {
		if pointer != nil {
			all = append(all, use{key, *pointer})
		}
	}
	for i := range m.where {
		add("where", &m.where[i].pointer)
	}
	add("device", m.device)
	add("gateway", m.gateway)
	if m.time != received && m.time != characteristic {
		add("time", &m.time)
	}
	if m.gatt != nil {
		add("value", &m.value)
		return all
	}
	for i := range m.signs {
		add(m.signs[i].field, &m.signs[i].at)
		add(m.signs[i].field, m.signs[i].unitAt)
	}
	return all
}

// A Set has the mappings of files. It is never modified.
type Set struct{ names, topics []*group }

// A group has the mappings of a name or of a topic, of which the first that fits is used. It is an [ingest.Input].
type group struct {
	key      string
	mappings []*mapping
	plan     *plan
}

// add adds a mapping to the groups of its name and of its topic.
func (s *Set) add(m *mapping) error {
	if err := addTo(&s.names, m.name, m); err != nil || m.topic == "" {
		return err
	}
	return addTo(&s.topics, m.topic, m)
}

// addTo adds a mapping to the group of a key, with whose other mappings it must agree.
func addTo(groups *[]*group, key string, m *mapping) error {
	i := slices.IndexFunc(*groups, func(g *group) bool { return g.key == key })
	if i < 0 {
		i = len(*groups)
		*groups = append(*groups, &group{key: key, plan: newPlan()})
	}
	g := (*groups)[i]
	if slices.ContainsFunc(g.mappings, func(m *mapping) bool { return len(m.where) == 0 }) {
		return bad("where", "not reached: an earlier mapping of this name or topic takes every payload, because it has no where")
	}
	g.mappings = append(g.mappings, m)
	for _, use := range m.uses() {
		if err := g.plan.add(use.pointer); err != nil {
			return &vitals.FieldOf{Part: use.key, Err: err}
		}
	}
	return nil
}

func keys(groups []*group) (all []string) {
	for _, g := range groups {
		all = append(all, g.key)
	}
	return all
}

// find returns the group of a key as an Input, or nil.
func find(groups []*group, key string) ingest.Input {
	for _, g := range groups {
		if g.key == key {
			return g
		}
	}
	return nil
}

// Names returns the names of the mappings, in the order of the files.
func (s *Set) Names() []string { return keys(s.names) }

// Topics returns the patterns of topics, in the order of the files.
func (s *Set) Topics() []string { return keys(s.topics) }

// Named returns the input of payloads for the mappings of a name, or nil if there are none. It may be used by many
// goroutines.
func (s *Set) Named(name string) ingest.Input { return find(s.names, name) }

// OfTopic is Named for a pattern of topics.
func (s *Set) OfTopic(pattern string) ingest.Input { return find(s.topics, pattern) }

// Reasons for which a payload is rejected. Their texts are sent to clients.
var (
	errNoFit     = errors.New("no mapping fits: none has a where that holds")
	errNoArray   = errors.New("the array of readings is missing")
	errNotText   = errors.New("neither a string nor a number")
	errOrigin    = vitals.ErrOrigin
	errMissing   = vitals.ErrMissing
	errNoUnit    = errors.New("the payload does not say its unit")
	errOtherUnit = errors.New("not in the unit of the mapping; units are not converted")
)

// Decode implements [ingest.Input].
func (g *group) Decode(message []byte, in *ingest.Intake) error {
	if err := strictjson.CheckSize(message); err != nil {
		return err
	}
	r := strictjson.NewReader(message)
	p := payload{plan: g.plan, values: make([]value, len(g.plan.slots))}
	index, payloads, tooMany := 0, 0, false
	var left *disowned
	settle := func(reading vitals.Reading, field string, err error) {
		switch {
		case index >= in.MaxReadings:
			tooMany = true
			return
		case errors.As(err, &left):
			for i := range left.mapping.signs {
				in.LeftOut = append(in.LeftOut, ingest.LeftOut{
					Index: index, Source: ingest.Mapping, Device: reading.Device, Field: left.mapping.signs[i].field, Why: left.why,
				})
			}
		case err != nil:
			in.Batch.Refused = append(in.Batch.Refused, vitals.FieldError{Index: index, Field: field, Err: err})
		default:
			in.Batch.Readings = append(in.Batch.Readings, reading)
			in.Batch.Index = append(in.Batch.Index, int32(index))
		}
		index++
	}
	for payloads == 0 || r.Kind() != 0 {
		raw := r.Raw()
		if raw == nil {
			break // a syntax error
		}
		payloads++
		p.read(raw, func() {
			if !tooMany {
				settle(g.reading(&p, in))
			}
		})
		if !p.found {
			settle(vitals.Reading{}, "", errNoArray)
		}
		if tooMany {
			return vitals.ErrTooManyReadings
		}
	}
	if payloads == 1 && g.plan.array == "" {
		in.Batch.Shape = vitals.Single
	}
	return r.End()
}

// reading returns the reading of a payload, or the field that is rejected and why.
func (g *group) reading(p *payload, in *ingest.Intake) (r vitals.Reading, field string, err error) {
	i := slices.IndexFunc(g.mappings, func(m *mapping) bool { return m.fits(p) })
	if i < 0 {
		return r, "", errNoFit
	}
	m := g.mappings[i]
	if field, err = m.read(p, in, &r); err != nil {
		return r, field, err
	}
	if broken, ok := errors.AsType[*vitals.FieldError](in.Rules.Validate(&r, in.NowUnixMs)); ok {
		return r, broken.Field, broken.Err
	}
	return r, "", nil
}

// fits reports whether a payload has the texts of where.
func (m *mapping) fits(p *payload) bool {
	for _, c := range m.where {
		if v := p.at(c.pointer); v.kind == absent || v.kind == nested || string(v.text) != c.is {
			return false
		}
	}
	return true
}

// read sets the reading.
func (m *mapping) read(p *payload, in *ingest.Intake, r *vitals.Reading) (field string, err error) {
	var from vitals.Origin
	if in.Origin != nil {
		from = *in.Origin
	}
	for _, name := range []struct {
		field   string
		pointer *string
		known   vitals.Name
		to      *vitals.Name
	}{{"device", m.device, from.Device, &r.Device}, {"gateway", m.gateway, from.Gateway, &r.Gateway}} {
		if *name.to, err = nameAt(p, name.pointer, name.known); err != nil {
			return name.field, err
		}
	}
	if r.Device.IsZero() {
		return "device", errMissing
	}
	if m.gatt != nil {
		field, err = m.readGATT(p, in, r)
	} else {
		field, err = m.readJSON(p, r)
	}
	if err != nil {
		return field, err
	}
	switch m.time {
	case received:
		r.TimeUnixMs = in.NowUnixMs
	case characteristic: // set already
	default:
		r.TimeUnixMs, r.UTCOffset, err = m.timeAt(p)
	}
	return "time", err
}

// nameAt returns the name at a pointer, which may be nil. A name that is known already must be the same.
func nameAt(p *payload, pointer *string, known vitals.Name) (vitals.Name, error) {
	if pointer == nil {
		return known, nil
	}
	switch v := p.at(*pointer); v.kind {
	case absent:
		return known, nil
	case text, number:
		name, err := vitals.ParseName(v.text)
		if err == nil && !known.IsZero() && name != known {
			err = errOrigin
		}
		return name, err
	}
	return vitals.Name{}, errNotText
}

func (m *mapping) timeAt(p *payload) (unixMs int64, offset vitals.UTCOffset, err error) {
	switch v := p.at(m.time); {
	case v.kind == absent:
		return 0, 0, errMissing
	case v.kind == text && m.timeFormat == "rfc3339":
		return vitals.ParseRFC3339(v.text)
	case m.timeFormat == "rfc3339":
		return 0, 0, vitals.ErrTimeFormat
	case v.kind == text, v.kind == number:
		unixMs, err = parseUnix(v.text, timeFormats[m.timeFormat])
		return unixMs, 0, err
	}
	return 0, 0, errNotNumber
}

// readJSON sets the values that the payload has.
func (m *mapping) readJSON(p *payload, r *vitals.Reading) (field string, err error) {
	for i := range m.signs {
		s := &m.signs[i]
		v := p.at(s.at)
		if v.kind == absent || r.Values.Has(s.sign) { // a heart rate comes before a pulse that is stored as one
			continue
		}
		if s.unitAt != nil {
			switch unit := p.at(*s.unitAt); {
			case unit.kind == absent:
				return s.field, errNoUnit
			case unit.kind == nested, string(unit.text) != s.unitIs:
				return s.field, errOtherUnit
			}
		}
		if v.kind != text && v.kind != number {
			return s.field, errNotNumber
		}
		n, err := s.parse(v.text)
		if err != nil {
			return s.field, err
		}
		r.Values.Set(s.sign, n)
	}
	return "", nil
}

// parse returns the value of a number.
func (s *signRule) parse(digits []byte) (n vitals.Value, err error) {
	if s.factor == nil {
		n, err = s.definition.Parse(digits)
	} else {
		d, failed := parseDecimal(digits)
		if failed != nil {
			return 0, failed
		}
		n, err = s.definition.Parse([]byte(d.times(*s.factor)))
	}
	if errors.Is(err, vitals.ErrNumber) {
		err = errNotNumber
	}
	return n, err
}

// set sets the value mantissa × 10^exponent.
func (s *signRule) set(r *vitals.Reading, mantissa, exponent int) error {
	n, err := s.definition.Parse([]byte(strconv.Itoa(mantissa) + "e" + strconv.Itoa(exponent)))
	if err == nil && !r.Values.Has(s.sign) {
		r.Values.Set(s.sign, n)
	}
	return err
}
