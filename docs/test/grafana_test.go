package docs_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// An infinityQuery is a query of Grafana's data source Infinity.
type infinityQuery struct {
	Type, Source, Parser, URL string
	Options                   struct {
		Method, Data string
		BodyType     string `json:"body_type"`
	} `json:"url_options"`
	Root    string `json:"root_selector"`
	Columns []struct{ Selector, Text string }
}

// A grafanaDashboard has what the test needs of a dashboard.
type grafanaDashboard struct {
	ID         *int
	UID, Title string
	Panels     []struct {
		Title       string
		Targets     []infinityQuery
		FieldConfig struct {
			Defaults struct {
				Unit       string
				Thresholds struct{ Steps []struct{ Value *float64 } }
			}
		}
	}
	Templating struct {
		List []struct {
			Name, Type  string
			SkipURLSync bool `json:"skipUrlSync"`
			Query       json.RawMessage
		}
	}
}

// ask sends a query with the variables filled in, and returns the rows below its root.
func (q *infinityQuery) ask(t *testing.T, s *server, variables *strings.Replacer) (rows []any) {
	t.Helper()
	if q.Type != "json" || q.Source != "url" || q.Parser != "backend" ||
		q.Options.Data != "" && q.Options.BodyType != "raw" {
		t.Errorf("a query is not one for JSON: %+v", q)
	}
	address, body := variables.Replace(q.URL), variables.Replace(q.Options.Data)
	r, err := http.NewRequestWithContext(t.Context(), q.Options.Method, s.url+address, strings.NewReader(body))
	try(t, err)
	resp, err := http.DefaultClient.Do(r)
	try(t, err)
	text, err := io.ReadAll(resp.Body)
	try(t, err, resp.Body.Close())
	var found any
	if err := json.Unmarshal(text, &found); err != nil || resp.StatusCode != 200 || strings.Contains(address+body, "$") {
		t.Fatalf("%s %s %s: %s %s", q.Options.Method, address, body, resp.Status, text)
	}
	if found = selected(found, q.Root); found == nil {
		t.Errorf("%s has no %s: %s", address, q.Root, text)
	}
	if list, ok := found.([]any); ok {
		return list
	}
	return []any{found}
}

// selected returns the member of v that a selector with points names, or nil.
func selected(v any, selector string) any {
	for name := range strings.SplitSeq(selector, ".") {
		if name == "" {
			continue
		}
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

// The dashboards for Grafana's data source Infinity ask for what the server has: each column has a value. They have a
// chart of each sign, with its unit and usual range.
func TestGrafana(t *testing.T) {
	t.Parallel()
	s := serve(t)
	resp, err := http.Get(s.url + "/v1/limits")
	try(t, err)
	type bounds struct{ Min, Max *float64 }
	var limits struct {
		Signs map[string]struct {
			Label, Unit     string
			Usual, Accepted bounds
		}
	}
	try(t, json.NewDecoder(resp.Body).Decode(&limits), resp.Body.Close())
	at := time.Now().UTC().Truncate(time.Minute)
	reading := map[string]any{"device": "ppg-1", "time": at.Format(time.RFC3339)}
	for field, sign := range limits.Signs {
		reading[field] = *sign.Accepted.Min + 20 // of both pressures, too, in this order
	}
	body, err := json.Marshal(reading)
	try(t, err)
	resp, err = http.Post(s.url+"/v1/readings", "application/json", strings.NewReader(string(body)))
	try(t, err, resp.Body.Close())
	if resp.StatusCode != 200 {
		t.Fatalf("%s: %s", body, resp.Status)
	}
	before, after := at.Add(-time.Hour), at.Add(time.Hour)
	run(t, "", nil, program, "subject", "assign", "--target", s.admin, "--device", "ppg-1", "--subject", "P-1",
		"--from", before.Format(time.RFC3339), "--to", after.Format(time.RFC3339))
	variables := strings.NewReplacer("${device}", "ppg-1", "${subject}", "P-1", "${step}", "5m",
		"${__from}", fmt.Sprint(before.UnixMilli()), "${__to}", fmt.Sprint(after.UnixMilli()))
	for _, kind := range []string{"device", "patient"} {
		text, err := os.ReadFile(root + "/deploy/grafana/pulsegate-" + kind + ".json")
		try(t, err)
		var d grafanaDashboard
		try(t, json.Unmarshal(text, &d))
		if d.ID != nil || d.UID == "" || d.Title == "" {
			t.Errorf("%s: the dashboard has an id, or no uid or title", kind)
		}
		check := func(title string, q *infinityQuery) {
			t.Helper()
			rows := q.ask(t, s, variables)
			for _, c := range q.Columns {
				hasValue := func(row any) bool { return selected(row, c.Selector) != nil }
				if c.Text == "" || !slices.ContainsFunc(rows, hasValue) {
					t.Errorf("%s, %s: no row has %s: %v", kind, title, c.Selector, rows)
				}
			}
		}
		for _, v := range d.Templating.List {
			switch v.Type {
			case "query":
				var query struct{ InfinityQuery infinityQuery }
				try(t, json.Unmarshal(v.Query, &query))
				check("the variable "+v.Name, &query.InfinityQuery)
			case "textbox":
				if !v.SkipURLSync {
					t.Errorf("%s: Grafana writes the variable %s into the address", kind, v.Name)
				}
			}
		}
		charts := map[string]int{}
		for i, p := range d.Panels {
			charts[p.Title] = i
			if p.Title == "" || len(p.Targets) != 1 {
				t.Errorf("%s: panel %d has the title %q and %d targets", kind, i, p.Title, len(p.Targets))
				continue
			}
			check(p.Title, &p.Targets[0])
			if kind == "patient" && strings.Contains(p.Targets[0].URL, "subject}") {
				t.Errorf("%s: the patient is in the address of %s", kind, p.Title)
			}
		}
		for field, sign := range limits.Signs {
			i, ok := charts[fmt.Sprintf("%s (%s)", sign.Label, sign.Unit)]
			if !ok {
				t.Errorf("%s: no chart of %s", kind, field)
				continue
			}
			of := d.Panels[i].FieldConfig.Defaults
			var got []float64
			for _, step := range of.Thresholds.Steps {
				if step.Value != nil {
					got = append(got, *step.Value)
				}
			}
			// The steps are the least usual value, and the least one above the greatest.
			usual := 0
			if sign.Usual.Min != nil {
				usual++
			}
			if sign.Usual.Max != nil {
				usual++
			}
			exact := len(got) == usual && (sign.Usual.Min == nil || got[0] == *sign.Usual.Min)
			if exact && sign.Usual.Max != nil {
				above := got[len(got)-1] - *sign.Usual.Max
				exact = above > 0 && above < 0.0101
			}
			if of.Unit != "suffix: "+sign.Unit || !exact {
				t.Errorf("%s: the chart of %s has the unit %q and thresholds %v, want %s and %+v", kind, field, of.Unit, got,
					sign.Unit, sign.Usual)
			}
		}
	}
}
