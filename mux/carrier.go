package mux

import (
	"io"
	"net/http"
)

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

// A carrier leads from a request to its route without an allocation: the
// request points to the carrier's response, whose Body points back to the
// carrier.
//
// Elsewhere the Response field of a request is set only by clients that follow
// a redirect. It survives WithContext, Clone and copies of the request. Unlike
// Pattern, no handler overwrites it.
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

// carrierFor returns the carrier for the matched route, or nil if the router
// omits route and router. A copy of the compiled Router needs a carrier of its
// own.
func (c *compiledRouter) carrierFor(req *http.Request, s *search) *carrier {
	if !c.omitRoute && !c.omitRouter {
		if s.found != nil && s.found.carrier.router == s.root {
			return s.found.carrier
		}
		if s.route == nil && c.unmatched.router == s.root {
			return c.unmatched
		}
		return newCarrier(s.route, s.root)
	}
	if c.omitRoute && c.omitRouter {
		return nil
	}
	// What is omitted keeps the outer router's value.
	mixed := newCarrier(nil, nil)
	if outer := carrierOf(req); outer != nil && outer.router != s.root {
		mixed.route, mixed.router = outer.route, outer.router
	}
	if !c.omitRoute {
		mixed.route = s.route
	}
	if !c.omitRouter {
		mixed.router = s.root
	}
	return mixed
}
