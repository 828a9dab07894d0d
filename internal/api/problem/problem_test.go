package problem_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/problem"
)

// docs/problems.md explains exactly the problem types, with their statuses.
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

// A 401 has a challenge (RFC 9110, section 15.5.2). A 403 has one only if another token
// would help.
//
// Seen to fail when every 403 was Forbidden, with its challenge.
func TestChallenges(t *testing.T) {
	for name, set := range map[string]*problem.Set{"with tokens": problem.New(),
		"without": problem.New().WithoutTokens()} {
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
