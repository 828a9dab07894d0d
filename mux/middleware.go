package mux

import (
	"net/http"
	"slices"
	"strings"
)

// A MiddlewareFunc wraps a handler in another one, which typically does
// something before and after it calls the wrapped handler.
type MiddlewareFunc func(http.Handler) http.Handler

// Middleware calls mw.
func (mw MiddlewareFunc) Middleware(handler http.Handler) http.Handler {
	return mw(handler)
}

// wrap applies middleware, the first outermost.
func wrap(handler http.Handler, middlewares []MiddlewareFunc) http.Handler {
	for _, mw := range slices.Backward(middlewares) {
		handler = mw(handler)
	}
	return handler
}

// CORSMethodMiddleware returns middleware that sets the header
// Access-Control-Allow-Methods to the methods of all routes of r that match the
// request or would match it with another method. It does nothing unless
// OPTIONS is among them, or if one of these routes has no method matcher.
func CORSMethodMiddleware(r *Router) MiddlewareFunc {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			methods := r.compiled().methodsOf(req)
			if slices.Contains(methods, http.MethodOptions) {
				w.Header().Set("Access-Control-Allow-Methods", strings.Join(methods, ","))
			}
			next.ServeHTTP(w, req)
		})
	}
}

// methodsOf returns the methods of the routes that match the request apart from
// its method, or nil if one of them accepts any method.
func (c *compiledRouter) methodsOf(req *http.Request) []string {
	var all []string
	var x scan
	x.start(c, req)
	for route := x.next(); route != nil; route = x.next() {
		var match RouteMatch
		var s search
		s.start(&match)
		matches := route.accepts(req, &s) || s.err == ErrMethodMismatch
		if !route.plain {
			x.evaluated(req)
		}
		if !matches {
			continue
		}
		names, ok := firstMethods(route.matchers)
		if !ok {
			return nil
		}
		all = append(all, names...)
	}
	return all
}
