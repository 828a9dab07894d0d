package report

import (
	"fmt"
	"slices"
	"strings"
)

// The forms of a starting point, as named in package answers.
var forms = [...]string{"before", "after", "pulsegate"}

// formsPackage is the end of the import path of package answers.
const formsPackage = "/bench/answers"

// A startingPoint is a benchmark with its forms.
type startingPoint struct {
	name string
	runs [len(forms)][]Result // by form; each by round
}

func (m *Micro) startingPoints() []startingPoint {
	var points []startingPoint
	for _, r := range m.Results {
		impl, name := r.Impl()
		form := slices.Index(forms[:], impl)
		if !strings.HasSuffix(r.Package, formsPackage) || form < 0 {
			continue
		}
		i := slices.IndexFunc(points, func(p startingPoint) bool { return p.name == name })
		if i < 0 {
			points = append(points, startingPoint{name: name})
			i = len(points) - 1
		}
		points[i].runs[form] = append(points[i].runs[form], r)
	}
	return points
}

// times returns the ns per operation.
func times(runs []Result) Spread {
	values := make([]float64, len(runs))
	for i := range runs {
		values[i] = runs[i].Nanos
	}
	return SpreadOf(values)
}

// timeRatio divides the times within the rounds that both have.
func timeRatio(runs, base []Result) (Spread, bool) {
	var values []float64
	for i := range runs {
		for j := range base {
			if runs[i].Round == base[j].Round {
				values = append(values, runs[i].Nanos/base[j].Nanos)
			}
		}
	}
	if len(values) == 0 {
		return Spread{}, false
	}
	return SpreadOf(values), true
}

// Markdown lays the figures out as the block of the page.
func (m *Micro) Markdown() string {
	var b strings.Builder
	b.WriteString(m.Setting.markdown())
	fmt.Fprintf(&b, "- Rounds: %d, each with every benchmark once for %s; all of a round's benchmarks run before the next round begins\n", m.Rounds, m.BenchTime)
	if median, largest, ok := m.Noise(); ok {
		fmt.Fprintf(&b, "- Noise (A/A): the medians of the odd and of the even rounds of one benchmark differ by %.1f %% in the median and by at most %.1f %%\n", 100*median, 100*largest)
	}
	b.WriteString("\nThe starting points. Times are medians over the rounds, with B and allocations per operation; ratios are computed within a round, with the range over the rounds in brackets.\n\n")
	m.formsTable(&b)
	goalsTable(&b, m.goals())
	b.WriteString("\n<details>\n<summary>All microbenchmarks, by benchstat</summary>\n\n```\n")
	for i, text := range m.Compared {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(strings.TrimSpace(text) + "\n")
	}
	b.WriteString("```\n\n</details>\n")
	return b.String()
}

func (m *Micro) formsTable(b *strings.Builder) {
	b.WriteString("| benchmark | before | after | pulsegate | pulsegate / before | pulsegate / after |\n|---|--:|--:|--:|--:|--:|\n")
	for _, p := range m.startingPoints() {
		fmt.Fprintf(b, "| %s |", p.name)
		for _, runs := range p.runs {
			if len(runs) == 0 {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(b, " %.1f ns, %.0f B, %.0f |", times(runs).Median, runs[0].Bytes, runs[0].Allocs)
		}
		own := p.runs[len(forms)-1]
		for _, base := range p.runs[:len(forms)-1] {
			if x, ok := timeRatio(own, base); ok {
				fmt.Fprintf(b, " %s |", x.text("%.2f"))
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
}
