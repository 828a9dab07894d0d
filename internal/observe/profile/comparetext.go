package profile

import (
	"bufio"
	"fmt"
	"io"
)

// WriteText writes a comparison for people, with top rows in each table.
func (c *Comparison) WriteText(w io.Writer, top int) error {
	return buffered(w, func(b *bufio.Writer) {
		for i, r := range []*Report{c.A, c.B} {
			fmt.Fprintf(b, "%c  ", 'A'+i)
			r.writeHead(b)
		}
		fmt.Fprintf(b, "\nA difference is called dearer or cheaper when sampling alone makes one like it in less than %g %% of all\n"+
			"comparisons of a table. Other causes, such as a busy machine, come on top.\n", familyLevel*100)
		for _, t := range c.Tables {
			t.writeText(b, top)
		}
	})
}

func (t *ChangeTable) writeText(b *bufio.Writer, top int) {
	fmt.Fprintf(b, "\n%s: %s per request\n", t.Title, t.Unit)
	text := newTable("A", "B", "B - A", "±", "change", "<", "<name")
	shown := 0
	for _, c := range t.Rows {
		if (t.All || c.Beyond) && shown < max(top, 1) {
			text.add(c.cells()...)
			shown++
		}
	}
	if t.All {
		text.add(t.Total.cells()...)
	}
	if len(text.rows) > 0 {
		text.write(b)
	}
	changed := 0
	for _, c := range t.Rows {
		if c.Beyond {
			changed++
		}
	}
	switch {
	case changed == 0:
		fmt.Fprintf(b, "  Rows that differ by more than sampling explains: none of %d.\n", len(t.Rows))
	case !t.All:
		fmt.Fprintf(b, "  Rows that differ by more than sampling explains: %d of %d. Shown: %d.\n", changed, len(t.Rows), shown)
	}
}

func (c *Change) cells() []string {
	verdict := ""
	switch {
	case c.Beyond && c.B > c.A:
		verdict = "dearer"
	case c.Beyond:
		verdict = "cheaper"
	}
	change := "new"
	if c.A >= 0.005 { // what is shown as more than 0
		change = fmt.Sprintf("%+.1f %%", 100*(c.B-c.A)/c.A)
	}
	sign := ""
	if c.B >= c.A {
		sign = "+"
	}
	return []string{number(c.A), number(c.B), sign + number(c.B-c.A), number(c.StdErr), change, verdict, newFunction(c.Name, "").shortName()}
}

// WriteJSON writes a comparison as one JSON object.
func (c *Comparison) WriteJSON(w io.Writer) error {
	type change struct {
		Name   string  `json:"name"`
		A      float64 `json:"a"`
		B      float64 `json:"b"`
		StdErr float64 `json:"difference_stderr"`
		PValue float64 `json:"p_value"`
		Beyond bool    `json:"beyond_sampling"`
	}
	type changes struct {
		Title string   `json:"title"`
		Unit  string   `json:"unit"`
		Total change   `json:"total"`
		Rows  []change `json:"rows"`
	}
	out := struct {
		Format      int       `json:"format"`
		FamilyLevel float64   `json:"family_level"`
		A           *summary  `json:"a"`
		B           *summary  `json:"b"`
		Tables      []changes `json:"tables"`
	}{Format: summaryFormat, FamilyLevel: familyLevel, A: c.A.summary(), B: c.B.summary()}
	for _, t := range c.Tables {
		list := changes{Title: t.Title, Unit: t.Unit, Total: change(t.Total), Rows: []change{}}
		for _, row := range t.Rows {
			list.Rows = append(list.Rows, change(row))
		}
		out.Tables = append(out.Tables, list)
	}
	return writeJSON(w, out)
}
