package shape

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/sys/tomlfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Shape says how a source writes readings. It is never modified.
type Shape struct {
	Name   string
	Ignore bool    // what it fits is left out
	Places []Place // what is read of the source
	Signs  []Sign  // by field

	DecimalComma bool   // values are written with one
	Element      string // of records of XML; "" means any that another shape has
	Member       string // name of the file in a zip; "" means any

	sources         int // place that names sources, of which each needs a device; -1 means none
	where           []condition
	device, gateway []text
	devices         map[string]vitals.Name // by text; nil means that each text has its own name
	times           []when
	clock           *Clock
	missing         []string // texts that are no values
}

// A Place is what a source finds a text by, such as a JSON pointer.
type Place struct {
	Key string // of the mapping, for errors
	At  string
}

// A Cell is what a source has at a place. Its text belongs to the source.
type Cell struct {
	Kind Kind
	Text []byte
}

// A Kind is the kind of a Cell.
type Kind uint8

// Kinds of cells.
const (
	Absent  Kind = iota // or null
	Text                // its text is the content
	Number              // its text is that of the source
	Literal             // true or false
	Nested              // an object or an array
)

// Cells are the cells of one reading: that of the i-th place of a Shape is Values[At[i]].
type Cells struct {
	Values []Cell
	At     []int
}

func (c Cells) get(place int) Cell { return c.Values[c.At[place]] }

// A text is the text of places, joined, or a fixed one.
type text struct {
	fixed  vitals.Name // if not zero
	places []int
}

// A condition is a text that a source must have.
type condition struct {
	place int
	is    string
}

// A when says where a time is.
type when struct {
	fixed string // Received, Characteristic or Timestamp; "" means that at has it
	at    text
}

// Times that are not at a place.
const (
	Received       = "received"       // when the server received the message
	Characteristic = "characteristic" // the time stamp of the characteristic
	Timestamp      = "timestamp"      // the timestamp of the line
)

// A Sign says where the value of a sign is, and how it is written.
type Sign struct {
	Field      string
	Number     vitals.Sign
	Definition *vitals.Definition
	At         string // a place, or a part of a characteristic
	Round      bool

	at, unitAt int // places; -1 means none
	unitIs     string
	suffix     string
	factor     *decimal    // nil means 1
	convert    *conversion // with Round; it includes factor
	missing    []missing
}

// A missing is a text that is no value, or a number that is none, however it is written.
type missing struct {
	text   string
	number *decimal
}

// Errors of what a source has. Their texts are sent to clients.
var (
	errNotText   = errors.New("neither a string nor a number")
	errUnlisted  = errors.New("not one of the devices of the mapping")
	errNoUnit    = errors.New("the payload does not say its unit")
	errOtherUnit = errors.New("not in the unit of the mapping; units are not converted")
)

// Options are what a source says about its mappings.
type Options struct {
	Table       codes.Table
	Place       func(at string) error // checks a place; "" is one, too
	DeviceKnown bool                  // the source may know the device without the mapping
	Stamped     bool                  // a characteristic has a time stamp
	Timestamped bool                  // records have timestamps, which are the time unless the mapping has another one

	Accepted *[vitals.MaxSigns]vitals.Range // nil means those of the definitions

	// Units returns the units (UCUM) of a part of a characteristic; nil means that values are at places.
	Units func(part string) ([]string, error)
}

// textPrefix begins a device that is given and not read.
const textPrefix = "text:"

