package mux

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A Route consists of matchers, a handler for the requests that all of them
// accept, and what is needed to build URLs that it would match.
//
// Methods that add to a route return it, so that calls can be chained. An error
// in an argument is stored in the route, see [Route.GetError]; a route with an
// error never matches.
type Route struct {
	// tree and cell are nil for a route that was not made by a router.
	tree *routeTree
	cell *routeCell

	// version takes a new value whenever the fields below change. It is written
	// under tree.mu, and read atomically.
	version uintptr

	// Guarded by tree.mu.
	handler     http.Handler
	buildOnly   bool
	name        string
	err         error
	metadata    map[any]any
	middlewares []MiddlewareFunc
	routeConf
}

// A RouteMatch is the result of a search.
type RouteMatch struct {
	Route   *Route
	Handler http.Handler
	Vars    map[string]string

	// MatchErr is nil after a full match, [ErrMethodMismatch] or [ErrNotFound]
	// otherwise. It is also set when Handler answers a request that no route
	// matched, as NotFoundHandler does.
	MatchErr error
}

// GetError returns the first error that kept the route from being built.
func (r *Route) GetError() error {
	r.rlock()
	defer r.runlock()
	return r.err
}

// SkipClean reports whether the router had [Router.SkipClean] on when the
// route was made.
func (r *Route) SkipClean() bool {
	r.rlock()
	defer r.runlock()
	return r.skipClean
}

// BuildOnly keeps the route from matching. The route then serves only to build
// URLs.
func (r *Route) BuildOnly() *Route {
	r.change(func() { r.buildOnly = true })
	return r
}

// Handler sets the handler, unless the route has an error.
func (r *Route) Handler(handler http.Handler) *Route {
	r.change(func() { r.setHandler(handler) })
	return r
}

// HandlerFunc sets a handler function, unless the route has an error.
func (r *Route) HandlerFunc(f func(http.ResponseWriter, *http.Request)) *Route {
	return r.Handler(http.HandlerFunc(f))
}

// GetHandler returns the handler without the route's middleware, or nil.
func (r *Route) GetHandler() http.Handler {
	r.rlock()
	defer r.runlock()
	return r.handler
}

// GetHandlerWithMiddlewares returns the handler wrapped in the middleware of
// [Route.Use], or nil for a route without a handler.
func (r *Route) GetHandlerWithMiddlewares() http.Handler {
	r.rlock()
	handler, middlewares := r.handler, r.middlewares
	r.runlock()
	if handler == nil {
		return nil
	}
	return wrap(handler, middlewares)
}

// Name gives the route a name, under which [Router.Get] finds it. A second name
// is an error.
func (r *Route) Name(name string) *Route {
	r.change(func() { r.setName(name) })
	return r
}

// GetName returns the name, or an empty string.
func (r *Route) GetName() string {
	r.rlock()
	defer r.runlock()
	return r.name
}

// Use appends middleware that runs inside that of the routers, for this route
// only. Like [Router.Use], it calls the functions for each request.
func (r *Route) Use(mwf ...MiddlewareFunc) *Route {
	r.change(func() { r.middlewares = append(slices.Clip(r.middlewares), mwf...) })
	return r
}

// Path adds a matcher for the whole URL path. The template starts with a slash.
// {name} stands for one or more characters other than a slash, and
// {name:pattern} for what the regular expression matches. A pattern must not
// have capturing groups; one that has panics.
//
//	r.Path("/articles/{category}/{id:[0-9]+}")
//
// On a route that has a path template already, as routes of a subrouter may,
// the templates are joined.
func (r *Route) Path(tpl string) *Route {
	r.change(func() { r.addTemplate(tpl, pathTemplate) })
	return r
}

// PathPrefix adds a matcher for the beginning of the URL path. Templates are as
// for [Route.Path]. The prefix may end inside a segment: /foo matches /foobar.
func (r *Route) PathPrefix(tpl string) *Route {
	r.change(func() { r.addTemplate(tpl, prefixTemplate) })
	return r
}

