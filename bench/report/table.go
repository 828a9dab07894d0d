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
	Base   string   // row by whose figure of the same round the figure is divided; "": none
	Beside []string // figures whose medians follow in brackets
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

// A Goal is a Bar with what was measured.
type Goal struct {
	Bar
	figure Spread
	known  bool
}

// reached reports whether the median is within the limit.
func (g *Goal) reached() bool {
	if g.AtLeast {
		return g.figure.Median >= g.Limit
	}
	return g.figure.Median <= g.Limit
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
	var all []float64
	for _, v := range t.values(name, figure, base) {
		all = append(all, v.value)
	}
	if len(all) == 0 {
		return Spread{}, false
	}
	return SpreadOf(all), true
}

// A value is a figure, or a ratio of figures, in a round.
type value struct {
	round int
	value float64
}

func (t *Table) values(name, figure, base string) (values []value) {
	row, other := t.row(name), t.row(base)
	if row == nil || base != "" && other == nil {
		return nil
	}
	for _, one := range row.runs {
		v, ok := one.figures[figure]
		if !ok {
			continue
		}
		if base == "" {
			values = append(values, value{one.round, v})
			continue
		}
		for _, r := range other.runs {
			if o, ok := r.figures[figure]; ok && r.round == one.round {
				values = append(values, value{one.round, v / o})
			}
		}
	}
	return values
}

// Goals compares the table with bars.
func (t *Table) Goals(bars ...Bar) (goals []Goal) {
	for _, b := range bars {
		g := Goal{Bar: b}
		g.figure, g.known = t.Spread(b.Row, b.Figure, b.Base)
		goals = append(goals, g)
	}
	return goals
}

// goalsTable writes a table of goals, each compared with the median over the rounds.
func goalsTable(b *strings.Builder, goals []Goal) {
	b.WriteString("\nGoals, judged by the medians:\n\n| figure | measured | goal | |\n|---|--:|--:|---|\n")
	for i := range goals {
		g := &goals[i]
		bar := "at most "
		if g.AtLeast {
			bar = "at least "
		}
		measured, verdict := "", "not measured"
		if g.known {
			measured, verdict = g.figure.text(g.Format), "not reached"
			if g.reached() {
				verdict = "reached"
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s%g | %s |\n", g.What, measured, bar, g.Limit, verdict)
	}
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
	b.WriteString("\n|" + strings.Repeat("---|", 1+strings.Count(t.Head, " | ")) + strings.Repeat("--:|", len(t.Columns)) +
		"\n")
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
			b.WriteString(t.cell(r, &c) + " |")
		}
		b.WriteString("\n")
	}
}

// cell returns the text of a column in a row.
func (t *Table) cell(r *Row, c *Column) string {
	s, ok := t.Spread(r.Name, c.Figure, c.Base)
	if !ok {
		return ""
	}
	text := " " + s.text(c.Format)
	if c.Show != Range {
		text = fmt.Sprintf(" "+c.Format, [...]float64{Median: s.Median, Max: s.Max}[c.Show])
	}
	var beside []string
	for _, figure := range c.Beside {
		s, _ := t.Spread(r.Name, figure, "")
		beside = append(beside, fmt.Sprintf("%.0f", s.Median))
	}
	if len(beside) > 0 {
		text += " (" + strings.Join(beside, ", ") + ")"
	}
	return text
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
