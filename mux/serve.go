package mux

import "net/http"

// Match looks for the route of a request. If there is one it fills in match and
// returns true. If there is none, it sets MatchErr to [ErrNotFound] or
// [ErrMethodMismatch]; it then returns true only if Handler was set to the
// router's own handler for that case.
//
// After a match, Vars is not nil and belongs to the caller.
func (r *Router) Match(req *http.Request, match *RouteMatch) bool {
	c := r.compiled()
	var s search
	s.start(match)
	s.redirectStatus = c.extras.slashStatus()
	ok := c.search(req, &s)
	s.finish(ok)
	return ok
}

// Match is [Router.Match] for one route: it does not try others, and it does
// not apply the middleware of routers.
func (r *Route) Match(req *http.Request, match *RouteMatch) bool {
	compiler := compiler{done: make(map[*Router]*compiledRouter)}
	r.rlock()
	c := compiler.route(r)
	r.runlock()
	var s search
	s.start(match)
	ok := c.accepts(req, &s)
	s.finish(ok)
	return ok
}

// finish hands the result to the caller of Match.
func (s *search) finish(ok bool) {
	if ok && s.vars == nil {
		s.vars = make(map[string]string)
	}
	s.store()
}

// ServeHTTP redirects a request to the clean form of its path, or hands it to
// the handler of the first route that matches.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c := r.compiled()
	path := requestPath(req, c.useEncodedPath)
	entry := c.index.exact[path]
	if !c.skipClean && !(entry != nil && entry.clean) && !isClean(path) {
		c.redirectClean(w, req, path)
		return
	}
	if entry != nil {
		for i := range entry.direct {
			if d := &entry.direct[i]; d.allows(req.Method) {
				c.serveDirect(w, req, d.route)
				return
			}
		}
	}

	var s search
	s.redirectStatus = c.extras.slashStatus()
	var ok bool
	if entry != nil {
		ok = c.searchList(req, &s, entry.candidates)
	} else {
		ok = c.searchTree(req, &s, path)
	}
	if s.err == ErrMethodMismatch && c.extras.any() && c.answerMethods(w, req) {
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

// serveDirect serves a route that is known to match and to have no variables.
func (c *compiledRouter) serveDirect(w http.ResponseWriter, req *http.Request, route *compiledRoute) {
	handler := route.handler
	if len(route.middlewares) > 0 || len(c.middlewares) > 0 {
		handler = wrap(wrap(handler, route.middlewares), c.middlewares)
	}
	if handler == nil {
		// Middleware may return nil.
		http.NotFound(w, req)
		return
	}
	if c.omitRoute || c.omitRouter || req.Response != nil {
		s := search{route: route.route, found: route}
		handler.ServeHTTP(w, c.bind(req, &s))
		return
	}
	req.Pattern = route.pattern
	req.Response = &route.carrier.response
	handler.ServeHTTP(w, req)
}
