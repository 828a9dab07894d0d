package recording

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// Bounds of a file that is read by a shape.
const (
	maxRowBytes  = 1 << 20   // of a row
	maxHeadLines = 100       // among which the header is
	maxHeadBytes = 256 << 10 // of these lines
	maxColumns   = 4096
)

// A Recognised says how a file is written.
type Recognised struct {
	Shape      *shape.Shape
	Encoding   string
	Delimiter  byte
	HeaderLine int      // 1-based
	Unused     []string // columns that are not read
}

// A shapedReader is the Reader of a CSV file that a shape describes.
type shapedReader struct {
	rows
	csvRows
	forms   []form // those that the header has the columns of
	columns int    // of the header
	comma   byte
	again   bool // the file is one of rejected rows
}

// A form is a shape and where a file has its places.
type form struct {
	*shape.Shape
	cells shape.Cells
	at    []int // column of each place
}

// errNoFit means that no mapping fits a row.
var errNoFit = errors.New("no mapping fits: none has a where that holds")

// errNoShape means that no line of a file has the columns of a shape.
var errNoShape = errors.New("none of the first lines has the columns of the mapping")

// NewShaped returns a Reader for a CSV file in the form of one of several shapes. The header is the first of the first
// lines that has all columns of a shape. Of the shapes whose columns it has, the first that fits a row reads it. A line
// such as sep=; names the delimiter. The file may be in UTF-8, or in UTF-16 with a byte order mark.
func NewShaped(file io.Reader, shapes []*shape.Shape, opt Options) (Reader, *Recognised, error) {
	text, encoding := decoded(file)
	head, err := peekLines(text)
	if err != nil {
		return nil, nil, err
	}
	found, header := findHeader(head, shapes)
	if found == nil {
		return nil, nil, describeMissing(head, shapes)
	}
	found.Encoding = encoding
	for range found.HeaderLine {
		if _, err := text.ReadSlice('\n'); err != nil && err != io.EOF {
			return nil, nil, err
		}
	}
	s := &shapedReader{
		rows: newRows(opt), csvRows: newCSVRows(text, found.HeaderLine, opt), columns: len(header), comma: found.Delimiter,
		again: isRejected(header),
	}
	s.csv.Comma, s.csv.FieldsPerRecord, s.csv.LazyQuotes = rune(s.comma), -1, true
	if opt.Texts {
		s.text = []byte(head[found.HeaderLine-1])
	}
	used := map[int]bool{}
	rest := false // is ignored
	for _, sh := range shapes {
		named := slices.ContainsFunc(s.forms, func(f form) bool { return f.Name == sh.Name })
		switch {
		case !hasColumns(header, sh), sh.Ignore && !sh.Conditional() && !named:
			continue
		case rest && !sh.Ignore:
			return nil, nil,
				fmt.Errorf("the file has the columns of the mapping %s, which is not reached: an earlier one ignores the rest",
					sh.Name)
		}
		rest = rest || sh.Ignore && !sh.Conditional()
		if sh.DecimalComma && s.comma == ',' {
			return nil, nil, errors.New("the mapping has a decimal comma, and commas delimit the cells of this file")
		}
		if err := sh.CheckPlaces(func(a, b string) bool { return columnOf(header, a) == columnOf(header, b) }); err != nil {
			return nil, nil, fmt.Errorf("mapping %s: %w", sh.Name, err)
		}
		f := form{Shape: sh, at: make([]int, len(sh.Places))}
		for i, p := range sh.Places {
			f.at[i] = columnOf(header, p.At)
			used[f.at[i]] = true
			f.cells.At = append(f.cells.At, i)
		}
		f.cells.Values = make([]shape.Cell, len(f.at))
		s.forms = append(s.forms, f)
	}
	for i, name := range header {
		if name != "" && !used[i] && !strings.HasPrefix(name, "rejected_") {
			found.Unused = append(found.Unused, name)
		}
	}
	return s, found, nil
}

// peekLines returns the first lines of a file, without reading them.
func peekLines(file *bufio.Reader) (lines []string, err error) {
	start, err := file.Peek(maxHeadBytes)
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return nil, err
	}
	whole := err == io.EOF
	if len(start) == 0 {
		return nil, errors.New("the file is empty")
	}
	for len(lines) < maxHeadLines {
		line, rest, ended := bytes.Cut(start, []byte("\n"))
		if !ended && (!whole || len(line) == 0) {
			break // cut off
		}
		lines, start = append(lines, strings.TrimSuffix(string(line), "\r")), rest
	}
	return lines, nil
}

// findHeader returns the shape and the header of the first line that has all columns of one, or nil.
func findHeader(lines []string, shapes []*shape.Shape) (found *Recognised, header []string) {
	delimiters := []byte{',', ';', '\t'}
	for i, line := range lines {
		if sep, ok := strings.CutPrefix(line, "sep="); ok && i == 0 && len(sep) == 1 && strings.Contains(",;\t", sep) {
			delimiters = []byte(sep)
			continue
		}
		for _, delimiter := range delimiters {
			header = splitHeader(line, delimiter)
			for _, s := range shapes {
				if !s.Ignore && hasColumns(header, s) {
					return &Recognised{Shape: s, Delimiter: delimiter, HeaderLine: i + 1}, header
				}
			}
		}
	}
	return nil, nil
}

// hasColumns reports whether a header has all columns of a shape.
func hasColumns(header []string, s *shape.Shape) bool {
	lacks := func(p shape.Place) bool { return columnOf(header, p.At) < 0 }
	return len(header) > 0 && !slices.ContainsFunc(s.Places, lacks)
}