// Compile checks a table, and returns its Shape.
func (t *Table) Compile(opt Options) (*Shape, error) {
	s := &Shape{Name: t.Name, Ignore: t.Ignore, Element: t.Element, Member: t.Member, sources: -1}
	c := compiler{s, &opt, nil}
	switch {
	case t.Element != "" && t.Source != "xml":
		return nil, bad("element", `needs source = "xml"`)
	case t.Element == "" && t.Source == "xml" && !t.Ignore:
		return nil, bad("element", "missing: the element that is a record")
	}
	if name, err := vitals.ParseName(t.Name); err != nil || name.IsAwkward() {
		return nil, bad("name", "not 1 to 64 bytes of A-Z a-z 0-9 . _ : and -, as an address has it")
	}
	for _, at := range slices.Sorted(maps.Keys(t.Where)) {
		s.where = append(s.where, condition{c.place("where", at), string(t.Where[at])})
	}
	if t.Ignore {
		return s, cmp.Or(t.ignores(), c.err)
	}
	if err := t.origin(&c); err != nil {
		return nil, err
	}
	if t.Sources != "" && t.Devices == nil {
		s.sources = c.place("sources", t.Sources)
	}
	if err := t.timed(&c); err != nil {
		return nil, err
	}
	none, err := texts("missing", t.Missing)
	if err != nil {
		return nil, err
	}
	for i, text := range none {
		none[i] = strings.TrimSpace(text)
		if digits := strings.TrimLeft(none[i], "+-"); digits != "" && '0' <= digits[0] && digits[0] <= '9' {
			return nil, bad("missing", "%s is a number, and may be a value: give it to a sign", text)
		}
	}
	if t.Decimal != "" && t.Decimal != "." && t.Decimal != "," {
		return nil, bad("decimal", "neither a full stop nor a comma")
	}
	if s.DecimalComma = t.Decimal == ","; s.DecimalComma && t.Source != "csv" {
		return nil, bad("decimal", `needs source = "csv"`)
	}
	if s.missing = none; len(t.Signs) == 0 {
		return nil, bad("signs", "missing")
	}
	for _, field := range slices.Sorted(maps.Keys(t.Signs)) {
		table := t.Signs[field]
		sign, err := table.compile(field, &c)
		if err != nil {
			return nil, &vitals.FieldOf{Part: field, Err: err}
		}
		s.Signs = append(s.Signs, sign)
	}
	return s, cmp.Or(c.err, s.CheckPlaces(func(a, b string) bool { return a == b }))
}

// CheckPlaces returns an error if one value would be stored under two signs. same reports whether two places are the
// same.
func (s *Shape) CheckPlaces(same func(a, b string) bool) error {
	for i := range s.Signs {
		for j := range s.Signs[:i] {
			if a, b := &s.Signs[i], &s.Signs[j]; same(a.At, b.At) && !a.excludes(b) {
				return &vitals.FieldOf{Part: a.Field, Err: fmt.Errorf("at: %s is that of %s already", a.At, b.Field)}
			}
		}
	}
	return nil
}

// excludes reports whether no value can be that of both of two signs, because they are in different units.
func (s *Sign) excludes(other *Sign) bool {
	if s.at < 0 { // a part of a characteristic
		return s.Definition.Unit != other.Definition.Unit
	}
	return s.suffix != other.suffix || s.unitAt >= 0 && s.unitAt == other.unitAt && s.unitIs != other.unitIs
}

// ErrIgnoreAll is of a mapping with ignore that has neither a where nor mappings before it.
var ErrIgnoreAll = bad("ignore", "needs where, or mappings before it: everything would be ignored")

// ignores returns an error unless a table with ignore has nothing but conditions.
func (t *Table) ignores() error {
	switch {
	case t.Device != nil || t.Gateway != nil || t.Time != nil || len(t.Signs) > 0 || t.Decode != "":
		return bad("ignore", "what is ignored is not read: give only name, topic and where")
	}
	return nil
}

// A compiler collects the places of a Shape.
type compiler struct {
	shape *Shape
	opt   *Options
	err   error // the first place that is none
}

