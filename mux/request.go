package mux

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
)

// Vars returns the variables of the request's route, or nil if there are none.
// The map is made by the first call and is the same for all later ones of the
// request. Several goroutines may call Vars.
func Vars(r *http.Request) map[string]string {
	if c := varsOf(r); c != nil {
		return c.all()
	}
	return nil
}

// Var returns one variable of the request's route, or an empty string. It does
// not build the map that [Vars] returns, but it sees what was written to it.
func Var(r *http.Request, name string) string {
	if c := varsOf(r); c != nil {
		return c.one(name)
	}
	return ""
}

// SetURLVars returns a shallow copy of the request with the given variables,
// for tests of handlers. The request itself is returned if there are none.
func SetURLVars(r *http.Request, val map[string]string) *http.Request {
	if len(val) == 0 {
		return r
	}
	return r.WithContext(&varsContext{Context: r.Context(), vars: val})
}

// CurrentRoute returns the route that matched the request, or nil.
func CurrentRoute(r *http.Request) *Route {
	if c := carrierOf(r); c != nil {
		return c.route
	}
	return nil
}

// CurrentRouter returns the router whose ServeHTTP handles the request, or nil.
// Within subrouters that is the root.
func CurrentRouter(r *http.Request) *Router {
	if c := carrierOf(r); c != nil {
		return c.router
	}
	return nil
}

// A carrier leads from a request to its route without an allocation: requests
// point to its response, whose Body points back to it.
//
// The Response field of a request is otherwise set only by clients that follow
// a redirect. It survives WithContext, Clone and copies of the request, and no
// handler overwrites it, unlike Pattern.
type carrier struct {
	response http.Response
	route    *Route
	router   *Router
}

func newCarrier(route *Route, router *Router) *carrier {
	c := &carrier{route: route, router: router}
	c.response.Body = (*carrierBody)(c)
	return c
}

func carrierOf(r *http.Request) *carrier {
	if r.Response == nil {
		return nil
	}
	body, ok := r.Response.Body.(*carrierBody)
	if !ok {
		return nil
	}
	return (*carrier)(body)
}

// A carrierBody is the carrier as an empty body.
type carrierBody carrier

func (*carrierBody) Read([]byte) (int, error) { return 0, io.EOF }
func (*carrierBody) Close() error             { return nil }

type varsKey struct{}

// A varsContext is a request's context that knows the variables.
//
// It is made for one request and is never used again, because handlers may keep
// it past their return.
type varsContext struct {
	context.Context

	// route names the variables. It is nil if vars was given from outside.
	route *compiledRoute

	// few or many has a value for each name; of equal names the last counts.
	few  [2]string
	many *[maxLazyVars]string

	// mu guards vars, which is made of the above when it is asked for.
	mu   sync.Mutex
	vars map[string]string
}

// maxLazyVars is the largest number of variables for which the map is built on
// demand; with more it is built at once.
const maxLazyVars = 8

// The structs below hold a context, its values and the copy of the request in
// one allocation. Their sizes, 384 and 512 bytes, are
// size classes of the allocator.
type (
	smallRequest struct {
		ctx varsContext
		req http.Request
	}
	largeRequest struct {
		ctx  varsContext
		many [maxLazyVars]string
		req  http.Request
	}
)

// Value returns the context itself for the package's key.
func (c *varsContext) Value(key any) any {
	if _, ok := key.(varsKey); ok {
		return c
	}
	return c.Context.Value(key)
}

func varsOf(r *http.Request) *varsContext {
	ctx := r.Context()
	if c, ok := ctx.(*varsContext); ok {
		return c
	}
	c, _ := ctx.Value(varsKey{}).(*varsContext)
	return c
}

// values returns the values in the order of the route's names.
func (c *varsContext) values() []string {
	if c.many != nil {
		return c.many[:len(c.route.varNames)]
	}
	return c.few[:len(c.route.varNames)]
}

func (c *varsContext) all() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.vars == nil {
		c.vars = make(map[string]string, len(c.route.varNames))
		for i, value := range c.values() {
			c.vars[c.route.varNames[i]] = value
		}
	}
	return c.vars
}

func (c *varsContext) one(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.vars != nil {
		return c.vars[name]
	}
	for i, n := range slices.Backward(c.route.varNames) {
		if n == name {
			return c.values()[i]
		}
	}
	return ""
}

// withVars returns a copy of the request whose context has the variables of
// the route that is bound.
func (s *search) withVars(req *http.Request) *http.Request {
	n := len(s.bound.varNames)
	if n > maxLazyVars {
		return SetURLVars(req, s.bound.addVars(nil, req))
	}
	var ctx *varsContext
	var copied *http.Request
	if n <= len(ctx.few) {
		x := new(smallRequest)
		ctx, copied = &x.ctx, &x.req
	} else {
		x := new(largeRequest)
		ctx, copied = &x.ctx, &x.req
		ctx.many = &x.many
	}
	ctx.Context, ctx.route = req.Context(), s.bound
	s.bound.values(req, s, ctx.values())
	// The request that WithContext makes does not outlive this line, so it
	// stays on the stack.
	*copied = *req.WithContext(ctx)
	return copied
}

// bind returns the request as the handler gets it: with the route, the router
// and the variables.
func (c *compiledRouter) bind(req *http.Request, s *search) *http.Request {
	carrier := c.carrierFor(req, s)
	if pattern := s.pattern(); pattern != "" {
		req.Pattern = pattern
	}
	out := req
	switch {
	case s.bound != nil:
		out = s.withVars(req)
	case len(s.vars) > 0:
		out = SetURLVars(req, s.vars)
	case carrier != nil && req.Response != nil && !carrier.mayReplace(req):
		// An outer router's route must stay what it is for the outer router's
		// middleware, which shares the request.
		out = req.WithContext(req.Context())
	}
	if carrier != nil && out.Response != &carrier.response {
		out.Response = &carrier.response
	}
	if c.extras.pathValues {
		s.setPathValues(out)
	}
	return out
}

// mayReplace reports whether c can take the place of what the request carries:
// something that the same router left there.
func (c *carrier) mayReplace(req *http.Request) bool {
	old := carrierOf(req)
	return old != nil && old.router == c.router
}

// carrierFor returns the carrier for the route that was found, or nil if the
// router has been told to omit it.
func (c *compiledRouter) carrierFor(req *http.Request, s *search) *carrier {
	if !c.omitRoute && !c.omitRouter {
		switch {
		case s.found != nil:
			return s.found.carrier
		case s.route == nil:
			return c.unmatched
		}
		return newCarrier(s.route, c.router)
	}
	if c.omitRoute && c.omitRouter {
		return nil
	}
	// What is omitted stays as an outer router has left it.
	mixed := newCarrier(nil, nil)
	if outer := carrierOf(req); outer != nil && outer.router != c.router {
		mixed.route, mixed.router = outer.route, outer.router
	}
	if !c.omitRoute {
		mixed.route = s.route
	}
	if !c.omitRouter {
		mixed.router = c.router
	}
	return mixed
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
