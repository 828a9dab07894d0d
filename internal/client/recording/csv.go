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
	"unicode"

	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options configure how rows are converted to readings.
type Options struct {
	Signs   *vitals.Signs // the signs that a file may have; nil means the built-in ones
	Mapping Mapping       // columns of a CSV file; zero means DefaultMapping
	Device  vitals.Name   // device of rows that name none; zero means each row must name one
	ShiftMs int64         // added to every time
	Zone    *shape.Clock  // of times without an offset in a CSV file that no shape describes; nil means none
	Texts   bool          // keep the text of a row for Reader.Text
	Sources Sources       // if not nil, gets the sources that records name

	// shifted means that the file's times are shifted, so that the server cannot detect seconds.
	shifted bool
}

// signs returns the signs that a file may have.
func (opt *Options) signs() *vitals.Signs {
	if opt.Signs == nil {
		return vitals.NewSigns()
	}
	return opt.Signs
}

// null is how some programs write an empty cell.
const null = "null"

// noSignal reports whether v is a zero that means "no signal": it is never accepted as a value.
func noSignal(d *vitals.Definition, v vitals.Value) bool { return v == 0 && !d.Accepted.Contains(0) }

// Counts describe the rows read so far.
type Counts struct {
	Rows   int // all data rows
	NoSign int // rows without a vital sign, skipped
	Zeros  int // cells with a zero, which means "no signal", skipped

	// Of files that a shape describes.
	Missing int // cells with a text that is no value
	Rounded int // values that were rounded
	Ignored int // rows that the shape does not fit, skipped
}

// A RowError reports why a row is not a valid reading. Its text never contains a
// measured value.
type RowError struct {
	Line  int    // 1-based line of the file on which the row starts
	Field string // JSON name of the field, "" for the whole row
	Err   error
}

func (e *RowError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("line %d: %s: %v", e.Line, e.Field, e.Err)
}

func (e *RowError) Unwrap() error { return e.Err }

// ErrColumn means that a CSV file without a mapping has an unknown column, which may be
// a misspelt field.
var ErrColumn = errors.New("unknown column")

// ErrNoColumn means that a CSV file lacks a column named in the mapping.
var ErrNoColumn = errors.New("no such column")

// A Reader reads the readings of a file, one at a time.
type Reader interface {
	// Next returns the next reading and the line on which its row starts. At the end of
	// the file it returns io.EOF. After a *RowError, the next call continues with the
	// next row; any other error is permanent.
	Next() (vitals.Reading, int, error)

	// Counts returns the counts of the rows read so far.
	Counts() Counts

	// Signs returns the signs that the readings may have.
	Signs() *vitals.Signs

	// Text returns the text of the row that Next has read, without what [AppendRejected] added, or nil
	// without Options.Texts. Before the first row it is that of the header. It is valid until Next is called.
	Text() []byte
}

// A csvReader is the Reader of a CSV file.
type csvReader struct {
	csvRows
	opt     Options
	signs   *vitals.Signs
	counts  Counts
	columns [numFields]int // positions; -1 if there is no such column
	unused  []string       // columns that are not read
	instant *shape.Clock   // of times in other spellings than that of the API
	again   bool           // the file is one of rejected rows, which begin with rejectedColumns
}

