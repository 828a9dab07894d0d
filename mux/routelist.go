package mux

import (
	"strings"
	"text/tabwriter"
)

// A RouteInfo describes one route.
type RouteInfo struct {
	Route *Route

	// Depth is the number of routes above it.
	Depth int

	Name    string
	Methods []string
	Host    string   // template
	Path    string   // template
	Prefix  bool     // Path is the beginning of the paths that match
	Queries []string // templates, each as "key=template"

	// Handled reports whether the route has a handler.
	Handled bool

	// Err is the error that keeps the route from matching, or nil.
	Err error
}

// A RouteList is the routes of a router in the order of [Router.Walk].
type RouteList []RouteInfo

// Routes lists the routes of the router and of those below it.
func (r *Router) Routes() RouteList {
	var list RouteList
	// The function below returns no error, so Walk returns none.
	_ = r.Walk(func(route *Route, _ *Router, ancestors []*Route) error {
		list = append(list, route.info(len(ancestors)))
		return nil
	})
	return list
}

func (r *Route) info(depth int) RouteInfo {
	info := RouteInfo{Route: r, Depth: depth, Name: r.GetName(), Handled: r.GetHandler() != nil, Err: r.GetError()}
	info.Methods, _ = r.GetMethods()
	info.Queries, _ = r.GetQueriesTemplates()
	if t, err := r.getTemplate(hostTemplate, ""); err == nil {
		info.Host = t.text
	}
	if t, err := r.getTemplate(pathTemplate, ""); err == nil {
		info.Path, info.Prefix = t.text, t.kind == prefixTemplate
	}
	return info
}

// String returns a table with one line per route: its methods, its host and
// path with the query, its name, and its error. A prefix ends in an ellipsis.
// Routes of subrouters are indented.
func (l RouteList) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i := range l {
		// Writes to a strings.Builder do not fail.
		_, _ = w.Write([]byte(l[i].line() + "\n"))
	}
	_ = w.Flush()
	return b.String()
}

func (info *RouteInfo) line() string {
	methods := strings.Join(info.Methods, ",")
	if methods == "" {
		methods = "*"
	}
	target := strings.Repeat("  ", info.Depth) + info.Host + info.Path
	if info.Prefix {
		target += "…"
	}
	if len(info.Queries) > 0 {
		target += "?" + strings.Join(info.Queries, "&")
	}
	note := info.Name
	switch {
	case info.Err != nil:
		note += " (" + info.Err.Error() + ")"
	case !info.Handled:
		note += " (no handler)"
	}
	return strings.TrimRight(methods+"\t"+target+"\t"+strings.TrimSpace(note), "\t")
}
