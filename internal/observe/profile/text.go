package profile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// shownWaits is the number of rows in a table of waits or of memory.
const shownWaits = 5

// summaryRows is the number of functions and of lines in the JSON form of a report.
const summaryRows = 100

// WriteJSON writes the report as one JSON object, with the most expensive functions and
// lines.
func (r *Report) WriteJSON(w io.Writer) error { return writeJSON(w, r.cut()) }

// cut returns a copy of r with at most summaryRows functions and lines.
func (r *Report) cut() *Report {
	short := *r
	short.Functions, short.Lines = first(r.Functions, summaryRows), first(r.Lines, summaryRows)
	return &short
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// WriteText writes the report as text, with at most top functions and top lines.
func (r *Report) WriteText(w io.Writer, top int) error {
	return buffered(w, func(b *bufio.Writer) {
		r.writeHead(b)
		r.writeParts(b)
		r.writeCosts(b, "The kernel's part, by system call, per %s", newTable("<call", "CPU µs", "±", "share of all"), r.Syscalls,
			func(c Cost, share string) []any { return []any{c.Name, c.CPUUs, c.CPUUsStdErr, share} })
		r.writeCosts(b, "Functions by their own cost, per %s", newTable("CPU µs", "±", "with calls", "bytes", "objects", "<part", "<function"), first(r.Functions, top),
			func(c Cost, _ string) []any {
				return []any{c.CPUUs, c.CPUUsStdErr, c.CumUs, c.Bytes, c.Objects, string(c.Part), newFunction(c.Name, "").shortName()}
			})
		r.writeCosts(b, "Lines of Pulsegate, with what they call outside of it, per %s", newTable("CPU µs", "±", "bytes", "objects", "<part", "<line"), first(r.Lines, top),
			func(c Cost, _ string) []any {
				return []any{c.CPUUs, c.CPUUsStdErr, c.Bytes, c.Objects, string(c.Part), c.Name}
			})
		r.writeWaits(b)
		r.writeMemory(b)
	})
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
		fmt.Fprintf(b, "  %s requests in %.1f s, %s/s%s\n", whole(r.Requests), s, number(float64(r.Requests)/s), listed(r.Routes))
		fmt.Fprintf(b, "  %s readings%s\n", whole(total(r.Readings)), listed(r.Readings))
	}
	if r.Problem != nil {
		fmt.Fprintf(b, "  %s; costs are per second\n", strings.TrimPrefix(r.Problem.Error(), "profile: "))
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
func (r *Report) writeCosts(b *bufio.Writer, title string, t *table, costs []Cost, cells func(c Cost, share string) []any) {
	if len(costs) == 0 {
		return
	}
	for _, c := range costs {
		share := percent(c.CPUUs, r.Total.CPUUs)
		if r.CPUSeconds == 0 {
			c.CPUUs, c.CPUUsStdErr, c.CumUs = math.NaN(), math.NaN(), math.NaN()
		}
		if r.AllocsSeconds == 0 {
			c.Bytes, c.BytesStdErr, c.Objects, c.ObjectsStdErr = math.NaN(), math.NaN(), math.NaN(), math.NaN()
		}
		t.add(cells(c, share)...)
	}
	fmt.Fprintf(b, "\n"+title+"\n", r.Per)
	t.write(b)
}

func (r *Report) writeParts(b *bufio.Writer) {
	if r.CPUSeconds == 0 && r.AllocsSeconds == 0 {
		return
	}
	r.writeCosts(b, "Cost per %s, by part (±: one standard error of sampling)", newTable("<part", "CPU µs", "±", "share", "bytes", "±", "objects", "±"),
		append(r.Parts[:len(r.Parts):len(r.Parts)], r.Total), func(c Cost, share string) []any {
			return []any{c.Name, c.CPUUs, c.CPUUsStdErr, share, c.Bytes, c.BytesStdErr, c.Objects, c.ObjectsStdErr}
		})
	if r.AllocsSeconds > 0 && r.CountedBytes > 0 {
		fmt.Fprintf(b, "  The runtime itself counted %s bytes in %s objects per %s.\n", number(r.CountedBytes), number(r.CountedObjects), r.Per)
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
	t := newTable("<for", "µs", "times", "<function")
	for _, c := range first(r.MutexWaits, shownWaits) {
		t.add("locks", c.CPUUs, c.Objects, c.Name)
	}
	for _, c := range first(r.BlockWaits, shownWaits) {
		t.add("channels, groups", c.CPUUs, c.Objects, c.Name)
	}
	fmt.Fprintf(b, "\nWaiting, per %s: locks by the function that held them, other waits by the function that waited\n", r.Per)
	t.write(b)
}

func (r *Report) writeMemory(b *bufio.Writer) {
	if len(r.Heap) > 0 {
		t := newTable("bytes", "±", "<function")
		for _, c := range first(r.Heap, shownWaits) {
			t.add(byteSize(c.Bytes), byteSize(c.BytesStdErr), c.Name)
		}
		fmt.Fprintf(b, "\nHeap in use at the end: %s ± %s\n", byteSize(r.HeapTotal.Bytes), byteSize(r.HeapTotal.BytesStdErr))
		t.write(b)
	}
	if len(r.Goroutines) > 0 {
		t := newTable("number", "<in")
		for _, c := range first(r.Goroutines, shownWaits) {
			t.add(whole(uint64(c.Objects)), c.Name)
		}
		fmt.Fprintf(b, "\nGoroutines at the end: %s\n", whole(uint64(r.GoroutinesTotal.Objects)))
		t.write(b)
	}
}
