package mux

import "net/http"

// A copiedRequest is a request with its context in one allocation, of 352 bytes.
type copiedRequest struct {
	ctx varsContext
	req http.Request
}

// putInto gives the request itself the route and the variables of the path. A
// request's context can be set by net/http only; but the request may be
// assigned. What WithContext makes stays on the stack.
//
// Pattern and Response are set last: the processor cannot forward two small
// writes to one wide read of the copy, and would wait.
func (c *compiledRoute) putInto(req *http.Request, path string) {
	*req = *req.WithContext(&varsContext{Context: req.Context(), route: c, path: path})
	req.Pattern, req.Response = c.pattern, &c.carrier.response
}

// copyOf returns a copy of the request with the route and the variables of the
// path, as putInto does it.
func (c *compiledRoute) copyOf(req *http.Request, path string) *http.Request {
	x := &copiedRequest{ctx: varsContext{Context: req.Context(), route: c, path: path}}
	x.req = *req.WithContext(&x.ctx)
	x.req.Pattern, x.req.Response = c.pattern, &c.carrier.response
	return &x.req
}

// A mixedCopy is the same for variables that are not all in the path.
type mixedCopy struct {
	ctx  varsContext
	rest restOfVars
	req  http.Request
}

// bind returns the request as the handler gets it: with the route, the router
// and the variables.
//
// Handlers get a copy, so that what they and middleware change is not seen by
// the server and by code around the router, which may read the request
// meanwhile. A static route without middleware gets the request itself, and so
// does every route with [Router.ShareRequest]; but what an outer router has left
// in the request stays.
func (c *compiledRouter) bind(req *http.Request, s *search) *http.Request {
	carrier := c.carrierFor(req, s)
	out := req
	hasVars := s.bound != nil || len(s.vars) > 0
	switch {
	case s.isTaken(req, carrier) || (hasVars && c.extras.share && varsIn(req.Context()) != nil):
		out = s.copyOf(req)
	case c.extras.share:
		if hasVars {
			s.setContext(req)
		}
	case hasVars || s.wrapped:
		out = s.copyOf(req)
	}
	if pattern := s.pattern(); pattern != "" {
		out.Pattern = pattern
	}
	if carrier != nil && out.Response != &carrier.response {
		out.Response = &carrier.response
	}
	if c.extras.pathValues && hasVars {
		setPathValues(out)
	}
	return out
}

// isTaken reports whether the request holds a Response that must stay there. It
// is foreign, or a router around this one, or this one in an earlier turn, still
// uses it.
func (s *search) isTaken(req *http.Request, carrier *carrier) bool {
	return carrier != nil && req.Response != nil && (s.wrapped || req.Response != &carrier.response)
}

// copyOf returns a copy of the request whose context has the variables.
func (s *search) copyOf(req *http.Request) *http.Request {
	var ctx *varsContext
	var copied *http.Request
	switch {
	case s.bound != nil && !s.bound.readsPathOnly():
		x := new(mixedCopy)
		x.ctx.rest.Store(&x.rest)
		ctx, copied = &x.ctx, &x.req
	case s.bound != nil || s.route != nil || len(s.vars) > 0:
		x := new(copiedRequest)
		ctx, copied = &x.ctx, &x.req
	default:
		return req.WithContext(req.Context())
	}
	s.fill(ctx, req)
	*copied = *req.WithContext(ctx)
	return copied
}

// setContext gives the request itself a context with the variables.
func (s *search) setContext(req *http.Request) {
	var ctx *varsContext
	if s.bound == nil || s.bound.readsPathOnly() {
		ctx = new(varsContext)
	} else {
		x := new(struct {
			ctx  varsContext
			rest restOfVars
		})
		x.ctx.rest.Store(&x.rest)
		ctx = &x.ctx
	}
	s.fill(ctx, req)
	*req = *req.WithContext(ctx)
}

// fill sets up a context with the variables of the route that is bound, or with
// those that were collected.
func (s *search) fill(ctx *varsContext, req *http.Request) {
	ctx.Context = req.Context()
	switch {
	case s.bound != nil:
		src := s.bound.sourcesOf(req)
		ctx.route, ctx.path = s.bound, src.path
		if rest := ctx.rest.Load(); rest != nil {
			rest.host, rest.query = src.host, src.query
		}
	case len(s.vars) > 0:
		ctx.rest.Store(&restOfVars{vars: s.vars})
	default:
		ctx.route = s.top.noVariables
	}
}

// pattern returns the path template of the route that was found.
func (s *search) pattern() string {
	if s.found != nil {
		return s.found.pattern
	}
	if s.route != nil {
		if text, err := s.route.GetPathTemplate(); err == nil {
			return text
		}
	}
	return ""
}

// setPathValues makes the variables readable by PathValue.
func setPathValues(req *http.Request) {
	for name, value := range Vars(req) {
		req.SetPathValue(name, value)
	}
}
