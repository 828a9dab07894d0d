package roster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/internal/sys/tomlfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// Bounds of a file.
const (
	maxFileBytes = 8 << 20
	MaxText      = 64 // characters of a label or a group
	MaxGroups    = 1000
)

// ErrFile means that the text of a file is not valid, so that only a change of the file helps.
var ErrFile = errors.New("roster: not a file of devices")

// A fileError is an error about the text of a file.
type fileError struct{ error }

// Is makes a fileError an [ErrFile].
func (fileError) Is(target error) bool { return target == ErrFile }

// Read reads a file. Its errors name the file, the line, the key and the reason. Those about the text of the file are
// [ErrFile].
func Read(path string) (*Roster, error) {
	text, err := sharedfile.Read(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	p := parser{
		roster: &Roster{devices: map[vitals.Name]Device{}}, groups: map[string]bool{}, table: map[string]entry{},
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
	case len(p.roster.devices) == 0: // an editor that saves the file may have emptied it for a moment
		err = fmt.Errorf("%s: no [[device]]", path)
	default:
		p.roster.groups = sorted(p.groups)
		return p.roster, nil
	}
	return nil, fileError{err}
}

// A keyError is an error about a key.
type keyError struct {
	at          unstable.Range
	key, reason string
}

func (e *keyError) Error() string { return e.key + ": " + e.reason }

// A parser parses a file and stops at the first error, in time that is linear in its size. The strict decoder of TOML
// collects all unknown keys, each with a copy of the file, which takes minutes for a key too many in each device.
type parser struct {
	unstable.Parser
	roster *Roster
	groups map[string]bool

	open  bool             // there is a table
	at    unstable.Range   // of its header
	table map[string]entry // by key
}

// An entry is a value in a table, and where its key is.
type entry struct {
	text string
	at   unstable.Range
}

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
	if err := p.end(); err != nil {
		return err
	}
	switch {
	case key != "device":
		return &keyError{at, key, "unknown key" + tomlfile.Nearest(key, []string{"device"})}
	case kind != unstable.ArrayTable:
		return &keyError{at, key, "a table of a device begins with [[device]]"}
	}
	clear(p.table)
	p.open, p.at = true, at
	return nil
}

// set sets a value of the table.
func (p *parser) set(key string, at unstable.Range, value *unstable.Node) error {
	known := []string{"device", "label", "group"}
	_, given := p.table[key]
	switch {
	case !p.open:
		return &keyError{at, key, "not in a [[device]]"}
	case !slices.Contains(known, key):
		return &keyError{at, key, "unknown key" + tomlfile.Nearest(key, known)}
	case given:
		return &keyError{at, key, "given twice"}
	case value.Kind != unstable.String:
		return &keyError{at, key, "not a string"}
	}
	p.table[key] = entry{string(value.Data), at}
	return nil
}

// end adds the device of the table, if there is one.
func (p *parser) end() error {
	if !p.open {
		return nil
	}
	fail := func(key, reason string, args ...any) error {
		at := p.at
		if e, ok := p.table[key]; ok {
			at = e.at
		}
		return &keyError{at, key, fmt.Sprintf(reason, args...)}
	}
	label, group := p.table["label"].text, p.table["group"].text
	name, err := vitals.ParseName(p.table["device"].text)
	_, given := p.roster.devices[name]
	const badText = "not at most %d printable characters without a space at the beginning or the end"
	switch {
	case err != nil:
		return fail("device", "not 1 to 64 of A-Z, a-z, 0-9, dot, underscore, colon and hyphen")
	case given:
		return fail("device", "%s is given twice", name)
	case label == "" && group == "":
		return fail("device", "%s has neither a label nor a group", name)
	case !isText(label):
		return fail("label", badText, MaxText)
	case !isText(group):
		return fail("group", badText, MaxText)
	case group != "" && !p.groups[group] && len(p.groups) == MaxGroups:
		return fail("group", "more than %d groups", MaxGroups)
	}
	if group != "" {
		p.groups[group] = true
	}
	p.roster.devices[name] = Device{Label: label, Group: group, folded: Fold(label)}
	return nil
}

// isText reports whether text may be a label or a group, or is empty.
func isText(text string) bool {
	return utf8.RuneCountInString(text) <= MaxText && utf8.ValidString(text) && strings.TrimSpace(text) == text &&
		!strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}
