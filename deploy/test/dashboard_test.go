package deploy_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// A panel is a panel of the dashboard. It has only the tested fields.
type panel struct {
	ID         int
	Title      string
	Type       string
	Datasource datasource
	GridPos    struct{ H, W, X, Y int }
	Targets    []struct {
		Expr       string
		RefID      string `json:"refId"`
		Datasource datasource
	}
}

type datasource struct{ Type, UID string }

// TestDashboard checks that the dashboard can be imported into any Grafana and that its
// panels use series of a running server.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../grafana/pulsegate.json")
	try(t, err)
	var dashboard struct {
		ID         *int
		UID        string
		Title      string
		Panels     []panel
		Templating struct{ List []struct{ Name, Type string } }
	}
	try(t, json.Unmarshal(text, &dashboard))
	if dashboard.ID != nil || dashboard.UID == "" || dashboard.Title == "" {
		t.Error("the dashboard has an id, or no uid or title")
	}
	variables := map[string]string{}
	for _, v := range dashboard.Templating.List {
		variables[v.Name] = v.Type
	}
	if variables["datasource"] != "datasource" || variables["job"] != "query" || variables["instance"] != "query" {
		t.Errorf("the variables are %v, want datasource, job and instance", variables)
	}
	var exprs []string
	ids := map[int]bool{}
	for i, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d has no title, or its id %d is not unique", i, p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s extends past the right edge", p.Title)
		}
		for _, q := range dashboard.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s overlaps %s", p.Title, q.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		want := datasource{"prometheus", "${datasource}"}
		if p.Datasource != want || len(p.Targets) == 0 {
			t.Errorf("%s has the data source %+v and %d targets, want the selected data source and at least one target", p.Title,
				p.Datasource, len(p.Targets))
		}
		for _, q := range p.Targets {
			if q.Datasource != want {
				t.Errorf("%s: a target has the data source %+v", p.Title, q.Datasource)
			}
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", "pulsegate", "$instance", ".*").Replace(q.Expr)
			exprs = append(exprs, expr)
			checkExpression(t, p.Title, expr)
		}
	}
	checkSyntax(t, exprs)
}
