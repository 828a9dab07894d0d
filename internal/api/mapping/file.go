package mapping

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/localtime"
	"github.com/pulsegate/pulsegate/internal/sys/tomlfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// Bounds of mappings.
const (
	maxFileBytes = 64 << 10
	maxMappings  = 64 // in all files
	maxSuffix    = 16 // bytes of user_suffix
)

// A file is what TOML is decoded to.
type file struct {
	Mapping []table `toml:"mapping"`
}

// A table is a mapping as the file has it. Pointers are nil if they are not given, because "" is one.
type table struct {
	Name           string                   `toml:"name"`
	Topic          string                   `toml:"topic"`
	Where          map[string]tomlfile.Text `toml:"where"` // text that a payload must have, by pointer
	Device         *string                  `toml:"device"`
	Gateway        *string                  `toml:"gateway"`
	Time           string                   `toml:"time"`
	TimeFormat     string                   `toml:"time_format"`
	Zone           string                   `toml:"zone"`
	Decode         string                   `toml:"decode"`
	Characteristic string                   `toml:"characteristic"`
	Value          *string                  `toml:"value"`
	Encoding       string                   `toml:"encoding"`
	UserSuffix     string                   `toml:"user_suffix"`
	Signs          map[string]sign          `toml:"signs"` // by field
}

// A sign is where the value of a sign is.
type sign struct {
	At     *string        `toml:"at"` // a pointer, or the name of a part of a characteristic
	Factor *tomlfile.Text `toml:"factor"`
	Unit   string         `toml:"unit"`
	UnitAt *string        `toml:"unit_at"`
	UnitIs *tomlfile.Text `toml:"unit_is"`
}

// Times that are not in the payload's JSON.
const (
	received       = "received"       // when the server received the message
	characteristic = "characteristic" // the time stamp of the characteristic
)

// timeFormats has the power of ten by which a number of the format is ms. It is never modified.
var timeFormats = map[string]int{"rfc3339": 0, "unix_s": 3, "unix_ms": 0}

// Read reads files of mappings to the signs of a table. topic reports whether a pattern of topics is valid,
// and whether it has {device}.
func Read(paths []string, table codes.Table, topic func(pattern string) (device bool, err error)) (*Set, error) {
	set, n := new(Set), 0
	for _, path := range paths {
		var f file
		text, err := tomlfile.Read(path, maxFileBytes, &f)
		if err != nil {
			return nil, err
		}
		for i := range f.Mapping {
			t := &f.Mapping[i]
			m, err := t.mapping(table, topic)
			if n++; err == nil && n > maxMappings {
				err = bad("name", "more than %d mappings", maxMappings)
			}
			if err == nil {
				err = set.add(m)
			}
			if err != nil {
				return nil, t.locate(path, text, i, err)
			}
		}
		if len(f.Mapping) == 0 {
			return nil, fmt.Errorf("%s: no [[mapping]]", path)
		}
	}
	return set, nil
}

// bad returns an error about a key of a mapping.
func bad(key, format string, args ...any) error {
	return &vitals.FieldOf{Part: key, Err: fmt.Errorf(format, args...)}
}

// locate returns an error with the file and the line.
func (t *table) locate(path string, text []byte, index int, err error) error {
	key := "name"
	var at *vitals.FieldOf
	if errors.As(err, &at) {
		key = at.Part
	}
	if _, isSign := t.Signs[key]; isSign {
		key = "signs." + key
	}
	return fmt.Errorf("%s:%d: %w", path, tomlfile.LineOf(text, "mapping", index, key), err)
}

// mapping checks a table and returns the mapping.
func (t *table) mapping(signs codes.Table, topic func(string) (bool, error)) (*mapping, error) {
	m := &mapping{name: t.Name, topic: t.Topic, device: t.Device, gateway: t.Gateway, userSuffix: t.UserSuffix}
	if name, err := vitals.ParseName(t.Name); err != nil || name.IsAwkward() {
		return nil, bad("name", "not 1 to 64 bytes of A-Z a-z 0-9 . _ : and -, as an address has it")
	}
	inTopic := false
	if t.Topic != "" {
		var err error
		if inTopic, err = topic(t.Topic); err != nil {
			return nil, bad("topic", "%w", err)
		}
	}
	if t.Device == nil && !inTopic {
		return nil, bad("device", "missing: give a pointer, or a topic with {device}")
	}
	for pointer, is := range t.Where {
		m.where = append(m.where, condition{pointer, string(is)})
	}
	slices.SortFunc(m.where, func(a, b condition) int { return strings.Compare(a.pointer, b.pointer) })
	if err := t.decoded(m); err != nil {
		return nil, err
	}
	if err := t.timed(m); err != nil {
		return nil, err
	}
	if len(t.Signs) == 0 {
		return nil, bad("signs", "missing")
	}
	for _, field := range slices.Sorted(maps.Keys(t.Signs)) {
		s := t.Signs[field]
		r, err := s.rule(field, signs, m.gatt)
		if err != nil {
			return nil, &vitals.FieldOf{Part: field, Err: err}
		}
		m.signs = append(m.signs, r)
	}
	for _, use := range m.uses() {
		if _, _, err := tokens(use.pointer); err != nil {
			return nil, &vitals.FieldOf{Part: use.key, Err: err}
		}
	}
	return m, nil
}

