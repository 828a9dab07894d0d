package routers_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

// A router wraps a router of one of the two packages.
type router interface {
	http.Handler
	setFlags(*table)
	setStrict(bool)
	setHandlers(notFound, notAllowed http.Handler)
	use(func(http.Handler) http.Handler)
	newRoute() route
	copied() router // a copy of the value
	named(string) string
	walk() []string
	match(*http.Request) matchResult
	corsMethods() func(http.Handler) http.Handler
}

// A route wraps a route of one of the two packages.
type route interface {
	// apply makes one call on the route.
	apply(s step, matcher matcherFunc, buildVars func(map[string]string) map[string]string)
	handler(http.Handler)
	buildOnly()
	setName(string)
	use(func(http.Handler) http.Handler)
	subrouter() router
	label(string)
	match(*http.Request) matchResult
	matchCopy(*http.Request) matchResult // of a copy of the Route value
	// describe returns the results of the getters.
	describe() []string
	// urls builds URLs in every way.
	urls(pairs ...string) []string
}

// A matchState has the fields of a RouteMatch.
type matchState struct {
	route   string // label
	handler http.Handler
	vars    map[string]string
	err     string // none, method, notfound
}

type matcherFunc func(*http.Request, *matchState) bool

type matchResult struct {
	ok bool
	matchState
}

// The accessors read the data of a request's route.
type accessors struct {
	vars         func(*http.Request) map[string]string
	currentRoute func(*http.Request) string
	hasRouter    func(*http.Request) bool
}

// The two adapters may differ only as their comments say.
func TestAdaptersAgree(t *testing.T) {
	read := func(name string, names ...string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, code, ok := strings.Cut(string(text), "\npackage ")
		if !ok {
			t.Fatalf("%s has no package clause after its comment", name)
		}
		return strings.NewReplacer(names...).Replace(code)
	}
	theirs := read("gorilla_test.go", `gorilla "github.com/gorilla/mux"`, "IMPORT", "gorilla.", "PACKAGE.",
		"gorilla", "OWN")
	ours := read("mux_test.go", `mux "github.com/pulsegate/pulsegate/mux"`, "IMPORT", "mux.", "PACKAGE.", "ours", "OWN")
	if theirs != ours {
		t.Errorf("gorilla_test.go and mux_test.go differ by more than their names:\n%s\n%s", theirs, ours)
	}
}
