package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// A Micro has the figures of microbenchmarks that ran several times.
type Micro struct {
	Setting   Setting
	Rounds    int
	BenchTime string // duration of one benchmark in one round, as for -test.benchtime
	Results   []Result
	Compared  string // output of benchstat
}

// formsPackage is the end of the import path of package answers.
const formsPackage = "/bench/answers"

// Report returns the report of the results.
func (m *Micro) Report() *Report {
	var points []string // the starting points
	table := tableOf(m.Results, func(r *Result) (row, figure string) {
		impl, name := r.Impl()
		if strings.HasSuffix(r.Package, formsPackage) {
			if !slices.Contains(points, name) {
				points = append(points, name)
			}
			return impl, name
		}
		if strings.HasSuffix(r.Package, "/reply") && name == "Problem" && impl == "reply" {
			return "problem", name
		}
		return "", ""
	})
	forms := &Table{Head: "form, ns (B, allocations)", Columns: columnsOf(points, Column{Format: "%.1f", Show: Median})}
	for i, name := range points {
		forms.Columns[i].Beside = []string{name + " B", name + " allocations"}
	}
	forms.Rows = slices.DeleteFunc(slices.Clone(table.Rows), func(r *Row) bool { return r.Name == "problem" })
	ratios := &Table{Head: "form", Columns: columnsOf(points, Column{Format: "%.2f"})}
	for _, base := range []string{"before", "after"} {
		ratios.addRatios(table, Own, base, points)
	}
	report := &Report{
		Setting: m.Setting,
		Notes: []string{
			fmt.Sprintf(
				"Rounds: %d, each with every benchmark once for %s; all of a round's benchmarks run before the next round begins",
				m.Rounds, m.BenchTime)},
		Text: "The starting points. Times are medians over the rounds; ratios are computed within a round, with the " +
			"range over the rounds in brackets.",
		Tables: []*Table{forms, ratios},
		After: []string{"<details>\n<summary>All microbenchmarks, by benchstat</summary>\n\n```\n" + m.Compared +
			"```\n\n</details>"},
	}
	if median, largest, ok := m.Noise(); ok {
		report.Notes = append(report.Notes,
			fmt.Sprintf(
				"Noise (A/A): the medians of the odd and of the even rounds of one benchmark differ by %.1f %% in the median and "+
					"by at most %.1f %%", 100*median, 100*largest))
	}
	for _, point := range []struct {
		row, name, what, base string
		limit                 float64
	}{
		{Own, "Healthz", "healthz", "the after form", 0.5},
		{Own, "Headers/set=fixed", "three header fields", "the shared slices, which are a data race", 1.1},
		{Own, "Headers/set=dynamic", "three header fields, one of them dynamic", "the shared slices, which are a data race",
			1.1},
		{"problem", "Problem", "a problem with field and reason", "", 0},
	} {
		if point.base != "" {
			report.Goals = append(report.Goals,
				table.Goals(Bar{What: point.what + ": time / that of " + point.base, Row: point.row, Figure: point.name,
					Base: "after", Limit: point.limit, Format: "%.2f"})...)
		}
		for _, unit := range []string{"B", "allocations"} {
			report.Goals = append(report.Goals,
				table.Goals(Bar{What: point.what + ": " + unit, Row: point.row, Figure: point.name + " " + unit,
					Format: "%.0f"})...)
		}
	}
	return report
}

// tableOf returns a table of the times, and of the bytes and allocations, of results in the row
// and under the name that of returns, if that is not empty.
func tableOf(results []Result, of func(*Result) (row, figure string)) *Table {
	t := new(Table)
	for i := range results {
		r := &results[i]
		name, figure := of(r)
		if name == "" {
			continue
		}
		row := t.row(name)
		if row == nil {
			row = &Row{Name: name}
			t.Rows = append(t.Rows, row)
		}
		j := slices.IndexFunc(row.runs, func(one run) bool { return one.round == r.Round })
		if j < 0 {
			j = len(row.runs)
			row.runs = append(row.runs, run{r.Round, Figures{}})
		}
		f := row.runs[j].figures
		f[figure], f[figure+" B"], f[figure+" allocations"] = r.Nanos, r.Bytes, r.Allocs
	}
	return t
}

// addRatios adds a row with figures of a row, divided by those of base in the same round.
func (t *Table) addRatios(from *Table, name, base string, figures []string) {
	row := &Row{Name: name + " / " + base}
	for _, figure := range figures {
		for _, v := range from.values(name, figure, base) {
			row.runs = append(row.runs, run{v.round, Figures{figure: v.value}})
		}
	}
	t.Rows = append(t.Rows, row)
}

// A Result is one benchmark in one round.
type Result struct {
	Round   int
	Package string // import path
	Name    string // such as "Headers/impl=after/set=fixed", without the number of CPUs
	Nanos   float64
	Bytes   float64 // per operation
	Allocs  float64 // per operation
}

// ReadResults parses the output of a round of benchmarks.
func ReadResults(r io.Reader, round int) ([]Result, error) {
	var results []Result
	records := benchfmt.NewReader(r, "benchmarks")
	for records.Scan() {
		switch record := records.Result().(type) {
		case *benchfmt.Result:
			seconds, ok := record.Value("sec/op")
			if !ok {
				return nil, fmt.Errorf("report: benchmark %s has no time", record.Name.Full())
			}
			bytes, _ := record.Value("B/op")
			allocs, _ := record.Value("allocs/op")
			results = append(results, Result{
				Round:   round,
				Package: record.GetConfig("pkg"),
				Name:    withoutCPUs(record.Name.String()),
				Nanos:   seconds * 1e9,
				Bytes:   bytes,
				Allocs:  allocs,
			})
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("report: read benchmarks: %w", record)
		}
	}
	if err := records.Err(); err != nil {
		return nil, fmt.Errorf("report: read benchmarks: %w", err)
	}
	return results, nil
}

// withoutCPUs removes the number of CPUs, such as -2, from a benchmark's name.
func withoutCPUs(name string) string {
	i := strings.LastIndexByte(name, '-')
	if i < 0 || strings.Trim(name[i+1:], "0123456789") != "" {
		return name
	}
	return name[:i]
}

// Impl returns the part of the name after impl=, and the name without it, as split by
// benchstat -col /impl.
func (r *Result) Impl() (impl, rest string) {
	var others []string
	for part := range strings.SplitSeq(r.Name, "/") {
		if value, ok := strings.CutPrefix(part, "impl="); ok {
			impl = value
			continue
		}
		others = append(others, part)
	}
	return impl, strings.Join(others, "/")
}

// Noise compares the odd rounds with the even ones, that is, the same programs with
// themselves (A/A). It returns the median and the largest relative difference of
// medians over all benchmarks. With fewer than two rounds it returns false.
func (m *Micro) Noise() (median, largest float64, ok bool) {
	halves := make(map[string]*[2][]float64)
	for i := range m.Results {
		r := &m.Results[i]
		k := r.Package + " " + r.Name
		if halves[k] == nil {
			halves[k] = new([2][]float64)
		}
		halves[k][r.Round%2] = append(halves[k][r.Round%2], r.Nanos)
	}
	var differences []float64
	for _, h := range halves {
		if len(h[0]) > 0 && len(h[1]) > 0 {
			differences = append(differences, math.Abs(SpreadOf(h[0]).Median/SpreadOf(h[1]).Median-1))
		}
	}
	if len(differences) == 0 {
		return 0, 0, false
	}
	s := SpreadOf(differences)
	return s.Median, s.Max, true
}
