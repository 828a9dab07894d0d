package recording

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// csvRows reads the rows of a CSV file, which are at most maxRowBytes long.
type csvRows struct {
	csv     *csv.Reader
	in      *bufio.Reader // that csv reads
	bound   *boundedReader
	tape    *tape // nil without Options.Texts
	text    []byte
	lines   int   // of the file that csv has not seen: those before its start, and empty ones
	skipped int64 // bytes of empty lines
	next    int   // line of csv after the last row
}

// newCSVRows returns the rows of a file of which this many lines have been read.
func newCSVRows(file io.Reader, lines int, opt Options) csvRows {
	c := csvRows{lines: lines, next: 1}
	if opt.Texts {
		c.tape = &tape{file: file}
		file = c.tape
	}
	c.bound = &boundedReader{file: file}
	c.in = bufio.NewReader(c.bound)
	c.csv = csv.NewReader(c.in) // which uses c.in itself
	c.csv.ReuseRecord = true
	return c
}

// read returns the cells of a row and the line on which it starts, and keeps its text. A *csv.ParseError is about this
// row only; any other error is permanent.
func (c *csvRows) read() (row []string, line int, err error) {
	c.skipEmptyLines()
	c.bound.allow(maxRowBytes, errLongRow)
	row, err = c.csv.Read()
	if c.tape != nil {
		c.text = c.tape.cut(c.csv.InputOffset() + c.skipped)
	}
	line = c.lines + c.next
	parse, malformed := errors.AsType[*csv.ParseError](err)
	switch {
	case errors.Is(c.bound.failed, errLongRow): // csv may have found another error in what it has of the row
		return nil, line, fmt.Errorf("line %d: %w", line, errLongRow)
	case malformed && parse.Err != csv.ErrFieldCount:
		c.next = parse.Line + 1
	case len(row) > 0:
		last := len(row) - 1
		start, _ := c.csv.FieldPos(last)
		c.next = start + strings.Count(row[last], "\n") + 1
	}
	return row, line, err
}

// skipEmptyLines skips lines without a text, which are not parts of a row.
func (c *csvRows) skipEmptyLines() {
	for {
		c.bound.allow(maxRowBytes, errLongRow)
		end, _ := c.in.Peek(2)
		switch {
		case len(end) > 0 && end[0] == '\n':
			end = end[:1]
		case string(end) != "\r\n":
			return
		}
		_, _ = c.in.Discard(len(end)) // it is buffered
		c.lines++
		c.skipped += int64(len(end))
		if c.tape != nil {
			c.tape.cut(c.csv.InputOffset() + c.skipped)
		}
	}
}
