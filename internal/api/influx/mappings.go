package influx

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/mapping"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// Source is the source of mappings that read lines.
const Source = "lines"

// Mappings read lines that name the device, the time or the signs in other ways. The first that fits a line reads it:
// its where holds, and the line has a place of one of its signs, unless it ignores what it fits. Mappings are never
// modified once they are complete.
type Mappings struct {
	signs    codes.Table
	accepted *[vitals.MaxSigns]vitals.Range

	shapes []lineShape
	slots  map[string]int // by place
}

// A lineShape is a shape and the slots of its places.
type lineShape struct {
	*shape.Shape
	slots []int
}

// NewMappings returns Mappings to the signs of a table, without any. accepted has the ranges of the signs; nil means
// those of their definitions.
func NewMappings(signs codes.Table, accepted *[vitals.MaxSigns]vitals.Range) *Mappings {
	return &Mappings{signs: signs, accepted: accepted, slots: map[string]int{}}
}

// Len returns the number of mappings. A nil *Mappings has none.
func (m *Mappings) Len() int {
	if m == nil {
		return 0
	}
	return len(m.shapes)
}

// Places of lines.
const (
	measurement = "measurement"
	tagPrefix   = "tag:"
	fieldPrefix = "field:"
)

// checkPlace returns an error if a text is no place of a line.
func checkPlace(at string) error {
	for _, prefix := range []string{tagPrefix, fieldPrefix} {
		if key, ok := strings.CutPrefix(at, prefix); ok && key != "" {
			return nil
		}
	}
	if at != measurement {
		return errors.New(`neither measurement, nor a tag or a field, such as "tag:entity_id" and "field:value"`)
	}
	return nil
}

// Add checks a table and adds it, after those that were added before.
func (m *Mappings) Add(t *shape.Table) error {
	for _, other := range []struct {
		key   string
		given bool
	}{
		{"topic", t.Topic != ""}, {"decode", t.Decode != ""}, {"characteristic", t.Characteristic != ""},
		{"value", t.Value != nil}, {"encoding", t.Encoding != ""}, {"user_suffix", t.UserSuffix != ""},
		{"sources", t.Sources != ""}, {"member", t.Member != ""},
	} {
		if other.given {
			return bad(other.key, `not of a mapping with source = "lines"`)
		}
	}
	s, err := t.Compile(shape.Options{Table: m.signs, Accepted: m.accepted, Place: checkPlace, Timestamped: true})
	switch {
	case err != nil:
		return err
	case s.Ignore && !s.Conditional() && len(m.shapes) == 0:
		return shape.ErrIgnoreAll
	case slices.ContainsFunc(m.shapes, func(before lineShape) bool { return before.Ignore && !before.Conditional() }):
		return bad("where", "not reached: an earlier mapping ignores every line, because it has no where")
	}
	added := lineShape{Shape: s}
	for _, p := range s.Places {
		slot, known := m.slots[p.At]
		if !known {
			slot = len(m.slots)
			m.slots[p.At] = slot
		}
		added.slots = append(added.slots, slot)
	}
	m.shapes = append(m.shapes, added)
	return nil
}

// bad returns an error about a key of a mapping.
func bad(key, format string, args ...any) error {
	return &vitals.FieldOf{Part: key, Err: fmt.Errorf(format, args...)}
}

// A point is what the Mappings read of a point.
type point struct {
	cells []shape.Cell // by slot
	twice []bool       // the place has another cell, too
	text  []byte       // of cells
	key   []byte       // buffer of a place
}

