package recording

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxHeldBytes bounds an array that is kept until what stands after it has been read.
const maxHeldBytes = 64 << 20

// maxDepth bounds how deeply what is not read may be nested, because the name of each open object is kept.
const maxDepth = 100

var (
	errNoArray  = errors.New("the array of readings is missing")
	errText     = errors.New("a text that is not UTF-8")
	errTwice    = errors.New("a field is given twice")
	errNoRecord = errors.New("the file has no record")
	errSeveral  = errors.New("more than one JSON value on the line")
	errWrapped  = errors.New("a rejected row has other members than rejected and row")
	errDeep     = fmt.Errorf("nested in more than %d arrays and objects", maxDepth)
	errHeld     = fmt.Errorf(
		"an array of more than %d bytes, with a field that the mapping reads after it, or without one", maxHeldBytes)
)

// errStop means that nobody reads on.
var errStop = errors.New("stopped")

// A jsonReader is the Reader of JSON that shapes describe. It reads a document as a stream: only a record, or an array
// whose outer values stand after it, is kept.
type jsonReader struct {
	rows
	tree    *shape.Tree
	forms   []jsonForm
	values  []shape.Cell // by slot
	seen    []bool       // by slot: the document has it, since its array's element began
	bound   *boundedReader
	maxHeld int
	lines   *bufio.Reader // of NDJSON; nil for a document
	line    int
	element *jsontext.Decoder
	raw     []byte      // the record
	node    *shape.Node // its place
	text    []byte      // of the line
	null    bool        // the array of readings is null
	strict  *jsontext.Decoder

	yield func(jsonRow) bool
	next  func() (jsonRow, bool)
	stop  func()
}

// A jsonForm is a shape and the slots of its places.
type jsonForm struct {
	*shape.Shape
	slots []int
}

// A jsonRow is what Next returns.
type jsonRow struct {
	reading vitals.Reading
	line    int
	err     error
}

// NewShapedJSON returns a Reader for a JSON document, or for NDJSON, in the form of shapes, of which the first that
// fits a record reads it. A document may have several values, one after another. If the shapes read the elements of a
// document that is an array, objects may also stand alone. stop must be called after the last call of Next.
func NewShapedJSON(file io.Reader, format string, shapes []*shape.Shape, opt Options) (reader Reader, found *Recognised,
	stop func(), err error) {
	text, encoding := decoded(file)
	j := &jsonReader{rows: newRows(opt), tree: shape.NewTree(), maxHeld: maxHeldBytes}
	for _, s := range shapes {
		slots, err := j.tree.AddPlaces(s.Places)
		if err != nil {
			return nil, nil, nil, err
		}
		j.forms = append(j.forms, jsonForm{s, slots})
	}
	j.values, j.seen = make([]shape.Cell, j.tree.Slots()), make([]bool, j.tree.Slots())
	j.bound = &boundedReader{file: text}
	j.element, j.strict = newJSONDecoder(bytes.NewReader(nil)), jsontext.NewDecoder(bytes.NewReader(nil))
	if format == NDJSON {
		j.lines = bufio.NewReaderSize(text, maxRowBytes)
	}
	j.next, j.stop = iter.Pull(j.run)
	return j, &Recognised{Shape: shapes[0], Encoding: encoding}, j.stop, nil
}

// lenient is for decoders of documents of any size: walk finds names that are given twice and read, and texts that are
// read and not UTF-8.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

func newJSONDecoder(r io.Reader) *jsontext.Decoder { return jsontext.NewDecoder(r, lenient) }

func (j *jsonReader) Next() (vitals.Reading, int, error) {
	row, ok := j.next()
	if !ok {
		return vitals.Reading{}, 0, io.EOF
	}
	return row.reading, row.line, row.err
}

// run reads the file and gives its rows to yield.
func (j *jsonReader) run(yield func(jsonRow) bool) {
	j.yield = yield
	var err error
	if j.lines == nil {
		err = j.documents(newJSONDecoder(j.bound))
	} else {
		err = j.readLines()
	}
	if err == nil && j.counts.Rows == 0 {
		err = errNoRecord
	}
	if err != nil && err != errStop {
		yield(jsonRow{err: fmt.Errorf("after %d rows: %w", j.counts.Rows, cmp.Or(j.bound.failed, withoutText(err)))})
	}
}

// withoutText returns a JSON error without what the file has: only its kind and its place.
func withoutText(err error) error {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("the JSON is cut off: %w", io.ErrUnexpectedEOF)
		}
		return fmt.Errorf("not JSON at byte %d", syntax.ByteOffset)
	}
	return err
}

