package mux

import (
	"net/http"
	"strings"
)

// An index finds the routes of one router that a request's path and host do not
// rule out. It is complete before a request reads it.
//
// Invariant: it may return too many candidates, never too few. A route is left
// out only if one of its path templates cannot match or, failing that, its host
// template, and only if every matcher before that template has no effect but to
// reject: a MatcherFunc, a subrouter or a query before it changes the state of
// the search even if the path does not match. TestIndexAgreesWithScan compares
// all small route tables with a scan.
type index struct {
	// exact has a node for the text of every template without variables.
	// lengths has a bit for the length of each.
	exact   nodeSet
	lengths uint64

	// root is the tree of the other templates, after the leading slash.
	root node

	// hosts holds the routes that no path rules out and whose host template has
	// no variables. A template without a port ignores the request's port.
	hosts nodeSet

	// always holds the routes that neither path nor host rules out.
	always list
}

// add inserts a route, whose position is higher than those of all routes
// before.
func (x *index) add(route *compiledRoute, encoded bool) {
	if !route.active {
		return
	}
	t, host := route.deciding(encoded)
	if t == nil && host != "" {
		x.hosts.add(host).here.add(route)
		return
	}
	if t == nil {
		x.always.add(route)
		return
	}
	if t.shape.literal {
		x.addExact(t.shape.text, route)
		if t.shape.optionalSlash {
			x.addExact(t.shape.text+"/", route)
		}
		return
	}
	x.root.add(t.shape.segments, t.shape.open, route)
	if t.shape.optionalSlash {
		x.root.add(append(t.shape.segments[:len(t.shape.segments):len(t.shape.segments)], segment{}), false, route)
	}
}

func (x *index) addExact(path string, route *compiledRoute) {
	x.exact.add(path).here.add(route)
	x.lengths |= lengthBit(path)
}

// lengthBit is the bit for a path's length. All long paths share the last bit.
func lengthBit(path string) uint64 { return 1 << min(len(path), 63) }

// lookUp returns the node of a path in the exact table, or nil.
func (x *index) lookUp(path string) *node {
	if x.lengths&lengthBit(path) == 0 {
		return nil
	}
	return x.exact.get(path)
}

// deciding returns the path template that rules the route in or out, or nil. Of
// several the last is used: in a subrouter it is the longest. It also returns
// the host that does so, or an empty string.
func (c *compiledRoute) deciding(encoded bool) (path *template, host string) {
	for i := range c.matchers {
		m := &c.matchers[i]
		if !m.decides() {
			break
		}
		if m.kind != matchTemplate {
			continue
		}
		t := m.template
		if t.shape.known && t.encoded == encoded {
			path = t
		}
		if p := t.plan; t.kind == hostTemplate && host == "" && p != nil && len(p.vars) == 0 && p.end == endExact {
			host = p.head
		}
	}
	return path, host
}

// fastList returns the candidates for a path that is not in the exact table, if
// a single list holds all of them. It returns nil if there may be others, if
// there are none, and if the path has an empty or a dot segment.
//
// Invariant: the list is the one that collect finds; TestFastPath checks it.
func (x *index) fastList(path string) *link {
	if x.always.first != nil || !x.hosts.empty() || path == "" || path[0] != '/' {
		return nil
	}
	n := &x.root
	for start := 1; ; {
		end := indexSlash(path, start)
		seg := path[start:end]
		if len(seg) <= 2 && (seg == "" || seg == "." || seg == "..") || n.rare != nil {
			return nil
		}
		wild := n.wild
		if n = n.literal.get(seg); n == nil {
			n = wild
		} else if wild != nil {
			return nil
		}
		switch {
		case n == nil:
			return nil
		case end == len(path):
			return n.here.first
		}
		start = end + 1
	}
}

// collect adds the candidates for a request.
func (x *index) collect(req *http.Request, exact *node, path string, found *candidates) {
	if !x.hosts.empty() {
		x.collectHost(requestHost(req), found)
	}
	x.collectPath(exact, path, found)
}

// collectPath adds the candidates that do not depend on the host.
func (x *index) collectPath(exact *node, path string, found *candidates) {
	found.add(&x.always)
	if exact != nil {
		found.add(&exact.here)
	}
	if strings.HasPrefix(path, "/") {
		x.root.collect(path, 1, found)
	}
}

func (x *index) collectHost(host string, found *candidates) {
	name, _, hasPort := strings.Cut(host, ":")
	if n := x.hosts.get(name); n != nil {
		found.add(&n.here)
	}
	if !hasPort {
		return
	}
	if n := x.hosts.get(host); n != nil {
		found.add(&n.here)
	}
}

// A scan yields the routes of one router that may match a request, in
// registration order.
type scan struct {
	router *compiledRouter
	path   string
	host   string

	noEmpty bool // no segment of path is empty

	found candidates
	from  int32 // the position after the route yielded last
	all   bool  // yield every route; tests compare with it
}

// start begins at the first route.
func (x *scan) start(c *compiledRouter, req *http.Request) {
	x.router = c
	text := requestPath(req, c.useEncodedPath)
	x.begin(req, text, c.index.lookUp(text))
}

// begin is start with the result of the exact table's lookup.
func (x *scan) begin(req *http.Request, path string, exact *node) {
	x.path, x.host = path, requestHost(req)
	x.noEmpty = !strings.HasSuffix(path, "/") && !strings.Contains(path, "//")
	x.collect(req, exact)
}

// collect looks up the candidates again.
func (x *scan) collect(req *http.Request, exact *node) {
	x.found = candidates{steps: x.found.steps}
	x.router.index.collect(req, exact, x.path, &x.found)
}

// next returns the next route, or nil.
func (x *scan) next() *compiledRoute {
	if x.all {
		return x.nextOfAll()
	}
	l := x.found.next(x.from)
	if l == nil {
		return nil
	}
	x.from = l.at + 1
	return l.route
}

func (x *scan) nextOfAll() *compiledRoute {
	if int(x.from) >= len(x.router.routes) {
		return nil
	}
	x.from++
	return x.router.routes[x.from-1]
}

// evaluated must be called when user code may have changed the request. The
// routes after the one yielded last are then looked up for the changed request.
func (x *scan) evaluated(req *http.Request) {
	text := requestPath(req, x.router.useEncodedPath)
	if text != x.path || requestHost(req) != x.host {
		x.begin(req, text, x.router.index.lookUp(text))
	}
}
