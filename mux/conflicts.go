package mux

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// A Conflict is a route that can never match.
type Conflict struct {
	// Route is the route.
	Route *Route

	// By is the earlier route that matches every request that Route would
	// match, or nil if Route alone is the cause.
	By *Route

	// Reason is a sentence to show to people.
	Reason string
}

// String returns the reason.
func (c Conflict) String() string { return c.Reason }

// Conflicts reports routes that can never match, in the order of [Router.Walk].
// Routes that are BuildOnly are not meant to match and are left out.
//
// Every reported conflict is certain, as long as no MatcherFunc changes
// requests. A route that is not reported may still never match: regular
// expressions are compared as text, and a MatcherFunc can reject everything.
func (r *Router) Conflicts() []Conflict {
	var found []Conflict
	r.compiled().eachRoute(func(c *compiledRouter, at int) bool {
		conflict, ok := c.conflictAt(at)
		if ok {
			found = append(found, conflict)
		}
		return !ok
	})
	return found
}

// conflictAt returns why the route at a position cannot match, and whether
// there is a reason.
func (c *compiledRouter) conflictAt(i int) (Conflict, bool) {
	route := c.routes[i]
	if !route.active {
		if err := route.route.GetError(); err != nil {
			return Conflict{route.route, nil, fmt.Sprintf("%s has an error: %v", route, err)}, true
		}
		return Conflict{}, false
	}
	if what := contradiction(route.matchers); what != "" {
		return Conflict{route.route, nil, fmt.Sprintf("%s cannot match: %s", route, what)}, true
	}
	suspects := c.suspects(route)
	for l := suspects.next(0); l != nil && l.at < int32(i); l = suspects.next(l.at + 1) {
		if l.route.covers(route) {
			reason := fmt.Sprintf("%s cannot match: %s, added before, takes all of its requests", route, l.route)
			return Conflict{route.route, l.route.route, reason}, true
		}
	}
	return Conflict{}, false
}

// suspects returns the routes that may cover a route. One that does covers all paths, or all hosts, of one of its
// templates, so the index finds it under any of them.
func (c *compiledRouter) suspects(route *compiledRoute) (found candidates) {
	found.add(&c.index.always)
	for i := range route.matchers {
		if route.matchers[i].kind != matchTemplate {
			continue
		}
		switch t := route.matchers[i].template; {
		case t.shape.known && t.encoded == c.useEncodedPath:
			path := t.shape.sample()
			if exact := c.index.lookUp(path); exact != nil {
				found.add(&exact.here)
			}
			if strings.HasPrefix(path, "/") {
				c.index.root.collect(path, 1, &found)
			}
		case t.kind == hostTemplate && t.plan != nil:
			if n := c.index.hosts.get(t.plan.head); n != nil {
				found.add(&n.here)
			}
		}
	}
	return found
}

// sample returns a path of the shape, with values of variables that no literal has.
func (s *shape) sample() string {
	if s.literal {
		return s.text
	}
	var path strings.Builder
	for _, seg := range s.segments {
		path.WriteString("/" + seg.prefix)
		if seg.wild {
			path.WriteString("\x00" + seg.suffix)
		}
	}
	return path.String()
}

// String describes the route by its methods, host and path.
func (c *compiledRoute) String() string {
	parts := []string{"route"}
	if names, ok := firstMethods(c.matchers); ok {
		parts = append(parts, strings.Join(names, ","))
	}
	target := c.pattern
	if c.host != nil {
		target = c.host.text + target
	}
	if target == "" {
		target = "without a path"
	}
	return strings.Join(append(parts, target), " ")
}

// contradiction describes two matchers of a route that exclude each other. It
// returns an empty string if there are none.
func contradiction(matchers []matcher) string {
	for i := range matchers {
		a := &matchers[i]
		if (a.kind == matchMethods || a.kind == matchSchemes) && len(a.names) == 0 {
			return "a list of methods or schemes is empty"
		}
		for j := range i {
			if b := &matchers[j]; a.kind == b.kind && a.excludes(b) {
				return fmt.Sprintf("%s and %s exclude each other", b, a)
			}
		}
	}
	return ""
}

func (m *matcher) String() string {
	if m.kind == matchTemplate {
		return fmt.Sprintf("%q", m.template.text)
	}
	return fmt.Sprintf("%q", m.names)
}

