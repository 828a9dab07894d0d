package mux

import (
	"net/http"
	"slices"
	"sync/atomic"
)

// A compiledRouter is an immutable snapshot of one version of a router. It
// shares its index with the versions that differ only in having fewer or more
// routes.
type compiledRouter struct {
	// router is the router that was compiled, root the one that carriers name.
	router *Router
	root   *Router

	version    uintptr
	generation uint64
	structure  uint64

	state       *routerState
	routes      []*compiledRoute
	middlewares []MiddlewareFunc

	useEncodedPath bool
	skipClean      bool
	omitRoute      bool
	omitRouter     bool
	extras         extras

	// usual is set if requests need only the route, the router and the
	// variables.
	usual bool

	// active[i] counts the routes before position i that can match at all.
	active []int32

	// unmatched is the carrier for requests without a route.
	unmatched *carrier

	// noVariables stands for any route without variables.
	noVariables *compiledRoute
}

// A routerState is shared by the versions of one router for as long as routes
// are only added. The parent's routes reach the router through it.
type routerState struct {
	index   index
	current atomic.Pointer[compiledRouter]
}

// A compiledRoute is an immutable copy of a route.
type compiledRoute struct {
	// The fields that are read first come first: with many routes, none of them
	// is in the processor's caches.

	at        int32 // position in its router
	active    bool  // neither BuildOnly nor with an error
	anyMethod bool

	// plain is set if a mismatch of any matcher leaves no trace in a search,
	// except that of a wrong method.
	plain bool

	// simple is set if the path and the method alone decide, and the handler is
	// the route's own or a slash redirect.
	simple bool

	generation uint64 // of the router when the route was added

	// certain is the path template by which the index finds the route, if it is
	// certain to match every path without an empty segment.
	certain *template

	path        *template
	allowed     []string // methods, unless anyMethod
	handler     http.Handler
	carrier     *carrier // of this route and the root
	varNames    []string // of host, path and queries, in this order
	middlewares []MiddlewareFunc
	pattern     string // the path template's text

	route     *Route
	version   uintptr
	structure uint64
	matchers  []matcher

	encoded bool
	host    *template
	queries []*template
}

// A compiler copies a router and everything below it, under the tree's lock. A
// subrouter can be reached by several paths, since a second subrouter of a
// route inherits the first one as a matcher; it is compiled once.
type compiler struct {
	tree *routeTree
	root *Router // nil for a route that is compiled alone

	generation uint64
	structure  uint64

	// kept is set if later requests may find the result.
	kept bool
	done map[*Router]*compiledRouter
}

func (t *routeTree) newCompiler(root *Router, kept bool) *compiler {
	c := &compiler{tree: t, root: root, kept: kept, done: make(map[*Router]*compiledRouter)}
	if t != nil {
		c.generation, c.structure = t.generation.Load(), t.structure.Load()
	}
	return c
}

func (c *compiler) router(r *Router) *compiledRouter {
	if compiled, ok := c.done[r]; ok {
		return compiled
	}
	if compiled := c.compiledBefore(r); compiled != nil {
		c.done[r] = compiled
		return compiled
	}
	empty := &compiledRouter{
		router:         r,
		root:           c.root,
		generation:     c.generation,
		structure:      c.structure,
		state:          &routerState{},
		middlewares:    slices.Clip(r.middlewares),
		useEncodedPath: r.useEncodedPath,
		skipClean:      r.skipClean,
		omitRoute:      r.omitRoute,
		omitRouter:     r.omitRouter,
		extras:         r.extras,
		active:         []int32{0},
		unmatched:      newCarrier(nil, c.root),
		noVariables:    &compiledRoute{},
	}
	empty.usual = !r.omitRoute && !r.omitRouter && !r.extras.pathValues
	c.done[r] = empty
	compiled := c.extend(empty, r)
	c.done[r] = compiled
	return compiled
}

// compiledBefore returns an earlier compilation of r that is still valid, or
// nil.
func (c *compiler) compiledBefore(r *Router) *compiledRouter {
	if !c.kept || !c.tree.has(r) {
		return nil
	}
	old := r.cell.find(r.version)
	if old == nil || old.structure != c.structure || (c.root != nil && old.root != c.root) {
		return nil
	}
	return old
}

// extend returns a version of the router that adds the routes registered since
// old.
func (c *compiler) extend(old *compiledRouter, r *Router) *compiledRouter {
	next := *old
	next.version, next.generation = r.version, c.generation
	for _, route := range r.routes[len(old.routes):] {
		compiled := c.route(route, int32(len(next.routes)))
		compiled.simple = compiled.isSimple(next.useEncodedPath)
		if t := compiled.decidingTemplate(next.useEncodedPath); t != nil && t.shape.isCertain() {
			compiled.certain = t
		}
		active := next.active[len(next.active)-1]
		if compiled.active {
			active++
		}
		next.routes = append(next.routes, compiled)
		next.active = append(next.active, active)
		next.state.index.add(compiled, next.useEncodedPath)
	}
	next.state.current.Store(&next)
	if c.kept && c.tree.has(r) {
		r.cell.keep(&next, old)
	}
	return &next
}