// Host adds a matcher for the host, case-sensitively. Templates are as for
// [Route.Path], except that {name} ends at a dot. The port of the request is
// ignored unless the template contains a colon, even one in a pattern.
func (r *Route) Host(tpl string) *Route {
	r.change(func() { r.addTemplate(tpl, hostTemplate) })
	return r
}

// Queries adds a matcher for each pair of a query key and a template for its
// value. Only the first value of a key is compared. {name} matches any value,
// and so does an empty template.
//
//	r.Queries("page", "{page:[0-9]+}", "sort", "")
//
// An odd number of arguments is an error; the result is then nil.
func (r *Route) Queries(pairs ...string) *Route {
	r.change(func() { r.addQueries(pairs) })
	if len(pairs)%2 != 0 {
		return nil
	}
	return r
}

// Headers adds a matcher for pairs of a header name and a value. One value of
// the header must equal the given one; an empty value only requires the header
// to be present.
func (r *Route) Headers(pairs ...string) *Route {
	r.change(func() { r.addHeaders(pairs, newHeaderRules) })
	return r
}

// HeadersRegexp is [Route.Headers] with regular expressions for values. They
// match anywhere in a value unless they are anchored.
func (r *Route) HeadersRegexp(pairs ...string) *Route {
	r.change(func() { r.addHeaders(pairs, newHeaderPatterns) })
	return r
}

// Methods adds a matcher for HTTP methods, in upper or lower case. GET does not
// imply HEAD.
func (r *Route) Methods(methods ...string) *Route {
	r.change(func() { r.addMethods(methods) })
	return r
}

// Schemes adds a matcher for URL schemes. A request whose URL has no scheme, as
// is usual on a server, counts as https if it came over TLS and as http
// otherwise. Built URLs use the first scheme.
func (r *Route) Schemes(schemes ...string) *Route {
	r.change(func() { r.addSchemes(schemes) })
	return r
}

// MatcherFunc adds a matcher supplied by the caller. It may be called for
// requests that the route does not match, and it may set fields of the
// RouteMatch, which later matchers and routes then see, even if it returns
// false.
func (r *Route) MatcherFunc(f MatcherFunc) *Route {
	r.change(func() { r.addMatcher(matcher{kind: matchFunc, fn: f}) })
	return r
}

// Subrouter returns a new router whose routes are tried when all matchers of
// this route accept a request. It copies the current configuration, matchers
// and templates of the route. Names are shared with the whole tree.
func (r *Route) Subrouter() *Router {
	t := r.tree
	if t == nil {
		t = newTree()
	}
	sub := &Router{cell: &routerCell{tree: t}}
	r.change(func() {
		t.setVersion(&sub.version)
		t.routers = append(t.routers, sub)
		sub.routeConf = r.routeConf.copy()
		r.addMatcher(matcher{kind: matchRouter, router: sub})
	})
	return sub
}

func (r *Route) rlock() {
	if r.tree != nil {
		r.tree.mu.RLock()
	}
}

func (r *Route) runlock() {
	if r.tree != nil {
		r.tree.mu.RUnlock()
	}
}

// change runs f under the tree's lock and publishes its effect.
func (r *Route) change(f func()) {
	if r.tree == nil {
		f()
		return
	}
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.changedLocked(&r.version)
	f()
}

// The functions below must be called with the tree locked.

func (r *Route) setHandler(handler http.Handler) {
	if r.err == nil {
		r.handler = handler
	}
}

func (r *Route) setName(name string) {
	if r.name != "" {
		r.err = fmt.Errorf("mux: route already has name %q, can't set %q", r.name, name)
	}
	if r.err != nil {
		return
	}
	r.name = name
	if r.tree != nil {
		r.tree.named[name] = r
	}
}

func (r *Route) addMatcher(m matcher) {
	if r.err == nil {
		r.matchers = append(slices.Clip(r.matchers), m)
	}
}

func (r *Route) addTemplate(text string, kind templateKind) {
	if r.err != nil {
		return
	}
	t, err := r.parseTemplate(text, kind)
	if err != nil {
		r.err = err
		return
	}
	switch kind {
	case hostTemplate:
		r.templates.host = t
	case queryTemplate:
		r.templates.queries = append(slices.Clip(r.templates.queries), t)
	default:
		r.templates.path = t
	}
	r.addMatcher(matcher{kind: matchTemplate, template: t})
}

