package mux

import (
	"iter"
	"net/http"
	"slices"
)

// A compiledRouter is an immutable copy of a router as of one generation, with
// an index over its routes.
type compiledRouter struct {
	router      *Router
	generation  uint64
	routes      []compiledRoute
	middlewares []MiddlewareFunc
	routeConf

	index index

	// unmatched is the carrier for requests without a route.
	unmatched *carrier

	// active[i] counts the routes before position i that can match at all.
	active []int32

	// everyRoute is all positions.
	everyRoute []int32
}

// A compiledRoute is an immutable copy of a route.
type compiledRoute struct {
	route       *Route
	active      bool // neither BuildOnly nor with an error
	matchers    []matcher
	handler     http.Handler
	middlewares []MiddlewareFunc

	encoded  bool
	host     *template
	path     *template
	queries  []*template
	varNames []string // of host, path and queries, in this order

	// plain is set if no matcher of the route leaves a trace in a search except
	// for the wrong method's.
	plain bool

	carrier *carrier // of this route and the router that is compiled
	pattern string   // the path template's text
}

// compiled returns the current compiled copy.
func (r *Router) compiled() *compiledRouter {
	if cell := r.cell; cell != nil {
		c := cell.compiled.Load()
		if c != nil && c.router == r && c.generation == cell.tree.generation.Load() {
			return c
		}
	}
	return r.compile()
}

// compile makes a new copy unless another goroutine just did.
func (r *Router) compile() *compiledRouter {
	if r.cell == nil {
		// A zero Router without routes. Nothing is kept, because requests may
		// come from several goroutines.
		c := &compiler{root: r, done: make(map[*Router]*compiledRouter)}
		return c.router(r)
	}
	t := r.cell.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.compileLocked()
}

func (r *Router) compileLocked() *compiledRouter {
	generation := r.cell.tree.generation.Load()
	if c := r.cell.compiled.Load(); c != nil && c.router == r && c.generation == generation {
		return c
	}
	c := &compiler{root: r, done: make(map[*Router]*compiledRouter)}
	compiled := c.router(r)
	compiled.generation = generation
	r.cell.compiled.Store(compiled)
	return compiled
}

// A compiler copies a router and all below it. A subrouter can be reached by
// several ways, since a second subrouter of a route takes over the first as a
// matcher; it is compiled once.
type compiler struct {
	root *Router
	done map[*Router]*compiledRouter
}

func (c *compiler) router(r *Router) *compiledRouter {
	if compiled, ok := c.done[r]; ok {
		return compiled
	}
	compiled := &compiledRouter{
		router:      r,
		routes:      make([]compiledRoute, len(r.routes)),
		middlewares: slices.Clip(r.middlewares),
		routeConf:   r.routeConf,
		active:      make([]int32, len(r.routes)+1),
		everyRoute:  make([]int32, len(r.routes)),
		unmatched:   newCarrier(nil, c.root),
	}
	c.done[r] = compiled
	for i, route := range r.routes {
		compiled.routes[i] = c.route(route)
		compiled.everyRoute[i] = int32(i)
		compiled.active[i+1] = compiled.active[i]
		if compiled.routes[i].active {
			compiled.active[i+1]++
		}
	}
	compiled.index = newIndex(compiled)
	return compiled
}

func (c *compiler) route(r *Route) compiledRoute {
	compiled := compiledRoute{
		route:       r,
		active:      !r.buildOnly && r.err == nil,
		matchers:    slices.Clone(r.matchers),
		handler:     r.handler,
		middlewares: slices.Clip(r.middlewares),
		encoded:     r.useEncodedPath,
		host:        r.templates.host,
		path:        r.templates.path,
		queries:     slices.Clip(r.templates.queries),
		carrier:     newCarrier(r, c.root),
	}
	compiled.plain = true
	for i := range compiled.matchers {
		compiled.plain = compiled.plain && compiled.matchers[i].decides()
		if m := &compiled.matchers[i]; m.kind == matchRouter {
			m.compiled = c.router(m.router)
		}
	}
	for t := range compiled.templates() {
		compiled.varNames = append(compiled.varNames, t.names...)
	}
	if compiled.path != nil {
		compiled.pattern = compiled.path.text
	}
	return compiled
}

// templates yields the templates that may hold variables, in the order in
// which their values are taken.
func (c *compiledRoute) templates() iter.Seq[*template] {
	return func(yield func(*template) bool) {
		if c.host != nil && !yield(c.host) {
			return
		}
		if c.path != nil && !yield(c.path) {
			return
		}
		for _, q := range c.queries {
			if !yield(q) {
				return
			}
		}
	}
}

// values writes the values of the variables, which the request must match, to
// dst. It has one element for each of varNames.
func (c *compiledRoute) values(req *http.Request, s *search, dst []string) {
	if c.host != nil {
		dst = c.host.next(req, c.encoded, dst)
	}
	if c.path != nil {
		if n := len(c.path.names); s.captured == c.path {
			copy(dst, s.values[:n])
			dst = dst[n:]
		} else {
			dst = c.path.next(req, c.encoded, dst)
		}
	}
	for _, q := range c.queries {
		dst = q.next(req, c.encoded, dst)
	}
}

// addVars writes the variables to a map, which it makes if there is none.
func (c *compiledRoute) addVars(vars map[string]string, req *http.Request) map[string]string {
	for t := range c.templates() {
		if len(t.names) == 0 {
			continue
		}
		values := make([]string, len(t.names))
		if !t.extractFrom(req, c.encoded, values) {
			// Possible only if a MatcherFunc changed the request.
			continue
		}
		if vars == nil {
			vars = make(map[string]string, len(c.varNames))
		}
		for i, name := range t.names {
			vars[name] = values[i]
		}
	}
	return vars
}

// determines reports whether the variables of outer, a route above c, are
// among those of c and have the same values for every request that both match.
// It may err towards false.
func (c *compiledRoute) determines(outer *compiledRoute) bool {
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
	// Where the reading of both is forced and one continues the other, the
	// common variables have the same ends.
	for t := c.path; t != nil && t.plan != nil; t = t.base {
		if t == outer.path {
			return true
		}
	}
	return false
}

// next writes the values of one template to the beginning of dst and returns
// the rest.
func (t *template) next(req *http.Request, encoded bool, dst []string) []string {
	n := len(t.names)
	if n > 0 {
		t.extractFrom(req, encoded, dst[:n:n])
	}
	return dst[n:]
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