// splitHeader returns the names of the columns of a line, or nil if it is no header. A name that is given twice belongs
// to no column that can be read.
func splitHeader(line string, delimiter byte) []string {
	r := csv.NewReader(strings.NewReader(line))
	r.Comma = rune(delimiter)
	header, err := r.Read()
	if err != nil || len(header) > maxColumns {
		return nil
	}
	for i, name := range header {
		header[i] = strings.Trim(name, blanks)
	}
	return header
}

// blanks count as nothing at the ends of a cell.
const blanks = " \t\u00a0\u202f"

// columnOf returns the number of a column from 0 by its name, whatever its case, or by its number from 1, such as #3.
// It returns -1 if there is none, or if two have the name.
func columnOf(header []string, place string) int {
	if n, err := strconv.Atoi(strings.TrimPrefix(place, "#")); err == nil && strings.HasPrefix(place, "#") {
		if isRejected(header) {
			n += strings.Count(RejectedColumns, ",")
		}
		if n < 1 || n > len(header) {
			return -1
		}
		return n - 1
	}
	at := -1
	for i, name := range header {
		if strings.EqualFold(name, strings.Trim(place, blanks)) {
			if at >= 0 {
				return -1
			}
			at = i
		}
	}
	return at
}

// isRejected reports whether a header is that of a file of rejected rows.
func isRejected(header []string) bool {
	return strings.HasPrefix(strings.Join(header, ","), RejectedColumns)
}

// describeMissing returns errNoShape with the columns that a file lacks of the shape of which it has most.
func describeMissing(lines []string, shapes []*shape.Shape) error {
	most := 0
	nearest := shapes[0]
	var header []string // the line that looks most like that of the shape
	for _, line := range lines {
		for _, delimiter := range []byte{',', ';', '\t'} {
			h := splitHeader(line, delimiter)
			for _, s := range shapes {
				if n := present(h, s); n > most {
					most, nearest, header = n, s, h
				}
			}
		}
	}
	var lacking []string
	for _, p := range nearest.Places {
		if columnOf(header, p.At) < 0 {
			lacking = append(lacking, strconv.Quote(p.At))
		}
	}
	if len(lacking) == 0 {
		return errNoShape
	}
	return fmt.Errorf("%w: no line has %s, or it has one twice", errNoShape, strings.Join(lacking, ", "))
}

func present(header []string, s *shape.Shape) (n int) {
	for _, p := range s.Places {
		if columnOf(header, p.At) >= 0 {
			n++
		}
	}
	return n
}

// A boundedReader ends with an error when it has read too much of one row.
type boundedReader struct {
	file io.Reader
	left int   // bytes of this row
	err  error // when there are none

	failed error // what ended the file before its end
}

// allow permits a number of bytes for the next row.
func (b *boundedReader) allow(n int, otherwise error) { b.left, b.err = n, otherwise }

var errLongRow = fmt.Errorf("a row of more than %d bytes", maxRowBytes)

func (b *boundedReader) Read(p []byte) (n int, err error) {
	if b.left <= 0 {
		b.failed = b.err
		return 0, b.err
	}
	if n, err = b.file.Read(p); err != nil && err != io.EOF {
		b.failed = err
	}
	b.left -= n
	return n, err
}

// Text implements Reader.
func (s *shapedReader) Text() []byte {
	text := s.text
	for range strings.Count(RejectedColumns, ",") {
		if s.again {
			_, text, _ = bytes.Cut(text, []byte{s.comma})
		}
	}
	return text
}

var errCells = errors.New("more or fewer cells than the header has columns")

func (s *shapedReader) Next() (vitals.Reading, int, error) {
	for {
		row, line, err := s.read()
		if err == io.EOF {
			return vitals.Reading{}, 0, io.EOF
		}
		if parse, ok := errors.AsType[*csv.ParseError](err); ok {
			s.counts.Rows++
			return vitals.Reading{}, line, &RowError{Line: line, Err: parse.Err}
		}
		if err != nil {
			return vitals.Reading{}, 0, fmt.Errorf("read row: %w", err)
		}
		if len(row) == 1 && strings.Trim(row[0], blanks) == "" {
			continue // a line of blanks
		}
		s.counts.Rows++
		r, rowErr := s.row(row)
		switch {
		case rowErr != nil:
			rowErr.Line = line
			return vitals.Reading{}, line, rowErr
		case !r.Values.IsZero():
			return r, line, nil
		}
	}
}

// row converts the cells of a row to a reading, which has no signs if the row is left out.
func (s *shapedReader) row(row []string) (r vitals.Reading, _ *RowError) {
	if len(row) < s.columns || len(row) > s.columns && strings.Trim(strings.Join(row[s.columns:], ""), blanks) != "" {
		return r, &RowError{Err: errCells}
	}
	f, rowErr := s.form(row)
	if rowErr != nil {
		return r, rowErr
	}
	return s.reading(f.Shape, f.cells)
}

// form returns the first form that fits a row, with the cells of the row.
func (s *shapedReader) form(row []string) (*form, *RowError) {
	for i := range s.forms {
		f := &s.forms[i]
		for i, column := range f.at {
			cell := strings.Trim(row[column], blanks)
			if f.cells.Values[i] = (shape.Cell{}); cell == "" || cell == null {
				continue
			}
			if !utf8.ValidString(cell) {
				return nil, &RowError{Field: f.Places[i].Key, Err: errors.New("not UTF-8")}
			}
			f.cells.Values[i] = shape.Cell{Kind: shape.Text, Text: []byte(cell)}
		}
		if f.Fits(f.cells) {
			return f, nil
		}
	}
	return nil, &RowError{Err: errNoFit}
}
