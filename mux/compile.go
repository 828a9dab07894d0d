package mux

import (
	"net/http"
	"slices"
)

// A compiledRouter is an immutable snapshot of a router.
type compiledRouter struct {
	// router is the router that was compiled, root the one that carriers name.
	router *Router
	root   *Router

	version    uintptr
	generation uint64

	index       index
	routes      []*compiledRoute
	middlewares []MiddlewareFunc

	options

	// usual is set if requests need only the route, the router and the
	// variables.
	usual bool

	// active[i] counts the routes before position i that can match at all.
	active []int32

	// methods are those that the routes name, if a request may be answered with the
	// ones that would have matched.
	methods []string

	// unmatched is the carrier for requests without a route.
	unmatched *carrier

	// noVariables stands for any route without variables.
	noVariables *compiledRoute
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

	// certain is the path template by which the index finds the route, if it is
	// certain to match every path without an empty segment.
	certain *template

	allowed     []string // methods, unless anyMethod
	handler     http.Handler
	carrier     *carrier // of this route and the root
	varNames    []string // of host, path and queries, in this order
	middlewares []MiddlewareFunc
	pattern     string // the path template's text
	templateGroup

	route      *Route
	version    uintptr
	generation uint64
	matchers   []matcher

	encoded bool
}

// A compiler copies a router and everything below it, under the tree's lock. A
// subrouter can be reached by several paths, since a second subrouter of a
// route inherits the first one as a matcher; it is compiled once.
type compiler struct {
	tree *routeTree
	root *Router // nil for a route that is compiled alone

	generation uint64

	// kept is set if later requests may find the result.
	kept bool
	done map[*Router]*compiledRouter
}

func (t *routeTree) newCompiler(root *Router, kept bool) *compiler {
	c := &compiler{tree: t, root: root, kept: kept, done: make(map[*Router]*compiledRouter)}
	if t != nil {
		c.generation = t.generation.Load()
	}
	return c
}

func (c *compiler) router(r *Router) *compiledRouter {
	if compiled, ok := c.done[r]; ok {
		return compiled
	}
	shared := c.kept && c.tree.has(r)
	if shared {
		if old := c.tree.compiled[r.version]; old != nil && (c.root == nil || old.root == c.root) {
			return old
		}
	}
	compiled := &compiledRouter{
		router:      r,
		root:        c.root,
		version:     r.version,
		generation:  c.generation,
		routes:      make([]*compiledRoute, 0, len(r.routes)),
		middlewares: slices.Clip(r.middlewares),
		options:     r.options,
		usual:       !r.omitRoute && !r.omitRouter && !r.pathValues,
		active:      make([]int32, 1, len(r.routes)+1),
		unmatched:   newCarrier(nil, c.root),
		noVariables: &compiledRoute{},
	}
	c.done[r] = compiled
	for at, route := range r.routes {
		compiled.add(c.route(route, int32(at)))
	}
	if compiled.allowHeader || compiled.answerOptions {
		compiled.methods = compiled.methodNames()
	}
	if shared {
		c.tree.compiled[r.version] = compiled
		r.cell.compiled.Store(compiled)
	}
	return compiled
}

// add appends a route.
func (c *compiledRouter) add(route *compiledRoute) {
	route.simple = route.isSimple(c.useEncodedPath)
	if t, _ := route.deciding(c.useEncodedPath); t != nil && t.shape.isCertain() {
		route.certain = t
	}
	active := c.active[len(c.active)-1]
	if route.active {
		active++
	}
	c.routes = append(c.routes, route)
	c.active = append(c.active, active)
	c.index.add(route, c.useEncodedPath)
}

// eachRoute calls f for each route of c and, after one for which f returns true, of
// its subrouters. It visits each router once.
func (c *compiledRouter) eachRoute(f func(c *compiledRouter, at int) bool) {
	seen := map[*compiledRouter]bool{}
	var visit func(c *compiledRouter)
	visit = func(c *compiledRouter) {
		if seen[c] {
			return
		}
		seen[c] = true
		for at, route := range c.routes {
			if !f(c, at) {
				continue
			}
			for _, m := range route.matchers {
				if m.kind == matchRouter {
					visit(m.below)
				}
			}
		}
	}
	visit(c)
}

func (c *compiler) route(r *Route, at int32) *compiledRoute {
	if c.tree != nil {
		c.tree.compiledRoutes++
	}
	compiled := &compiledRoute{
		route:       r,
		version:     r.version,
		generation:  c.generation,
		at:          at,
		active:      !r.buildOnly && r.err == nil,
		matchers:    r.matchers,
		handler:     r.handler,
		middlewares: slices.Clip(r.middlewares),
		encoded:     r.useEncodedPath,
		carrier:     newCarrier(r, c.root),

		templateGroup: r.templates,
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
				m.below = c.router(m.router)
			}
		}
	}
	compiled.varNames = r.templates.varNames()
	if compiled.path != nil {
		compiled.pattern = compiled.path.text
	}
	if c.kept && r.tree == c.tree {
		r.cell.compiled.Store(compiled)
	}
	return compiled
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

// firstMethods returns the names of the first method matcher, and whether there is one.
func firstMethods(matchers []matcher) ([]string, bool) {
	for i := range matchers {
		if matchers[i].kind == matchMethods {
			return matchers[i].names, true
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
