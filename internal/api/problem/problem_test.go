package problem_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/problem"
)

// Every type is explained in docs/problems.md, with its status, and nothing else
// is.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/problems.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			headings = append(headings, strings.TrimSpace(heading))
		}
	}
	var types []string
	for _, p := range problem.New().All() {
		_, name, ok := strings.Cut(p.Type(), "/docs/problems.md#")
		if !ok {
			t.Errorf("type %q does not point into docs/problems.md", p.Type())
		}
		types = append(types, name)
	}
	slices.Sort(headings)
	slices.Sort(types)
	if !slices.Equal(headings, types) {
		t.Errorf("docs/problems.md explains\n%q\nbut the types are\n%q", headings, types)
	}
}

// All leaves none out.
func TestAll(t *testing.T) {
	set := problem.New()
	fields := reflect.ValueOf(*set)
	if got, want := len(set.All()), fields.NumField(); got != want {
		t.Errorf("All returns %d problems of %d", got, want)
	}
	for _, p := range set.All() {
		if p == nil {
			t.Error("All returns nil")
		}
	}
}
