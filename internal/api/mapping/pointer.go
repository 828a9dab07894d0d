package mapping

import (
	"errors"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/api/strictjson"
)

// each is the token of a pointer that stands for each element of an array.
const each = "-"

// tokens returns the tokens of a JSON pointer (RFC 6901), and the position of the one that stands for each element,
// or -1.
func tokens(pointer string) (all []string, at int, err error) {
	at = -1
	if pointer == "" {
		return nil, at, nil
	}
	if pointer[0] != '/' {
		return nil, at, errors.New(`not a JSON pointer, such as "/data/hr", or "" for the whole payload`)
	}
	for i, t := range strings.Split(pointer[1:], "/") {
		if rest := strings.NewReplacer("~0", "", "~1", "").Replace(t); strings.Contains(rest, "~") {
			return nil, at, errors.New("not a JSON pointer: ~ is written ~0, and / in a name ~1")
		}
		if t == each {
			if at >= 0 {
				return nil, at, errors.New("- stands twice in the pointer")
			}
			at = i
		}
		all = append(all, strings.NewReplacer("~1", "/", "~0", "~").Replace(t))
	}
	return all, at, nil
}

// A node is a place of payloads at which a pointer ends, or through which one goes. It is never modified.
type node struct {
	slot     int // -1 means that no pointer ends here
	children map[string]*node
}

// A value is what a pointer has found. Its text belongs to the payload.
type value struct {
	kind valueKind
	text []byte
}

type valueKind uint8

const (
	absent  valueKind = iota // or null
	text                     // a string; its text is the content
	number                   // its text is that of the payload
	literal                  // true or false
	nested                   // an object or an array
)

// A plan knows which values of payloads are read. It is never modified once it is in use.
type plan struct {
	root  node
	slots map[string]int // by pointer
	array string         // pointer to the array of which each element is a reading; "" means none
	inner []int          // slots of its elements
}

func newPlan() *plan { return &plan{root: node{slot: -1}, slots: map[string]int{}} }

// add adds a pointer. It returns an error if the pointer is none, or is about the elements of another array.
func (p *plan) add(pointer string) error {
	all, at, err := tokens(pointer)
	if err != nil {
		return err
	}
	if at >= 0 {
		array := "/" + strings.Join(strings.Split(pointer[1:], "/")[:at+1], "/")
		if p.array != "" && p.array != array {
			return errors.New("the elements of another array are read already: " + p.array)
		}
		p.array = array
	}
	if _, known := p.slots[pointer]; known {
		return nil
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
	if at >= 0 {
		p.inner = append(p.inner, n.slot)
	}
	return nil
}

// A payload holds the values of a payload, or of one of its elements.
type payload struct {
	*plan
	values []value // by slot
	found  bool    // the array
}

// at returns what a pointer of the plan has found.
func (p *payload) at(pointer string) value { return p.values[p.slots[pointer]] }

// read reads a payload, which is valid JSON, and calls reading when the values of one reading are complete.
func (p *payload) read(raw []byte, reading func()) {
	clear(p.values)
	p.found = p.array == ""
	p.walk(strictjson.NewReader(raw), &p.root, nil)
	if p.array == "" {
		reading()
		return
	}
	p.walk(strictjson.NewReader(raw), &p.root, reading)
}

// walk reads the value at a place. If element is nil it reads what is outside of the array's elements; otherwise it calls
// element when the values of one are complete.
func (p *payload) walk(r *strictjson.Reader, n *node, element func()) {
	if n == nil {
		r.Skip()
		return
	}
	kind := r.Kind()
	if n.slot >= 0 && (kind == jsontext.KindBeginObject || kind == jsontext.KindBeginArray) {
		p.values[n.slot] = value{kind: nested}
	}
	switch {
	case kind == jsontext.KindBeginObject && n.children != nil:
		r.Object(func(name []byte) { p.walk(r, n.children[string(name)], element) })
	case kind == jsontext.KindBeginArray && n.children != nil:
		i, inner := 0, n.children[each]
		r.Array(func() {
			if inner != nil && element != nil {
				p.found = true
				for _, slot := range p.inner {
					p.values[slot] = value{}
				}
				p.walk(r, inner, nil)
				element()
			} else {
				p.walk(r, n.children[strconv.Itoa(i)], element)
			}
			i++
		})
		p.found = p.found || inner != nil
	default:
		raw := r.Raw()
		if n.slot >= 0 && len(raw) > 0 {
			p.values[n.slot] = scalar(raw)
		}
	}
}

func scalar(raw []byte) value {
	switch jsontext.Value(raw).Kind() {
	case jsontext.KindString:
		unquoted, _ := jsontext.AppendUnquote(nil, raw) // it is valid
		return value{text, unquoted}
	case jsontext.KindNumber:
		return value{number, raw}
	case jsontext.KindTrue, jsontext.KindFalse:
		return value{literal, raw}
	case jsontext.KindBeginObject, jsontext.KindBeginArray:
		return value{kind: nested}
	}
	return value{} // null
}
