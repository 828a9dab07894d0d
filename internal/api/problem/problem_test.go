package problem_test

import (
	"net/http"
	"net/http/httptest"
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

// A 401 challenges the client to show credentials, as RFC 9110 (section 15.5.2) has it. A
// 403 does so where another token would help, and nowhere else.
//
// Seen to fail when all that is forbidden was Forbidden, with its challenge.
func TestChallenges(t *testing.T) {
	for name, set := range map[string]*problem.Set{"with tokens": problem.New(), "without": problem.New().WithoutTokens()} {
		for _, p := range set.All() {
			w := httptest.NewRecorder()
			p.Write(w, httptest.NewRequest("GET", "/", nil), "")
			want := p.Status() == http.StatusUnauthorized || name == "with tokens" && p == set.Forbidden
			if challenge := w.Header().Get("WWW-Authenticate"); (challenge != "") != want {
				t.Errorf("%s, %s: the challenge is %q", name, p.Type(), challenge)
			}
		}
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