// check returns an error unless a line is one JSON value in UTF-8 in which no name is given twice.
func (j *jsonReader) check(line []byte) error {
	j.strict.Reset(bytes.NewReader(line))
	if _, err := j.strict.ReadValue(); errors.Is(err, jsontext.ErrDuplicateName) {
		return errTwice
	} else if err != nil {
		return withoutText(err)
	}
	if _, err := j.strict.ReadToken(); err != io.EOF {
		return errSeveral
	}
	return nil
}

// unwrapped returns the row of an object that AppendRejected has written, however it is formatted, and any other text
// unchanged.
func unwrapped(text []byte) []byte {
	dec := newJSONDecoder(bytes.NewReader(text))
	is := func(name string, kind jsontext.Kind) bool {
		token, err := dec.ReadToken()
		return err == nil && token.Kind() == jsontext.KindString && token.String() == name &&
			(kind == 0 || dec.PeekKind() == kind)
	}
	if start, err := dec.ReadToken(); err != nil || start.Kind() != jsontext.KindBeginObject {
		return text
	}
	if !is("rejected", jsontext.KindBeginObject) || dec.SkipValue() != nil || !is("row", 0) {
		return text
	}
	row, err := dec.ReadValue()
	row = bytes.Clone(row)
	if err != nil || dec.PeekKind() != jsontext.KindEndObject {
		return text
	}
	if row.Kind() == jsontext.KindString {
		row, _ = jsontext.AppendUnquote(nil, row) // which replaces what is not UTF-8, as AppendRejected has
		// so that the row is rejected again: different bytes are the same now
		row = bytes.ReplaceAll(row, []byte("\ufffd"), []byte{0xff})
	}
	return row
}

