package mux

import (
	"net/http"
	"strings"
)

// A search is the state of one search for a route. It holds the fields of a
// RouteMatch separately: the variables stay in the request until they are
// needed, and a RouteMatch is made only for a MatcherFunc or the caller of
// Match.
type search struct {
	// root is the router that serves, and top its compiled form. Both are nil in
	// Route.Match.
	root *Router
	top  *compiledRouter

	route   *Route
	handler http.Handler
	err     error

	// found is the compiled route that set route, or nil if a MatcherFunc did.
	found *compiledRoute

	// bound is the route whose templates hold the variables, as long as vars is
	// nil.
	//
	// Invariant: nothing writes to the request after a route is bound and
	// before its values are read, because callMatcherFunc calls collect first.
	bound *compiledRoute

	// proven is a template of the current route that is certain to match,
	// according to the index.
	proven *template

	// vars holds the variables once a map is needed. If eager is set, it is
	// used from the start.
	vars  map[string]string
	eager bool

	// wrapped is set once middleware or a MatcherFunc may have replaced the
	// handler.
	wrapped bool

	// match is the RouteMatch that user code sees.
	match *RouteMatch

	// noIndex makes the search try every route. Tests compare with it.
	noIndex bool

	// steps counts what the search has looked at, for tests.
	steps int
}

// start copies the fields that the caller of Match has set.
func (s *search) start(match *RouteMatch) {
	s.match, s.eager = match, true
	s.load()
}

func (s *search) load() {
	s.route, s.handler, s.vars, s.err = s.match.Route, s.match.Handler, s.match.Vars, s.match.MatchErr
	if s.found != nil && s.found.route != s.route {
		s.found = nil
	}
}

func (s *search) store() {
	s.match.Route, s.match.Handler, s.match.Vars, s.match.MatchErr = s.route, s.handler, s.vars, s.err
}

// callMatcherFunc calls f with the state of the search as a RouteMatch, which f
// may change.
func (s *search) callMatcherFunc(f MatcherFunc, req *http.Request) bool {
	s.collect(req)
	s.eager, s.wrapped = true, true
	if s.match == nil {
		s.match = new(RouteMatch)
	}
	s.store()
	ok := f(req, s.match)
	s.load()
	return ok
}

// bind records the route that holds the variables. A route that is bound later
// takes precedence.
func (s *search) bind(c *compiledRoute, req *http.Request) {
	if len(c.varNames) == 0 {
		return
	}
	if !s.eager && s.vars == nil {
		if s.bound == nil {
			s.bound = c
			return
		}
		if s.bound.determines(c) {
			return
		}
	}
	s.collect(req)
	src := c.sourcesOf(req)
	s.vars = c.addVars(s.vars, &src)
}

// collect extracts the variables of the bound route into the map.
func (s *search) collect(req *http.Request) {
	if s.bound != nil {
		src := s.bound.sourcesOf(req)
		s.vars = s.bound.addVars(s.vars, &src)
		s.bound = nil
	}
}

// search looks for a route of c. It reports whether there is a handler, which
// may be a NotFoundHandler.
func (c *compiledRouter) search(req *http.Request, s *search) bool {
	var x scan
	if s.noIndex {
		x.router, x.all = c, true
	} else {
		x.start(c, req)
	}
	return c.searchFrom(req, s, &x)
}

// searchFrom tries the candidates in order.
func (c *compiledRouter) searchFrom(req *http.Request, s *search, x *scan) bool {
	for {
		first := x.from
		route := x.next()
		if route == nil {
			s.steps += x.found.steps
			return c.noRoute(s)
		}
		s.proven = nil
		if x.noEmpty {
			s.proven = route.certain
		}
		if c.try(req, s, first, route) {
			s.steps += x.found.steps
			return true
		}
		if !route.plain && !x.all {
			x.evaluated(req)
		}
	}
}

// try evaluates a route. The index left out the routes from position first up
// to it.
func (c *compiledRouter) try(req *http.Request, s *search, first int32, route *compiledRoute) bool {
	s.steps++
	// Evaluating the omitted routes would have ended at their path, and so
	// would have cleared the error that a missing query value leaves.
	if s.err == ErrNotFound && c.active[route.at] > c.active[first] {
		s.err = nil
	}
	if s.err == ErrMethodMismatch && route.plain && !route.allows(req.Method) {
		// Whether or not the other matchers accept, the error does not change.
		return false
	}
	if !route.accepts(req, s) {
		return false
	}
	if s.err == nil {
		s.wrap(c.middlewares)
	}
	return true
}

// wrap puts middleware around the handler.
func (s *search) wrap(middlewares []MiddlewareFunc) {
	if len(middlewares) > 0 {
		s.handler, s.wrapped = wrap(s.handler, middlewares), true
	}
}

// noRoute chooses the handler when no route has matched.
func (c *compiledRouter) noRoute(s *search) bool {
	r := c.servedBy(s)
	if s.err == ErrMethodMismatch {
		if h := r.MethodNotAllowedHandler; h != nil {
			s.handler = h
			return true
		}
		return false
	}
	s.err = ErrNotFound
	if h := r.NotFoundHandler; h != nil {
		s.handler = h
		return true
	}
	return false
}

// servedBy returns the Router whose NotFoundHandler and MethodNotAllowedHandler
// apply. It is the one that was compiled, or the copy of it that serves.
func (c *compiledRouter) servedBy(s *search) *Router {
	if c == s.top {
		return s.root
	}
	return c.router
}

// accepts tries one route and, if it matches, stores its handler and variables
// in the search.
func (c *compiledRoute) accepts(req *http.Request, s *search) bool {
	if !c.active {
		return false
	}
	var mismatch error
	for i := range c.matchers {
		m := &c.matchers[i]
		if m.accepts(req, s) {
			continue
		}
		if m.kind == matchMethods {
			// The matchers after it decide whether this is a 405 or a 404.
			mismatch = ErrMethodMismatch
			continue
		}
		if m.kind == matchTemplate && m.template.kind == queryTemplate {
			mismatch = ErrNotFound
			break
		}
		// A subrouter without a matching route leaves ErrNotFound. That must
		// not keep the middleware of later routes from running.
		if s.err == ErrNotFound {
			s.err = nil
		}
		return false
	}
	if mismatch != nil {
		s.err = mismatch
		return false
	}

	if s.err != nil && c.handler != nil {
		// An earlier route mismatched, or a subrouter set its NotFoundHandler.
		s.err, s.handler = nil, nil
	}
	if s.route == nil {
		s.route, s.found = c.route, c
	}
	if s.handler == nil && c.handler != nil {
		s.handler = c.handler
		s.wrap(c.middlewares)
	}
	s.bind(c, req)
	c.redirectSlash(req, s)
	return true
}

// needsSlash reports whether the path and the template differ in the trailing
// slash, and the route redirects in that case.
func (c *compiledRoute) needsSlash(path string) bool {
	t := c.path
	return t.strictSlash && strings.HasSuffix(path, "/") != strings.HasSuffix(t.text, "/")
}

// redirectSlash replaces the handler by a redirect if the request's path and
// the template differ in the trailing slash.
func (c *compiledRoute) redirectSlash(req *http.Request, s *search) {
	t := c.path
	if t == nil || !t.strictSlash {
		return
	}
	path := requestPath(req, c.encoded)
	if !c.needsSlash(path) {
		return
	}
	s.handler = http.RedirectHandler(otherSlash(req.URL, path, c.encoded), s.top.redirectStatus())
}
