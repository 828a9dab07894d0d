package profile

import (
	"bufio"
	"fmt"
	"math"
	"strconv"
	"text/tabwriter"
)

// writeTable writes rows of texts and numbers, the first of which has the headings, in
// right-aligned columns. The last column, which has names, is left-aligned.
func writeTable(b *bufio.Writer, rows [][]any) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		last := len(row) - 1
		for _, cell := range row[:last] {
			if v, ok := cell.(float64); ok {
				cell = number(v)
			}
			fmt.Fprintf(t, "%v\t", cell)
		}
		fmt.Fprintf(t, "  %v\n", row[last])
	}
	t.Flush() // b keeps the error
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
