package deploy_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// A panel is what the tests look at of one.
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

// The dashboard can be imported anywhere, and each of its panels asks for what a
// server shows.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../grafana/pulsegate.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		ID         *int
		UID        string
		Title      string
		Panels     []panel
		Templating struct{ List []struct{ Name, Type string } }
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.ID != nil || dashboard.UID == "" || dashboard.Title == "" {
		t.Error("the dashboard has an id of one Grafana, or no uid and title")
	}
	variables := map[string]string{}
	for _, v := range dashboard.Templating.List {
		variables[v.Name] = v.Type
	}
	if variables["datasource"] != "datasource" || variables["job"] != "query" || variables["instance"] != "query" {
		t.Errorf("the variables are %v, want data source, job and instance to choose from", variables)
	}
	var exprs []string
	ids := map[int]bool{}
	for i, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d has the id %d of another one, or no title", i, p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s is beyond the right edge", p.Title)
		}
		for _, q := range dashboard.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s covers %s", p.Title, q.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		want := datasource{"prometheus", "${datasource}"}
		if p.Datasource != want || len(p.Targets) == 0 {
			t.Errorf("%s asks %+v for %d things, want the data source that was chosen", p.Title, p.Datasource, len(p.Targets))
		}
		for _, q := range p.Targets {
			if q.Datasource != want {
				t.Errorf("%s asks %+v", p.Title, q.Datasource)
			}
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", "pulsegate", "$instance", ".*").Replace(q.Expr)
			exprs = append(exprs, expr)
			checkExpression(t, p.Title, expr)
		}
	}
	checkSyntax(t, exprs)
}
