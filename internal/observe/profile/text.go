package profile

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// shownWaits is how many places a table of waits or of memory shows.
const shownWaits = 5

// WriteText writes a report for people, with top functions and top lines.
func (r *Report) WriteText(w io.Writer, top int) error {
	return buffered(w, func(b *bufio.Writer) {
		r.writeHead(b)
		r.writeParts(b)
		r.writeCosts(b, "The kernel's part, by system call, per %s", newTable("<call", "CPU µs", "±", "share of all"), r.Syscalls,
			func(c cost, share string) []any { return []any{c.Name, c.CPUUs, c.CPUUsStdErr, share} })
		r.writeCosts(b, "Functions by their own cost, per %s", newTable("CPU µs", "±", "with calls", "bytes", "objects", "<part", "<function"), first(r.Functions, top),
			func(c cost, _ string) []any {
				return []any{c.CPUUs, c.CPUUsStdErr, c.CumUs, c.Bytes, c.Objects, string(c.Part), newFunction(c.Name, "").shortName()}
			})
		r.writeCosts(b, "Lines of Pulsegate, with what they call outside of it, per %s", newTable("CPU µs", "±", "bytes", "objects", "<part", "<line"), first(r.Lines, top),
			func(c cost, _ string) []any {
				return []any{c.CPUUs, c.CPUUsStdErr, c.Bytes, c.Objects, string(c.Part), c.Name}
			})
		r.writeWaits(b)
		r.writeMemory(b)
	})
}

// first returns the first n of rows, or all of fewer.
func first(rows []Row, n int) []Row { return rows[:min(max(n, 0), len(rows))] }

// unit is what costs are divided by.
func (r *Report) unit() string {
	if r.Problem != nil {
		return "second"
	}
	return "request"
}

func (r *Report) writeHead(b *bufio.Writer) {
	name := "Pulsegate"
	if r.Version != "" {
		name += " " + r.Version
	}
	if r.GoVersion != "" {
		name += " (" + r.GoVersion + ")"
	}
	fmt.Fprintf(b, "%s at %s, from %s\n", name, r.Target, r.Start.UTC().Format(time.RFC3339))
	if s := r.Load.Duration.Seconds(); s > 0 {
		fmt.Fprintf(b, "  %s requests in %.1f s, %s/s%s\n", whole(r.Load.Requests), s, number(float64(r.Load.Requests)/s), listed(r.Load.Routes))
		fmt.Fprintf(b, "  %s readings%s\n", whole(sum(r.Load.Readings)), listed(r.Load.Readings))
	}
	if r.Problem != nil {
		fmt.Fprintf(b, "  %s; costs are per second\n", strings.TrimPrefix(r.Problem.Error(), "profile: "))
	}
}

// listed writes counts by name: ": a 3, b 2".
func listed(m map[string]uint64) string {
	text, separator := "", ": "
	for _, name := range sortedKeys(m) {
		text += separator + name + " " + whole(m[name])
		separator = ", "
	}
	return text
}

// writeCosts writes a table of costs. In title, %s stands for what they are divided
// by. cells gets a row's share of all CPU time as well. What was not measured is
// shown as a dash.
func (r *Report) writeCosts(b *bufio.Writer, title string, t *table, rows []Row, cells func(c cost, share string) []any) {
	if len(rows) == 0 {
		return
	}
	cpu, allocs := r.Divisor(r.CPUWindow), r.Divisor(r.AllocsWindow)
	if r.CPUWindow == 0 {
		cpu = math.NaN()
	}
	if r.AllocsWindow == 0 {
		allocs = math.NaN()
	}
	for _, row := range rows {
		t.add(cells(row.cost(cpu, allocs), percent(float64(row.CPU.Nanos), float64(r.Total.CPU.Nanos)))...)
	}
	fmt.Fprintf(b, "\n"+title+"\n", r.unit())
	t.write(b)
}

func (r *Report) writeParts(b *bufio.Writer) {
	if r.CPUWindow == 0 && r.AllocsWindow == 0 {
		return
	}
	r.writeCosts(b, "Cost per %s, by part (±: one standard error of sampling)", newTable("<part", "CPU µs", "±", "share", "bytes", "±", "objects", "±"),
		append(r.Parts[:len(r.Parts):len(r.Parts)], r.Total), func(c cost, share string) []any {
			return []any{c.Name, c.CPUUs, c.CPUUsStdErr, share, c.Bytes, c.BytesStdErr, c.Objects, c.ObjectsStdErr}
		})
	if r.AllocsWindow > 0 && r.Load.Bytes > 0 {
		n := r.Divisor(r.Load.Duration)
		fmt.Fprintf(b, "  The runtime's own count is %s bytes in %s objects per %s.\n", number(r.Load.Bytes/n), number(r.Load.Objects/n), r.unit())
	}
	if r.CPUWindow > 0 && r.Load.CPU > 0 {
		// The process's own clock runs a little longer than the profile, hence rates.
		clock := r.Load.CPU.Seconds() / r.Load.Duration.Seconds()
		seen := float64(r.Total.CPU.Nanos) / float64(r.CPUWindow)
		fmt.Fprintf(b, "  The process's own clock shows %s µs per %s; the profile saw %s of it.\n",
			number(clock*r.CPUWindow.Seconds()*1e6/r.Divisor(r.CPUWindow)), r.unit(), percent(seen, clock))
	}
}

func (r *Report) writeWaits(b *bufio.Writer) {
	if len(r.MutexWaits) == 0 && len(r.BlockWaits) == 0 {
		return
	}
	divisor := r.Divisor(r.WaitsWindow)
	t := newTable("<for", "µs", "times", "<function")
	for _, row := range first(r.MutexWaits, shownWaits) {
		t.add("locks", float64(row.Waits.Delay.Nanoseconds())/1e3/divisor, float64(row.Waits.Count)/divisor, row.Name)
	}
	for _, row := range first(r.BlockWaits, shownWaits) {
		t.add("channels, groups", float64(row.Waits.Delay.Nanoseconds())/1e3/divisor, float64(row.Waits.Count)/divisor, row.Name)
	}
	fmt.Fprintf(b, "\nWaiting, per %s: locks by who held them, other waits by who waited\n", r.unit())
	t.write(b)
}

func (r *Report) writeMemory(b *bufio.Writer) {
	if len(r.HeapInUse) > 0 {
		t := newTable("bytes", "±", "<function")
		for _, row := range first(r.HeapInUse, shownWaits) {
			t.add(byteSize(row.Bytes.Value), byteSize(row.Bytes.stdErr()), row.Name)
		}
		fmt.Fprintf(b, "\nHeap in use at the end: %s ± %s\n", byteSize(r.HeapTotal.Bytes.Value), byteSize(r.HeapTotal.Bytes.stdErr()))
		t.write(b)
	}
	if len(r.Goroutines) > 0 {
		t := newTable("number", "<in")
		for _, row := range first(r.Goroutines, shownWaits) {
			t.add(whole(row.Waits.Count), row.Name)
		}
		fmt.Fprintf(b, "\nGoroutines at the end: %s\n", whole(r.GoroutinesTotal.Waits.Count))
		t.write(b)
	}
}
