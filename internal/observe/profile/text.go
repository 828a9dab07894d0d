package profile

import (
	"bufio"
	"fmt"
	"io"
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
		r.writeSyscalls(b)
		r.writeFunctions(b, top)
		r.writeLines(b, top)
		r.writeWaits(b)
		r.writeMemory(b)
	})
}

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
		var readings uint64
		for _, n := range r.Load.Readings {
			readings += n
		}
		fmt.Fprintf(b, "  %s readings%s\n", whole(readings), listed(r.Load.Readings))
	}
	if r.Problem != nil {
		fmt.Fprintf(b, "  %s; costs are per second\n", strings.TrimPrefix(r.Problem.Error(), "profile: "))
	}
}

// listed writes counts by name: ": a 3, b 2".
func listed(m map[string]uint64) string {
	var items []string
	for _, name := range sortedKeys(m) {
		items = append(items, name+" "+whole(m[name]))
	}
	if len(items) == 0 {
		return ""
	}
	return ": " + strings.Join(items, ", ")
}

// A divider turns sums into cost per request.
type divider struct {
	cpu, allocs       float64 // divisors
	hasCPU, hasAllocs bool
}

func (r *Report) divider() divider {
	return divider{r.Divisor(r.CPUWindow), r.Divisor(r.AllocsWindow), r.CPUWindow > 0, r.AllocsWindow > 0}
}

// micros returns µs of CPU time per request, and the standard error.
func (d divider) micros(c Count) (string, string) {
	if !d.hasCPU {
		return "-", "-"
	}
	return number(float64(c.Nanos) / 1e3 / d.cpu), number(c.stdErr() / 1e3 / d.cpu)
}

// allocated returns bytes or objects per request, and the standard error.
func (d divider) allocated(s Sum) (string, string) {
	if !d.hasAllocs {
		return "-", "-"
	}
	return number(s.Value / d.allocs), number(s.stdErr() / d.allocs)
}

func (r *Report) writeParts(b *bufio.Writer) {
	if r.CPUWindow == 0 && r.AllocsWindow == 0 {
		return
	}
	fmt.Fprintf(b, "\nCost per %s, by part (±: one standard error of sampling)\n", r.unit())
	d := r.divider()
	t := newTable("<part", "CPU µs", "±", "share", "bytes", "±", "objects", "±")
	for _, row := range append(r.Parts[:len(r.Parts):len(r.Parts)], r.Total) {
		cpu, cpuErr := d.micros(row.CPU)
		bytes, bytesErr := d.allocated(row.Bytes)
		objects, objectsErr := d.allocated(row.Objects)
		t.add(row.Name, cpu, cpuErr, percent(float64(row.CPU.Nanos), float64(r.Total.CPU.Nanos)), bytes, bytesErr, objects, objectsErr)
	}
	t.write(b)
	if d.hasAllocs && r.Load.Bytes > 0 {
		n := r.Divisor(r.Load.Duration)
		fmt.Fprintf(b, "  The runtime's own count is %s bytes in %s objects per %s.\n", number(r.Load.Bytes/n), number(r.Load.Objects/n), r.unit())
	}
	if d.hasCPU && r.Load.CPU > 0 {
		// The process's own clock runs a little longer than the profile, hence rates.
		clock := r.Load.CPU.Seconds() / r.Load.Duration.Seconds()
		seen := float64(r.Total.CPU.Nanos) / float64(r.CPUWindow)
		fmt.Fprintf(b, "  The process's own clock tells %s µs per %s; the profile saw %s of it.\n",
			number(clock*r.CPUWindow.Seconds()*1e6/d.cpu), r.unit(), percent(seen, clock))
	}
}

func (r *Report) writeSyscalls(b *bufio.Writer) {
	if len(r.Syscalls) == 0 {
		return
	}
	fmt.Fprintf(b, "\nThe kernel's part, by system call, per %s\n", r.unit())
	d := r.divider()
	t := newTable("<call", "CPU µs", "±", "share of all")
	for _, row := range r.Syscalls {
		cpu, cpuErr := d.micros(row.CPU)
		t.add(row.Name, cpu, cpuErr, percent(float64(row.CPU.Nanos), float64(r.Total.CPU.Nanos)))
	}
	t.write(b)
}

func (r *Report) writeFunctions(b *bufio.Writer, top int) {
	if len(r.Functions) == 0 || top < 1 {
		return
	}
	fmt.Fprintf(b, "\nFunctions by their own cost, per %s\n", r.unit())
	d := r.divider()
	t := newTable("CPU µs", "±", "with calls", "bytes", "objects", "<part", "<function")
	for _, row := range r.Functions[:min(top, len(r.Functions))] {
		cpu, cpuErr := d.micros(row.CPU)
		cum, _ := d.micros(row.Cum)
		bytes, _ := d.allocated(row.Bytes)
		objects, _ := d.allocated(row.Objects)
		t.add(cpu, cpuErr, cum, bytes, objects, string(row.Part), newFunction(row.Name, "").shortName())
	}
	t.write(b)
}

func (r *Report) writeLines(b *bufio.Writer, top int) {
	if len(r.Lines) == 0 || top < 1 {
		return
	}
	fmt.Fprintf(b, "\nLines of Pulsegate, with what they call outside of it, per %s\n", r.unit())
	d := r.divider()
	t := newTable("CPU µs", "±", "bytes", "objects", "<part", "<line")
	for _, row := range r.Lines[:min(top, len(r.Lines))] {
		cpu, cpuErr := d.micros(row.CPU)
		bytes, _ := d.allocated(row.Bytes)
		objects, _ := d.allocated(row.Objects)
		t.add(cpu, cpuErr, bytes, objects, string(row.Part), row.Name)
	}
	t.write(b)
}

func (r *Report) writeWaits(b *bufio.Writer) {
	if len(r.MutexWaits) == 0 && len(r.BlockWaits) == 0 {
		return
	}
	divisor := r.Divisor(r.WaitsWindow)
	fmt.Fprintf(b, "\nWaiting, per %s: locks by who held them, other waits by who waited\n", r.unit())
	t := newTable("<for", "µs", "times", "<function")
	for _, kind := range []struct {
		name  string
		waits []Wait
	}{{"locks", r.MutexWaits}, {"channels, groups", r.BlockWaits}} {
		for _, wait := range kind.waits[:min(shownWaits, len(kind.waits))] {
			t.add(kind.name, number(float64(wait.Delay.Nanoseconds())/1e3/divisor), number(float64(wait.Count)/divisor), wait.Name)
		}
	}
	t.write(b)
}

func (r *Report) writeMemory(b *bufio.Writer) {
	if len(r.HeapInUse) > 0 {
		fmt.Fprintf(b, "\nHeap in use at the end: %s ± %s\n", byteSize(r.HeapTotal.Bytes.Value), byteSize(r.HeapTotal.Bytes.stdErr()))
		t := newTable("bytes", "±", "<function")
		for _, row := range r.HeapInUse[:min(shownWaits, len(r.HeapInUse))] {
			t.add(byteSize(row.Bytes.Value), byteSize(row.Bytes.stdErr()), row.Name)
		}
		t.write(b)
	}
	if len(r.Goroutines) > 0 {
		var n int64
		for _, g := range r.Goroutines {
			n += g.Count
		}
		fmt.Fprintf(b, "\nGoroutines at the end: %s\n", whole(uint64(max(n, 0))))
		t := newTable("number", "<in")
		for _, g := range r.Goroutines[:min(shownWaits, len(r.Goroutines))] {
			t.add(whole(uint64(max(g.Count, 0))), g.Name)
		}
		t.write(b)
	}
}
