package profile

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A table is text in aligned columns.
type table struct {
	left []bool     // left-aligned columns
	rows [][]string // the first row has the headings
}

// newTable returns a table with the given headings. A heading that starts with "<"
// makes its column left-aligned.
func newTable(headings ...string) *table {
	t := &table{left: make([]bool, len(headings))}
	for i, h := range headings {
		headings[i], t.left[i] = strings.CutPrefix(h, "<")
	}
	t.rows = [][]string{headings}
	return t
}

// add adds a row of strings and float64 numbers.
func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		if v, ok := cell.(float64); ok {
			cell = number(v)
		}
		row[i] = cell.(string)
	}
	t.rows = append(t.rows, row)
}

// write writes t, indented by two spaces.
func (t *table) write(w *bufio.Writer) {
	width := make([]int, len(t.left))
	for _, row := range t.rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range t.rows {
		line := ""
		for i, cell := range row {
			if t.left[i] {
				line += fmt.Sprintf("  %-*s", width[i], cell)
			} else {
				line += fmt.Sprintf("  %*s", width[i], cell)
			}
		}
		w.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// number formats v with two decimals below 10, one below 100 and none above, and with
// commas between thousands.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case a < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return group(strconv.FormatFloat(v, 'f', 0, 64))
	}
}

// whole formats n with commas between thousands.
func whole(n uint64) string { return group(strconv.FormatUint(n, 10)) }

// group inserts commas between thousands.
func group(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// percent formats part as a percentage of of.
func percent(part, of float64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/of)
}

// byteSize formats a number of bytes with a unit.
func byteSize(n float64) string {
	for _, unit := range []string{"B", "kB", "MB"} {
		if math.Abs(n) < 1000 {
			return number(n) + " " + unit
		}
		n /= 1000
	}
	return number(n) + " GB"
}

// buffered calls write with a buffered w and returns the first error.
func buffered(w io.Writer, write func(*bufio.Writer)) error {
	b := bufio.NewWriter(w)
	write(b)
	return b.Flush()
}
