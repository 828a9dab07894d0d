package profile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
	"time"
)

// shownWaits is the number of rows in a table of waits.
const shownWaits = 5

// summaryRows is the number of functions and of lines in the JSON form of a report.
const summaryRows = 100

// WriteJSON writes the report as one JSON object, with the most expensive functions and
// lines.
func (r *Report) WriteJSON(w io.Writer) error {
	short := *r
	short.Functions, short.Lines = first(r.Functions, summaryRows), first(r.Lines, summaryRows)
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	if err := e.Encode(short); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// WriteText writes the report as text, with at most top functions and top lines.
func (r *Report) WriteText(w io.Writer, top int) error {
	b := bufio.NewWriter(w)
	r.writeHead(b)
	r.writeParts(b)
	r.writeCosts(b, "The kernel's part, by system call, per %s", []any{"CPU µs", "±", "share of all", "call"},
		r.Syscalls,
		func(c Cost, share string) []any { return []any{c.CPUUs, c.CPUUsStdErr, share, c.Name} })
	r.writeCosts(b, "Functions by their own cost, per %s", []any{"CPU µs", "±", "with calls", "bytes", "objects", "part",
		"function"}, first(r.Functions, top),
		func(c Cost, _ string) []any {
			return []any{c.CPUUs, c.CPUUsStdErr, c.CumUs, c.Bytes, c.Objects, c.Part, newFunction(c.Name, "").shortName()}
		})
	r.writeCosts(b, "Lines of Pulsegate, with what they call outside of it, per %s",
		[]any{"CPU µs", "±", "bytes", "objects", "part", "line"}, first(r.Lines, top),
		func(c Cost, _ string) []any {
			return []any{c.CPUUs, c.CPUUsStdErr, c.Bytes, c.Objects, c.Part, c.Name}
		})
	r.writeWaits(b)
	return b.Flush()
}

// first returns the first n rows, or all if there are fewer.
func first(rows []Cost, n int) []Cost { return rows[:min(max(n, 0), len(rows))] }

func (r *Report) writeHead(b *bufio.Writer) {
	name := "Pulsegate"
	if r.Version != "" {
		name += " " + r.Version
	}
	if r.GoVersion != "" {
		name += " (" + r.GoVersion + ")"
	}
	fmt.Fprintf(b, "%s at %s, from %s\n", name, r.Target, r.Start.UTC().Format(time.RFC3339))
	if s := r.Seconds; s > 0 {
		fmt.Fprintf(b, "  %s requests in %.1f s, %s/s%s\n", whole(r.Requests), s, number(float64(r.Requests)/s),
			listed(r.Routes))
		fmt.Fprintf(b, "  %s readings%s\n", whole(total(r.Readings)), listed(r.Readings))
	}
	if r.Problem != nil {
		fmt.Fprintf(b, "  %s; costs are per second\n", r.Problem.Error())
	}
}

// listed formats counts by name: ": a 3, b 2".
func listed(m map[string]uint64) string {
	text, separator := "", ": "
	for _, name := range sortedKeys(m) {
		text += separator + name + " " + whole(m[name])
		separator = ", "
	}
	return text
}

// writeCosts writes a table of costs. title has a %s for r.Per. cells receives a row
// and its share of all CPU time. Values that were not measured are shown as a dash.
func (r *Report) writeCosts(b *bufio.Writer, title string, headings []any, costs []Cost,
	cells func(c Cost, share string) []any) {
	if len(costs) == 0 {
		return
	}
	rows := [][]any{headings}
	for _, c := range costs {
		share := percent(c.CPUUs, r.Total.CPUUs)
		if r.CPUSeconds == 0 {
			c.CPUUs, c.CPUUsStdErr, c.CumUs = math.NaN(), math.NaN(), math.NaN()
		}
		if r.AllocsSeconds == 0 {
			c.Bytes, c.BytesStdErr, c.Objects, c.ObjectsStdErr = math.NaN(), math.NaN(), math.NaN(), math.NaN()
		}
		rows = append(rows, cells(c, share))
	}
	fmt.Fprintf(b, "\n"+title+"\n", r.Per)
	writeTable(b, rows)
}

func (r *Report) writeParts(b *bufio.Writer) {
	if r.CPUSeconds == 0 && r.AllocsSeconds == 0 {
		return
	}
	r.writeCosts(b, "Cost per %s, by part (±: one standard error of sampling)",
		[]any{"CPU µs", "±", "share", "bytes", "±", "objects", "±", "part"},
		append(r.Parts[:len(r.Parts):len(r.Parts)], r.Total), func(c Cost, share string) []any {
			return []any{c.CPUUs, c.CPUUsStdErr, share, c.Bytes, c.BytesStdErr, c.Objects, c.ObjectsStdErr, c.Name}
		})
	if r.AllocsSeconds > 0 && r.CountedBytes > 0 {
		fmt.Fprintf(b, "  The runtime itself counted %s bytes in %s objects per %s.\n", number(r.CountedBytes),
			number(r.CountedObjects), r.Per)
	}
	if r.CPUSeconds > 0 && r.ProcessCPUUs > 0 {
		fmt.Fprintf(b, "  The process itself counted %s µs of CPU time per %s; the profile has %s of it.\n",
			number(r.ProcessCPUUs), r.Per, percent(r.Total.CPUUs, r.ProcessCPUUs))
	}
}

func (r *Report) writeWaits(b *bufio.Writer) {
	if len(r.MutexWaits) == 0 && len(r.BlockWaits) == 0 {
		return
	}
	rows := [][]any{{"µs", "times", "for", "function"}}
	for _, c := range first(r.MutexWaits, shownWaits) {
		rows = append(rows, []any{c.CPUUs, c.Objects, "locks", c.Name})
	}
	for _, c := range first(r.BlockWaits, shownWaits) {
		rows = append(rows, []any{c.CPUUs, c.Objects, "channels, groups", c.Name})
	}
	fmt.Fprintf(b, "\nWaiting, per %s: locks by the function that held them, other waits by the function that waited\n",
		r.Per)
	writeTable(b, rows)
}

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