// place returns the number of a place.
func (c *compiler) place(key, at string) int {
	if err := c.opt.Place(at); err != nil && c.err == nil {
		c.err = &vitals.FieldOf{Part: key, Err: err}
	}
	i := slices.IndexFunc(c.shape.Places, func(p Place) bool { return p.At == at })
	if i < 0 {
		i = len(c.shape.Places)
		c.shape.Places = append(c.shape.Places, Place{key, at})
	}
	return i
}

// text returns the text of places that are joined with " + ".
func (c *compiler) text(key, at string) (t text) {
	for i, part := range strings.Split(at, joint) {
		if i > 0 && c.opt.Place(part) != nil { // the joint is in a name
			return text{places: []int{c.place(key, at)}}
		}
		t.places = append(t.places, c.place(key, part))
	}
	return t
}

const joint = " + "

// origin sets where the device and the gateway are.
func (t *Table) origin(c *compiler) error {
	for _, of := range []struct {
		key   string
		value any
		to    *[]text
	}{{"device", t.Device, &c.shape.device}, {"gateway", t.Gateway, &c.shape.gateway}} {
		all, err := texts(of.key, of.value)
		if err != nil {
			return err
		}
		for _, at := range all {
			if fixed, ok := strings.CutPrefix(at, textPrefix); ok {
				name, err := vitals.ParseName(fixed)
				if err != nil {
					return bad(of.key, "text: %w", err)
				}
				*of.to = append(*of.to, text{fixed: name})
				continue
			}
			*of.to = append(*of.to, c.text(of.key, at))
		}
	}
	switch {
	case len(c.shape.device) > 0 || c.opt.DeviceKnown:
	case c.opt.Timestamped:
		return bad("device", "missing: give a place or a text:NAME")
	default:
		return bad("device", "missing: give a place, a text:NAME, or a topic with {device}")
	}
	for _, of := range [][]text{c.shape.device, c.shape.gateway} {
		joined := func(d text) bool { return len(d.places) > 1 }
		single := func(d text) bool { return len(d.places) == 1 }
		if slices.ContainsFunc(of, joined) && slices.ContainsFunc(of, single) {
			return bad("device", "a list has joined places or single ones: two texts could give one name")
		}
	}
	if t.Devices == nil {
		return nil
	}
	if len(c.shape.device) == 0 {
		return bad("devices", "needs a device of one place")
	}
	for _, d := range c.shape.device {
		if len(d.places) != 1 {
			return bad("devices", "needs a device of one place")
		}
	}
	c.shape.devices = map[string]vitals.Name{}
	for text, is := range t.Devices {
		name, err := vitals.ParseName(is)
		if err != nil {
			return bad("devices", "%w", err)
		}
		c.shape.devices[plainBlanks.Replace(text)] = name
	}
	return nil
}

// timed sets where the time is, and how it is written.
func (t *Table) timed(c *compiler) error {
	all, err := texts("time", t.Time)
	if err != nil {
		return err
	}
	formats, err := texts("time_format", t.TimeFormat)
	if err != nil {
		return err
	}
	if len(formats) == 1 && formats[0] == "" {
		formats = nil
	}
	if len(all) == 0 && c.opt.Timestamped {
		all = []string{Timestamp}
	}
	if len(all) == 0 {
		return bad("time", `missing: give a place, "characteristic", or "received", with which a retry is a new reading`)
	}
	placed, stamped := false, false
	for i, at := range all {
		switch {
		case at == Received && i+1 < len(all):
			return bad("time", `"received" always has a time: nothing after it is used`)
		case at == Received:
			c.shape.times = append(c.shape.times, when{fixed: at})
		case at == Timestamp && c.opt.Timestamped:
			c.shape.times = append(c.shape.times, when{fixed: at})
		case at == Characteristic && c.opt.Units == nil:
			return bad("time", `needs decode = "gatt"`)
		case at == Characteristic && !c.opt.Stamped:
			return bad("time", "%s has no time stamp", strings.ToUpper(t.Characteristic))
		case at == Characteristic && t.Zone == "":
			return bad("zone",
				"missing: time stamps of characteristics have none; give a name such as Europe/Berlin, or an offset such as +01:00")
		case at == Characteristic:
			stamped = true
			c.shape.times = append(c.shape.times, when{fixed: at})
		default:
			placed = true
			c.shape.times = append(c.shape.times, when{at: c.text("time", at)})
		}
	}
	if !placed && len(formats) > 0 {
		return bad("time_format", "only a time at a place has one")
	}
	if t.Zone != "" && !placed && !stamped {
		return bad("zone", `times that are %q have none`, c.shape.times[0].fixed)
	}
	c.shape.clock, err = newClock(formats, t.Zone, t.Ambiguous, t.Months)
	return err
}

