package mux

import (
	"iter"
	"net/http"
	"slices"
	"strings"
)

// An index finds the routes of one router that a path does not rule out.
//
// Invariant: it may return too many candidates, never too few. A route is left
// out only if one of its path templates cannot match, and only if every matcher
// before that template does nothing but say no: a MatcherFunc, a subrouter or a
// query in front of it leaves traces in the search even when the path is
// another. TestIndexAgreesWithScan compares all small route tables with a scan.
type index struct {
	// exact has the candidates, complete and in order, for every path that is
	// the text of a template without variables.
	exact map[string]*exactEntry

	// root is the tree of the other templates, behind the leading slash.
	root node

	// always is the routes that no path rules out.
	always []int32
}

type exactEntry struct {
	candidates []int32
	clean      bool // the path needs no redirect to its clean form

	// direct is the first candidates, as far as for each of them nothing but
	// the method is left to be decided.
	direct []directRoute
}

// A directRoute matches every request that has one of the methods.
type directRoute struct {
	route     *compiledRoute
	methods   []string
	anyMethod bool
}

func (d *directRoute) allows(method string) bool {
	return d.anyMethod || slices.Contains(d.methods, method)
}

func newIndex(c *compiledRouter) index {
	var x index
	literal := make(map[string][]int32)
	for i := range c.routes {
		route, at := &c.routes[i], int32(i)
		if !route.active {
			continue
		}
		t := route.decidingTemplate(c.useEncodedPath)
		switch {
		case t == nil:
			x.always = append(x.always, at)
		case t.shape.literal:
			literal[t.shape.text] = append(literal[t.shape.text], at)
			if t.shape.optionalSlash {
				text := t.shape.text + "/"
				literal[text] = append(literal[text], at)
			}
		default:
			x.root.add(t.shape.segments, t.shape.open, at)
			if t.shape.optionalSlash {
				x.root.add(append(slices.Clip(t.shape.segments), segment{}), false, at)
			}
		}
	}
	// The paths of the table are known, so their candidates from the tree are
	// too.
	x.exact = make(map[string]*exactEntry, len(literal))
	for path, list := range literal {
		var found candidates
		x.collect(path, &found)
		found.add(list)
		entry := &exactEntry{candidates: slices.Collect(found.inOrder()), clean: isClean(path)}
		for _, at := range entry.candidates {
			route := &c.routes[at]
			if !route.isDirect(path) {
				break
			}
			entry.direct = append(entry.direct, route.direct())
		}
		x.exact[path] = entry
	}
	return x
}

// isDirect reports whether the route matches every request with the path and
// the right method, without variables and without a redirect.
func (c *compiledRoute) isDirect(path string) bool {
	if !c.plain || c.handler == nil || len(c.varNames) > 0 {
		return false
	}
	for i := range c.matchers {
		m := &c.matchers[i]
		if m.kind == matchMethods {
			continue
		}
		if m.kind != matchTemplate || m.template != c.path || !m.template.shape.literal || !m.template.matches(path) {
			return false
		}
	}
	return c.path != nil && !c.needsSlash(path)
}

func (c *compiledRoute) direct() directRoute {
	d := directRoute{route: c, anyMethod: true}
	for i := range c.matchers {
		m := &c.matchers[i]
		if m.kind != matchMethods {
			continue
		}
		if d.anyMethod {
			d.methods, d.anyMethod = m.names, false
			continue
		}
		d.methods = slices.DeleteFunc(slices.Clone(d.methods), func(name string) bool { return !slices.Contains(m.names, name) })
	}
	return d
}

// allows reports whether all method matchers accept the method.
func (c *compiledRoute) allows(method string) bool {
	for i := range c.matchers {
		if m := &c.matchers[i]; m.kind == matchMethods && !slices.Contains(m.names, method) {
			return false
		}
	}
	return true
}

// decidingTemplate returns the path template that rules the route in or out, or
// nil. Of several the last is taken, since in a subrouter it is the longest.
func (c *compiledRoute) decidingTemplate(encoded bool) *template {
	var best *template
	for i := range c.matchers {
		m := &c.matchers[i]
		if !m.decides() {
			break
		}
		if m.kind == matchTemplate && m.template.shape.known && m.template.encoded == encoded {
			best = m.template
		}
	}
	return best
}

