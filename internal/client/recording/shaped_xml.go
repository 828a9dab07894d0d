package recording

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// An xmlReader is the Reader of XML that shapes describe. It reads a document as a stream of elements.
type xmlReader struct {
	rows
	forms  []*xmlForm
	dec    *xml.Decoder
	bound  *boundedReader
	tape   *tape // nil without Options.Texts
	text   []byte
	open   []xml.Name // elements
	record int        // depth of the record that is read; 0 means none
	name   string     // of its element
	twice  bool       // it has an attribute twice
	line   int        // on which it starts
}

// An xmlForm is a shape, its places, and what a record has there.
type xmlForm struct {
	*shape.Shape
	at    []shape.Attribute
	cells shape.Cells
}

// NewShapedXML returns a Reader for an XML document. A record is an element of which a shape is, outside of other
// records; the first shape that fits a record reads it.
func NewShapedXML(file io.Reader, shapes []*shape.Shape, opt Options) (Reader, *Recognised, error) {
	text, encoding := decoded(file)
	x := &xmlReader{rows: newRows(opt), bound: &boundedReader{file: text}}
	for _, s := range shapes {
		f := &xmlForm{Shape: s}
		for i, p := range s.Places {
			a, err := shape.ParseAttribute(p.At)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", p.Key, err)
			}
			f.at, f.cells.At = append(f.at, a), append(f.cells.At, i)
		}
		f.cells.Values = make([]shape.Cell, len(f.at))
		x.forms = append(x.forms, f)
	}
	in := io.Reader(x.bound)
	if opt.Texts {
		x.tape = &tape{file: in}
		in = x.tape
	}
	x.dec = xml.NewDecoder(in)
	if encoding == "UTF-16" { // it is UTF-8 already
		x.dec.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	}
	return x, &Recognised{Shape: shapes[0], Encoding: encoding}, nil
}

// Text implements Reader.
func (x *xmlReader) Text() []byte { return x.text }

func (x *xmlReader) Next() (vitals.Reading, int, error) {
	for {
		if x.record == 0 { // else the bound is that of the record
			x.bound.allow(maxRowBytes, errLongRow)
			if x.tape != nil {
				x.tape.cut(x.dec.InputOffset())
			}
		}
		token, err := x.dec.RawToken()
		switch {
		case err == io.EOF && len(x.open) > 0:
			return vitals.Reading{}, 0, errors.New("the XML is cut off")
		case err == io.EOF && x.counts.Rows == 0:
			return vitals.Reading{}, 0, fmt.Errorf("the file has no element %s", x.forms[0].Element)
		case err == io.EOF:
			return vitals.Reading{}, 0, io.EOF
		case err != nil:
			return vitals.Reading{}, 0, x.broken(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if len(x.open) == maxDepth || len(token.Name.Space)+len(token.Name.Local) > maxElementName {
				return vitals.Reading{}, 0, x.broken(errElement)
			}
			x.open = append(x.open, token.Name)
			x.start(&token)
		case xml.EndElement:
			last := len(x.open) - 1
			if last < 0 || x.open[last] != token.Name {
				return vitals.Reading{}, 0, x.broken(errNotXML)
			}
			if x.open = x.open[:last]; x.record == 0 || last >= x.record {
				continue
			}
			x.record = 0
			if x.tape != nil {
				x.text = x.tape.cut(x.dec.InputOffset())
			}
			x.counts.Rows++
			r, rowErr := x.read()
			if rowErr != nil {
				rowErr.Line = x.line
				return vitals.Reading{}, x.line, rowErr
			}
			if !r.Values.IsZero() {
				return r, x.line, nil
			}
		}
	}
}

// maxElementName bounds the name of an element, which is kept while it is open.
const maxElementName = 1024

var (
	errNotXML   = errors.New("not XML")
	errEncoding = errors.New("not XML in UTF-8 or UTF-16")
	errElement  = fmt.Errorf("nested in more than %d elements, or the name of one has more than %d bytes", maxDepth,
		maxElementName)
)

// broken returns why the file is not read on, without what it has.
func (x *xmlReader) broken(err error) error {
	switch {
	case x.bound.failed != nil:
		err = x.bound.failed
	case err == errElement, err == errNotXML:
	case errors.As(err, new(*xml.SyntaxError)):
		err = errNotXML
	default:
		err = errEncoding
	}
	line, _ := x.dec.InputPos()
	return fmt.Errorf("line %d: %w", line, err)
}

// start takes the attributes of an element, if a record begins with it or has it as a child.
func (x *xmlReader) start(e *xml.StartElement) {
	if x.record == 0 && slices.ContainsFunc(x.forms, func(f *xmlForm) bool { return f.Element == e.Name.Local }) {
		x.record, x.name = len(x.open), e.Name.Local
		x.twice = false
		x.line, _ = x.dec.InputPos()
		for _, f := range x.forms {
			clear(f.cells.Values)
		}
	}
	child := ""
	switch len(x.open) {
	case x.record:
	case x.record + 1:
		if x.record == 0 {
			return
		}
		child = e.Name.Local
	default:
		return
	}
	for _, f := range x.forms {
		for i, a := range f.at {
			if a.Child != child || child != "" && x.attribute(e, a.Key) != a.Is {
				continue
			}
			if text := x.attribute(e, a.Name); text != "" {
				x.twice = x.twice || f.cells.Values[i].Kind != shape.Absent // in another child
				f.cells.Values[i] = shape.Cell{Kind: shape.Text, Text: []byte(text)}
			}
		}
	}
}

// attribute returns an attribute, or "".
func (x *xmlReader) attribute(e *xml.StartElement, name string) (text string) {
	found := false
	for i := range e.Attr {
		if e.Attr[i].Name.Local == name {
			x.twice = x.twice || found
			text, found = e.Attr[i].Value, true
		}
	}
	return text
}

// read converts the record to a reading, which has no signs if it is left out.
func (x *xmlReader) read() (r vitals.Reading, _ *RowError) {
	if x.twice {
		return r, &RowError{Err: errTwice}
	}
	for _, f := range x.forms {
		if (f.Element == x.name || f.Element == "") && f.Fits(f.cells) {
			return x.reading(f.Shape, f.cells)
		}
	}
	return r, &RowError{Err: errNoFit}
}
