package routers_test

import "net/http"

// A router is a router of one of the two packages.
type router interface {
	http.Handler
	setFlags(strictSlash, skipClean, encoded bool)
	setStrict(bool)
	setHandlers(notFound, notAllowed http.Handler)
	use(func(http.Handler) http.Handler)
	newRoute() route
	match(*http.Request) matchResult
	corsMethods() func(http.Handler) http.Handler
}

// A route is a route of one of the two packages.
type route interface {
	// apply makes one call.
	apply(s step, matcher matcherFunc)
	handler(http.Handler)
	buildOnly()
	setName(string)
	use(func(http.Handler) http.Handler)
	subrouter() router
	label(string)
	// describe returns what the getters say, errors as a mark.
	describe() []string
}

// A matchState is the fields of a RouteMatch.
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

// What a handler can ask for.
type asker struct {
	vars         func(*http.Request) map[string]string
	currentRoute func(*http.Request) string
	hasRouter    func(*http.Request) bool
}

func mark(s string, err error) string {
	if err != nil {
		return "error"
	}
	return s
}
