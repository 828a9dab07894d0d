package mux

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
)

// Sentinel errors. Their texts are gorilla's, because some programs display
// them.
var (
	// ErrMethodMismatch is the [RouteMatch.MatchErr] of a request that would
	// match a route with another method. It leads to a 405.
	ErrMethodMismatch = errors.New("method is not allowed")

	// ErrNotFound is the [RouteMatch.MatchErr] of a request that matches no
	// route.
	ErrNotFound = errors.New("no matching route was found")

	// ErrMetadataKeyNotFound is returned by [Route.GetMetadataValue] for a key
	// that was never set on the route.
	ErrMetadataKeyNotFound = errors.New("key not found in metadata")

	// SkipRouter is returned by a [WalkFunc] to keep Walk from descending below
	// the route for which it was called.
	//
	//nolint:staticcheck // gorilla's name
	SkipRouter = errors.New("skip this router")
)

// RegexpCompileFunc compiles the expressions of templates and of
// [Route.HeadersRegexp]. Set it before the first route is added, for instance
// to share compiled expressions; changing it later is not synchronised.
//
// A template is matched without its expression only if the function returned
// one with the text that it was given and without special treatment of line
// breaks.
var RegexpCompileFunc = regexp.Compile

// A Router dispatches each request to the handler of the first registered
// route that matches it. It is an [http.Handler].
//
// Make one with [NewRouter]. The zero value may be used too, if its first
// change does not happen while it serves.
type Router struct {
	// NotFoundHandler answers requests that no route matches. In a subrouter
	// it also keeps later routes of the parent from being tried. Nil means
	// [http.NotFoundHandler].
	NotFoundHandler http.Handler

	// MethodNotAllowedHandler answers requests that would match a route with
	// another method. Nil means an empty answer with status 405.
	MethodNotAllowedHandler http.Handler

	// KeepContext has no effect.
	//
	// Deprecated: route data has been kept with the request since Go 1.7.
	KeepContext bool

	// cell holds the state that must not be copied with a Router value.
	cell *routerCell

	// version takes a new value whenever the fields below change. It is written
	// under cell.tree.mu, and read atomically. It is a plain number so that
	// Router values can be copied.
	version uintptr

	// Guarded by cell.tree.mu. Slices are only ever appended to, so that a
	// compiled copy may share their elements.
	routes      []*Route
	middlewares []MiddlewareFunc
	routeConf
}

// NewRouter returns a Router without routes.
func NewRouter() *Router {
	r := &Router{}
	r.init()
	return r
}