// readLines reads NDJSON. A line that is no JSON is rejected.
func (j *jsonReader) readLines() error {
	dec := newJSONDecoder(bytes.NewReader(nil))
	for {
		j.line++
		text, err := j.lines.ReadSlice('\n')
		switch {
		case err == io.EOF && len(text) == 0:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("line %d is longer than %d bytes", j.line, maxRowBytes)
		case err != nil && err != io.EOF:
			return fmt.Errorf("read line %d: %w", j.line, err)
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		text = unwrapped(text)
		j.raw, j.text = nil, text
		if err := j.check(text); err != nil { // so that no part of the line is stored
			if err := j.reject(&RowError{Err: err}); err != nil {
				return err
			}
			continue
		}
		dec.Reset(bytes.NewReader(text), lenient)
		if err := j.documents(dec); err != nil {
			return err
		}
	}
}

// documents reads JSON values up to the end.
func (j *jsonReader) documents(dec *jsontext.Decoder) error {
	for {
		j.bound.allow(maxRowBytes, errLongRow)
		if dec.PeekKind() == 0 {
			if _, err := dec.ReadToken(); err != io.EOF {
				return err
			}
			return nil
		}
		if err := j.level(dec, &j.tree.Root, 0); err != nil {
			return err
		}
	}
}

// level reads a value in which this many arrays are open: what is outside of the next array, and each of its elements.
func (j *jsonReader) level(dec *jsontext.Decoder, n *shape.Node, open int) error {
	j.forget(open)
	if open == len(j.tree.Arrays) {
		return j.record(dec, n)
	}
	// an element that stands alone
	if inner := n.Children[shape.Each]; inner != nil && dec.PeekKind() == jsontext.KindBeginObject {
		raw, err := j.value(dec, maxRowBytes, errLongRow)
		if err != nil {
			return err
		}
		raw = bytes.Clone(raw)
		if row := unwrapped(raw); len(row) < len(raw) {
			return j.level(newJSONDecoder(bytes.NewReader(row)), n, open)
		}
		return j.level(newJSONDecoder(bytes.NewReader(raw)), inner, open+1)
	}
	var held []byte
	var array *shape.Node
	j.null = false
	err := j.walk(dec, n, func(at *shape.Node) (err error) {
		if array = at; !slices.ContainsFunc(j.tree.Levels[open], func(slot int) bool { return !j.seen[slot] }) {
			return j.elements(dec, at, open)
		}
		raw, err := j.value(dec, j.maxHeld, errHeld)
		held = bytes.Clone(raw)
		return err
	})
	switch {
	case err != nil:
		return err
	case array == nil && j.null: // as an array without elements
		return nil
	case array == nil:
		return j.noArray(n, open)
	case held == nil:
		return nil
	}
	if err := j.walk(newJSONDecoder(bytes.NewBuffer(held)), array, nil); err != nil { // what is at an index
		return err
	}
	return j.elements(newJSONDecoder(bytes.NewBuffer(held)), array, open)
}

// elements reads an array of which each element is a record, or has an array of records.
func (j *jsonReader) elements(dec *jsontext.Decoder, array *shape.Node, open int) error {
	if _, err := j.token(dec); err != nil {
		return err
	}
	for dec.PeekKind() != jsontext.KindEndArray {
		if err := j.level(dec, array.Children[shape.Each], open+1); err != nil {
			return err
		}
	}
	_, err := j.token(dec)
	return err
}

// forget clears the values in the elements of the arrays that are not open.
func (j *jsonReader) forget(open int) {
	for _, slots := range j.tree.Levels[open:] {
		for _, slot := range slots {
			j.values[slot], j.seen[slot] = shape.Cell{}, false
		}
	}
}

// walk reads the value at a place, and sets those of the places in it. At the array of which each element is read it
// calls array, unless that is nil.
func (j *jsonReader) walk(dec *jsontext.Decoder, n *shape.Node, array func(*shape.Node) error) error {
	if n == nil {
		return j.skip(dec)
	}
	kind := dec.PeekKind()
	if n.Slot >= 0 {
		j.seen[n.Slot] = true
		j.values[n.Slot] = shape.Cell{Kind: shape.Nested}
	}
	switch {
	case kind == jsontext.KindBeginObject && n.Children != nil:
		return j.object(dec, n, array)
	case kind == jsontext.KindBeginArray && array != nil && n.Children[shape.Each] != nil:
		return array(n)
	case kind == jsontext.KindNull && array != nil && n.Children[shape.Each] != nil:
		j.null = true // nothing was measured
		_, err := j.token(dec)
		return err
	case kind == jsontext.KindBeginArray && n.Children != nil:
		if _, err := j.token(dec); err != nil {
			return err
		}
		for i := 0; dec.PeekKind() != jsontext.KindEndArray; i++ {
			if err := j.walk(dec, n.Children[strconv.Itoa(i)], array); err != nil {
				return err
			}
		}
		_, err := j.token(dec)
		return err
	case kind == jsontext.KindBeginObject, kind == jsontext.KindBeginArray, n.Slot < 0:
		return j.skip(dec)
	}
	raw, err := j.value(dec, maxRowBytes, errLongRow)
	switch {
	case err != nil:
		return err
	case !raw.IsValid(): // no name is in it
		return errText
	}
	j.values[n.Slot] = shape.JSONCell(bytes.Clone(raw))
	return nil
}

// object is walk for an object. A row that was rejected is in one that says so.
func (j *jsonReader) object(dec *jsontext.Decoder, n *shape.Node, array func(*shape.Node) error) error {
	if _, err := j.token(dec); err != nil {
		return err
	}
	wrapped := false // a rejected row is in the object
	var given []*shape.Node
	for i := 0; dec.PeekKind() != jsontext.KindEndObject; i++ {
		token, err := j.token(dec)
		if err != nil {
			return err
		}
		name := token.String()
		child := n.Children[name]
		switch {
		case wrapped && i == 1 && name == "row":
			err = j.walk(dec, n, array)
		case wrapped:
			return errWrapped
		case child != nil && slices.Contains(given, child):
			return errTwice
		case child != nil:
			given = append(given, child)
			err = j.walk(dec, child, array)
		case i == 0 && name == "rejected" && n == &j.tree.Root && dec.PeekKind() == jsontext.KindBeginObject:
			wrapped = true
			err = j.skip(dec)
		default:
			err = j.skip(dec)
		}
		if err != nil {
			return err
		}
	}
	_, err := j.token(dec)
	return err
}

// token reads a token.
func (j *jsonReader) token(dec *jsontext.Decoder) (jsontext.Token, error) {
	j.bound.allow(maxRowBytes, errLongRow)
	return dec.ReadToken()
}

// value reads a value of a bounded size.
func (j *jsonReader) value(dec *jsontext.Decoder, most int, tooLong error) (jsontext.Value, error) {
	j.bound.allow(most, tooLong)
	return dec.ReadValue()
}

// skip reads a value of any size.
func (j *jsonReader) skip(dec *jsontext.Decoder) error {
	for depth := dec.StackDepth(); ; {
		if _, err := j.token(dec); err != nil {
			return err
		}
		switch open := dec.StackDepth() - depth; {
		case open <= 0:
			return nil
		case open > maxDepth:
			return errDeep
		}
	}
}

// record reads a record.
func (j *jsonReader) record(dec *jsontext.Decoder, n *shape.Node) error {
	raw, err := j.value(dec, maxRowBytes, errLongRow)
	if err != nil {
		return err
	}
	if n == &j.tree.Root {
		raw = unwrapped(raw)
	}
	j.raw, j.node = raw, n
	j.element.Reset(bytes.NewReader(raw), lenient)
	if err := j.walk(j.element, n, nil); err != nil {
		return j.reject(&RowError{Err: withoutText(err)})
	}
	form := j.form()
	if form == nil {
		return j.reject(&RowError{Err: errNoFit})
	}
	j.counts.Rows++
	r, rowErr := j.reading(form.Shape, shape.Cells{Values: j.values, At: form.slots})
	switch {
	case rowErr != nil:
		j.counts.Rows--
		return j.reject(rowErr)
	case r.Values.IsZero():
		return nil
	case !j.yield(jsonRow{reading: r, line: j.at()}):
		return errStop
	}
	return nil
}

// form returns the first form that fits the values, or nil.
func (j *jsonReader) form() *jsonForm {
	i := slices.IndexFunc(j.forms, func(f jsonForm) bool { return f.Fits(shape.Cells{Values: j.values, At: f.slots}) })
	if i < 0 {
		return nil
	}
	return &j.forms[i]
}

// noArray rejects the value at a place, without the array of readings, unless it is ignored.
func (j *jsonReader) noArray(n *shape.Node, open int) error {
	// a document without it is not of the form at all
	if f := j.form(); f != nil && f.Ignore && (open > 0 || f.Conditional()) {
		j.counts.Rows++
		j.counts.Ignored++
		return nil
	}
	if j.raw, j.node = nil, nil; j.lines == nil { // a document is not kept
		j.raw, j.node = []byte("false"), arrayIn(n)
	}
	return j.reject(&RowError{Err: errNoArray})
}

// arrayIn returns the place of the first array at a place, of which each element is read.
func arrayIn(n *shape.Node) *shape.Node {
	if n.Children[shape.Each] != nil {
		return n
	}
	for _, child := range n.Children {
		if found := arrayIn(child); found != nil {
			return found
		}
	}
	return nil
}

// reject counts a row and rejects it.
func (j *jsonReader) reject(row *RowError) error {
	j.counts.Rows++
	row.Line = j.at()
	if !j.yield(jsonRow{line: row.Line, err: row}) {
		return errStop
	}
	return nil
}

// at returns the line of NDJSON, or the number of the record in a document.
func (j *jsonReader) at() int {
	if j.lines != nil {
		return j.line
	}
	return j.counts.Rows
}

// Text implements Reader. The text of a record is that of a document that has only the record and what the shapes read
// outside of it. An array that is missing is false there.
func (j *jsonReader) Text() []byte {
	switch {
	case !j.opt.Texts:
		return nil
	case j.raw == nil:
		return j.text
	}
	if inner := j.tree.Root.Children[shape.Each]; inner != nil && j.node != &j.tree.Root {
		// which may stand alone
		if text := j.appendText(nil, inner); jsontext.Value(text).Kind() == jsontext.KindBeginObject {
			return text
		}
	}
	return j.appendText(nil, &j.tree.Root)
}

func (j *jsonReader) appendText(dst []byte, n *shape.Node) []byte {
	switch inner := n.Children[shape.Each]; {
	case n == j.node:
		return append(dst, j.raw...)
	case inner != nil:
		return append(j.appendText(append(dst, '['), inner), ']')
	case n.Children != nil:
		between := byte('{')
		for _, name := range slices.Sorted(maps.Keys(n.Children)) {
			dst, _ = jsontext.AppendQuote(append(dst, between), name)
			dst, between = j.appendText(append(dst, ':'), n.Children[name]), ','
		}
		return append(dst, '}')
	case n.Slot < 0:
		return append(dst, "null"...)
	}
	switch cell := j.values[n.Slot]; cell.Kind {
	case shape.Text:
		dst, _ = jsontext.AppendQuote(dst, cell.Text)
		return dst
	case shape.Number, shape.Literal:
		return append(dst, cell.Text...)
	case shape.Nested:
		return append(dst, "{}"...)
	}
	return append(dst, "null"...)
}