// excludes reports whether no request meets both conditions, which are of one
// kind. It may return false when none does.
func (m *matcher) excludes(other *matcher) bool {
	switch m.kind {
	case matchMethods, matchSchemes:
		return !slices.ContainsFunc(m.names, func(name string) bool { return slices.Contains(other.names, name) })
	case matchTemplate:
		a, b := m.template, other.template
		return a.shape.known && b.shape.known && a.encoded == b.encoded && a.shape.disjoint(&b.shape)
	default:
		return false
	}
}

// covers reports whether c matches every request that later matches. It may
// return false when it does.
func (c *compiledRoute) covers(later *compiledRoute) bool {
	if !c.active {
		return false
	}
	for i := range c.matchers {
		implied := func(m matcher) bool { return c.matchers[i].impliedBy(&m) }
		if !slices.ContainsFunc(later.matchers, implied) {
			return false
		}
	}
	return true
}

// impliedBy reports whether every request that meets other meets m. It may
// return false when every one does.
func (m *matcher) impliedBy(other *matcher) bool {
	if m.kind != other.kind {
		return false
	}
	switch m.kind {
	case matchTemplate:
		return m.template.impliedBy(other.template)
	case matchMethods, matchSchemes:
		return !slices.ContainsFunc(other.names, func(name string) bool { return !slices.Contains(m.names, name) })
	case matchHeaders:
		return !slices.ContainsFunc(m.headers,
			func(rule headerRule) bool { return !slices.ContainsFunc(other.headers, rule.impliedBy) })
	default:
		return false
	}
}

func (h headerRule) impliedBy(other headerRule) bool {
	if h.name != other.name {
		return false
	}
	switch {
	case h.expr != nil:
		return other.expr != nil && h.expr.String() == other.expr.String()
	case h.value == "":
		return true
	default:
		return other.expr == nil && h.value == other.value
	}
}

func (t *template) impliedBy(other *template) bool {
	sameInput := t.kind == other.kind || (t.isPath() && other.isPath())
	if !sameInput || t.encoded != other.encoded || t.key != other.key {
		return false
	}
	// The expressions do not contain the names of variables.
	if t.kind == other.kind && t.anyPort == other.anyPort && t.source == other.source {
		return true
	}
	if !t.isPath() || !t.shape.known || !other.shape.known {
		return false
	}
	if t.kind == prefixTemplate {
		return len(t.names) == 0 && strings.HasPrefix(other.head(), t.text)
	}
	return t.shape.contains(&other.shape)
}

func (t *template) isPath() bool { return t.kind == pathTemplate || t.kind == prefixTemplate }

// head returns the literal text with which every match of the path template
// begins.
func (t *template) head() string {
	if t.shape.literal {
		return t.shape.text
	}
	return t.literals[0]
}

// variants yields the segments of the shape with and without the optional
// slash.
func (s *shape) variants() iter.Seq[[]segment] {
	return func(yield func([]segment) bool) {
		segments := s.segments
		// An empty template stands for the empty path, which has no segments.
		if s.literal && s.text != "" {
			for text := range strings.SplitSeq(s.text[1:], "/") {
				segments = append(segments, segment{prefix: text})
			}
		}
		if !yield(segments) || !s.optionalSlash {
			return
		}
		yield(append(slices.Clip(segments), segment{}))
	}
}

// disjoint reports whether no path has both shapes.
func (s *shape) disjoint(other *shape) bool {
	if s.open || other.open {
		return false
	}
	for a := range s.variants() {
		for b := range other.variants() {
			if len(a) != len(b) {
				continue
			}
			differ := false
			for i := range a {
				differ = differ || (!a[i].wild && !b[i].wild && a[i].literal() != b[i].literal())
			}
			if !differ {
				return false
			}
		}
	}
	return true
}

// contains reports whether each path of the other shape matches the template
// from which s was derived. It may return false when each does.
func (s *shape) contains(other *shape) bool {
	if s.open || other.open {
		return false
	}
	for b := range other.variants() {
		found := false
		for a := range s.variants() {
			found = found || slices.EqualFunc(a, b, segment.contains)
		}
		if !found {
			return false
		}
	}
	return true
}

func (s segment) contains(other segment) bool {
	switch {
	case s.any && other.wild:
		return other.filled
	case s.any:
		return other.literal() != ""
	case s.wild:
		return false
	default:
		return !other.wild && s.literal() == other.literal()
	}
}
