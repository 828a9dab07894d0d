package profile

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/google/pprof/profile"
)

// Sentinels of a capture that cannot be turned into cost per request.
var (
	ErrNoRequests = errors.New("profile: no request was answered in the window, so there is no cost per request")
	errNoCounters = errors.New("profile: the server's counters are missing, so there is no cost per request")
)

// A Row is what one part, function or line cost in the window.
type Row struct {
	Name    string
	Part    Part  // of a function or line: the one that most of its cost is for
	CPU     Count // its own: see the table that it stands in
	Cum     Count // with everything that it calls; functions only
	Bytes   Sum   // allocated
	Objects Sum   // allocated

	parts map[Part]float64
}

// A Wait is time that goroutines spent waiting at one place.
type Wait struct {
	Name  string
	Delay time.Duration
	Count int64
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

	MutexWaits []Wait // by our own function, the longest first
	BlockWaits []Wait
	HeapInUse  []Row // Bytes and Objects in use at the end, by our own function
	HeapTotal  Row
	Goroutines []Wait // Count goroutines by the innermost function outside of the runtime
}

// Analyze adds up what a capture holds. Profiles that it lacks leave their tables
// empty.
func Analyze(c *Capture) *Report {
	r := &Report{Target: c.Target, Start: c.Start}
	r.readLoad(c)
	t := newTables()
	if c.CPU != nil {
		r.CPUWindow = time.Duration(c.CPU.DurationNanos)
		t.addCPU(c.CPU)
	}
	if c.Allocs != nil {
		r.AllocsWindow = time.Duration(c.Allocs.DurationNanos)
		t.addAllocs(c.Allocs)
	}
	r.Total = t.total
	r.Parts = rows(t.parts)
	r.Syscalls = rows(t.syscalls)
	r.Functions = rows(t.functions)
	r.Own = rows(t.own)
	r.Lines = rows(t.lines)
	if c.Mutex != nil && c.Block != nil {
		r.WaitsWindow = time.Duration(c.Block.DurationNanos)
		r.MutexWaits = waits(c.Mutex)
		r.BlockWaits = waits(c.Block)
	}
	if c.Heap != nil {
		r.HeapInUse, r.HeapTotal = inUse(c.Heap)
	}
	if c.Goroutine != nil {
		r.Goroutines = goroutines(c.Goroutine)
	}
	return r
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

// tables are the sums while they are built.
type tables struct {
	frames                                 *frames
	total                                  Row
	parts, syscalls, functions, own, lines map[string]*Row
	seen                                   map[*function]bool // functions of the current stack
}

func newTables() *tables {
	return &tables{
		frames:    newFrames(),
		total:     Row{Name: "total"},
		parts:     map[string]*Row{},
		syscalls:  map[string]*Row{},
		functions: map[string]*Row{},
		own:       map[string]*Row{},
		lines:     map[string]*Row{},
		seen:      map[*function]bool{},
	}
}

func get(m map[string]*Row, name string) *Row {
	row := m[name]
	if row == nil {
		row = &Row{Name: name, parts: map[Part]float64{}}
		m[name] = row
	}
	return row
}

// forEachPlace calls add for every row that a stack counts for by itself.
func (t *tables) forEachPlace(stack []frame, add func(row *Row, part Part)) {
	part := partOf(stack)
	add(&t.total, part)
	add(get(t.parts, string(part)), part)
	if len(stack) > 0 {
		add(get(t.functions, stack[0].name), part)
	}
	if i := ownFrame(stack); i >= 0 {
		add(get(t.own, stack[i].name), part)
		add(get(t.lines, stack[i].place()+" "+withoutTypeArguments(stack[i].base)), part)
	}
}

func (t *tables) addCPU(p *profile.Profile) {
	samplesAt, nanosAt := valueIndex(p, "samples", "count"), valueIndex(p, "cpu", "nanoseconds")
	if samplesAt < 0 || nanosAt < 0 {
		return
	}
	for _, s := range p.Sample {
		c := Count{Samples: s.Value[samplesAt], Nanos: s.Value[nanosAt]}
		stack := t.frames.stack(s)
		t.forEachPlace(stack, func(row *Row, part Part) {
			row.CPU.add(c)
			if row.parts != nil {
				row.parts[part] += float64(c.Nanos)
			}
		})
		if partOf(stack) == Kernel {
			get(t.syscalls, syscallOf(stack)).CPU.add(c)
		}
		clear(t.seen)
		for _, f := range stack {
			if !t.seen[f.function] { // a recursion counts once
				t.seen[f.function] = true
				get(t.functions, f.name).Cum.add(c)
			}
		}
	}
}

func (t *tables) addAllocs(p *profile.Profile) {
	objectsAt, bytesAt := valueIndex(p, "alloc_objects", "count"), valueIndex(p, "alloc_space", "bytes")
	if objectsAt < 0 || bytesAt < 0 {
		return
	}
	for _, s := range p.Sample {
		objects, bytes := heapSums(s.Value[objectsAt], s.Value[bytesAt], p.Period)
		t.forEachPlace(t.frames.stack(s), func(row *Row, part Part) {
			row.Objects.add(objects)
			row.Bytes.add(bytes)
			// Where a function has both, CPU time is in nanoseconds and outweighs.
			if row.parts != nil && row.CPU.Samples == 0 {
				row.parts[part] += bytes.Value
			}
		})
	}
}

// valueIndex returns where the samples of p have the value of a type and unit, or
// -1.
func valueIndex(p *profile.Profile, typ, unit string) int {
	return slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == typ && v.Unit == unit })
}