// decoded sets how a characteristic is decoded.
func (t *table) decoded(m *mapping) error {
	switch t.Decode {
	case "":
		for key, given := range map[string]bool{"characteristic": t.Characteristic != "", "value": t.Value != nil, "encoding": t.Encoding != "", "user_suffix": t.UserSuffix != ""} {
			if given {
				return bad(key, `needs decode = "gatt"`)
			}
		}
		return nil
	case "gatt":
	default:
		return bad("decode", `only "gatt" is known`)
	}
	if m.gatt = characteristics[strings.ToUpper(t.Characteristic)]; m.gatt == nil {
		return bad("characteristic", "not one of %s", strings.Join(slices.Sorted(maps.Keys(characteristics)), ", "))
	}
	if t.Value == nil {
		return bad("value", "missing: the pointer to the characteristic")
	}
	m.value, m.base64 = *t.Value, t.Encoding == "base64"
	if t.Encoding != "" && t.Encoding != "hex" && !m.base64 {
		return bad("encoding", "neither hex nor base64")
	}
	if _, err := vitals.ParseName("a" + t.UserSuffix); err != nil || len(t.UserSuffix) > maxSuffix {
		return bad("user_suffix", "not up to %d bytes of A-Z a-z 0-9 . _ : and -", maxSuffix)
	}
	return nil
}

// timed sets where the time is.
func (t *table) timed(m *mapping) (err error) {
	m.time, m.timeFormat = t.Time, t.TimeFormat
	fixed := t.Time == received || t.Time == characteristic
	switch {
	case t.Time == "":
		return bad("time", `missing: give a pointer, "characteristic", or "received", with which a retry is a new reading`)
	case fixed && t.TimeFormat != "":
		return bad("time_format", "only a pointer has one")
	case t.Time == characteristic && m.gatt == nil:
		return bad("time", `needs decode = "gatt"`)
	case t.Time == characteristic && !m.gatt.stamped:
		return bad("time", "%s has no time stamp", strings.ToUpper(t.Characteristic))
	case t.Time != characteristic && t.Zone != "":
		return bad("zone", `only time = "characteristic" has one: other times have a zone in the payload`)
	case t.Time == characteristic && t.Zone == "":
		return bad("zone", "missing: time stamps of characteristics have none; give a name such as Europe/Berlin, or an offset such as +01:00")
	}
	if m.timeFormat == "" {
		m.timeFormat = "rfc3339"
	}
	if _, known := timeFormats[m.timeFormat]; !known {
		return bad("time_format", "not one of rfc3339, unix_s, unix_ms")
	}
	if t.Zone != "" {
		if m.zone, err = localtime.Zone(t.Zone); err != nil {
			return bad("zone", "neither the name of a zone, such as Europe/Berlin, nor an offset, such as +01:00")
		}
	}
	return nil
}

// rule checks where a sign is, and returns the rule.
func (s *sign) rule(field string, table codes.Table, c *gattCharacteristic) (r signRule, err error) {
	number, known := table.Signs.Named(field)
	if !known || table.Signs.Of(number).Retired {
		return r, errors.New("no such sign: it is neither built in nor defined by --signs")
	}
	number = table.Stored(number)
	d := table.Signs.Of(number)
	r = signRule{field: d.Field, sign: number, definition: d}
	if s.At == nil {
		return r, errors.New("at is missing: where the value is")
	}
	r.at = *s.At
	if c != nil {
		if s.Factor != nil || s.Unit != "" || s.UnitAt != nil || s.UnitIs != nil {
			return r, errors.New("a characteristic has its units; give only at")
		}
		units, known := c.parts[r.at]
		if !known {
			return r, fmt.Errorf("at: the characteristic has no such part; it has %s", strings.Join(slices.Sorted(maps.Keys(c.parts)), ", "))
		}
		if !slices.Contains(units, d.Unit) {
			return r, fmt.Errorf("at: this part is in %s, the sign in %s, and values are not converted: define an own sign", strings.Join(units, " or "), d.Unit)
		}
		return r, nil
	}
	if (s.UnitAt == nil) != (s.UnitIs == nil) {
		return r, errors.New("unit_at and unit_is go together")
	}
	if s.UnitAt != nil {
		r.unitAt, r.unitIs = s.UnitAt, string(*s.UnitIs)
	}
	switch {
	case s.Factor != nil && s.Unit != "":
		return r, errors.New("give either a factor or a unit")
	case s.Factor != nil:
		f, err := parseDecimal([]byte(*s.Factor))
		if err != nil || f.digits.Sign() <= 0 {
			return r, errors.New("factor: not a decimal number above 0, such as 0.01")
		}
		r.factor = &f
	case s.Unit != "" && s.Unit != d.Unit:
		f, exact := exactUnits[[2]string{s.Unit, d.Unit}]
		if !exact {
			return r, fmt.Errorf("unit: a value in %s has no exact decimal in %s: define an own sign in %s", s.Unit, d.Unit, s.Unit)
		}
		r.factor = &f
	}
	return r, nil
}
