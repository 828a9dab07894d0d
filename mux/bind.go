package mux

import "net/http"

// A copiedRequest is a request with its context in one allocation, of 384 bytes.
type copiedRequest struct {
	ctx varsContext
	req http.Request
}

// A mixedCopy is the same for variables that are not all in the path.
type mixedCopy struct {
	ctx  varsContext
	more hostAndQuery
	req  http.Request
}

// A mixedContext is the context of one that is not copied.
type mixedContext struct {
	ctx  varsContext
	more hostAndQuery
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
	case c.isTaken(req, carrier, hasVars):
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

// isTaken reports whether the request holds what must stay there: a foreign
// Response, another route, or variables where there will be others. A router
// around this one, or this one in an earlier turn, goes on to use them.
func (c *compiledRouter) isTaken(req *http.Request, carrier *carrier, hasVars bool) bool {
	if carrier != nil && req.Response != nil && req.Response != &carrier.response {
		return true
	}
	return hasVars && c.extras.share && varsIn(req.Context()) != nil
}

// copyOf returns a copy of the request whose context has the variables.
func (s *search) copyOf(req *http.Request) *http.Request {
	if s.route == nil && s.bound == nil && len(s.vars) == 0 {
		return req.WithContext(req.Context())
	}
	if s.bound != nil && !s.bound.readsPathOnly() {
		x := new(mixedCopy)
		x.ctx.more = &x.more
		s.fill(&x.ctx, req)
		x.req = *req.WithContext(&x.ctx)
		return &x.req
	}
	x := new(copiedRequest)
	s.fill(&x.ctx, req)
	// The request that WithContext makes does not outlive this line, so it
	// stays on the stack.
	x.req = *req.WithContext(&x.ctx)
	return &x.req
}

// setContext gives the request itself a context with the variables. Only
// net/http can set the context of a request; but a request may be assigned.
func (s *search) setContext(req *http.Request) {
	if s.bound == nil || s.bound.readsPathOnly() {
		ctx := new(varsContext)
		s.fill(ctx, req)
		*req = *req.WithContext(ctx)
		return
	}
	x := new(mixedContext)
	x.ctx.more = &x.more
	s.fill(&x.ctx, req)
	*req = *req.WithContext(&x.ctx)
}

// fill sets up a context with the variables of the route that is bound, or with
// those that were collected.
func (s *search) fill(ctx *varsContext, req *http.Request) {
	ctx.Context = req.Context()
	switch {
	case s.bound != nil:
		src := s.bound.sourcesOf(req)
		ctx.route, ctx.path = s.bound, src.path
		if ctx.more != nil {
			*ctx.more = hostAndQuery{src.host, src.query}
		}
	case len(s.vars) > 0:
		ctx.vars = s.vars
	default:
		ctx.route = noVariables
	}
}

// noVariables stands for any route without variables.
var noVariables = &compiledRoute{}

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