// rows returns the rows of m that have any cost of their own or below, the dearest
// first.
func rows(m map[string]*Row) []Row {
	list := make([]Row, 0, len(m))
	for _, row := range m {
		most := 0.0
		for _, part := range allParts {
			if v := row.parts[part]; v > most {
				row.Part, most = part, v
			}
		}
		row.parts = nil
		list = append(list, *row)
	}
	slices.SortFunc(list, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(b.CPU.Nanos, a.CPU.Nanos),
			cmp.Compare(b.Bytes.Value, a.Bytes.Value),
			cmp.Compare(b.Cum.Nanos, a.Cum.Nanos),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return list
}

// waits returns the waiting times of a mutex or block profile by our own function.
// Waits outside of our own code, such as those of idle goroutines of the library,
// are by the innermost function outside of the runtime.
func waits(p *profile.Profile) []Wait {
	countAt, delayAt := valueIndex(p, "contentions", "count"), valueIndex(p, "delay", "nanoseconds")
	if countAt < 0 || delayAt < 0 {
		return nil
	}
	return byPlace(p, func(w *Wait, s *profile.Sample) {
		w.Delay += time.Duration(s.Value[delayAt])
		w.Count += s.Value[countAt]
	}, ownFrame)
}

// goroutines returns how many goroutines stand where.
func goroutines(p *profile.Profile) []Wait {
	at := valueIndex(p, "goroutine", "count")
	if at < 0 {
		return nil
	}
	return byPlace(p, func(w *Wait, s *profile.Sample) { w.Count += s.Value[at] }, ownFrame)
}

// byPlace adds up samples by the frame that find returns, or by the innermost one
// outside of the runtime.
func byPlace(p *profile.Profile, add func(*Wait, *profile.Sample), find func([]frame) int) []Wait {
	frames := newFrames()
	m := map[string]*Wait{}
	for _, s := range p.Sample {
		stack := frames.stack(s)
		if partOf(stack) == Measuring {
			continue // we ourselves
		}
		i := find(stack)
		if i < 0 {
			i = slices.IndexFunc(stack, func(f frame) bool { return !f.inRuntime && f.pkg != "sync" && f.pkg != "internal/poll" })
		}
		name := "the runtime"
		if i >= 0 {
			name = stack[i].shortName()
		}
		w := m[name]
		if w == nil {
			w = &Wait{Name: name}
			m[name] = w
		}
		add(w, s)
	}
	list := make([]Wait, 0, len(m))
	for _, w := range m {
		list = append(list, *w)
	}
	slices.SortFunc(list, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(b.Delay, a.Delay), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// inUse returns what the heap held, by our own function.
func inUse(p *profile.Profile) ([]Row, Row) {
	total := Row{Name: "total"}
	objectsAt, bytesAt := valueIndex(p, "inuse_objects", "count"), valueIndex(p, "inuse_space", "bytes")
	if objectsAt < 0 || bytesAt < 0 {
		return nil, total
	}
	frames := newFrames()
	m := map[string]*Row{}
	for _, s := range p.Sample {
		objects, bytes := heapSums(s.Value[objectsAt], s.Value[bytesAt], p.Period)
		stack := frames.stack(s)
		name := "outside of Pulsegate"
		if i := ownFrame(stack); i >= 0 {
			name = stack[i].shortName()
		}
		for _, row := range []*Row{&total, get(m, name)} {
			row.Objects.add(objects)
			row.Bytes.add(bytes)
		}
	}
	return slices.DeleteFunc(rows(m), func(row Row) bool { return row.Bytes.Value == 0 }), total
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
