package mapping

import (
	"errors"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/internal/api/strictjson"
)

// each is the token of a pointer that stands for each element of an array.
const each = "-"

// maxArrays bounds how deeply the arrays are nested of whose elements readings are made.
const maxArrays = 2

// tokens returns the tokens of a JSON pointer (RFC 6901), and the pointers to the arrays of which it is about each
// element, the outer one first.
func tokens(pointer string) (all, arrays []string, err error) {
	if pointer == "" {
		return nil, nil, nil
	}
	if pointer[0] != '/' {
		return nil, nil, errors.New(`not a JSON pointer, such as "/data/hr", or "" for the whole payload`)
	}
	parts := strings.Split(pointer[1:], "/")
	for i, t := range parts {
		if rest := strings.NewReplacer("~0", "", "~1", "").Replace(t); strings.Contains(rest, "~") {
			return nil, nil, errors.New("not a JSON pointer: ~ is written ~0, and / in a name ~1")
		}
		if t == each {
			if len(arrays) == maxArrays {
				return nil, nil, errors.New("- stands three times in the pointer")
			}
			arrays = append(arrays, "/"+strings.Join(parts[:i+1], "/"))
		}
		all = append(all, strings.NewReplacer("~1", "/", "~0", "~").Replace(t))
	}
	return all, arrays, nil
}

// A node is a place of payloads at which a pointer ends, or through which one goes. It is never modified.
type node struct {
	slot     int // -1 means that no pointer ends here
	children map[string]*node
}

// A plan knows which values of payloads are read. It is never modified once it is in use.
type plan struct {
	root   node
	slots  map[string]int // by pointer
	arrays []string       // pointers to the arrays of which each element is a reading, the outer one first
	inner  [][]int        // slots in the elements of each
}

func newPlan() *plan { return &plan{root: node{slot: -1}, slots: map[string]int{}} }

// add adds a pointer and returns its slot. It returns an error if the pointer is none, or is about the elements of
// another array.
func (p *plan) add(pointer string) (slot int, err error) {
	all, arrays, err := tokens(pointer)
	if err != nil {
		return 0, err
	}
	for i, array := range arrays {
		if i == len(p.arrays) {
			p.arrays, p.inner = append(p.arrays, array), append(p.inner, nil)
		}
		if p.arrays[i] != array {
			return 0, errors.New("the elements of another array are read already: " + p.arrays[i])
		}
	}
	if slot, known := p.slots[pointer]; known {
		return slot, nil
	}
	n := &p.root
	for _, t := range all {
		if n.children == nil {
			n.children = map[string]*node{}
		}
		if n.children[t] == nil {
			n.children[t] = &node{slot: -1}
		}
		n = n.children[t]
	}
	n.slot = len(p.slots)
	p.slots[pointer] = n.slot
	if depth := len(arrays); depth > 0 {
		p.inner[depth-1] = append(p.inner[depth-1], n.slot)
	}
	return n.slot, nil
}

// A payload holds the values of a payload, or of one of its elements.
type payload struct {
	*plan
	values []shape.Cell // by slot
	found  bool         // the array, in all elements of the outer one
}

// read reads a payload, which is valid JSON, and calls reading when the values of one reading are complete.
func (p *payload) read(raw []byte, reading func()) {
	clear(p.values)
	p.found = true
	p.level(raw, &p.root, 0, reading)
}

// level reads a value in which this many arrays are open: first what is outside of the next array, then each of its
// elements.
func (p *payload) level(raw []byte, n *node, open int, reading func()) {
	p.walk(strictjson.NewReader(raw), n, nil)
	if open == len(p.arrays) {
		reading()
		return
	}
	found := false
	p.walk(strictjson.NewReader(raw), n, func(inner *node, r *strictjson.Reader) {
		if found = true; r == nil {
			return
		}
		for _, slots := range p.inner[open:] {
			for _, slot := range slots {
				p.values[slot] = shape.Cell{}
			}
		}
		if open+1 < len(p.arrays) {
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
func (p *payload) walk(r *strictjson.Reader, n *node, element func(inner *node, r *strictjson.Reader)) {
	if n == nil {
		r.Skip()
		return
	}
	kind := r.Kind()
	if n.slot >= 0 && (kind == jsontext.KindBeginObject || kind == jsontext.KindBeginArray) {
		p.values[n.slot] = shape.Cell{Kind: shape.Nested}
	}
	switch {
	case kind == jsontext.KindBeginObject && n.children != nil:
		r.Object(func(name []byte) { p.walk(r, n.children[string(name)], element) })
	case kind == jsontext.KindBeginArray && n.children != nil:
		i, inner := 0, n.children[each]
		if inner != nil && element != nil {
			element(inner, nil)
		}
		r.Array(func() {
			switch {
			case inner == nil:
				p.walk(r, n.children[strconv.Itoa(i)], element)
			case element != nil:
				element(inner, r)
			default:
				p.walk(r, n.children[strconv.Itoa(i)], nil)
			}
			i++
		})
	default:
		raw := r.Raw()
		if n.slot >= 0 && len(raw) > 0 {
			p.values[n.slot] = scalar(raw)
		}
	}
}

func scalar(raw []byte) shape.Cell {
	switch jsontext.Value(raw).Kind() {
	case jsontext.KindString:
		unquoted, _ := jsontext.AppendUnquote(nil, raw) // it is valid
		return shape.Cell{Kind: shape.Text, Text: unquoted}
	case jsontext.KindNumber:
		return shape.Cell{Kind: shape.Number, Text: raw}
	case jsontext.KindTrue, jsontext.KindFalse:
		return shape.Cell{Kind: shape.Literal, Text: raw}
	case jsontext.KindBeginObject, jsontext.KindBeginArray:
		return shape.Cell{Kind: shape.Nested}
	}
	return shape.Cell{} // null
}