// compile checks where a sign is.
func (t *SignTable) compile(field string, c *compiler) (s Sign, err error) {
	signs := c.opt.Table.Signs
	number, known := signs.Named(field)
	if !known || signs.Of(number).Retired {
		return s, errors.New("no such sign: it is neither built in nor defined by --signs" +
			tomlfile.Nearest(field, fieldsOf(signs)))
	}
	number = c.opt.Table.Stored(number)
	d := signs.Of(number)
	s = Sign{Field: d.Field, Number: number, Definition: d, Round: t.Round, suffix: t.Suffix, at: -1, unitAt: -1}
	if t.At == nil {
		return s, errors.New("at is missing: where the value is")
	}
	s.At = *t.At
	if c.opt.Units != nil {
		return s, t.ofPart(&s, c.opt.Units)
	}
	s.at = c.place(field, s.At)
	if (t.UnitAt == nil) != (t.UnitIs == nil) {
		return s, errors.New("unit_at and unit_is go together")
	}
	if t.UnitAt != nil {
		s.unitAt, s.unitIs = c.place(field, *t.UnitAt), string(*t.UnitIs)
	}
	if err := t.scale(&s); err != nil {
		return s, err
	}
	return s, t.setMissing(&s, c.opt, c.shape.DecimalComma)
}

// ofPart checks a sign that a part of a characteristic has.
func (t *SignTable) ofPart(s *Sign, unitsOf func(string) ([]string, error)) error {
	if t.Factor != nil || t.Unit != "" || t.UnitAt != nil || t.UnitIs != nil || t.Suffix != "" || t.Missing != nil {
		return errors.New("a characteristic has its units; give only at and round")
	}
	units, err := unitsOf(s.At)
	if err != nil {
		return err
	}
	converted := func(unit string) bool {
		_, ok := roundedUnits[[2]string{unit, s.Definition.Unit}]
		return ok && t.Round
	}
	if !slices.Contains(units, s.Definition.Unit) && !slices.ContainsFunc(units, converted) {
		return fmt.Errorf("at: this part is in %s, the sign in %s, and values are not converted: define an own sign",
			strings.Join(units, " or "), s.Definition.Unit)
	}
	return nil
}

// scale sets by which factor values are multiplied, or how they are converted.
func (t *SignTable) scale(s *Sign) error {
	conversion := conversion{}
	switch units := [2]string{t.Unit, s.Definition.Unit}; {
	case t.Factor != nil && t.Unit != "":
		return errors.New("give either a factor or a unit")
	case t.Factor != nil:
		f, err := parseDecimal([]byte(*t.Factor))
		if err != nil || f.digits.Sign() <= 0 {
			return errors.New("factor: not a decimal number above 0, such as 0.01")
		}
		s.factor = &f
	case t.Unit != "" && t.Unit != s.Definition.Unit:
		f, exact := exactUnits[units]
		converted, known := roundedUnits[units]
		switch {
		case exact:
			s.factor = &f
		case known && t.Round:
			conversion = converted
		case known:
			return fmt.Errorf("unit: a value in %s has no exact decimal in %s: add round = true, or define an own sign in %s",
				t.Unit, s.Definition.Unit, t.Unit)
		default:
			return fmt.Errorf("unit: a value in %s has no exact decimal in %s: define an own sign in %s", t.Unit,
				s.Definition.Unit, t.Unit)
		}
	}
	if t.Round {
		if s.factor != nil {
			conversion.factor = s.factor.rat()
		}
		s.convert = &conversion
	}
	return nil
}

