package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Names of special rows: the baseline, and the subject of the comparison.
const (
	Floor = "floor"
	Own   = "pulsegate"
)

// Figures are the figures of one measurement, by name.
type Figures map[string]float64

// A Row has the measurements of one contestant.
type Row struct {
	Name  string
	Label string // cells before the figures; "": Name
	runs  []run
}

type run struct {
	round   int
	figures Figures
}

// How a column shows a figure.
const (
	Range  = iota // median and range over the rounds
	Median        // median alone
	Max
)

// A Column shows one figure of each row.
type Column struct {
	Title  string
	Figure string
	Format string // such as "%.2f"
	Show   int
	Base   string // row by whose figure of the same round the figure is divided; "": none
}

// A Table compares contestants.
type Table struct {
	Text    string // before the table
	Head    string // titles of the cells before the figures
	Columns []Column
	Rows    []*Row
}

// A Bar is a goal for a figure of a row, or for its ratio to that of another row.
type Bar struct {
	What    string
	Row     string
	Figure  string
	Base    string // "": the figure itself
	AtLeast bool   // Limit is a lower limit
	Limit   float64
	Format  string
}

// A Report is a block of the page.
type Report struct {
	Setting Setting
	Notes   []string // in the list of the setting
	Text    string
	Tables  []*Table
	Goals   []Goal
	After   []string // paragraphs after the goals
	Left    []string // omitted contestants, with the reason
}

// Markdown formats the report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Setting.markdown())
	for _, note := range r.Notes {
		b.WriteString("- " + note + "\n")
	}
	b.WriteString("\n" + r.Text + "\n")
	for _, t := range r.Tables {
		t.markdown(&b)
	}
	if len(r.Goals) > 0 {
		goalsTable(&b, r.Goals)
	}
	for _, text := range r.After {
		b.WriteString("\n" + text + "\n")
	}
	for _, left := range r.Left {
		fmt.Fprintf(&b, "\nLeft out: %s.\n", left)
	}
	return b.String()
}

// Add adds a measurement to the row with a name, which it creates if there is none, and logs it.
func (t *Table) Add(log io.Writer, round int, name, label string, f Figures) {
	row := t.row(name)
	if row == nil {
		row = &Row{Name: name, Label: label}
		t.Rows = append(t.Rows, row)
	}
	row.runs = append(row.runs, run{round, f})
	fmt.Fprintf(log, "round %d  %s:", round+1, name)
	for i, c := range t.Columns {
		if v, ok := f[c.Figure]; ok && c.Base == "" {
			fmt.Fprintf(log, "%s %s "+c.Format, strings.Repeat(",", min(i, 1)), c.Title, v)
		}
	}
	fmt.Fprintln(log)
}

// Take adds a row with the measurements of a row of another table, if that has the figure.
func (t *Table) Take(name string, from *Table, row, figure string) {
	if _, ok := from.Spread(row, figure, ""); ok {
		t.Rows = append(t.Rows, &Row{Name: name, runs: from.row(row).runs})
	}
}

func (t *Table) row(name string) *Row {
	i := slices.IndexFunc(t.Rows, func(r *Row) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return t.Rows[i]
}

// Spread returns a figure of a row, divided by that of a base in the same round if base is not
// empty. It returns false if there is none.
func (t *Table) Spread(name, figure, base string) (Spread, bool) {
	row := t.row(name)
	if row == nil {
		return Spread{}, false
	}
	var values []float64
	for _, one := range row.runs {
		v, ok := one.figures[figure]
		switch {
		case !ok:
		case base == "":
			values = append(values, v)
		case t.row(base) != nil:
			for _, other := range t.row(base).runs {
				if o, ok := other.figures[figure]; ok && other.round == one.round {
					values = append(values, v/o)
				}
			}
		}
	}
	if len(values) == 0 {
		return Spread{}, false
	}
	return SpreadOf(values), true
}

// Goals compares the table with bars.
func (t *Table) Goals(bars ...Bar) (goals []Goal) {
	for _, b := range bars {
		g := Goal{What: b.What, AtLeast: b.AtLeast, Limit: b.Limit, Format: b.Format}
		g.Figure, g.Known = t.Spread(b.Row, b.Figure, b.Base)
		goals = append(goals, g)
	}
	return goals
}

// markdown writes the table. A row without measurements is left out, and so is a table without
// rows.
func (t *Table) markdown(b *strings.Builder) {
	if !slices.ContainsFunc(t.Rows, func(r *Row) bool { return len(r.runs) > 0 }) {
		return
	}
	if t.Text != "" {
		b.WriteString("\n" + t.Text + "\n")
	}
	fmt.Fprintf(b, "\n| %s |", t.Head)
	for _, c := range t.Columns {
		fmt.Fprintf(b, " %s |", c.Title)
	}
	b.WriteString("\n|" + strings.Repeat("---|", 1+strings.Count(t.Head, " | ")) + strings.Repeat("--:|", len(t.Columns)) + "\n")
	for _, r := range t.Rows {
		if len(r.runs) == 0 {
			continue
		}
		label := r.Label
		if label == "" {
			label = r.Name
		}
		fmt.Fprintf(b, "| %s |", label)
		for _, c := range t.Columns {
			if s, ok := t.Spread(r.Name, c.Figure, c.Base); !ok {
				b.WriteString(" |")
			} else if c.Show == Range {
				fmt.Fprintf(b, " %s |", s.text(c.Format))
			} else {
				fmt.Fprintf(b, " "+c.Format+" |", [...]float64{Median: s.Median, Max: s.Max}[c.Show])
			}
		}
		b.WriteString("\n")
	}
}

// Count formats a number of readings.
func Count(n int) string {
	if n >= 1_000_000 {
		return fmt.Sprintf("%.4g M", float64(n)/1e6)
	}
	return fmt.Sprint(n)
}

// Micros returns d in µs.
func Micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// Millis returns d in ms.
func Millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// MiB returns bytes in MiB.
func MiB[T ~int64 | ~uint64](bytes T) float64 { return float64(bytes) / (1 << 20) }
