package mux

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// MatchByScan is Router.Match without an index.
func MatchByScan(r *Router, req *http.Request, match *RouteMatch) bool {
	c := r.compiled()
	s := search{root: r, top: c}
	s.noIndex = true
	s.start(match)
	ok := c.search(req, &s)
	s.finish(ok)
	return ok
}

// ConflictsByScan is Router.Conflicts without an index: it compares each route with all before it.
func ConflictsByScan(r *Router) []Conflict {
	var found []Conflict
	r.compiled().eachRoute(func(c *compiledRouter, at int) bool {
		route := c.routes[at]
		if conflict, ok := c.conflictAt(at); ok && conflict.By == nil {
			found = append(found, conflict)
			return false
		}
		for _, earlier := range c.routes[:at] {
			if route.active && earlier.covers(route) {
				reason := fmt.Sprintf("%s cannot match: %s, added before, takes all of its requests", route, earlier)
				found = append(found, Conflict{route.route, earlier.route, reason})
				return false
			}
		}
		return true
	})
	return found
}

// FastPath reports whether the path has a single list of candidates (fast), and
// whether these are the ones that the index collects (agree).
func FastPath(r *Router, path string) (fast, agree bool) {
	c := r.compiled()
	l := c.index.fastList(path)
	if l == nil || c.index.lookUp(path) != nil {
		return false, true
	}
	x := scan{router: c}
	x.begin(&http.Request{URL: &url.URL{Path: path}}, path, nil)
	for ; l != nil; l = l.next {
		if x.next() != l.route {
			return true, false
		}
	}
	return true, x.next() == nil && isClean(path) && !strings.Contains(path[1:], "//") && !strings.HasSuffix(path, "/")
}

// The kinds of templates, for ComparePlan.
const (
	PathKind   = pathTemplate
	PrefixKind = prefixTemplate
	HostKind   = hostTemplate
	QueryKind  = queryTemplate
)

// ComparePlan matches strings against a template with and without its plan, and
// describes the first difference, if any. It also checks the shape. planned
// reports whether there is a plan.
func ComparePlan(text string, kind templateKind, strictSlash bool, inputs ...string) (diff string, planned bool) {
	t, err := newTemplate(text, kind, templateOptions{strictSlash: strictSlash && kind == pathTemplate})
	if err != nil {
		return "", false
	}
	expr := regexp.MustCompile(t.source)
	holds := shapeOf(t)
	for _, s := range inputs {
		at := expr.FindStringSubmatchIndex(s)
		if at != nil && t.isPath() && !holds(s) {
			return fmt.Sprintf("%q matches %q, but the index rules it out", text, s), t.plan != nil
		}
		if t.plan == nil {
			continue
		}
		values := make([]string, len(t.plan.vars))
		if got := t.plan.run(s, values); got != (at != nil) {
			return fmt.Sprintf("%q on %q: plan %v, expression %v", text, s, got, at != nil), true
		}
		for i := range t.names {
			if at == nil {
				break
			}
			if want := s[at[2*i+2]:at[2*i+3]]; values[i] != want {
				return fmt.Sprintf("%q on %q: variable %d is %q, by expression %q", text, s, i, values[i], want), true
			}
		}
	}
	return "", t.plan != nil
}

// shapeOf returns a function that reports whether an index that contains only
// the template yields it for a path.
func shapeOf(t *template) func(path string) bool {
	var x index
	x.add(&compiledRoute{active: true, matchers: []matcher{{template: t}}}, t.encoded)
	return func(text string) bool {
		var found candidates
		x.collectPath(x.lookUp(text), text, &found)
		return found.next(0) != nil
	}
}

// IsClean and CleanPath are the two halves of path cleaning.
func IsClean(p string) bool { return isClean(p) }

func CleanPath(p string) string { return cleanPath(p) }

// FirstQueryValue is the lookup that Queries uses.
func FirstQueryValue(query, key string) (string, bool) { return firstQueryValue(query, key) }

// Steps returns how many nodes, links and routes a search for the request
// examines.
func Steps(r *Router, req *http.Request) int {
	c := r.compiled()
	s := search{root: r, top: c}
	c.search(req, &s)
	return s.steps
}

// CompiledRoutes returns how many routes of the router's tree have been
// compiled so far. A route counts each time that it is compiled.
func CompiledRoutes(r *Router) int {
	t := r.tree()
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.compiledRoutes
}