// setMissing sets which texts and numbers are no values.
func (t *SignTable) setMissing(s *Sign, opt *Options, decimalComma bool) error {
	accepted := s.Definition.Accepted
	if opt.Accepted != nil {
		accepted = opt.Accepted[s.Number]
	}
	all, err := texts("missing", t.Missing)
	if err != nil {
		return err
	}
	for _, text := range all {
		m := missing{text: strings.TrimSpace(text)}
		plain := s.plain([]byte(m.text), decimalComma)
		if d, err := parseDecimal(plain); err == nil {
			m.number = &d
			if v, _, err := s.value(plain); err == nil && accepted.Contains(v) {
				return fmt.Errorf("missing: %s is in the accepted range, and may be a value", text)
			}
		}
		s.missing = append(s.missing, m)
	}
	return nil
}

// Fits reports whether cells have the texts of where.
func (s *Shape) Fits(cells Cells) bool {
	for _, c := range s.where {
		if v := cells.get(c.place); v.Kind == Absent || v.Kind == Nested || string(v.Text) != c.is {
			return false
		}
	}
	return true
}

// Has reports whether cells have anything at the place of a sign.
func (s *Shape) Has(cells Cells) bool {
	return slices.ContainsFunc(s.Signs, func(sign Sign) bool { return cells.get(sign.at).Kind != Absent })
}

// TakesReceived reports whether a time may be that of the reception.
func (s *Shape) TakesReceived() bool {
	return slices.ContainsFunc(s.times, func(w when) bool { return w.fixed == Received })
}

// Conditional reports whether there is anything that the Shape may not fit.
func (s *Shape) Conditional() bool { return len(s.where) > 0 }

// Hides reports whether a later shape of the same source is never reached.
func (s *Shape) Hides(later *Shape) bool {
	return !s.Conditional() && (s.Element == "" || s.Element == later.Element)
}

// NamesSources reports whether records name sources that have no devices.
func (s *Shape) NamesSources() bool { return s.sources >= 0 }

// Source returns the text that names the source of a record. It may be the name of a person.
func (s *Shape) Source(cells Cells) []byte {
	if s.sources < 0 {
		return nil
	}
	return cells.get(s.sources).Text
}

// Origin sets the device and the gateway of a reading. What is known of them already must be the same.
func (s *Shape) Origin(cells Cells, known vitals.Origin, r *vitals.Reading) (field string, err error) {
	if r.Device, err = s.nameAt(cells, s.device, known.Device, s.devices); err != nil {
		return "device", err
	}
	if r.Gateway, err = s.nameAt(cells, s.gateway, known.Gateway, nil); err != nil {
		return "gateway", err
	}
	if r.Device.IsZero() {
		return "device", vitals.ErrMissing
	}
	return "", nil
}

// nameAt returns the name of the first of several texts that is there.
func (s *Shape) nameAt(cells Cells, of []text, known vitals.Name, listed map[string]vitals.Name) (name vitals.Name,
	err error) {
	for i := range of {
		if name, err = of[i].name(cells, listed); err != nil {
			return name, err
		}
		if name.IsZero() {
			continue
		}
		if !known.IsZero() && name != known {
			return name, vitals.ErrOrigin
		}
		return name, nil
	}
	return known, nil
}

