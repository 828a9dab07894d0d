package mux

import "net/http"

// Match looks for the route of a request. If there is one, it fills in match
// and returns true. If there is none, it sets MatchErr to [ErrNotFound] or
// [ErrMethodMismatch]; it then returns true only if it has set Handler to the
// router's own handler for that case.
//
// After a match, Vars is not nil and belongs to the caller.
func (r *Router) Match(req *http.Request, match *RouteMatch) bool {
	c := r.compiled()
	s := search{root: r, top: c}
	s.start(match)
	ok := c.search(req, &s)
	s.finish(ok)
	return ok
}

// Match is [Router.Match] for one route: it does not try others, and it does
// not apply the middleware of routers.
func (r *Route) Match(req *http.Request, match *RouteMatch) bool {
	c := r.compiled()
	var s search
	s.start(match)
	ok := c.accepts(req, &s)
	s.finish(ok)
	return ok
}

// finish returns the result to the caller of Match.
func (s *search) finish(ok bool) {
	if ok && s.vars == nil {
		s.vars = make(map[string]string)
	}
	s.store()
}

// ServeHTTP redirects a request to the clean form of its path, or calls the
// handler of the first route that matches.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c := r.compiled()
	text := requestPath(req, c.useEncodedPath)
	exact := c.index.lookUp(text)
	if exact != nil {
		d := exact.directFor(c)
		if direct := d.find(req.Method); direct != nil && (d.clean || c.skipClean) {
			route := direct.route
			if direct.bare && c.root == r && req.Response == nil {
				req.Pattern, req.Response = route.pattern, &route.carrier.response
				route.handler.ServeHTTP(w, req)
				return
			}
			r.serveRoute(c, w, req, route, text)
			return
		}
	}
	if exact == nil {
		if route := c.fastRoute(req.Method, text); route != nil {
			r.serveRoute(c, w, req, route, text)
			return
		}
	}
	if !c.skipClean && !isClean(text) {
		c.redirectClean(w, req, text)
		return
	}
	x := scan{router: c}
	x.begin(req, text, exact)
	if route := x.simple(req, exact); route != nil {
		r.serveRoute(c, w, req, route, text)
		return
	}
	r.serveSearched(c, w, req, &x)
}

// serveRoute serves a request with a route that is known to match. path is the
// path that holds its variables; all of them are in the path.
func (r *Router) serveRoute(c *compiledRouter, w http.ResponseWriter, req *http.Request, route *compiledRoute,
	path string) {
	handler := route.handler
	wrapped := len(route.middlewares) > 0 || len(c.middlewares) > 0
	if wrapped {
		handler = wrap(wrap(handler, route.middlewares), c.middlewares)
		if handler == nil {
			// Middleware may return nil.
			http.NotFound(w, req)
			return
		}
	}
	hasVars := len(route.varNames) > 0
	carrier := route.carrier
	if !c.usual || c.root != r || (req.Response != nil && (wrapped || req.Response != &carrier.response)) {
		s := search{root: r, top: c, route: route.route, found: route, wrapped: wrapped}
		if hasVars {
			s.bound = route
		}
		handler.ServeHTTP(w, c.bind(req, &s))
		return
	}
	switch {
	case !hasVars && (!wrapped || c.share):
		req.Pattern, req.Response = route.pattern, &carrier.response
	case c.share && varsIn(req.Context()) == nil:
		route.putInto(req, path)
	default:
		req = route.copyOf(req, path)
	}
	handler.ServeHTTP(w, req)
}

// serveSearched serves a request that is not simple, or that matches no route.
func (r *Router) serveSearched(c *compiledRouter, w http.ResponseWriter, req *http.Request, x *scan) {
	s := search{root: r, top: c}
	ok := c.searchFrom(req, &s, x)
	if s.err == ErrMethodMismatch && c.answerMethods(w, req) {
		return
	}
	if ok && s.handler != nil {
		s.handler.ServeHTTP(w, c.bind(req, &s))
		return
	}
	if s.err == ErrMethodMismatch {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	http.NotFound(w, req)
}
