package shape

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Each is the token of a JSON pointer that stands for each element of an array.
const Each = "-"

// maxArrays bounds how deeply the arrays are nested of whose elements readings are made.
const maxArrays = 2

// CheckPointer returns an error if a text is no JSON pointer.
func CheckPointer(pointer string) error {
	_, _, err := tokens(pointer)
	return err
}

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
		if t == Each {
			if len(arrays) == maxArrays {
				return nil, nil, errors.New("- stands three times in the pointer")
			}
			arrays = append(arrays, "/"+strings.Join(parts[:i+1], "/"))
		}
		all = append(all, strings.NewReplacer("~1", "/", "~0", "~").Replace(t))
	}
	return all, arrays, nil
}

// A Node is a place of JSON at which a pointer ends, or through which one goes. It is never modified.
type Node struct {
	Slot     int // -1 means that no pointer ends here
	Children map[string]*Node
}

// A Tree knows which values of JSON are read. It is never modified once it is in use.
type Tree struct {
	Root   Node
	Arrays []string // pointers to the arrays of which each element is a reading, the outer one first
	Levels [][]int  // slots outside of the arrays, and those in the elements of each

	slots map[string]int // by pointer
}

// NewTree returns a Tree without pointers.
func NewTree() *Tree {
	return &Tree{Root: Node{Slot: -1}, Levels: [][]int{nil}, slots: map[string]int{}}
}

// Slots returns the number of slots.
func (t *Tree) Slots() int { return len(t.slots) }

// AddPlaces adds the pointers of places and returns their slots. Its errors have the key of the place.
func (t *Tree) AddPlaces(places []Place) (slots []int, err error) {
	for _, p := range places {
		slot, err := t.add(p.At)
		if err != nil {
			return nil, bad(p.Key, "%w", err)
		}
		slots = append(slots, slot)
	}
	return slots, nil
}

// add adds a pointer and returns its slot. It returns an error if the pointer is none, or is about the elements of
// another array.
func (t *Tree) add(pointer string) (slot int, err error) {
	all, arrays, err := tokens(pointer)
	if err != nil {
		return 0, err
	}
	for i, array := range arrays {
		if i == len(t.Arrays) {
			t.Arrays, t.Levels = append(t.Arrays, array), append(t.Levels, nil)
		}
		if t.Arrays[i] != array {
			return 0, errors.New("the elements of another array are read already: " + t.Arrays[i])
		}
	}
	if slot, known := t.slots[pointer]; known {
		return slot, nil
	}
	n := &t.Root
	for _, token := range all {
		if n.Children == nil {
			n.Children = map[string]*Node{}
		}
		if n.Children[token] == nil {
			n.Children[token] = &Node{Slot: -1}
		}
		n = n.Children[token]
	}
	n.Slot = len(t.slots)
	t.slots[pointer] = n.Slot
	t.Levels[len(arrays)] = append(t.Levels[len(arrays)], n.Slot)
	return n.Slot, nil
}

// JSONCell returns the cell of a JSON value, which is valid. Its text may be a part of raw.
func JSONCell(raw []byte) Cell {
	switch jsontext.Value(raw).Kind() {
	case jsontext.KindString:
		unquoted, _ := jsontext.AppendUnquote(nil, raw) // it is valid
		return Cell{Kind: Text, Text: unquoted}
	case jsontext.KindNumber:
		return Cell{Kind: Number, Text: raw}
	case jsontext.KindTrue, jsontext.KindFalse:
		return Cell{Kind: Literal, Text: raw}
	case jsontext.KindBeginObject, jsontext.KindBeginArray:
		return Cell{Kind: Nested}
	}
	return Cell{} // null
}
