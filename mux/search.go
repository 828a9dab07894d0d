package mux

import (
	"net/http"
	"strings"
)

// A search is the state of looking for a route. It is a RouteMatch in pieces:
// the variables stay in the request until somebody asks for them, and no
// RouteMatch is made unless a MatcherFunc or the caller of Match wants one.
type search struct {
	route   *Route
	handler http.Handler
	err     error

	// found is the compiled route that set route, or nil if a MatcherFunc did.
	found *compiledRoute

	// bound is the route whose templates hold the variables, as long as vars is
	// nil. Invariant: nothing writes to the request between a route's being
	// bound and the values' being read, because callMatcherFunc calls collect
	// first.
	bound *compiledRoute

	// values are those of the path template captured, or of none.
	values   [maxLazyVars]string
	captured *template

	// vars has the variables once a map was needed. eager tells to use it from
	// the start.
	vars  map[string]string
	eager bool

	// match is the RouteMatch that user code sees.
	match *RouteMatch

	// redirectStatus is the status of slash redirects.
	redirectStatus int

	// noIndex makes the search try every route. Tests compare with it.
	noIndex bool
}

// start takes over what the caller of Match has set.
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

// callMatcherFunc lets user code see and change the state.
func (s *search) callMatcherFunc(f MatcherFunc, req *http.Request) bool {
	s.collect(req)
	s.eager, s.captured = true, nil
	if s.match == nil {
		s.match = new(RouteMatch)
	}
	s.store()
	ok := f(req, s.match)
	s.load()
	return ok
}

// bind notes the variables of a route that has matched. Those bound later win.
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
	s.vars = c.addVars(s.vars, req)
}

// collect moves the variables of the bound route to the map.
func (s *search) collect(req *http.Request) {
	if s.bound != nil {
		s.vars = s.bound.addVars(s.vars, req)
		s.bound = nil
	}
}

// search looks for a route of c. It reports whether the request has an answer,
// which a NotFoundHandler is too.
func (c *compiledRouter) search(req *http.Request, s *search) bool {
	if s.noIndex {
		return c.searchList(req, s, c.everyRoute)
	}
	path := requestPath(req, c.useEncodedPath)
	if entry, ok := c.index.exact[path]; ok {
		return c.searchList(req, s, entry.candidates)
	}
	return c.searchTree(req, s, path)
}

// searchTree is search for a path that is not in the table.
func (c *compiledRouter) searchTree(req *http.Request, s *search, path string) bool {
	var found candidates
	c.index.collect(path, &found)
	if found.n <= 1 {
		return c.searchList(req, s, found.lists[0])
	}
	return c.searchLists(req, s, &found)
}

// searchList tries candidates, given by their positions, in order.
func (c *compiledRouter) searchList(req *http.Request, s *search, list []int32) bool {
	next := int32(0)
	for _, at := range list {
		if c.try(req, s, next, at) {
			return true
		}
		next = at + 1
	}
	return c.noRoute(s)
}

// searchLists does the same for several lists.
func (c *compiledRouter) searchLists(req *http.Request, s *search, found *candidates) bool {
	next := int32(0)
	for {
		at, ok := found.next(next)
		if !ok {
			return c.noRoute(s)
		}
		if c.try(req, s, next, at) {
			return true
		}
		next = at + 1
	}
}

// try evaluates the route at a position. The routes from next up to it were
// left out by the index.
func (c *compiledRouter) try(req *http.Request, s *search, next, at int32) bool {
	// The routes left out would have ended at their path, and so would have
	// cleared the error that a missing query value leaves behind.
	if s.err == ErrNotFound && c.active[at] > c.active[next] {
		s.err = nil
	}
	route := &c.routes[at]
	if s.err == ErrMethodMismatch && route.plain && !route.allows(req.Method) {
		// Whether or not the rest matches, the error stays what it is.
		return false
	}
	if !route.accepts(req, s) {
		return false
	}
	if s.err == nil {
		s.handler = wrap(s.handler, c.middlewares)
	}
	return true
}

// noRoute answers when no route has matched.
func (c *compiledRouter) noRoute(s *search) bool {
	if s.err == ErrMethodMismatch {
		if h := c.router.MethodNotAllowedHandler; h != nil {
			s.handler = h
			return true
		}
		return false
	}
	s.err = ErrNotFound
	if h := c.router.NotFoundHandler; h != nil {
		s.handler = h
		return true
	}
	return false
}

// accepts tries one route and, if it matches, puts its handler and variables
// into the search.
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
			// The others decide whether this is a 405 or a 404.
			mismatch = ErrMethodMismatch
			continue
		}
		if m.kind == matchTemplate && m.template.kind == queryTemplate {
			mismatch = ErrNotFound
			break
		}
		// A subrouter without a fitting route leaves ErrNotFound behind. It
		// must not keep the middleware of later routes from running.
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
		// An earlier route mismatched, or a subrouter gave its NotFoundHandler.
		s.err, s.handler = nil, nil
	}
	if s.route == nil {
		s.route, s.found = c.route, c
	}
	if s.handler == nil {
		s.handler = wrapIfSet(c.handler, c.middlewares)
	}
	s.bind(c, req)
	c.redirectSlash(req, s)
	return true
}

// needsSlash reports whether the path and the template differ in the trailing
// slash, and the route minds.
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
	status := s.redirectStatus
	if status == 0 {
		status = http.StatusMovedPermanently
	}
	s.handler = http.RedirectHandler(otherSlash(req.URL, path, c.encoded), status)
}
