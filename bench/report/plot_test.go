package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/bench/report"
)

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   report.Spread
	}{
		{[]float64{3}, report.Spread{Median: 3, Min: 3, Max: 3}},
		{[]float64{5, 1}, report.Spread{Median: 3, Min: 1, Max: 5}},
		{[]float64{9, 1, 2}, report.Spread{Median: 2, Min: 1, Max: 9}},
		{[]float64{4, 3, 2, 1}, report.Spread{Median: 2.5, Min: 1, Max: 4}},
	} {
		if got := report.SpreadOf(tt.values); got != tt.want {
			t.Errorf("spread of %v: got %+v, want %+v", tt.values, got, tt.want)
		}
	}
}

func TestPlot(t *testing.T) {
	plot := report.Plot{Tables: []*report.Table{example(), example()}, Connections: []int{64, 1000}, Stores: map[string]string{report.Own: "durable"}}
	svg := plot.SVG()
	var floors, texts int
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, svg)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range e.Attr {
			if a.Name.Local == "stroke-dasharray" {
				floors++
			}
			if a.Name.Local == "href" || a.Name.Local == "src" {
				t.Errorf("the plot refers to %s", a.Value)
			}
			if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
				t.Errorf("%s %s = %q", e.Name.Local, a.Name.Local, a.Value)
			}
		}
		if e.Name.Local == "text" {
			texts++
		}
	}
	if floors != 3 { // one per number of connections, and one in the legend
		t.Errorf("%d lines of the floor, want 3", floors)
	}
	for _, want := range []string{">pulsegate<", ">42.5 µs<", ">2.5 x floor<", ">stored when answered: durable<", ">1000 connections<"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("%s is missing in the plot", want)
		}
	}
	(&report.Plot{}).SVG() // must not panic
}
