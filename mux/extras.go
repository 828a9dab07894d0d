package mux

import (
	"net/http"
	"slices"
	"strings"
)

// AllowHeader sets whether a 405 response has an Allow header with the methods
// that would have matched. The header is also set when a
// MethodNotAllowedHandler runs.
//
// To find the methods, the request is matched again, once for each method that
// any route names.
func (r *Router) AllowHeader(value bool) *Router {
	r.change(func() { r.allowHeader = value })
	return r
}

// AnswerOptions sets whether an OPTIONS request that matches no route, but
// would match one with another method, is answered with status 204 and an Allow
// header.
func (r *Router) AnswerOptions(value bool) *Router {
	r.change(func() { r.answerOptions = value })
	return r
}

// PathValues sets whether variables can also be read with the request's
// PathValue method. This costs a map for each request with variables. With
// [Router.UseEncodedPath], PathValue returns the decoded value, like that of
// http.ServeMux, while [Vars] has the encoded one.
func (r *Router) PathValues(value bool) *Router {
	r.change(func() { r.pathValues = value })
	return r
}

// PermanentRedirect sets whether redirects, to the clean path and to the one with
// or without the trailing slash, have status 308, with which clients keep the
// method and the body, instead of 301.
func (r *Router) PermanentRedirect(value bool) *Router {
	r.change(func() { r.permanent = value })
	return r
}

// ShareRequest sets whether handlers and middleware get the request that was
// passed to ServeHTTP instead of a copy. This is faster: a request costs no
// allocation, or one of 48 bytes if its route has variables. Code around the
// router then finds the route and the variables in the request, and sees what
// handlers change in it. Nothing else may use the request while it is served,
// not even to copy it.
//
// A request is still copied if it already holds the data of another router, or
// of an outer call of this one.
func (r *Router) ShareRequest(value bool) *Router {
	r.change(func() { r.share = value })
	return r
}

// answerMethods answers a request that only its method keeps from matching, if
// the options demand it. It reports whether the answer is complete.
func (c *compiledRouter) answerMethods(w http.ResponseWriter, req *http.Request) bool {
	options := c.answerOptions && req.Method == http.MethodOptions
	if !c.allowHeader && !options {
		return false
	}
	allowed := c.allowed(req)
	if options {
		allowed = append(allowed, http.MethodOptions)
		slices.Sort(allowed)
	}
	w.Header().Set("Allow", strings.Join(slices.Compact(allowed), ", "))
	if options {
		w.WriteHeader(http.StatusNoContent)
	}
	return options
}

// allowed returns the methods with which the request would match, sorted.
func (c *compiledRouter) allowed(req *http.Request) []string {
	var allowed []string
	for _, method := range c.methods {
		other := req.WithContext(req.Context())
		other.Method = method
		s := search{root: c.router, top: c}
		if c.search(other, &s) && s.err == nil {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

// methodNames returns the methods that the routes name, sorted, each once.
func (c *compiledRouter) methodNames() []string {
	var names []string
	c.eachRoute(func(c *compiledRouter, at int) bool {
		for _, m := range c.routes[at].matchers {
			if m.kind == matchMethods {
				names = append(names, m.names...)
			}
		}
		return true
	})
	slices.Sort(names)
	return slices.Compact(names)
}