// parseTemplate parses a template as part of the route: path templates are
// joined, and a variable may occur in only one of host, path and queries.
func (r *Route) parseTemplate(text string, kind templateKind) (*template, error) {
	opts := templateOptions{encoded: r.useEncodedPath}
	if kind == pathTemplate || kind == prefixTemplate {
		if text != "" && text[0] != '/' {
			return nil, fmt.Errorf("mux: path must start with a slash, got %q", text)
		}
		if base := r.templates.path; base != nil {
			text = strings.TrimRight(base.text, "/") + text
			opts.base = base
		}
	}
	opts.strictSlash = r.strictSlash && kind == pathTemplate
	t, err := newTemplate(text, kind, opts)
	if err != nil {
		return nil, err
	}
	others := slices.Clone(r.templates.queries)
	switch {
	case kind != hostTemplate && r.templates.host != nil:
		others = append(others, r.templates.host)
	case kind == hostTemplate && r.templates.path != nil:
		others = append(others, r.templates.path)
	}
	for _, other := range others {
		for _, name := range t.names {
			if slices.Contains(other.names, name) {
				return nil, fmt.Errorf("mux: duplicated route variable %q", name)
			}
		}
	}
	return t, nil
}

func (r *Route) addQueries(pairs []string) {
	if len(pairs)%2 != 0 {
		r.err = errOddPairs(pairs)
		return
	}
	for i := 0; i < len(pairs); i += 2 {
		r.addTemplate(pairs[i]+"="+pairs[i+1], queryTemplate)
	}
}

func (r *Route) addHeaders(pairs []string, parse func(pairs []string) ([]headerRule, error)) {
	if r.err != nil {
		return
	}
	rules, err := parse(pairs)
	if err != nil {
		r.err = err
		return
	}
	r.addMatcher(matcher{kind: matchHeaders, headers: rules})
}

func (r *Route) addMethods(methods []string) {
	upper := make([]string, len(methods))
	for i, m := range methods {
		upper[i] = strings.ToUpper(m)
	}
	r.addMatcher(matcher{kind: matchMethods, names: upper})
}

func (r *Route) addSchemes(schemes []string) {
	lower := make([]string, len(schemes))
	for i, s := range schemes {
		lower[i] = strings.ToLower(s)
	}
	if len(lower) > 0 {
		r.buildScheme = lower[0]
	}
	r.addMatcher(matcher{kind: matchSchemes, names: lower})
}

// Metadata sets a value of the route for a key, for use by programs that
// describe their routes.
func (r *Route) Metadata(key, value any) *Route {
	r.change(func() {
		// A new map, because the caller of GetMetadata may hold the old one.
		fresh := make(map[any]any, len(r.metadata)+1)
		for k, v := range r.metadata {
			fresh[k] = v
		}
		fresh[key] = value
		r.metadata = fresh
	})
	return r
}

// GetMetadata returns the values set by [Route.Metadata] so far, or nil. The
// caller must not modify the map.
func (r *Route) GetMetadata() map[any]any {
	r.rlock()
	defer r.runlock()
	return r.metadata
}

// MetadataContains reports whether the key was set.
func (r *Route) MetadataContains(key any) bool {
	_, ok := r.GetMetadata()[key]
	return ok
}

// GetMetadataValue returns the value of a key, or [ErrMetadataKeyNotFound].
func (r *Route) GetMetadataValue(key any) (any, error) {
	value, ok := r.GetMetadata()[key]
	if !ok {
		return nil, ErrMetadataKeyNotFound
	}
	return value, nil
}

// GetMetadataValueOr returns the value of a key, or the fallback.
func (r *Route) GetMetadataValueOr(key, fallback any) any {
	value, ok := r.GetMetadata()[key]
	if !ok {
		return fallback
	}
	return value
}

// errNo returns the error of a getter for something that the route does not
// have.
func errNo(what string) error {
	return errors.New("mux: route doesn't have " + what)
}
