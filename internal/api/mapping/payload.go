package mapping

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/internal/api/strictjson"
)

// A payload holds the values of a payload, or of one of its elements.
type payload struct {
	*shape.Tree
	values []shape.Cell // by slot
	found  bool         // the array, in all elements of the outer one
}

// read reads a payload, which is valid JSON, and calls reading when the values of one reading are complete.
func (p *payload) read(raw []byte, reading func()) {
	clear(p.values)
	p.found = true
	p.level(raw, &p.Root, 0, reading)
}

// level reads a value in which this many arrays are open: first what is outside of the next array, then each of its
// elements.
func (p *payload) level(raw []byte, n *shape.Node, open int, reading func()) {
	p.walk(strictjson.NewReader(raw), n, nil)
	if open == len(p.Arrays) {
		reading()
		return
	}
	found := false
	p.walk(strictjson.NewReader(raw), n, func(inner *shape.Node, r *strictjson.Reader) {
		if found = true; r == nil {
			return
		}
		for _, slots := range p.Levels[open+1:] {
			for _, slot := range slots {
				p.values[slot] = shape.Cell{}
			}
		}
		if open+1 < len(p.Arrays) {
			p.level(r.Raw(), inner, open+1, reading)
			return
		}
		p.walk(r, inner, nil)
		reading()
	})
	p.found = p.found && found
}

// walk reads the value at a place. If element is nil it reads what is outside of the next array's elements; otherwise
// it calls element with each of them, and with nil for the array itself.
func (p *payload) walk(r *strictjson.Reader, n *shape.Node, element func(inner *shape.Node, r *strictjson.Reader)) {
	if n == nil {
		r.Skip()
		return
	}
	kind := r.Kind()
	if n.Slot >= 0 && (kind == jsontext.KindBeginObject || kind == jsontext.KindBeginArray) {
		p.values[n.Slot] = shape.Cell{Kind: shape.Nested}
	}
	switch {
	case kind == jsontext.KindBeginObject && n.Children != nil:
		r.Members(func(name []byte) { p.walk(r, n.Children[string(name)], element) })
	case kind == jsontext.KindNull && n.Children[shape.Each] != nil && element != nil: // as an array without elements
		element(n.Children[shape.Each], nil)
		r.Skip()
	case kind == jsontext.KindBeginArray && n.Children != nil:
		i, inner := 0, n.Children[shape.Each]
		if inner != nil && element != nil {
			element(inner, nil)
		}
		r.Array(func() {
			switch {
			case inner == nil:
				p.walk(r, n.Children[strconv.Itoa(i)], element)
			case element != nil:
				element(inner, r)
			default:
				p.walk(r, n.Children[strconv.Itoa(i)], nil)
			}
			i++
		})
	default:
		raw := r.Raw()
		if n.Slot >= 0 && len(raw) > 0 {
			p.values[n.Slot] = shape.JSONCell(raw)
		}
	}
}