// collect adds the candidates for a path that is not in the table. Those for a
// path in the table are in its entry.
func (x *index) collect(path string, found *candidates) {
	found.add(x.always)
	if strings.HasPrefix(path, "/") {
		x.root.collect(path[1:], found)
	}
}

// candidatesFor yields the positions of all candidates for a request.
func (c *compiledRouter) candidatesFor(req *http.Request) iter.Seq[int32] {
	path := requestPath(req, c.useEncodedPath)
	if entry, ok := c.index.exact[path]; ok {
		return slices.Values(entry.candidates)
	}
	var found candidates
	c.index.collect(path, &found)
	return found.inOrder()
}

// A node stands for the segments on the way to it.
type node struct {
	literal map[string]*node // by the next segment
	wild    *node            // any next segment

	// here is the routes whose template ends at this node.
	here []int32

	// below is the routes that match anything that follows.
	below []int32

	// partial is the routes that match whatever follows and begins with the
	// key, and lengths the keys' lengths, each once.
	partial map[string][]int32
	lengths []int
}

// add enters a route under the segments of its template.
func (n *node) add(segments []segment, open bool, at int32) {
	for i, seg := range segments {
		if open && i == len(segments)-1 {
			n.addPartial(seg.literal, at)
			return
		}
		n = n.child(seg)
	}
	n.here = append(n.here, at)
}

func (n *node) addPartial(beginning string, at int32) {
	if beginning == "" {
		n.below = append(n.below, at)
		return
	}
	if n.partial == nil {
		n.partial = make(map[string][]int32)
	}
	n.partial[beginning] = append(n.partial[beginning], at)
	if !slices.Contains(n.lengths, len(beginning)) {
		n.lengths = append(n.lengths, len(beginning))
	}
}

func (n *node) child(seg segment) *node {
	if seg.wild {
		if n.wild == nil {
			n.wild = &node{}
		}
		return n.wild
	}
	if n.literal == nil {
		n.literal = make(map[string]*node)
	}
	if n.literal[seg.literal] == nil {
		n.literal[seg.literal] = &node{}
	}
	return n.literal[seg.literal]
}

// collect adds the candidates for rest, which is the path after the slash that
// leads to n.
//
// Invariant: each node is visited at most once for a path, and a visit looks at
// no more than the node's next segment and its partial literals. The cost is
// bounded by the number of nodes times the length of the path, and the depth of
// the recursion by that of the tree.
func (n *node) collect(rest string, found *candidates) {
	found.add(n.below)
	for _, length := range n.lengths {
		if length <= len(rest) {
			found.add(n.partial[rest[:length]])
		}
	}
	if n.literal == nil && n.wild == nil {
		return
	}
	seg, tail, more := rest, "", false
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		seg, tail, more = rest[:slash], rest[slash+1:], true
	}
	if child := n.literal[seg]; child != nil {
		child.enter(tail, more, found)
	}
	if n.wild != nil {
		n.wild.enter(tail, more, found)
	}
}

func (n *node) enter(tail string, more bool, found *candidates) {
	if more {
		n.collect(tail, found)
	} else {
		found.add(n.here)
	}
}

// candidates is several ascending lists of positions, read as one.
type candidates struct {
	lists [4][]int32
	n     int // lists in use, those in more included
	more  [][]int32
}

func (c *candidates) add(list []int32) {
	if len(list) == 0 {
		return
	}
	if c.n < len(c.lists) {
		c.lists[c.n] = list
	} else {
		c.more = append(c.more, list)
	}
	c.n++
}

// next returns the lowest position that is not below from, and forgets those
// below it.
func (c *candidates) next(from int32) (int32, bool) {
	lowest, ok := int32(0), false
	for i := range c.n {
		list := c.list(i)
		for len(*list) > 0 && (*list)[0] < from {
			*list = (*list)[1:]
		}
		if len(*list) > 0 && (!ok || (*list)[0] < lowest) {
			lowest, ok = (*list)[0], true
		}
	}
	return lowest, ok
}

func (c *candidates) list(i int) *[]int32 {
	if i < len(c.lists) {
		return &c.lists[i]
	}
	return &c.more[i-len(c.lists)]
}

func (c candidates) inOrder() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		next := int32(0)
		for {
			at, ok := c.next(next)
			if !ok || !yield(at) {
				return
			}
			next = at + 1
		}
	}
}
