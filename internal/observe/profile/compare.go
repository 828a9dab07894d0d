package profile

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// familyLevel is the probability that a comparison marks any row in a table whose rows
// do not differ. Each row is tested at familyLevel divided by the number of rows
// (Bonferroni's inequality; Dunn: Multiple Comparisons among Means, JASA 56, 1961), so
// that a hundred functions do not produce a false alarm.
const familyLevel = 0.01

// A Change is the difference of a cost per request between A and B.
type Change struct {
	Name   string  `json:"name"`
	A      float64 `json:"a"` // per request, in the unit of its table
	B      float64 `json:"b"`
	StdErr float64 `json:"difference_stderr"`
	PValue float64 `json:"p_value"`         // probability of such a difference by sampling alone
	Beyond bool    `json:"beyond_sampling"` // the difference is beyond the sampling error of its table
}

// A ChangeTable lists changes of one kind, the largest differences first.
type ChangeTable struct {
	Title string   `json:"title"`
	Unit  string   `json:"unit"`  // "CPU µs", "bytes" or "objects"
	All   bool     `json:"-"`     // show every row, not only those that changed
	Total Change   `json:"total"` // tested separately
	Rows  []Change `json:"rows"`
}

// A Comparison compares two reports.
type Comparison struct {
	A, B   *Report
	Tables []ChangeTable
}

// Compare compares the costs per request of a and b. It returns an error if either has
// no requests.
//
// CPU rows are compared as two Poisson counts with different exposures, where the
// exposure is the number of requests divided by the time that a sample represents.
// Allocations are compared as two estimates with known variances. Only sampling error
// is taken into account: two windows of the same program on a busy machine differ by
// more. Compare two windows of one program first to see by how much.
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
	for _, t := range []struct {
		title, unit string
		all         bool
		rows        func(*Report) []Cost
	}{
		{"Parts", "CPU µs", true, func(r *Report) []Cost { return r.Parts }},
		{"System calls", "CPU µs", false, func(r *Report) []Cost { return r.Syscalls }},
		{"Functions, by their own cost", "CPU µs", false, func(r *Report) []Cost { return r.Functions }},
		{"Functions of Pulsegate, with what they call outside of it", "CPU µs", false, func(r *Report) []Cost { return r.Own }},
		{"Parts", "bytes", true, func(r *Report) []Cost { return r.Parts }},
		{"Parts", "objects", true, func(r *Report) []Cost { return r.Parts }},
		{"Functions of Pulsegate, with what they call outside of it", "bytes", false, func(r *Report) []Cost { return r.Own }},
	} {
		if change := changeOf(t.unit, a, b); change != nil {
			c.Tables = append(c.Tables, compareRows(ChangeTable{Title: t.title, Unit: t.unit, All: t.all, Rows: []Change{}}, a, b, t.rows, change))
		}
	}
	if len(c.Tables) == 0 {
		return nil, errors.New("profile: the two profiles have neither CPU time nor allocations in common")
	}
	return c, nil
}

// changeOf returns a function that compares two costs in a unit, or nil if one of the
// reports has no data in that unit.
func changeOf(unit string, a, b *Report) func(a, b Cost) Change {
	estimate := func(c Cost) (value, stdErr float64) { return c.Bytes, c.BytesStdErr }
	switch {
	case unit == "CPU µs" && a.CPUSeconds > 0 && b.CPUSeconds > 0:
		return func(x, y Cost) Change {
			return Change{
				A: x.CPUUs, B: y.CPUUs, StdErr: math.Hypot(x.CPUUsStdErr, y.CPUUsStdErr),
				PValue: poissonPValue(x.CPUSamples, y.CPUSamples, a.exposure(), b.exposure()),
			}
		}
	case unit == "CPU µs" || a.AllocsSeconds <= 0 || b.AllocsSeconds <= 0:
		return nil
	case unit == "objects":
		estimate = func(c Cost) (value, stdErr float64) { return c.Objects, c.ObjectsStdErr }
	}
	return func(x, y Cost) Change {
		valueA, errA := estimate(x)
		valueB, errB := estimate(y)
		return Change{A: valueA, B: valueB, StdErr: math.Hypot(errA, errB), PValue: normalPValue(valueB-valueA, errA*errA+errB*errB)}
	}
}

