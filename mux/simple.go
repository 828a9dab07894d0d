package mux

import (
	"net/http"
	"slices"
)

// directRoutes is the first candidates for one path, as far as for each of them
// nothing but the method is left to be decided. It is made for one version of a
// router, when a request asks for the path.
type directRoutes struct {
	version uintptr
	clean   bool // the path needs no redirect to its clean form
	routes  []directRoute
}

// A directRoute matches every request that has one of the methods.
type directRoute struct {
	methods   []string
	anyMethod bool

	// bare is set if nothing stands between the request and the handler: no
	// middleware, and no wish for anything unusual.
	bare  bool
	route *compiledRoute
}

// maxDirect bounds what is kept for one path.
const maxDirect = 16

// directFor returns what the exact table's node has for the router.
func (n *node) directFor(c *compiledRouter) *directRoutes {
	if d := n.direct.Load(); d != nil && d.version == c.version {
		return d
	}
	return n.makeDirect(c)
}

func (n *node) makeDirect(c *compiledRouter) *directRoutes {
	d := &directRoutes{version: c.version, clean: isClean(n.key)}
	x := scan{router: c, generation: c.generation}
	x.path.split(n.key, int(c.state.index.depth.Load()))
	c.state.index.collectPath(n, &x.path, &x.found)
	for c.state.index.hosts.empty() && len(d.routes) < maxDirect {
		route := x.next()
		if route == nil || !route.isDirect(n.key, c.useEncodedPath) {
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
// the right method, without variables and without a redirect. encoded is the
// router's.
func (c *compiledRoute) isDirect(path string, encoded bool) bool {
	if !c.plain || c.handler == nil || len(c.varNames) > 0 || c.path == nil || c.needsSlash(path) {
		return false
	}
	for i := range c.matchers {
		m := &c.matchers[i]
		if m.kind == matchMethods {
			continue
		}
		if m.kind != matchTemplate || m.template != c.path || m.template.encoded != encoded || !m.template.shape.literal || !m.template.matches(path) {
			return false
		}
	}
	return true
}

// simple returns the route that serves the request, if only simple ones come
// before it. Otherwise it returns nil, and the scan stands where a search has to
// begin: at the first route that is not simple, or at the first of all if one
// with the wrong method may decide between 404 and 405.
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
		case !(route.whole != nil && x.path.full) && !route.path.matches(x.path.text):
			continue
		case !route.needsSlash(x.path.text):
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

// straight returns the route that serves the request if the path leads to one
// node of the index, without a turning on the way, and only simple routes come
// before it. Nil means that a scan has to decide.
func (c *compiledRouter) straight(method, path string) *compiledRoute {
	for l := c.state.index.straight(path); l != nil && l.route.born <= c.generation; l = l.next.Load() {
		route := l.route
		switch {
		case !route.simple:
			return nil
		case !route.allows(method) || route.whole == nil && !route.path.matches(path):
		case route.needsSlash(path):
			return nil
		default:
			return route
		}
	}
	return nil
}