// NewCSV returns a Reader for a CSV file (RFC 4180) whose first row names the columns.
// It reads that row and returns an error that wraps [ErrNoColumn] if a column named in
// opt's mapping is missing. With the default mapping it returns [ErrColumn] for columns
// that are not fields.
//
// Signs of the default mapping, the device and the gateway may be missing, but there
// must be at least one sign.
func NewCSV(r io.Reader, opt Options) (Reader, error) {
	c := &csvReader{csvRows: newCSVRows(withoutMark(bufio.NewReader(r)), 0, opt), opt: opt, signs: opt.signs()}
	c.csv.TrimLeadingSpace = true
	var err error
	if c.instant, err = shape.NewInstants(""); err != nil {
		return nil, err
	}
	header, _, err := c.read()
	if err == io.EOF {
		return nil, errors.New("the file is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	at := map[string]int{}
	for i, name := range header {
		name = strings.TrimSpace(name)
		if _, twice := at[name]; twice && name != "" { // spreadsheets write commas after the last column
			return nil, fmt.Errorf("a column is named twice; %s", describeHeader(header))
		}
		header[i], at[name] = name, i
	}
	addedColumns := 0
	if c.again = strings.HasPrefix(strings.Join(header, ","), RejectedColumns); c.again {
		addedColumns = strings.Count(RejectedColumns, ",")
	}
	m, byDefault := opt.Mapping, DefaultMapping(c.signs)
	if m == (Mapping{}) {
		m = byDefault
	}
	for field, column := range m {
		i, ok := at[column]
		if ok && column != "" {
			c.columns[field] = i
			continue
		}
		c.columns[field] = -1
		switch {
		case column != "" && column != byDefault[field], field == timeField:
			return nil, fmt.Errorf("%w: %q, for %s; %s", ErrNoColumn, column, byDefault[field], describeHeader(header))
		case field == deviceField && opt.Device.IsZero():
			return nil, fmt.Errorf("%w: %q, and no device was given for the whole file; %s", ErrNoColumn, column,
				describeHeader(header))
		}
	}
	if slices.Max(c.columns[firstSign:]) < 0 {
		return nil, fmt.Errorf("%w: the header has no vital sign; %s", ErrNoColumn, describeHeader(header))
	}
	for i, name := range header {
		if i >= addedColumns && name != "" && !slices.Contains(c.columns[:], i) && !slices.Contains(added, name) {
			c.unused = append(c.unused, name)
		}
	}
	if m == byDefault && len(c.unused) > 0 {
		return nil, fmt.Errorf("%w: at least one is not a field of a reading; %s", ErrColumn, describeHeader(header))
	}
	return c, nil
}

// maxShownColumns and maxColumnBytes bound the names of columns in an error text.
const (
	maxShownColumns = 40
	maxColumnBytes  = 64
)

// describeHeader returns a sentence with the columns of a file for error texts. A first row
// that seems to hold numbers or times may be a reading, which error texts must not contain.
func describeHeader(header []string) string {
	var names []string
	for _, name := range header {
		if looksMeasured(name) {
			return "the first row of the file holds values, not the names of the columns, or names that look like values"
		}
		if len(name) > maxColumnBytes {
			name = strings.ToValidUTF8(name[:maxColumnBytes], "") + "…"
		}
		names = append(names, strconv.Quote(name))
	}
	if more := len(names) - maxShownColumns; more > 0 {
		names = append(names[:maxShownColumns], fmt.Sprintf("and %d more", more))
	}
	return "the columns of the file are " + strings.Join(names, ", ")
}

// looksMeasured reports whether a text may be a number, with or without its unit, or a time: it begins with a digit, or
// with signs and a digit, or has four digits, such as those of a year.
func looksMeasured(text string) bool {
	start := strings.IndexFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	digits := 0
	for i, r := range text {
		if unicode.IsDigit(r) {
			if digits++; i == start || digits == 4 {
				return true
			}
		}
	}
	return false
}

// LeftOut returns the columns of a CSV file that are not read.
func LeftOut(r Reader) []string {
	if c, ok := r.(*csvReader); ok {
		return slices.Clone(c.unused)
	}
	return nil
}

func (c *csvReader) Counts() Counts { return c.counts }

func (c *csvReader) Signs() *vitals.Signs { return c.signs }

// Text implements Reader.
func (c *csvReader) Text() []byte {
	text := c.text
	for range strings.Count(RejectedColumns, ",") {
		if c.again {
			_, text, _ = bytes.Cut(text, []byte(","))
		}
	}
	return text
}

func (c *csvReader) Next() (vitals.Reading, int, error) {
	for {
		row, line, err := c.read()
		if err == io.EOF {
			return vitals.Reading{}, 0, io.EOF
		}
		if parse, ok := errors.AsType[*csv.ParseError](err); ok {
			// The text of a ParseError has a position and a rule, but no cell.
			c.counts.Rows++
			return vitals.Reading{}, line, &RowError{Line: line, Err: parse.Err}
		}
		if err != nil {
			return vitals.Reading{}, 0, fmt.Errorf("read row: %w", err)
		}
		c.counts.Rows++
		reading, rowErr := c.row(row)
		if rowErr != nil {
			rowErr.Line = line
			return vitals.Reading{}, line, rowErr
		}
		if reading.Values.IsZero() {
			c.counts.NoSign++
			continue
		}
		return reading, line, nil
	}
}

// row converts the cells of one row to a reading, which may have no signs.
func (c *csvReader) row(row []string) (vitals.Reading, *RowError) {
	var r vitals.Reading
	for s, d := range c.signs.All() {
		cell := c.cell(row, firstSign+int(s))
		if cell == "" {
			continue
		}
		value, err := d.Parse([]byte(cell))
		if err != nil {
			return r, &RowError{Field: d.Field, Err: err}
		}
		if noSignal(d, value) {
			c.counts.Zeros++
			continue
		}
		r.Values.Set(s, value)
	}
	if r.Values.IsZero() {
		return r, nil
	}
	if rowErr := c.when(row, &r); rowErr != nil {
		return r, rowErr
	}
	var err error
	r.Device = c.opt.Device
	if cell := c.cell(row, deviceField); cell != "" {
		if r.Device, err = vitals.ParseName(cell); err != nil {
			return r, &RowError{Field: "device", Err: err}
		}
	}
	if r.Device.IsZero() {
		return r, &RowError{Field: "device", Err: vitals.ErrMissing}
	}
	if cell := c.cell(row, gatewayField); cell != "" {
		if r.Gateway, err = vitals.ParseName(cell); err != nil {
			return r, &RowError{Field: "gateway", Err: err}
		}
	}
	return r, nil
}

// when sets the time of a reading.
func (c *csvReader) when(row []string, r *vitals.Reading) *RowError {
	unixMs, offset, local, err := c.time(c.cell(row, timeField))
	if err != nil {
		return &RowError{Field: "time", Err: err}
	}
	switch {
	case c.columns[offsetField] < 0:
	case offset == vitals.MakeUTCOffset(0):
		offset = 0 // the column has it
	case local && offset != 0:
		return &RowError{Field: "time", Err: errLocalTime}
	}
	if cell := c.cell(row, offsetField); cell != "" {
		if offset, err = ParseOffset(cell, offset); err != nil {
			return &RowError{Field: fieldOffset, Err: err}
		}
	}
	r.TimeUnixMs, r.UTCOffset = unixMs+c.opt.ShiftMs, offset
	return nil
}

// time parses a time as the API has it, or in other spellings. The offset after a blank, as pandas and DuckDB write it,
// is that of the program and may be that of its machine, so that the time has none. local means that the text has no
// offset, and is in the zone of the options.
func (c *csvReader) time(text string) (unixMs int64, offset vitals.UTCOffset, local bool, err error) {
	parse := vitals.ParseTime[string]
	if c.opt.shifted {
		parse = (&vitals.Limits{OldestUnixMs: vitals.DefaultOldestUnixMs}).ParseTime
	}
	if unixMs, offset, err = parse(text); err == nil {
		return unixMs, offset, false, nil
	}
	instantMs, offset, instantErr := c.instant.Parse([]byte(text))
	if local = instantErr == vitals.ErrTimeZone && c.opt.Zone != nil; local {
		instantMs, offset, instantErr = c.opt.Zone.Parse([]byte(text))
	} else if instantErr == nil && text[len("2026-11-21")]|0x20 != 't' {
		offset = 0
	}
	if instantErr == shape.ErrInstant {
		return 0, 0, false, err
	}
	return instantMs, offset, local, instantErr
}

// cell returns the text of a field, or "" if it has no column or is null.
func (c *csvReader) cell(row []string, field int) string {
	if c.columns[field] < 0 {
		return ""
	}
	if text := strings.TrimSpace(row[c.columns[field]]); text != null {
		return text
	}
	return ""
}
