package fhir

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/vitals"
)

// A parser reads JSON. All its texts are parts of body, except those that have escapes.
//
// An error of the syntax ends it. A value that is JSON but not what FHIR has at its place is
// skipped, and noted in wrong.
type parser struct {
	body []byte
	json *jsontext.Decoder
	err  error // of the syntax

	wrong []byte // name of the first member whose value has the wrong type; nil: none
	why   string
	at    []byte // name of the member that is being read

	identifiers []identifier
	components  []sentComponent
	contained   []sentResource
}

func newParser(body []byte) *parser {
	return &parser{body: body, json: jsontext.NewDecoder(bytes.NewBuffer(body))}
}

// value reads the next value and returns its text.
func (p *parser) value() jsontext.Value {
	if p.err != nil {
		return nil
	}
	v, err := p.json.ReadValue()
	if err != nil {
		p.err = err
		return nil
	}
	end := p.json.InputOffset()
	return p.body[end-int64(len(v)) : end]
}

func (p *parser) skip() { p.value() }

func (p *parser) kind() jsontext.Kind {
	if p.err != nil {
		return 0
	}
	return p.json.PeekKind()
}

func (p *parser) token() {
	if p.err == nil {
		_, p.err = p.json.ReadToken()
	}
}

// mismatch skips a value that is not what it must be.
func (p *parser) mismatch(want string) {
	v := p.value()
	if p.err != nil || p.wrong != nil {
		return
	}
	p.wrong, p.why = p.at, "not "+want
	if v.Kind() == jsontext.KindNull {
		p.why = "null: leave out what has no value"
	}
}

// object calls visit with the name of each member of an object. visit must read its value.
func (p *parser) object(visit func(name []byte)) {
	if p.kind() != jsontext.KindBeginObject {
		p.mismatch("an object")
		return
	}
	p.token()
	outer := p.at
	for p.err == nil && p.kind() != jsontext.KindEndObject {
		p.at = unquoted(p.value())
		if p.err == nil {
			visit(p.at)
		}
	}
	p.at = outer
	p.token()
}

// array calls visit for each element of an array. visit must read it.
func (p *parser) array(visit func()) {
	if p.kind() != jsontext.KindBeginArray {
		p.mismatch("an array")
		return
	}
	p.token()
	for p.err == nil && p.kind() != jsontext.KindEndArray {
		visit()
	}
	p.token()
}

// text reads a string.
func (p *parser) text() []byte {
	if p.kind() != jsontext.KindString {
		p.mismatch("a string")
		return nil
	}
	return unquoted(p.value())
}

// number reads a number and returns its text.
func (p *parser) number() []byte {
	if p.kind() != jsontext.KindNumber {
		p.mismatch("a number")
		return nil
	}
	return p.value()
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
func (p *parser) syntax() error {
	offset, reason := int64(len(p.body)), "not JSON"
	if s, ok := errors.AsType[*jsontext.SyntacticError](p.err); ok {
		offset = min(s.ByteOffset, offset)
	}
	switch {
	case len(bytes.TrimSpace(p.body)) == 0:
		offset, reason = 0, "empty body"
	case errors.Is(p.err, jsontext.ErrDuplicateName):
		reason = "field name given twice"
	case errors.Is(p.err, io.EOF), errors.Is(p.err, io.ErrUnexpectedEOF):
		reason = "cut off"
	}
	return &vitals.SyntaxError{Offset: offset, Reason: reason}
}

// end returns the error of the syntax, or that of data after the value.
func (p *parser) end() error {
	if p.err != nil {
		return p.syntax()
	}
	if _, err := p.json.ReadToken(); err != io.EOF {
		return &vitals.SyntaxError{Offset: p.json.InputOffset(), Reason: "data after the end of the value"}
	}
	return nil
}

// maxDepth bounds how deeply arrays and objects are nested in a body. The deepest elements that
// Pulsegate reads are at 12.
const maxDepth = 64

// checkDepth returns an error if arrays and objects are nested more than maxDepth deep.
func checkDepth(body []byte) error {
	open, inString := 0, false
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
			if open++; open > maxDepth {
				return &vitals.SyntaxError{Offset: int64(i), Reason: fmt.Sprintf("nested more than %d levels deep", maxDepth)}
			}
		case c == '}' || c == ']':
			open--
		}
	}
	return nil
}
