package profile

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/google/pprof/profile"
)

// Sentinels of a capture that cannot be turned into cost per request.
var (
	ErrNoRequests = errors.New("profile: no request was answered in the window, so there is no cost per request")
	errNoCounters = errors.New("profile: the server's counters are missing, so there is no cost per request")
)

// A Row is what one part, function, line or place cost in the window.
type Row struct {
	Name    string
	Part    Part  // of a function or line: the one that most of its cost is for
	CPU     Count // its own: see the table that it stands in
	Cum     Count // with everything that it calls; functions only
	Bytes   Sum   // allocated, or in use
	Objects Sum   // the same in objects
	Waits   Wait  // in tables of goroutines and of what they wait for

	parts map[Part]float64
}

// A Wait is how often goroutines waited, and how long in all.
type Wait struct {
	Count int64
	Delay time.Duration
}

// A Report is what a server's work cost, in sums over the window; the writers
// divide. Use [Report.Divisor].
type Report struct {
	Target    string
	Start     time.Time
	Version   string // of the server; "" if it is not known
	GoVersion string
	Load      Load  // zero if it is not known
	Problem   error // why there is no cost per request; nil if there is one

	CPUWindow    time.Duration // of the CPU profile; 0: there is none
	AllocsWindow time.Duration // of the allocations; 0: there are none
	WaitsWindow  time.Duration // of mutex and block profiles; 0: there are none

	Total     Row
	Parts     []Row // by CPU time
	Syscalls  []Row // the part kernel, by system call
	Functions []Row // every function; CPU, Bytes and Objects are of itself alone
	Own       []Row // every function of our own code, with what it calls outside of our own code
	Lines     []Row // the same by source line

	MutexWaits      []Row // by place, the longest first
	BlockWaits      []Row // likewise
	HeapInUse       []Row // Bytes and Objects in use at the end, by place
	HeapTotal       Row
	Goroutines      []Row // Waits.Count goroutines, by place
	GoroutinesTotal Row
}

// Analyze adds up what a capture holds. Profiles that it lacks leave their tables
// empty.
func Analyze(c *Capture) *Report {
	r := &Report{Target: c.Target, Start: c.Start, Total: Row{Name: "total"}}
	r.readLoad(c)
	r.CPUWindow, r.AllocsWindow = duration(c.CPU), duration(c.Allocs)
	r.addCosts(c)
	waits := func(row *Row, count, delay int64) {
		row.Waits.Count += count
		row.Waits.Delay += time.Duration(delay)
	}
	if c.Mutex != nil && c.Block != nil {
		r.WaitsWindow = duration(c.Block)
		r.MutexWaits, _ = places(c.Mutex, "contentions", "delay", waits)
		r.BlockWaits, _ = places(c.Block, "contentions", "delay", waits)
	}
	r.Goroutines, r.GoroutinesTotal = places(c.Goroutine, "goroutine", "goroutine", func(row *Row, count, _ int64) { waits(row, count, 0) })
	if c.Heap != nil {
		r.HeapInUse, r.HeapTotal = places(c.Heap, "inuse_objects", "inuse_space", func(row *Row, objects, bytes int64) {
			row.addSums(heapSums(objects, bytes, c.Heap.Period))
		})
		r.HeapInUse = slices.DeleteFunc(r.HeapInUse, func(row Row) bool { return row.Bytes.Value == 0 })
	}
	return r
}

func duration(p *profile.Profile) time.Duration {
	if p == nil {
		return 0
	}
	return time.Duration(p.DurationNanos)
}

// readLoad sets what is known from the counters.
func (r *Report) readLoad(c *Capture) {
	if c.Before != nil {
		r.Version, r.GoVersion = c.Before.Version, c.Before.GoVersion
	}
	if c.Before == nil || c.After == nil {
		r.Problem = errNoCounters
		return
	}
	r.Load, r.Problem = loadBetween(*c.Before, *c.After)
	if r.Problem == nil && r.Load.Requests == 0 {
		r.Problem = ErrNoRequests
	}
}

// Divisor returns how many requests fall into a profile's window: the number
// between the two readings of the counters, times the ratio of the windows. The
// windows differ by the milliseconds that it takes to fetch; a steady load is
// assumed for those. Without requests, it is the seconds of the window.
func (r *Report) Divisor(window time.Duration) float64 {
	if window <= 0 {
		return 1
	}
	if r.Problem != nil || r.Load.Duration <= 0 {
		return window.Seconds()
	}
	return float64(r.Load.Requests) * float64(window) / float64(r.Load.Duration)
}