// Get returns the route with the given name, of this router or of any router of
// the same tree, or nil. When several routes have the name, the last one wins.
func (r *Router) Get(name string) *Route {
	t := r.tree()
	if t == nil {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.named[name]
}

// GetRoute is the same as [Router.Get]. It is kept for existing callers.
func (r *Router) GetRoute(name string) *Route {
	return r.Get(name)
}

// StrictSlash sets whether routes added from now on also match their path with
// the trailing slash added or removed, and then redirect to the template's
// form. It is off by default.
//
// The redirect has status 301, which makes most clients repeat a POST as a GET;
// see [Router.PermanentRedirect]. Routes with [Route.PathPrefix] do not
// redirect, but their subrouters inherit the flag.
func (r *Router) StrictSlash(value bool) *Router {
	r.change(func() { r.strictSlash = value })
	return r
}

// SkipClean sets whether paths are matched without being cleaned. It is off by
// default: a request whose path has empty or dot segments, as in /a//b or
// /a/../b, is redirected to the clean form. Only the flag of the router that
// serves the request applies.
func (r *Router) SkipClean(value bool) *Router {
	r.change(func() { r.skipClean = value })
	return r
}

// UseEncodedPath makes routes added from now on match the path as the client
// encoded it: /path/foo%2Fbar matches /path/{var}. Without it the decoded path
// is matched, so that foo%2Fbar counts as two segments.
func (r *Router) UseEncodedPath() *Router {
	r.change(func() { r.useEncodedPath = true })
	return r
}

// OmitRouteFromContext sets whether [CurrentRoute] returns nil for requests of
// this router. Matching is not affected.
func (r *Router) OmitRouteFromContext(value bool) *Router {
	r.change(func() { r.omitRoute = value })
	return r
}

// OmitRouterFromContext sets whether [CurrentRouter] returns nil for requests
// of this router. Matching is not affected.
func (r *Router) OmitRouterFromContext(value bool) *Router {
	r.change(func() { r.omitRouter = value })
	return r
}

// Use appends middleware. It runs for every request that matches a route of
// this router or of one of its subrouters, slash redirects included, but not
// for 404 and 405. The first one added is the outermost.
//
// Each function is called once per request; the handler that it returns is not
// reused.
func (r *Router) Use(mwf ...MiddlewareFunc) {
	r.change(func() { r.middlewares = append(slices.Clip(r.middlewares), mwf...) })
}

// NewRoute adds an empty route, which matches every request until matchers are
// added to it.
func (r *Router) NewRoute() *Route {
	return r.add(func(*Route) {})
}

// Name adds a route with a name. See [Route.Name].
func (r *Router) Name(name string) *Route {
	return r.add(func(route *Route) { route.setName(name) })
}

// Handle adds a route for a path template. See [Route.Path] and
// [Route.Handler].
func (r *Router) Handle(path string, handler http.Handler) *Route {
	return r.add(func(route *Route) {
		route.addTemplate(path, pathTemplate)
		route.setHandler(handler)
	})
}

// HandleFunc adds a route for a path template. See [Route.Path] and
// [Route.HandlerFunc].
func (r *Router) HandleFunc(path string, f func(http.ResponseWriter, *http.Request)) *Route {
	return r.Handle(path, http.HandlerFunc(f))
}

// Headers adds a route that matches header values. See [Route.Headers].
func (r *Router) Headers(pairs ...string) *Route {
	return r.add(func(route *Route) { route.addHeaders(pairs, newHeaderRules) })
}

// Host adds a route for a host template. See [Route.Host].
func (r *Router) Host(tpl string) *Route {
	return r.add(func(route *Route) { route.addTemplate(tpl, hostTemplate) })
}

// MatcherFunc adds a route with a matcher supplied by the caller. See
// [Route.MatcherFunc].
func (r *Router) MatcherFunc(f MatcherFunc) *Route {
	return r.add(func(route *Route) { route.addMatcher(matcher{kind: matchFunc, fn: f}) })
}

// Methods adds a route for HTTP methods. See [Route.Methods].
func (r *Router) Methods(methods ...string) *Route {
	return r.add(func(route *Route) { route.addMethods(methods) })
}

// Path adds a route for a path template. See [Route.Path].
func (r *Router) Path(tpl string) *Route {
	return r.add(func(route *Route) { route.addTemplate(tpl, pathTemplate) })
}

// PathPrefix adds a route for a path prefix. See [Route.PathPrefix].
func (r *Router) PathPrefix(tpl string) *Route {
	return r.add(func(route *Route) { route.addTemplate(tpl, prefixTemplate) })
}

// Queries adds a route that matches query values. See [Route.Queries].
//
// It returns nil when the number of arguments is odd.
func (r *Router) Queries(pairs ...string) *Route {
	route := r.add(func(route *Route) { route.addQueries(pairs) })
	if len(pairs)%2 != 0 {
		return nil
	}
	return route
}

// Schemes adds a route for URL schemes. See [Route.Schemes].
func (r *Router) Schemes(schemes ...string) *Route {
	return r.add(func(route *Route) { route.addSchemes(schemes) })
}

// BuildVarsFunc adds a route with a function that changes variables before a
// URL is built. See [Route.BuildVarsFunc].
func (r *Router) BuildVarsFunc(f BuildVarsFunc) *Route {
	return r.add(func(route *Route) { route.addBuildVarsFunc(f) })
}

// add appends a route and configures it in one change, so that no request sees
// the route half configured. If configure panics, no route is added.
func (r *Router) add(configure func(*Route)) *Route {
	r.init()
	t := r.cell.tree
	route := &Route{tree: t, cell: &routeCell{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	route.routeConf = r.routeConf.copy()
	configure(route)
	t.setVersion(&route.version)
	r.appendLocked(route)
	t.changedLocked(&r.version)
	return route
}

// appendLocked appends a route.
func (r *Router) appendLocked(route *Route) {
	if n := len(r.routes); n < cap(r.routes) && r.routes[:n+1][n] != nil {
		// A copy of this Router has a route at this position of the shared
		// array.
		r.routes = slices.Clip(r.routes)
	}
	r.routes = append(r.routes, route)
}