func (c *compiler) route(r *Route, at int32) *compiledRoute {
	if c.tree != nil {
		c.tree.compiledRoutes++
	}
	compiled := &compiledRoute{
		route:       r,
		version:     r.version,
		structure:   c.structure,
		generation:  c.generation,
		at:          at,
		active:      !r.buildOnly && r.err == nil,
		matchers:    r.matchers,
		handler:     r.handler,
		middlewares: slices.Clip(r.middlewares),
		encoded:     r.useEncodedPath,
		host:        r.templates.host,
		path:        r.templates.path,
		queries:     slices.Clip(r.templates.queries),
		carrier:     newCarrier(r, c.root),
	}
	compiled.anyMethod, compiled.allowed = methodsOf(r.matchers)
	compiled.plain = true
	for i := range compiled.matchers {
		compiled.plain = compiled.plain && compiled.matchers[i].decides()
	}
	if slices.ContainsFunc(compiled.matchers, func(m matcher) bool { return m.kind == matchRouter }) {
		compiled.matchers = slices.Clone(compiled.matchers)
		for i := range compiled.matchers {
			if m := &compiled.matchers[i]; m.kind == matchRouter {
				m.below = c.router(m.router).state
			}
		}
	}
	compiled.varNames = compiled.namesOfVars()
	if compiled.path != nil {
		compiled.pattern = compiled.path.text
	}
	if c.kept && r.tree == c.tree {
		r.cell.compiled.Store(compiled)
		r.seen = true
	}
	return compiled
}

// namesOfVars shares the template's slice where it can.
func (c *compiledRoute) namesOfVars() []string {
	var names []string
	for _, t := range c.templates(nil) {
		switch {
		case len(names) == 0:
			names = t.names
		case len(t.names) > 0:
			names = slices.Concat(names, t.names)
		}
	}
	return names
}

// templates appends the templates that may hold variables to dst, in the order
// in which their values are taken.
func (c *compiledRoute) templates(dst []*template) []*template {
	if c.host != nil {
		dst = append(dst, c.host)
	}
	if c.path != nil {
		dst = append(dst, c.path)
	}
	return append(dst, c.queries...)
}

// isSimple reports whether the path template and the methods alone decide
// whether the route matches. encoded is the router's UseEncodedPath.
func (c *compiledRoute) isSimple(encoded bool) bool {
	if !c.active || !c.plain || c.handler == nil || c.path == nil || c.path.encoded != encoded {
		return false
	}
	for i := range c.matchers {
		switch m := &c.matchers[i]; m.kind {
		case matchMethods:
		case matchTemplate:
			if m.template != c.path || m.template.encoded != c.encoded {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// methodsOf returns the methods that all method matchers accept.
func methodsOf(matchers []matcher) (anyMethod bool, allowed []string) {
	anyMethod = true
	for i := range matchers {
		m := &matchers[i]
		switch {
		case m.kind != matchMethods:
		case anyMethod:
			anyMethod, allowed = false, m.names
		default:
			allowed = slices.DeleteFunc(slices.Clone(allowed), func(name string) bool { return !slices.Contains(m.names, name) })
		}
	}
	return anyMethod, allowed
}

// allows reports whether all method matchers accept the method.
func (c *compiledRoute) allows(method string) bool {
	return c.anyMethod || slices.Contains(c.allowed, method)
}

// methods returns the names of the first method matcher.
func (c *compiledRoute) methods() ([]string, bool) {
	for i := range c.matchers {
		if c.matchers[i].kind == matchMethods {
			return c.matchers[i].names, true
		}
	}
	return nil, false
}

// determines reports whether the variables of outer, a route above c, are among
// those of c and have the same values for every request that both match. It may
// return false when they do.
func (c *compiledRoute) determines(outer *compiledRoute) bool {
	for _, name := range outer.varNames {
		// The outer route's value wins over that of a variable of c's own.
		if count(c.varNames, name) != count(outer.varNames, name) {
			return false
		}
	}
	if outer.host != nil && len(outer.host.names) > 0 && outer.host != c.host {
		return false
	}
	for _, q := range outer.queries {
		if len(q.names) > 0 && !slices.Contains(c.queries, q) {
			return false
		}
	}
	if outer.path == nil || len(outer.path.names) == 0 {
		return true
	}
	if outer.encoded != c.encoded || outer.path.plan == nil {
		return false
	}
	// Where both templates can be read in one way only and one continues the
	// other, the common variables end at the same places.
	for t := c.path; t != nil && t.plan != nil; t = t.base {
		if t == outer.path {
			return true
		}
	}
	return false
}

func count(names []string, name string) int {
	n := 0
	for _, other := range names {
		if other == name {
			n++
		}
	}
	return n
}