// exposure returns the requests of the CPU profile divided by the nanoseconds that a
// sample represents: as measured, or 10 ms if there is no sample.
func (r *Report) exposure() float64 {
	if r.Total.CPUSamples > 0 && r.Total.CPUUs > 0 {
		return float64(r.Total.CPUSamples) / (r.Total.CPUUs * 1e3)
	}
	return r.divisor(r.CPUSeconds) / 1e7
}

// compareRows pairs the rows of a and b by name.
func compareRows(t ChangeTable, a, b *Report, of func(*Report) []Cost, change func(a, b Cost) Change) ChangeTable {
	pairs := map[string]*[2]Cost{}
	for side, r := range []*Report{a, b} {
		for _, c := range of(r) {
			if pairs[c.Name] == nil {
				pairs[c.Name] = new([2]Cost)
			}
			pairs[c.Name][side] = c
		}
	}
	for name, p := range pairs {
		if c := change(p[0], p[1]); c.A != 0 || c.B != 0 {
			c.Name = name
			t.Rows = append(t.Rows, c)
		}
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

// WriteText writes the comparison as text, with at most top rows in each table.
func (c *Comparison) WriteText(w io.Writer, top int) error {
	return buffered(w, func(b *bufio.Writer) {
		for i, r := range []*Report{c.A, c.B} {
			fmt.Fprintf(b, "%c  ", 'A'+i)
			r.writeHead(b)
		}
		fmt.Fprintf(b, "\nA row is marked dearer or cheaper if sampling alone would mark any row of its table in less than %g %% of\n"+
			"all comparisons. Other causes, such as a busy machine, add further differences.\n", familyLevel*100)
		for _, t := range c.Tables {
			t.writeText(b, top)
		}
	})
}

func (t *ChangeTable) writeText(b *bufio.Writer, top int) {
	fmt.Fprintf(b, "\n%s: %s per request\n", t.Title, t.Unit)
	text := newTable("A", "B", "B - A", "±", "change", "<", "<name")
	shown, changed := 0, 0
	for _, c := range t.Rows {
		if (t.All || c.Beyond) && shown < max(top, 1) {
			text.add(c.cells()...)
			shown++
		}
		if c.Beyond {
			changed++
		}
	}
	if t.All {
		text.add(t.Total.cells()...)
	}
	if len(text.rows) > 1 {
		text.write(b)
	}
	switch {
	case changed == 0:
		fmt.Fprintf(b, "  Rows that differ by more than sampling explains: none of %d.\n", len(t.Rows))
	case !t.All:
		fmt.Fprintf(b, "  Rows that differ by more than sampling explains: %d of %d. Shown: %d.\n", changed, len(t.Rows), shown)
	}
}

func (c *Change) cells() []any {
	verdict := ""
	switch {
	case c.Beyond && c.B > c.A:
		verdict = "dearer"
	case c.Beyond:
		verdict = "cheaper"
	}
	change := "new"
	if c.A >= 0.005 { // shown as more than 0
		change = fmt.Sprintf("%+.1f %%", 100*(c.B-c.A)/c.A)
	}
	sign := ""
	if c.B >= c.A {
		sign = "+"
	}
	return []any{c.A, c.B, sign + number(c.B-c.A), c.StdErr, change, verdict, newFunction(c.Name, "").shortName()}
}

// WriteJSON writes the comparison as one JSON object.
func (c *Comparison) WriteJSON(w io.Writer) error {
	return writeJSON(w, struct {
		Format      int           `json:"format"`
		FamilyLevel float64       `json:"family_level"`
		A           *Report       `json:"a"`
		B           *Report       `json:"b"`
		Tables      []ChangeTable `json:"tables"`
	}{summaryFormat, familyLevel, c.A.cut(), c.B.cut(), c.Tables})
}