// fitting reads a point, and returns the shape that fits it with its cells, or nil. It leaves the Scanner at the start
// of the point unless a shape fits. The error is why what the shape reads is not clear.
func (m *Mappings) fitting(lines *Scanner, p *point) (fits *shape.Shape, cells shape.Cells,
	timestamp []byte, err error) {
	if p.cells == nil {
		p.cells, p.twice = make([]shape.Cell, len(m.slots)), make([]bool, len(m.slots))
	}
	clear(p.cells)
	clear(p.twice)
	p.text = p.text[:0]
	set := func(prefix string, key []byte, c func() shape.Cell) {
		p.key = append(append(p.key[:0], prefix...), key...)
		slot, read := m.slots[string(p.key)]
		switch {
		case !read:
		case p.cells[slot].Kind != shape.Absent:
			p.twice[slot] = true
		default:
			p.cells[slot] = c()
		}
	}
	ahead := *lines
	timestamp, syntax := ahead.Read(
		func(name []byte) {
			set(measurement, nil, func() shape.Cell { return shape.Cell{Kind: shape.Text, Text: name} })
		},
		func(key, value []byte) {
			set(tagPrefix, key, func() shape.Cell { return shape.Cell{Kind: shape.Text, Text: value} })
		},
		func(key []byte, kind Kind, value []byte) {
			set(fieldPrefix, key, func() shape.Cell { return p.cell(kind, value) })
		})
	if syntax != nil {
		return nil, cells, nil, nil
	}
	for i := range m.shapes {
		s := &m.shapes[i]
		cells = shape.Cells{Values: p.cells, At: s.slots}
		if !s.Fits(cells) || !s.Ignore && !s.Has(cells) {
			continue
		}
		*lines = ahead
		for j, slot := range s.slots {
			if p.twice[slot] {
				return s.Shape, cells, timestamp, &vitals.FieldOf{Part: nameOf(s.Places[j].At), Err: errTwice}
			}
		}
		return s.Shape, cells, timestamp, nil
	}
	return nil, cells, nil, nil
}

// nameOf returns the name of a place that is safe to repeat to the client, or "".
func nameOf(place string) string {
	_, key, keyed := strings.Cut(place, ":")
	if !keyed {
		key = place
	}
	return reportable([]byte(key))
}

var suffixes = [...]byte{Integer: 'i', Unsigned: 'u'}

// cell returns the cell of a field.
func (p *point) cell(kind Kind, value []byte) shape.Cell {
	begin := len(p.text)
	switch kind {
	case String:
		if bytes.IndexByte(value, '\\') < 0 {
			break
		}
		for i := 0; i < len(value); i++ {
			if value[i] == '\\' && i+1 < len(value) && (value[i+1] == '"' || value[i+1] == '\\') {
				i++
			}
			p.text = append(p.text, value[i])
		}
		value = p.text[begin:]
	case Boolean:
		switch string(value) {
		case "t", "T", "true", "True", "TRUE":
			return shape.Cell{Kind: shape.Literal, Text: []byte("true")}
		case "f", "F", "false", "False", "FALSE":
			return shape.Cell{Kind: shape.Literal, Text: []byte("false")}
		}
	case Float, Integer, Unsigned:
		number, ok := appendJSON(p.text, kind, value)
		if ok {
			_, err := vitals.ParseValue(number[begin:], vitals.MaxDecimals)
			ok = !errors.Is(err, vitals.ErrNumber) // 0012-A is a text, and stays as it is
		}
		if ok {
			p.text = number
			return shape.Cell{Kind: shape.Number, Text: p.text[begin:]}
		}
		if kind != Float { // without its suffix, it may be a number
			p.text = append(append(p.text, value...), suffixes[kind])
			value = p.text[begin:]
		}
	}
	return shape.Cell{Kind: shape.Text, Text: value}
}

// record returns the record of a point that a shape fits.
func (s *input) record(fits *shape.Shape, cells shape.Cells, index int, timestamp []byte) *mapping.Record {
	return &mapping.Record{Shape: fits, Cells: cells, Index: index,
		Stamp: func(*shape.Clock) (unixMs int64, offset vitals.UTCOffset, fallback bool, err error) {
			if len(timestamp) == 0 {
				return 0, 0, true, errNoTime
			}
			unixMs, err = s.precision.unixMs(timestamp)
			return unixMs, 0, false, err
		}}
}
