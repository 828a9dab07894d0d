package profile

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// familyLevel is how likely it is that a comparison marks any difference at all in
// a table of rows that do not differ. Each row is tested at familyLevel divided by
// the number of rows (Bonferroni's inequality; Dunn: Multiple Comparisons among
// Means, JASA 56, 1961), so that a hundred functions do not make one finding.
const familyLevel = 0.01

// A Change is how a cost per request differs from A to B.
type Change struct {
	Name   string
	A, B   float64 // per request, in the unit of its table
	StdErr float64 // of B-A
	PValue float64 // how likely such a difference is by sampling alone
	Beyond bool    // the difference is beyond the sampling error of its table
}

// A ChangeTable are the changes of one kind, the largest differences first.
type ChangeTable struct {
	Title string
	Unit  string // "CPU µs", "bytes" or "objects"
	All   bool   // every row is shown, not only those that changed
	Total Change // tested by itself
	Rows  []Change
}

// A Comparison sets two reports side by side.
type Comparison struct {
	A, B   *Report
	Tables []ChangeTable
}

// Compare compares the costs per request of a and b. Both must have requests.
//
// CPU rows are compared as two Poisson counts with different exposures, which are
// the requests times the time that a sample stands for; allocations as two
// estimates with known variances. Only sampling error is accounted for: two
// windows of the same program on a busy machine differ by more. Compare two
// windows of one program first, to see by how much.
func Compare(a, b *Report) (*Comparison, error) {
	for _, r := range []struct {
		name   string
		report *Report
	}{{"first", a}, {"second", b}} {
		if r.report.Problem != nil {
			return nil, fmt.Errorf("profile: the %s profile cannot be compared: %w", r.name, r.report.Problem)
		}
	}
	c := &Comparison{A: a, B: b}
	if a.CPUWindow > 0 && b.CPUWindow > 0 {
		c.Tables = append(c.Tables,
			compareCPU(a, b, "Parts", true, func(r *Report) []Row { return r.Parts }),
			compareCPU(a, b, "System calls", false, func(r *Report) []Row { return r.Syscalls }),
			compareCPU(a, b, "Functions, by their own cost", false, func(r *Report) []Row { return r.Functions }),
			compareCPU(a, b, "Functions of Pulsegate, with what they call outside of it", false, func(r *Report) []Row { return r.Own }),
		)
	}
	if a.AllocsWindow > 0 && b.AllocsWindow > 0 {
		bytes := func(row Row) Sum { return row.Bytes }
		objects := func(row Row) Sum { return row.Objects }
		c.Tables = append(c.Tables,
			compareSums(a, b, "Parts", "bytes", true, bytes, func(r *Report) []Row { return r.Parts }),
			compareSums(a, b, "Parts", "objects", true, objects, func(r *Report) []Row { return r.Parts }),
			compareSums(a, b, "Functions of Pulsegate, with what they call outside of it", "bytes", false, bytes, func(r *Report) []Row { return r.Own }),
		)
	}
	if len(c.Tables) == 0 {
		return nil, errors.New("profile: the two have neither a CPU profile nor allocations in common")
	}
	return c, nil
}

// compareCPU compares one kind of rows by CPU time.
func compareCPU(a, b *Report, title string, all bool, of func(*Report) []Row) ChangeTable {
	divA, divB := a.Divisor(a.CPUWindow), b.Divisor(b.CPUWindow)
	// What one sample stands for, as found: 10 ms, unless the server was set
	// otherwise.
	perA, perB := perSample(a.Total.CPU), perSample(b.Total.CPU)
	change := func(rowA, rowB Row) Change {
		x, y := float64(rowA.CPU.Nanos)/1e3/divA, float64(rowB.CPU.Nanos)/1e3/divB
		return Change{
			A: x, B: y,
			StdErr: math.Hypot(rowA.CPU.stdErr()/1e3/divA, rowB.CPU.stdErr()/1e3/divB),
			PValue: poissonPValue(rowA.CPU.Samples, rowB.CPU.Samples, divA/perA, divB/perB),
		}
	}
	return compareRows(ChangeTable{Title: title, Unit: "CPU µs", All: all}, a, b, of, change)
}

// perSample returns the nanoseconds that a sample of c stands for.
func perSample(c Count) float64 {
	if c.Samples <= 0 || c.Nanos <= 0 {
		return 1e7
	}
	return float64(c.Nanos) / float64(c.Samples)
}

// compareSums compares one kind of rows by what they allocated.
func compareSums(a, b *Report, title, unit string, all bool, sum func(Row) Sum, of func(*Report) []Row) ChangeTable {
	divA, divB := a.Divisor(a.AllocsWindow), b.Divisor(b.AllocsWindow)
	change := func(rowA, rowB Row) Change {
		x, y := sum(rowA), sum(rowB)
		variance := x.Variance/(divA*divA) + y.Variance/(divB*divB)
		d := y.Value/divB - x.Value/divA
		return Change{A: x.Value / divA, B: y.Value / divB, StdErr: math.Sqrt(variance), PValue: normalPValue(d, variance)}
	}
	return compareRows(ChangeTable{Title: title, Unit: unit, All: all}, a, b, of, change)
}

// compareRows pairs the rows of a and b by name.
func compareRows(t ChangeTable, a, b *Report, of func(*Report) []Row, change func(Row, Row) Change) ChangeTable {
	type pair struct{ a, b Row }
	pairs := map[string]pair{}
	for _, row := range of(a) {
		pairs[row.Name] = pair{a: row}
	}
	for _, row := range of(b) {
		p := pairs[row.Name]
		p.b = row
		pairs[row.Name] = p
	}
	for name, p := range pairs {
		c := change(p.a, p.b)
		if c.A == 0 && c.B == 0 {
			continue
		}
		c.Name = name
		t.Rows = append(t.Rows, c)
	}
	for i := range t.Rows {
		t.Rows[i].Beyond = t.Rows[i].PValue < familyLevel/float64(len(t.Rows))
	}
	slices.SortFunc(t.Rows, func(x, y Change) int {
		return cmp.Or(cmp.Compare(math.Abs(y.B-y.A), math.Abs(x.B-x.A)), cmp.Compare(x.Name, y.Name))
	})
	t.Total = change(a.Total, b.Total)
	t.Total.Name = "total"
	t.Total.Beyond = t.Total.PValue < familyLevel
	return t
}
