// Package strictjson reads JSON bodies whose members may come in any order and of which only
// some matter, such as FHIR resources and data points of Open mHealth.
//
// # Promise
//
// The whole body is checked, skipped values included: it must be JSON as defined by RFC 8259, in UTF-8, and no object
// may have two members of the same name. Only texts with escapes are copied. A member that is null counts as missing,
// and a byte order mark before the body is ignored.
//
// # Not here
//
// No knowledge of FHIR, of Open mHealth or of readings: package fhir and package omh have it.
package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/vitals"
)

// A Reader reads a body from its beginning to its end. Texts that it returns are parts of the
// body, except those that have escapes.
//
// A syntax error is sticky: [Reader.End] returns it, and all other methods then do nothing. A
// value that is valid JSON but not of the expected kind is skipped and recorded: see
// [Reader.Wrong].
type Reader struct {
	body []byte // without a byte order mark
	mark int64  // length of the mark
	json *jsontext.Decoder
	err  error // the first syntax error

	wrong []byte // name of the first member whose value has the wrong kind; nil means none
	why   string
	at    []byte // name of the member that is being read
}

// NewReader returns a Reader of a body.
func NewReader(body []byte) *Reader {
	rest := bytes.TrimPrefix(body, []byte("\ufeff"))
	return &Reader{body: rest, mark: int64(len(body) - len(rest)), json: jsontext.NewDecoder(bytes.NewBuffer(rest))}
}

// Wrong returns the name of the first member since the last call whose value has the wrong kind,
// and the reason. The name is "" if there is none.
func (r *Reader) Wrong() (member, why string) {
	member, why = string(r.wrong), r.why
	r.wrong, r.why = nil, ""
	return member, why
}

// Raw reads a value of any kind and returns its text.
func (r *Reader) Raw() jsontext.Value {
	if r.err != nil {
		return nil
	}
	v, err := r.json.ReadValue()
	if err != nil {
		r.err = err
		return nil
	}
	end := r.json.InputOffset()
	return r.body[end-int64(len(v)) : end]
}

// Skip reads a value of any kind.
func (r *Reader) Skip() { r.Raw() }

// Kind returns the kind of the next value, or 0 after an error.
func (r *Reader) Kind() jsontext.Kind {
	if r.err != nil {
		return 0
	}
	return r.json.PeekKind()
}

func (r *Reader) token() {
	if r.err == nil {
		_, r.err = r.json.ReadToken()
	}
}

// Mismatch skips a value and records that it is not want, such as "an object", for [Reader.Wrong].
func (r *Reader) Mismatch(want string) {
	if r.Skip(); r.err == nil && r.wrong == nil {
		r.wrong, r.why = r.at, "not "+want
	}
}

// Object calls visit with the name of each member of an object that is not null. visit must read its value.
func (r *Reader) Object(visit func(name []byte)) { r.members(false, visit) }

// Members is Object with the members that are null.
func (r *Reader) Members(visit func(name []byte)) { r.members(true, visit) }

func (r *Reader) members(nulls bool, visit func(name []byte)) {
	if r.Kind() != jsontext.KindBeginObject {
		r.Mismatch("an object")
		return
	}
	r.token()
	outer := r.at
	for r.err == nil && r.Kind() != jsontext.KindEndObject {
		r.at = unquoted(r.Raw())
		if r.Kind() == jsontext.KindNull && !nulls {
			r.Skip()
		} else if r.err == nil {
			visit(r.at)
		}
	}
	r.at = outer
	r.token()
}

// Texts reads an object of which only some strings matter: those with the given names, into the
// texts of the same positions.
func (r *Reader) Texts(names []string, into ...*[]byte) {
	r.Object(func(name []byte) {
		for i := range names {
			if names[i] == string(name) {
				*into[i] = r.Text()
				return
			}
		}
		r.Skip()
	})
}

// Array calls visit for each element of an array. visit must read it.
func (r *Reader) Array(visit func()) {
	if r.Kind() != jsontext.KindBeginArray {
		r.Mismatch("an array")
		return
	}
	r.token()
	for r.err == nil && r.Kind() != jsontext.KindEndArray {
		visit()
	}
	r.token()
}

// Text reads a string.
func (r *Reader) Text() []byte {
	if r.Kind() != jsontext.KindString {
		r.Mismatch("a string")
		return nil
	}
	return unquoted(r.Raw())
}

// Number reads a number and returns its text.
func (r *Reader) Number() []byte {
	if r.Kind() != jsontext.KindNumber {
		r.Mismatch("a number")
		return nil
	}
	return r.Raw()
}

// unquoted returns the content of a string. It allocates only if the string has escapes.
func unquoted(v jsontext.Value) []byte {
	if len(v) < 2 {
		return nil
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, v) // v is valid
	return text
}

// syntax returns the error of the syntax as vitals reports it. Its text does not quote the body.
func (r *Reader) syntax() error {
	offset, reason := int64(len(r.body)), "not JSON"
	if s, ok := errors.AsType[*jsontext.SyntacticError](r.err); ok {
		offset = min(s.ByteOffset, offset)
	}
	switch {
	case len(bytes.TrimSpace(r.body)) == 0:
		offset, reason = 0, "empty body"
	case errors.Is(r.err, jsontext.ErrDuplicateName):
		reason = "field name given twice"
	case errors.Is(r.err, io.EOF), errors.Is(r.err, io.ErrUnexpectedEOF):
		reason = "cut off"
	}
	return &vitals.SyntaxError{Offset: r.mark + offset, Reason: reason}
}

// End returns the error of the syntax, or that of data after the value.
func (r *Reader) End() error {
	if r.err != nil {
		return r.syntax()
	}
	if _, err := r.json.ReadToken(); err != io.EOF {
		return &vitals.SyntaxError{Offset: r.mark + r.json.InputOffset(), Reason: "data after the end of the value"}
	}
	return nil
}

// MaxDepth bounds how deeply arrays and objects are nested in a body. The deepest elements that
// the forms of readings have are at 12.
const MaxDepth = 64

// MaxMembers bounds the members of an object. To find a name that is given twice, the names of
// an object are kept while it is read, which takes several times the memory of short ones.
const MaxMembers = 1000

// CheckSize returns an error if arrays and objects are nested more than MaxDepth deep, or if an
// object has more than MaxMembers.
func CheckSize(body []byte) error {
	open, inString := 0, false
	var members [MaxDepth + 1]int // of the open arrays and objects, by depth
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString:
			if c == '\\' {
				i++
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if open++; open > MaxDepth {
				return &vitals.SyntaxError{Offset: int64(i), Reason: fmt.Sprintf("nested more than %d levels deep", MaxDepth)}
			}
			members[open] = 0
		case c == ':' && open > 0:
			if members[open]++; members[open] > MaxMembers {
				return &vitals.SyntaxError{Offset: int64(i), Reason: fmt.Sprintf("an object of more than %d members", MaxMembers)}
			}
		case (c == '}' || c == ']') && open > 0:
			open--
		}
	}
	return nil
}