// name returns the name of a text, or the zero Name if none of its places has a text.
func (t *text) name(cells Cells, listed map[string]vitals.Name) (name vitals.Name, err error) {
	if !t.fixed.IsZero() {
		return t.fixed, nil
	}
	parts, given := make([][]byte, 0, 4), false
	for _, place := range t.places {
		switch v := cells.get(place); v.Kind {
		case Absent:
			parts = append(parts, nil)
		case Text, Number:
			parts, given = append(parts, v.Text), true
		default:
			return name, errNotText
		}
	}
	switch {
	case !given:
		return name, nil
	case listed != nil:
		name, ok := listed[plainBlanks.Replace(string(parts[0]))]
		if !ok {
			return name, errUnlisted
		}
		return name, nil
	case len(parts) > 1:
		return joinedName(parts)
	}
	return Name(parts[0])
}

// plainBlanks writes a no-break space as a blank, which looks the same and is what people type.
var plainBlanks = strings.NewReplacer("\u00a0", " ", "\u202f", " ")

// A Moment is what a Shape needs to know for the time of a reading.
type Moment struct {
	NowUnixMs int64
	Rules     *vitals.Validator

	// Stamp returns the time stamp of a characteristic or of a line; fallback means that it says no time.
	Stamp func(c *Clock) (unixMs int64, offset vitals.UTCOffset, fallback bool, err error)
}

// When sets the time of a reading. Of several times, it takes the first that is there and not too old.
func (s *Shape) When(cells Cells, m Moment, r *vitals.Reading) error {
	for i := range s.times {
		w, last := &s.times[i], i+1 == len(s.times)
		fallback, err := false, error(nil)
		switch w.fixed {
		case Received:
			r.TimeUnixMs, r.UTCOffset = m.NowUnixMs, 0 // not the offset of a time that was too old
			return nil
		case Characteristic, Timestamp:
			r.TimeUnixMs, r.UTCOffset, fallback, err = m.Stamp(s.clock)
		default:
			r.TimeUnixMs, r.UTCOffset, fallback, err = w.parse(cells, s.clock)
		}
		if err != nil && (last || !fallback) {
			return err
		}
		if err == nil && (last || !isTooOld(m, r)) {
			return nil
		}
	}
	return vitals.ErrMissing // there is no place for a time
}

// isTooOld reports whether a reading is from before the oldest time that is accepted, as those of a lost clock are.
func isTooOld(m Moment, r *vitals.Reading) bool {
	broken, ok := errors.AsType[*vitals.FieldError](m.Rules.Validate(r, m.NowUnixMs))
	return ok && errors.Is(broken.Err, vitals.ErrPast)
}

// parse parses the time at places; fallback means that there is none.
func (w *when) parse(cells Cells, c *Clock) (unixMs int64, offset vitals.UTCOffset, fallback bool, err error) {
	if len(w.at.places) == 1 {
		v := cells.get(w.at.places[0])
		switch v.Kind {
		case Absent:
			return 0, 0, true, vitals.ErrMissing
		case Text, Number:
			unixMs, offset, err = c.Parse(v.Text)
			return unixMs, offset, false, err
		}
		return 0, 0, false, errNotText
	}
	var joined []byte
	for i, place := range w.at.places {
		v := cells.get(place)
		switch {
		case v.Kind == Absent:
			return 0, 0, true, vitals.ErrMissing
		case v.Kind != Text && v.Kind != Number:
			return 0, 0, false, errNotText
		case i > 0:
			joined = append(joined, ' ')
		}
		joined = append(joined, v.Text...)
	}
	unixMs, offset, err = c.Parse(joined)
	return unixMs, offset, false, err
}

// A Got is what a Shape found for a sign.
type Got uint8

// What is found for a sign.
const (
	Nothing  Got = iota // not measured
	NotValue            // a text or a number that is none
	Measured
	Rounded // measured, and rounded
)