// rows are the rows of a table while they are added up, by name.
type rows map[string]*Row

func (m rows) get(name string) *Row {
	row := m[name]
	if row == nil {
		row = &Row{Name: name, parts: map[Part]float64{}}
		m[name] = row
	}
	return row
}

// sorted returns the rows, those of the highest cost first.
func (m rows) sorted() []Row {
	list := make([]Row, 0, len(m))
	for _, row := range m {
		row.Part, row.parts = largest(row.parts), nil
		list = append(list, *row)
	}
	slices.SortFunc(list, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(b.CPU.Nanos, a.CPU.Nanos),
			cmp.Compare(b.Bytes.Value, a.Bytes.Value),
			cmp.Compare(b.Cum.Nanos, a.Cum.Nanos),
			cmp.Compare(b.Waits.Delay, a.Waits.Delay),
			cmp.Compare(b.Waits.Count, a.Waits.Count),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return list
}

// largest returns the part of the highest value above 0, the first of equals, or
// "" if there is none.
func largest(values map[Part]float64) (part Part) {
	for _, p := range allParts {
		if v := values[p]; v > 0 && v > values[part] {
			part = p
		}
	}
	return part
}

func (row *Row) addSums(objects, bytes Sum) {
	row.Objects.add(objects)
	row.Bytes.add(bytes)
}

// addCosts fills in the tables of CPU time and of allocations.
func (r *Report) addCosts(c *Capture) {
	parts, syscalls, functions, own, lines := rows{}, rows{}, rows{}, rows{}, rows{}
	// eachRow calls add for every row that a stack counts for by itself.
	eachRow := func(stack []frame, part Part, add func(row *Row)) {
		add(&r.Total)
		add(parts.get(string(part)))
		if len(stack) > 0 {
			add(functions.get(stack[0].name))
		}
		if i := ownFrame(stack); i >= 0 {
			add(own.get(stack[i].name))
			add(lines.get(stack[i].place() + " " + stack[i].base))
		}
	}
	seen := map[*function]bool{} // functions of a stack
	eachSample(c.CPU, "samples", "cpu", func(stack []frame, samples, nanos int64) {
		count, part := Count{samples, nanos}, partOf(stack)
		eachRow(stack, part, func(row *Row) {
			row.CPU.add(count)
			if row.parts != nil {
				row.parts[part] += float64(nanos)
			}
		})
		if part == Kernel {
			syscalls.get(syscallOf(stack)).CPU.add(count)
		}
		clear(seen)
		for _, f := range stack {
			if !seen[f.function] { // a recursion counts once
				seen[f.function] = true
				functions.get(f.name).Cum.add(count)
			}
		}
	})
	eachSample(c.Allocs, "alloc_objects", "alloc_space", func(stack []frame, n, size int64) {
		objects, bytes := heapSums(n, size, c.Allocs.Period)
		part := partOf(stack)
		eachRow(stack, part, func(row *Row) {
			row.addSums(objects, bytes)
			// Where a function has both, CPU time is in nanoseconds and outweighs.
			if row.parts != nil && row.CPU.Samples == 0 {
				row.parts[part] += bytes.Value
			}
		})
	})
	r.Parts, r.Syscalls, r.Functions, r.Own, r.Lines = parts.sorted(), syscalls.sorted(), functions.sorted(), own.sorted(), lines.sorted()
}

// places adds samples up by our own function or, where there is none, such as for
// idle goroutines of the library, by the innermost one outside of the runtime.
// What this package is for itself is only in the total.
func places(p *profile.Profile, typeA, typeB string, add func(row *Row, a, b int64)) ([]Row, Row) {
	table, total := rows{}, Row{Name: "total"}
	eachSample(p, typeA, typeB, func(stack []frame, a, b int64) {
		add(&total, a, b)
		if partOf(stack) == Measuring {
			return
		}
		i := ownFrame(stack)
		if i < 0 {
			i = slices.IndexFunc(stack, func(f frame) bool { return !f.inRuntime && match(waitPackages, f.pkg, f.base) == "" })
		}
		name := "the runtime"
		if i >= 0 {
			name = stack[i].shortName()
		}
		add(table.get(name), a, b)
	})
	return table.sorted(), total
}
