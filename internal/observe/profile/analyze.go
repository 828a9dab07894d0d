package profile

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/google/pprof/profile"
)

// summaryFormat is the version of a report's JSON form. It changes when a field changes
// its meaning or is removed.
const summaryFormat = 1

// Errors for a capture from which no cost per request can be computed.
var (
	ErrNoRequests = errors.New("no request was answered in the window, so there is no cost per request")
	errNoCounters = errors.New("the server's counters are missing, so there is no cost per request")
)

// A Cost is the cost per request of one part, function, line or place. Standard errors
// are sampling errors.
type Cost struct {
	Name          string  `json:"name"`
	Part          Part    `json:"part,omitempty"` // of a function or line: the part with most of its cost
	CPUUs         float64 `json:"cpu_us"`         // own cost; see the tables of Report
	CPUUsStdErr   float64 `json:"cpu_us_stderr"`
	CPUSamples    int64   `json:"cpu_samples"` // in the window
	CumUs         float64 `json:"cpu_us_with_calls,omitempty"`
	Bytes         float64 `json:"bytes"` // allocated
	BytesStdErr   float64 `json:"bytes_stderr"`
	Objects       float64 `json:"objects"` // allocated
	ObjectsStdErr float64 `json:"objects_stderr"`
}

// A Report is the cost of a server's work. Costs are per request or, if Problem is not
// nil, per second.
type Report struct {
	Format    int       `json:"format"`
	Target    string    `json:"target"`
	Start     time.Time `json:"start"`
	Version   string    `json:"version,omitempty"` // of the server; "" if unknown
	GoVersion string    `json:"go_version,omitempty"`
	Per       string    `json:"per"` // "request" or "second"
	Problem   error     `json:"-"`
	Reason    string    `json:"problem,omitempty"` // the text of Problem
	Load                // zero if unknown

	CPUSeconds    float64 `json:"cpu_profile_seconds"` // window of the CPU profile; 0 means no CPU profile
	AllocsSeconds float64 `json:"-"`                   // window of the allocations; 0 means no allocations profile

	Total     Cost   `json:"total"`
	Parts     []Cost `json:"parts"`     // in descending order of CPU time
	Syscalls  []Cost `json:"syscalls"`  // the part kernel, by system call
	Functions []Cost `json:"functions"` // every function; own cost, except CumUs
	Lines     []Cost `json:"lines"`     // every line of our own code, with its calls outside of our own code

	// By function, in descending order; see waits.
	MutexWaits []Cost `json:"-"` // CPUUs is the time waited, Objects the number of waits
	BlockWaits []Cost `json:"-"` // likewise

	Before *Counters `json:"before,omitempty"`
	After  *Counters `json:"after,omitempty"`
	Window float64   `json:"window_s"` // as requested
}

// Analyze computes the report of a capture. The tables of missing profiles are empty.
func Analyze(c *Capture) *Report {
	r := &Report{Format: summaryFormat, Target: c.Target, Start: c.Start, Before: c.Before, After: c.After,
		Window: c.Window.Seconds(), Per: "request"}
	if r.readLoad(c); r.Problem != nil {
		r.Per, r.Reason = "second", r.Problem.Error()
	}
	r.CPUSeconds, r.AllocsSeconds = seconds(c.CPU), seconds(c.Allocs)
	r.addCosts(c)
	r.MutexWaits, r.BlockWaits = r.waits(c.Mutex), r.waits(c.Block)
	return r
}

// seconds returns the length of a profile's window; 0 without a profile.
func seconds(p *profile.Profile) float64 {
	if p == nil {
		return 0
	}
	return time.Duration(p.DurationNanos).Seconds()
}

// readLoad sets the fields that come from the counters.
func (r *Report) readLoad(c *Capture) {
	if c.Before != nil {
		r.Version, r.GoVersion = c.Before.Version, c.Before.GoVersion
	}
	if c.Before == nil || c.After == nil {
		r.Problem = errNoCounters
		return
	}
	r.Load, r.Problem = loadBetween(c.Before, c.After)
	if r.Problem == nil && r.Requests == 0 {
		r.Problem = ErrNoRequests
	}
}

// divisor returns the number of requests in a profile's window. The windows of profiles
// and counters differ by the milliseconds that fetching takes; divisor assumes a steady
// load. Without requests, it returns the seconds of the window.
func (r *Report) divisor(seconds float64) float64 {
	if seconds <= 0 {
		return 1
	}
	return seconds * r.perSecond()
}

