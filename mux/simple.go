package mux

import (
	"net/http"
	"slices"
)

// directRoutes holds the first candidates for one path for which only the
// method is left to decide. It is made when a request has the path.
type directRoutes struct {
	clean  bool // the path needs no redirect to its clean form
	routes []directRoute
}

// A directRoute matches every request that has one of the methods.
type directRoute struct {
	methods   []string
	anyMethod bool

	// bare is set if the handler can be called without preparation: there is no
	// middleware, and no option changes the request.
	bare  bool
	route *compiledRoute
}

// maxDirect is the maximum number of routes stored for one path.
const maxDirect = 16

// directFor returns the direct routes of the exact table's node for the router.
func (n *node) directFor(c *compiledRouter) *directRoutes {
	if d := n.direct.Load(); d != nil {
		return d
	}
	return n.makeDirect(c)
}

func (n *node) makeDirect(c *compiledRouter) *directRoutes {
	d := &directRoutes{clean: isClean(n.key)}
	x := scan{router: c}
	c.index.collectPath(n, n.key, &x.found)
	for c.index.hosts.empty() && len(d.routes) < maxDirect {
		route := x.next()
		if route == nil || !route.isDirect(n.key) {
			break
		}
		bare := c.usual && len(route.middlewares) == 0 && len(c.middlewares) == 0
		d.routes = append(d.routes, directRoute{route.allowed, route.anyMethod, bare, route})
	}
	n.direct.Store(d)
	return d
}

// find returns the route for the method, or nil.
func (d *directRoutes) find(method string) *directRoute {
	for i := range d.routes {
		if r := &d.routes[i]; r.anyMethod || slices.Contains(r.methods, method) {
			return r
		}
	}
	return nil
}

// isDirect reports whether the route matches every request with the path and
// the right method, without variables and without a redirect.
func (c *compiledRoute) isDirect(path string) bool {
	return c.simple && len(c.varNames) == 0 && c.path.shape.literal && c.path.matches(path) && !c.needsSlash(path)
}

// simple returns the route that serves the request, if only simple ones precede
// it. Otherwise it returns nil and leaves the scan at the position where a
// search must begin: at the first route that is not simple, or at the very
// first route if one with the wrong method may decide between 404 and 405.
func (x *scan) simple(req *http.Request, exact *node) *compiledRoute {
	skipped := false
	for {
		before := x.from
		route := x.next()
		switch {
		case route == nil || !route.simple:
		case !route.allows(req.Method):
			skipped = true
			continue
		case !(route.certain != nil && x.noEmpty) && !route.path.matches(x.path):
			continue
		case !route.needsSlash(x.path):
			return route
		}
		x.from = before
		if skipped {
			x.from = 0
			x.collect(req, exact)
		}
		return nil
	}
}

// fastRoute returns the route that serves the request if the index has a single
// list of candidates for the path and only simple routes precede it. Nil means
// that a scan must decide.
func (c *compiledRouter) fastRoute(method, path string) *compiledRoute {
	for l := c.index.fastList(path); l != nil; l = l.next {
		route := l.route
		switch {
		case !route.simple:
			return nil
		case !route.allows(method) || route.certain == nil && !route.path.matches(path):
		case route.needsSlash(path):
			return nil
		default:
			return route
		}
	}
	return nil
}