// Value returns the value of a sign.
func (s *Shape) Value(sign *Sign, cells Cells) (v vitals.Value, got Got, err error) {
	cell := cells.get(sign.at)
	if cell.Kind == Absent {
		return 0, Nothing, nil
	}
	text := cell.Text
	if (cell.Kind == Text || cell.Kind == Number) && s.isMissing(sign, text) {
		return 0, NotValue, nil
	}
	if sign.unitAt >= 0 {
		switch unit := cells.get(sign.unitAt); {
		case unit.Kind == Absent:
			return 0, Nothing, errNoUnit
		case unit.Kind == Nested, string(unit.Text) != sign.unitIs:
			return 0, Nothing, errOtherUnit
		}
	}
	if cell.Kind != Text && cell.Kind != Number {
		return 0, Nothing, errNotNumber
	}
	if sign.suffix != "" {
		var ok bool
		if text, ok = bytes.CutSuffix(text, []byte(sign.suffix)); !ok {
			return 0, Nothing, errOtherUnit
		}
		text = bytes.TrimRight(text, " \u00a0\u202f")
	}
	if s.DecimalComma {
		if bytes.IndexByte(text, '.') >= 0 { // which may be for thousands
			return 0, Nothing, errNotNumber
		}
		text = bytes.ReplaceAll(text, []byte(","), []byte("."))
	}
	v, rounded, err := sign.value(text)
	if err != nil {
		return 0, Nothing, err
	}
	if rounded {
		return v, Rounded, nil
	}
	return v, Measured, nil
}

// plain returns a text without the suffix of the sign, and with a decimal point.
func (s *Sign) plain(text []byte, decimalComma bool) []byte {
	text = bytes.TrimRight(bytes.TrimSuffix(text, []byte(s.suffix)), " \u00a0\u202f")
	if decimalComma {
		text = bytes.ReplaceAll(text, []byte(","), []byte("."))
	}
	return text
}

// isMissing reports whether a text is no value.
func (s *Shape) isMissing(sign *Sign, text []byte) bool {
	if len(s.missing)+len(sign.missing) == 0 {
		return false
	}
	text = bytes.TrimSpace(text)
	if slices.ContainsFunc(s.missing, func(m string) bool { return m == string(text) }) {
		return true
	}
	return slices.ContainsFunc(sign.missing, func(m missing) bool {
		if m.number == nil {
			return m.text == string(text)
		}
		d, err := parseDecimal(sign.plain(text, s.DecimalComma))
		return err == nil && d.rat().Cmp(m.number.rat()) == 0
	})
}

// value returns the value of a number, and whether it was rounded.
func (s *Sign) value(digits []byte) (v vitals.Value, rounded bool, err error) {
	switch {
	case s.convert != nil:
		d, failed := parseDecimal(digits)
		if failed != nil {
			return 0, false, failed
		}
		return round(s.convert.of(d.rat()), s.Definition.Decimals)
	case s.factor == nil:
		v, err = s.Definition.Parse(digits)
	default:
		d, failed := parseDecimal(digits)
		if failed != nil {
			return 0, false, failed
		}
		v, err = s.Definition.Parse([]byte(d.times(*s.factor)))
	}
	if errors.Is(err, vitals.ErrNumber) {
		err = errNotNumber
	}
	return v, false, err
}

// Part returns the value of the number mantissa × 10^exponent in a unit, or false if it is not converted to the
// sign's.
func (s *Sign) Part(mantissa, exponent int, unit string) (v vitals.Value, rounded, ok bool, err error) {
	text := fmt.Appendf(nil, "%de%d", mantissa, exponent)
	c, known := roundedUnits[[2]string{unit, s.Definition.Unit}]
	switch {
	case unit != s.Definition.Unit && !(known && s.Round):
		return 0, false, false, nil
	case !s.Round:
		v, err = s.Definition.Parse(text)
		return v, false, true, err
	case unit == s.Definition.Unit:
		c = conversion{}
	}
	d, err := parseDecimal(text)
	if err != nil {
		return 0, false, true, err
	}
	v, rounded, err = round(c.of(d.rat()), s.Definition.Decimals)
	return v, rounded, true, err
}