// A row is the sums from which a Cost is computed.
type row struct {
	name           string
	cpu, cum       count
	bytes, objects sum
	parts          map[Part]float64
}

// cost divides a row by the numbers of requests in the windows of CPU time and of
// allocations.
func (row *row) cost(cpu, allocs float64) Cost {
	return Cost{
		Name: row.name, Part: largest(row.parts),
		CPUUs: float64(row.cpu.nanos) / 1e3 / cpu, CPUUsStdErr: row.cpu.stdErr() / 1e3 / cpu,
		CPUSamples: row.cpu.samples, CumUs: float64(row.cum.nanos) / 1e3 / cpu,
		Bytes: row.bytes.value / allocs, BytesStdErr: row.bytes.stdErr() / allocs,
		Objects: row.objects.value / allocs, ObjectsStdErr: row.objects.stdErr() / allocs,
	}
}

// largest returns the part with the largest positive value, the first of equals, or ""
// if there is none.
func largest(values map[Part]float64) (part Part) {
	for _, p := range allParts {
		if v := values[p]; v > 0 && v > values[part] {
			part = p
		}
	}
	return part
}

// rows holds the rows of a table by name while samples are added.
type rows map[string]*row

func (m rows) get(name string) *row {
	if m[name] == nil {
		m[name] = &row{name: name, parts: map[Part]float64{}}
	}
	return m[name]
}

// costs returns the costs of all rows in descending order.
func (m rows) costs(cpu, allocs float64) []Cost {
	list := []Cost{}
	for _, row := range m {
		list = append(list, row.cost(cpu, allocs))
	}
	slices.SortFunc(list, func(a, b Cost) int {
		return cmp.Or(cmp.Compare(b.CPUUs, a.CPUUs), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.CumUs, a.CumUs),
			cmp.Compare(b.Objects, a.Objects), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// addCosts fills the tables of CPU time and of allocations.
func (r *Report) addCosts(c *Capture) {
	all := &row{name: "total"}
	parts, syscalls, functions, lines := rows{}, rows{}, rows{}, rows{}
	// eachRow calls add for every row to which a stack's own cost belongs.
	eachRow := func(stack []frame, part Part, add func(row *row)) {
		add(all)
		add(parts.get(string(part)))
		if len(stack) > 0 {
			add(functions.get(stack[0].name))
		}
		if i := ownFrame(stack); i >= 0 {
			add(lines.get(stack[i].place() + " " + stack[i].shortBase()))
		}
	}
	seen := map[*function]bool{} // functions of the current stack
	eachSample(c.CPU, "samples", "cpu", func(stack []frame, samples, nanos int64) {
		part := partOf(stack)
		eachRow(stack, part, func(row *row) {
			row.cpu.add(samples, nanos)
			if row.parts != nil {
				row.parts[part] += float64(nanos)
			}
		})
		if part == Kernel {
			syscalls.get(syscallOf(stack)).cpu.add(samples, nanos)
		}
		clear(seen)
		for _, f := range stack {
			if !seen[f.function] { // count recursive functions once
				seen[f.function] = true
				functions.get(f.name).cum.add(samples, nanos)
			}
		}
	})
	eachSample(c.Allocs, "alloc_objects", "alloc_space", func(stack []frame, n, size int64) {
		objects, bytes := heapSums(n, size, c.Allocs.Period)
		part := partOf(stack)
		eachRow(stack, part, func(row *row) {
			row.objects.add(objects)
			row.bytes.add(bytes)
			// If a function has CPU samples, they alone decide its part.
			if row.parts != nil && row.cpu.samples == 0 {
				row.parts[part] += bytes.value
			}
		})
	})
	cpu, allocs := r.divisor(r.CPUSeconds), r.divisor(r.AllocsSeconds)
	r.Total, r.Parts, r.Syscalls = all.cost(cpu, allocs), parts.costs(cpu, allocs), syscalls.costs(cpu, allocs)
	r.Functions, r.Lines = functions.costs(cpu, allocs), lines.costs(cpu, allocs)
}

// waits adds up a profile of contention by the innermost function of our own code or, if
// there is none, by the innermost function outside of the runtime. Waits for measuring
// itself do not count.
func (r *Report) waits(p *profile.Profile) []Cost {
	table := rows{}
	eachSample(p, "contentions", "delay", func(stack []frame, count, delay int64) {
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
		row := table.get(name)
		row.cpu.nanos += delay
		row.objects.value += float64(count)
	})
	n := r.divisor(seconds(p))
	return table.costs(n, n)
}
