package roster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/internal/sys/tomlfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// Bounds of a file.
const (
	maxFileBytes = 8 << 20
	MaxText      = 64 // characters of a label or a group
	MaxGroups    = 1000
	MaxSubjects  = 1000 // with ranges: their assignments are read for each order of all devices
)

// ErrFile means that the text of a file is not valid, so that only a change of the file helps.
var ErrFile = errors.New("not a file of devices")

// A fileError is an error about the text of a file.
type fileError struct{ error }

// Is makes a fileError an [ErrFile].
func (fileError) Is(target error) bool { return target == ErrFile }

// Read reads a file, whose ranges are of the signs of limits. Its errors name the file, the line, the key and the
// reason, and no subject. Those about the text of the file are [ErrFile].
func Read(path string, limits *vitals.Limits) (*Roster, error) {
	text, err := sharedfile.Read(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	p := parser{
		roster: &Roster{
			devices: map[vitals.Name]Device{}, ofDevices: map[vitals.Name][]signRanges{},
			ofGroups: map[string][]signRanges{}, ofSubjects: map[storage.Subject][]signRanges{},
		},
		signs: limits.Signs, accepted: &limits.Accepted, groups: map[string]bool{}, table: map[string]entry{},
	}
	p.Reset(text)
	err = p.parse()
	var about *keyError
	switch {
	case errors.As(err, &about):
		err = fmt.Errorf("%s:%d: %w", path, p.Shape(about.at).Start.Line, about)
	case err != nil: // the decoder has the line
		err = fmt.Errorf("%s: %w", path, err)
		if _, located := tomlfile.Read(path, maxFileBytes, new(any)); located != nil {
			err = located
		}
	case p.kind == "": // an editor that saves the file may have emptied it for a moment
		err = fmt.Errorf("%s: no [[device]]", path)
	default:
		p.roster.groups = sorted(p.groups)
		return p.roster, nil
	}
	return nil, fileError{err}
}

// A keyError is an error about a key, which is empty if it may be a patient's id.
type keyError struct {
	at          unstable.Range
	key, reason string
}

func (e *keyError) Error() string {
	if e.key == "" {
		return e.reason
	}
	return e.key + ": " + e.reason
}

// A parser parses a file and stops at the first error, in time that is linear in its size. The strict decoder of TOML
// collects all unknown keys, each with a copy of the file, which takes minutes for a key too many in each device.
type parser struct {
	unstable.Parser
	roster   *Roster
	signs    *vitals.Signs
	accepted *[vitals.MaxSigns]vitals.Range
	groups   map[string]bool // of devices

	kind  string           // of the table: device, group or subject; "" means that there is none yet
	at    unstable.Range   // of its header
	table map[string]entry // by key, also of ranges, such as usual.spo2_pct
	given bool             // the table has ranges
}

// An entry is a value in a table, and where its key is.
type entry struct {
	text string
	at   unstable.Range
}

// kinds are the kinds of tables. Each has its name in a key of the same name.
var kinds = []string{"device", "group", "subject"}

// ofDevice are the keys that only a table of a device has, apart from its name.
var ofDevice = []string{"label", "group"}

// rangeKeys are the keys of ranges by sign.
var rangeKeys = []string{"usual", "critical"}

func (p *parser) parse() (err error) {
	for err == nil && p.NextExpression() {
		e := p.Expression()
		key, at := fullKey(e)
		if e.Kind == unstable.KeyValue {
			err = p.set(key, at, e.Value())
		} else {
			err = p.begin(key, at, e.Kind)
		}
	}
	if err == nil {
		err = p.Error()
	}
	if err == nil {
		err = p.end()
	}
	return err
}

// fullKey returns the key of a table or of a value, such as device. Of a long one, which is not known, it returns a
// part.
func fullKey(e *unstable.Node) (key string, at unstable.Range) {
	for parts := e.Key(); parts.Next() && len(key) <= MaxText; {
		part := parts.Node()
		if key == "" {
			at = part.Raw
		} else {
			key += "."
		}
		key += string(part.Data[:min(len(part.Data), MaxText+1)])
	}
	return strings.ToValidUTF8(key, ""), at
}

// begin begins a table.
func (p *parser) begin(key string, at unstable.Range, kind unstable.Kind) error {
	first, part, _ := strings.Cut(key, ".")
	if first == "subject" {
		key = first // what follows may be an id
	}
	if slices.Contains(rangeKeys, part) {
		whole := first + "." + part
		if !slices.Contains(kinds, first) {
			whole = part
		}
		return &keyError{at, whole,
			"write it as " + part + ` = { SIGN = "MIN..MAX" }, in the table that it belongs to`}
	}
	if err := p.end(); err != nil {
		return err
	}
	switch {
	case part != "" && slices.Contains(kinds, first):
		return &keyError{at, first, fmt.Sprintf("a table of a %s begins with [[%s]]", first, first)}
	case !slices.Contains(kinds, key):
		if like := tomlfile.Nearest(key, kinds); like != "" {
			return &keyError{at, key, "unknown key" + like}
		}
		return &keyError{at, "", "unknown table"}
	case kind != unstable.ArrayTable:
		return &keyError{at, key, fmt.Sprintf("a table of a %s begins with [[%s]]", key, key)}
	}
	clear(p.table)
	p.kind, p.at, p.given = key, at, false
	return nil
}

// set sets a value of the table, or some ranges.
func (p *parser) set(key string, at unstable.Range, value *unstable.Node) error {
	of, sign, dotted := strings.Cut(key, ".")
	if of == "subject" {
		key = of // what follows may be an id
	}
	if p.kind == "" {
		if !slices.Contains(slices.Concat(kinds, rangeKeys, ofDevice), of) {
			of = ""
		}
		return &keyError{at, of, "not in a [[device]]"}
	}
	if !slices.Contains(rangeKeys, of) {
		known := append([]string{p.kind}, rangeKeys...)
		if p.kind == "device" {
			known = append(known, ofDevice...)
		}
		if of == "subject" && dotted {
			return &keyError{at, of, "not a string"}
		}
		if !slices.Contains(known, key) {
			why := "unknown key" + tomlfile.Nearest(key, known)
			if p.kind == "subject" {
				key = p.kind // the key may be an id
			}
			return &keyError{at, key, why}
		}
		return p.keep(key, at, value, "")
	}
	if _, whole := p.table[of]; whole {
		return &keyError{at, key, "given twice"}
	}
	if dotted {
		return p.keepRange(of, sign, at, value)
	}
	p.table[of] = entry{at: at}
	if value.Kind != unstable.InlineTable {
		return &keyError{at, key, `not ranges by sign, as in { SIGN = "MIN..MAX" }`}
	}
	for all := value.Children(); all.Next(); {
		sign, at := fullKey(all.Node())
		if err := p.keepRange(of, sign, at, all.Node().Value()); err != nil {
			return err
		}
	}
	return nil
}

// keepRange keeps the text of a range, if the sign is known.
func (p *parser) keepRange(of, sign string, at unstable.Range, value *unstable.Node) error {
	key := of + "." + sign
	if _, known := p.signs.Named(sign); !known {
		var fields []string
		for _, d := range p.signs.All() {
			fields = append(fields, d.Field)
		}
		if p.kind == "subject" {
			key = of // the sign may be an id
		}
		return &keyError{at, key, "unknown sign" + tomlfile.Nearest(sign, fields)}
	}
	p.given = true
	return p.keep(key, at, value, ` such as "88..92"`)
}

// keep keeps a text of the table.
func (p *parser) keep(key string, at unstable.Range, value *unstable.Node, suchAs string) error {
	if _, given := p.table[key]; given {
		return &keyError{at, key, "given twice"}
	}
	if value.Kind != unstable.String {
		return &keyError{at, key, "not a string" + suchAs}
	}
	p.table[key] = entry{string(value.Data), at}
	return nil
}

// end adds what the table says, if there is one.
func (p *parser) end() error {
	if p.kind == "" {
		return nil
	}
	ranges, err := p.ranges()
	if err != nil {
		return err
	}
	if p.kind != "device" && ranges == nil {
		return p.fail(p.kind, "neither usual nor critical ranges")
	}
	name := p.table[p.kind].text
	switch p.kind {
	case "group":
		_, given := p.roster.ofGroups[name]
		switch {
		case name == "":
			return p.fail("group", "missing")
		case given:
			return p.fail("group", "given twice")
		}
		p.roster.ofGroups[name] = ranges
	case "subject":
		subject, err := storage.ParseSubject(name)
		if err != nil {
			return p.fail("subject", "not 1 to 64 of A-Z, a-z, 0-9, dot and hyphen")
		}
		if _, given := p.roster.ofSubjects[subject]; given {
			return p.fail("subject", "given twice")
		}
		if len(p.roster.ofSubjects) == MaxSubjects {
			return p.fail("subject", "more than %d subjects", MaxSubjects)
		}
		p.roster.ofSubjects[subject] = ranges
	default:
		return p.endDevice(ranges)
	}
	return nil
}

// fail returns an error about a key of the table, or about the table if it does not have the key.
func (p *parser) fail(key, reason string, args ...any) error {
	return &keyError{p.place(key), key, fmt.Sprintf(reason, args...)}
}

// place returns where a key of the table is, or the table if it does not have the key.
func (p *parser) place(key string) unstable.Range {
	if e, ok := p.table[key]; ok {
		return e.at
	}
	return p.at
}

// endDevice adds the device of the table.
func (p *parser) endDevice(ranges []signRanges) error {
	label, group := p.table["label"].text, p.table["group"].text
	name, err := vitals.ParseName(p.table["device"].text)
	_, given := p.roster.devices[name]
	const badText = "not at most %d printable characters without a space at the beginning or the end"
	switch {
	case err != nil:
		return p.fail("device", "not 1 to 64 of A-Z, a-z, 0-9, dot, underscore, colon and hyphen")
	case given:
		return p.fail("device", "%s is given twice", name)
	case label == "" && group == "" && ranges == nil:
		return p.fail("device", "%s has neither a label nor a group nor ranges", name)
	case !isText(label):
		return p.fail("label", badText, MaxText)
	case !isText(group):
		return p.fail("group", badText, MaxText)
	case group != "" && !p.groups[group] && len(p.groups) == MaxGroups:
		return p.fail("group", "more than %d groups", MaxGroups)
	}
	if group != "" {
		p.groups[group] = true
	}
	p.roster.devices[name] = Device{Label: label, Group: group, folded: Fold(label)}
	if ranges != nil {
		p.roster.ofDevices[name] = ranges
	}
	return nil
}

// ranges returns the ranges of the table, in the order of the signs.
func (p *parser) ranges() (all []signRanges, err error) {
	if !p.given {
		return nil, nil
	}
	for s, d := range p.signs.All() {
		r := signRanges{sign: s}
		for i, to := range []**vitals.Range{&r.usual, &r.critical} {
			key := rangeKeys[i] + "." + d.Field
			e, given := p.table[key]
			if !given {
				continue
			}
			parsed, err := d.ParseRange(e.text)
			switch accepted := &p.accepted[s]; {
			case err != nil:
			case parsed.Min > parsed.Max:
				err = errors.New("the range ends before it starts")
			case !overlap(&parsed, accepted):
				err = fmt.Errorf("no value in the range is accepted: the unit is %s, and accepted are %s",
					d.Unit, d.FormatRange(*accepted))
			case i == 1 && parsed == vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}:
				err = errors.New("the range has no end")
			}
			if err != nil {
				return nil, p.fail(key, "%v", err)
			}
			*to = &parsed
		}
		if r.usual != nil && r.critical != nil && overlap(r.usual, r.critical) {
			return nil, p.fail(rangeKeys[1]+"."+d.Field, "the range has values that are usual")
		}
		if r.usual != nil || r.critical != nil {
			all = append(all, r)
		}
	}
	return all, nil
}

// isText reports whether text may be a label or a group, or is empty.
func isText(text string) bool {
	return utf8.RuneCountInString(text) <= MaxText && utf8.ValidString(text) && strings.TrimSpace(text) == text &&
		!strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}
