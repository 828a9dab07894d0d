package sim_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
)

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{answer: func(int, string) string { return ok(stored) }}
		r, err := p.run(t, t.Context(), sim.Options{Users: 3, Rate: 20, For: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r.Verification = &sim.Verification{Acknowledged: 100, Missing: 1, Examples: []string{"missing x"}}

		var table bytes.Buffer
		if err := r.WriteTable(&table); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"open loop, 20 requests/s", "100 sent: 100 stored", "from the intended send time", "missing x"} {
			if !strings.Contains(table.String(), want) {
				t.Errorf("the table lacks %q:\n%s", want, table.String())
			}
		}
		if got := r.Summary(); !strings.HasPrefix(got, "sent=100 stored=100 duplicate=0 rejected=0 failed=0 ") || !strings.Contains(got, " missing=1 ") {
			t.Errorf("the summary is %q", got)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			Sent, Stored, Duplicate, Rejected, Failed *int
			Verification                              *struct{ Missing int }
		}
		if err := json.Unmarshal(text, &back); err != nil || back.Sent == nil || *back.Sent != 100 || back.Failed == nil || back.Verification.Missing != 1 {
			t.Errorf("JSON is %s", text)
		}
		var total uint64
		for _, point := range r.Points {
			total += point.Requests
		}
		if total != r.Requests || len(r.Points) < 5 {
			t.Errorf("%d points have %d requests of %d", len(r.Points), total, r.Requests)
		}
		wantXML(t, r)
	})
}

// wantXML checks that a chart is well formed, has no external references, and has no
// NaN or infinite number.
func wantXML(t *testing.T, r *sim.Report) {
	t.Helper()
	var chart bytes.Buffer
	if err := r.WriteSVG(&chart); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(chart.Bytes())); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		e, isElement := token.(xml.StartElement)
		if !isElement {
			continue
		}
		for _, a := range e.Attr {
			if a.Name.Local == "href" || strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
				t.Errorf("<%s> has %s=%q", e.Name.Local, a.Name.Local, a.Value)
			}
		}
	}
}

// Runs without data have valid charts.
func TestEmptyChart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{answer: func(int, string) string { return ok(stored) }}
		r, err := p.run(t, t.Context(), sim.Options{Users: 1, Posts: 1})
		if err != nil {
			t.Fatal(err)
		}
		wantXML(t, r)
	})
	opt := sim.Options{Users: 1, Posts: 1, Run: "p"}
	r, _ := sim.Run(t.Context(), opt.WithDial(noDial))
	wantXML(t, r)
}

// The number of points of a long run is bounded, and no request is lost, also not those of a
// last step that is too short to be a point.
func TestSeriesIsBounded(t *testing.T) {
	lengths := []int{0, 1, 3, 1_300, 2_900} // the step doubles never, once and twice
	if testing.Short() {
		lengths = lengths[:4]
	}
	for _, seconds := range lengths {
		for _, rest := range []time.Duration{2 * time.Millisecond, 150 * time.Millisecond, 700 * time.Millisecond} {
			points := sim.Steps(seconds, rest)
			if len(points) >= sim.MaxPoints {
				t.Errorf("%d s: %d points, want fewer than %d", seconds, len(points), sim.MaxPoints)
			}
			var n uint64
			for i, p := range points {
				n += p.Requests
				if i > 0 && p.Seconds <= points[i-1].Seconds {
					t.Fatalf("%d s: point %d ends at %v s, after one at %v s", seconds, i, p.Seconds, points[i-1].Seconds)
				}
			}
			end := (time.Duration(seconds)*time.Second + rest).Seconds()
			if n != uint64(seconds)+1 || points[len(points)-1].Seconds != end {
				t.Errorf("the points have %d of %d requests and end at %v s, want %v", n, seconds+1, points[len(points)-1].Seconds, end)
			}
		}
	}
}
