package mux

import (
	"net/http"
	"net/url"
	"slices"
)

// A copiedRequest holds a copied request and its context in one allocation of
// 352 bytes.
type copiedRequest struct {
	ctx varsContext
	req http.Request
}

// putInto stores the route and the variables of the path in req itself. Only
// net/http can set the context of a request, but the whole request may be
// assigned. The copy that WithContext returns stays on the stack.
//
// Pattern and Response are set last: the processor cannot forward two small
// writes to the wide read that copies the request, and would stall.
func (c *compiledRoute) putInto(req *http.Request, path string) {
	*req = *req.WithContext(&varsContext{Context: req.Context(), route: c, path: path})
	req.Pattern, req.Response = c.pattern, &c.carrier.response
}

// copyOf returns a copy of req with the route and the variables of the path.
func (c *compiledRoute) copyOf(req *http.Request, path string) *http.Request {
	x := &copiedRequest{ctx: varsContext{Context: req.Context(), route: c, path: path}}
	x.req = *req.WithContext(&x.ctx)
	x.req.Pattern, x.req.Response = c.pattern, &c.carrier.response
	return &x.req
}

// A mixedCopy is a copiedRequest for variables that are not all in the path.
type mixedCopy struct {
	ctx  varsContext
	rest extraVars
	req  http.Request
}

// bind returns the request for the handler, with the route, the router and the
// variables.
//
// Handlers get a copy: the server, and code around the router, may read the
// original at the same time and must not see what handlers and middleware change. A
// static route without middleware gets the original, and so does every route
// with [Router.ShareRequest], unless that would overwrite what an outer router
// has stored in it.
func (c *compiledRouter) bind(req *http.Request, s *search) *http.Request {
	carrier := c.carrierFor(req, s)
	out := req
	hasVars := s.bound != nil || len(s.vars) > 0
	switch {
	case s.responseInUse(req, carrier) || (hasVars && c.share && varsIn(req.Context()) != nil):
		out = s.copyOf(req)
	case c.share:
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
	if c.pathValues && hasVars {
		s.setPathValues(out)
	}
	return out
}

// responseInUse reports whether req holds a Response that must be kept: one
// that is not from this package, or one that a router around this one, or an
// outer call of this one, still needs.
func (s *search) responseInUse(req *http.Request, carrier *carrier) bool {
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

// setContext replaces the context of req itself by one with the variables.
func (s *search) setContext(req *http.Request) {
	var ctx *varsContext
	if s.bound == nil || s.bound.readsPathOnly() {
		ctx = new(varsContext)
	} else {
		x := new(struct {
			ctx  varsContext
			rest extraVars
		})
		x.ctx.rest.Store(&x.rest)
		ctx = &x.ctx
	}
	s.fill(ctx, req)
	*req = *req.WithContext(ctx)
}

// fill sets up a context with the variables of the bound route, or with those
// that were collected.
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
		ctx.rest.Store(&extraVars{vars: s.vars})
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

// setPathValues makes the variables readable by PathValue. If those of the path are
// encoded, it decodes them, as http.ServeMux does.
func (s *search) setPathValues(req *http.Request) {
	encoded := s.found != nil && s.found.encoded && s.found.path != nil
	for name, value := range Vars(req) {
		if encoded && slices.Contains(s.found.path.names, name) {
			if plain, err := url.PathUnescape(value); err == nil { // else a pattern has cut an escape
				value = plain
			}
		}
		req.SetPathValue(name, value)
	}
}
