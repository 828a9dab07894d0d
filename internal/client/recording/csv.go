package recording

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// Options say how rows become readings.
type Options struct {
	Mapping Mapping     // of a CSV file's columns; zero: DefaultMapping
	Device  vitals.Name // for rows without a device of their own; zero: each row must have one
	ShiftMs int64       // added to every time
}

// Counts tell what became of the rows read so far.
type Counts struct {
	Rows     int // data rows, whatever became of them
	Readings int // rows that became a reading
	NoSign   int // rows without any sign, left out
	Refused  int // rows reported as a RowError
	Zeros    int // cells that held a zero, "no signal", left out
}

// A RowError tells why a row did not become a reading. Its text never holds a
// measured value.
type RowError struct {
	Line  int    // 1-based line of the file on which the row starts
	Field string // JSON name of the field, "" for the whole row
	Err   error
}

func (e *RowError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("recording: line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("recording: line %d: %s: %v", e.Line, e.Field, e.Err)
}

func (e *RowError) Unwrap() error { return e.Err }

// ErrColumn means that a CSV file has a column of unknown meaning, and that no
// mapping says which columns are meant: it may be a misspelt one.
var ErrColumn = errors.New("recording: unknown column")

// ErrNoColumn means that a CSV file lacks a column that the mapping names.
var ErrNoColumn = errors.New("recording: no such column")

// A Reader returns the readings of a file, one after another.
type Reader interface {
	// Next returns the next reading and the line on which its row starts. At the
	// end of the file it returns io.EOF. After a *RowError the reader goes on
	// with the next row; any other error is final.
	Next() (vitals.Reading, int, error)

	// Counts returns what became of the rows so far.
	Counts() Counts
}

// A csvReader is the Reader of a CSV file.
type csvReader struct {
	csv     *csv.Reader
	device  vitals.Name
	shiftMs int64
	counts  Counts

	leftOut []string // columns that nothing is read from

	// Columns by position, -1 where there is none.
	time, deviceColumn, gateway int
	signs                       [vitals.NumSigns]int
}

// NewCSV returns a Reader of a CSV file (RFC 4180) whose first row names the
// columns. It reads that row, and returns an error that wraps [ErrNoColumn] when a
// column that opt's mapping names is missing from it. With the default mapping,
// columns that are not fields are refused with [ErrColumn].
//
// Signs of the default mapping, the device and the gateway may be missing, but
// at least one sign must be there.
func NewCSV(r io.Reader, opt Options) (Reader, error) {
	cr := csv.NewReader(r)
	cr.ReuseRecord = true
	cr.TrimLeadingSpace = true
	header, err := cr.Read()
	if err == io.EOF {
		return nil, errors.New("recording: the file is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("recording: read header: %w", err)
	}
	at := map[string]int{}
	for i, name := range header {
		name = strings.TrimPrefix(strings.TrimSpace(name), "\ufeff") // spreadsheets write a byte order mark
		if _, twice := at[name]; twice {
			return nil, fmt.Errorf("recording: column %q stands twice in the header", name)
		}
		at[name] = i
	}
	find := func(column string) int {
		if i, ok := at[column]; ok && column != "" {
			return i
		}
		return -1
	}
	c := &csvReader{csv: cr, device: opt.Device, shiftMs: opt.ShiftMs}
	m, byDefault := opt.Mapping, DefaultMapping()
	if m == (Mapping{}) {
		m = byDefault
	}
	if c.time = find(m.Time); c.time < 0 {
		return nil, fmt.Errorf("%w: %q, for time", ErrNoColumn, m.Time)
	}
	if c.gateway = find(m.Gateway); c.gateway < 0 && m.Gateway != byDefault.Gateway {
		return nil, fmt.Errorf("%w: %q, for gateway", ErrNoColumn, m.Gateway)
	}
	if c.deviceColumn = find(m.Device); c.deviceColumn < 0 {
		if m.Device != byDefault.Device {
			return nil, fmt.Errorf("%w: %q, for device", ErrNoColumn, m.Device)
		}
		if c.device.IsZero() {
			return nil, fmt.Errorf("%w: %q, and no device was given for the whole file", ErrNoColumn, m.Device)
		}
	}
	any := false
	for s := range vitals.Sign(vitals.NumSigns) {
		c.signs[s] = find(m.Signs[s])
		if c.signs[s] < 0 && m.Signs[s] != "" && m.Signs[s] != byDefault.Signs[s] {
			return nil, fmt.Errorf("%w: %q, for %s", ErrNoColumn, m.Signs[s], s)
		}
		any = any || c.signs[s] >= 0
	}
	if !any {
		return nil, fmt.Errorf("%w: none holds a vital sign; name the columns with a mapping", ErrNoColumn)
	}
	used := append([]int{c.time, c.deviceColumn, c.gateway}, c.signs[:]...)
	for i, name := range header {
		if !slices.Contains(used, i) && !slices.Contains(added, name) {
			c.leftOut = append(c.leftOut, name)
		}
	}
	if m == byDefault && len(c.leftOut) > 0 {
		return nil, fmt.Errorf("%w: %q is no field of a reading; name the columns that are with a mapping", ErrColumn, c.leftOut[0])
	}
	return c, nil
}

// LeftOut returns the columns of a CSV file that the mapping does not name.
func LeftOut(r Reader) []string {
	if c, ok := r.(*csvReader); ok {
		return slices.Clone(c.leftOut)
	}
	return nil
}

func (c *csvReader) Counts() Counts { return c.counts }

func (c *csvReader) Next() (vitals.Reading, int, error) {
	for {
		row, err := c.csv.Read()
		if err == io.EOF {
			return vitals.Reading{}, 0, io.EOF
		}
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			// The text of a ParseError holds a position and a rule, no cell.
			c.counts.Rows++
			c.counts.Refused++
			return vitals.Reading{}, parse.StartLine, &RowError{Line: parse.StartLine, Err: parse.Err}
		}
		if err != nil {
			return vitals.Reading{}, 0, fmt.Errorf("recording: read row: %w", err)
		}
		c.counts.Rows++
		line, _ := c.csv.FieldPos(0)
		reading, rowErr := c.row(row)
		if rowErr != nil {
			rowErr.Line = line
			c.counts.Refused++
			return vitals.Reading{}, line, rowErr
		}
		if reading.Values.IsZero() {
			c.counts.NoSign++
			continue
		}
		c.counts.Readings++
		return reading, line, nil
	}
}

// row turns the cells of one row into a reading, which may hold no sign.
func (c *csvReader) row(row []string) (vitals.Reading, *RowError) {
	var r vitals.Reading
	for s, column := range c.signs {
		if column < 0 {
			continue
		}
		cell := strings.TrimSpace(row[column])
		if cell == "" {
			continue
		}
		value, err := vitals.ParseHundredths(cell)
		if err != nil {
			return r, &RowError{Field: vitals.Sign(s).Field(), Err: err}
		}
		if value == 0 {
			c.counts.Zeros++
			continue
		}
		r.Values.Set(vitals.Sign(s), value)
	}
	if r.Values.IsZero() {
		return r, nil
	}
	timeMs, err := vitals.ParseTime(strings.TrimSpace(row[c.time]))
	if err != nil {
		return r, &RowError{Field: "time", Err: err}
	}
	r.TimeUnixMs = timeMs + c.shiftMs
	r.Device = c.device
	if cell := c.cell(row, c.deviceColumn); cell != "" {
		if r.Device, err = vitals.ParseName(cell); err != nil {
			return r, &RowError{Field: "device", Err: err}
		}
	}
	if r.Device.IsZero() {
		return r, &RowError{Field: "device", Err: vitals.ErrMissing}
	}
	if cell := c.cell(row, c.gateway); cell != "" {
		if r.Gateway, err = vitals.ParseName(cell); err != nil {
			return r, &RowError{Field: "gateway", Err: err}
		}
	}
	return r, nil
}

// cell returns the text of a column, "" where there is none.
func (c *csvReader) cell(row []string, column int) string {
	if column < 0 {
		return ""
	}
	return strings.TrimSpace(row[column])
}
