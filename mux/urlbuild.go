package mux

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// A BuildVarsFunc changes the variables before a URL is built from them. It
// returns the map to use.
type BuildVarsFunc func(map[string]string) map[string]string

// BuildVarsFunc adds a function that changes the variables before a URL is
// built. Several functions are called in the order in which they were added,
// those of the router first.
func (r *Route) BuildVarsFunc(f BuildVarsFunc) *Route {
	r.change(func() { r.addBuildVarsFunc(f) })
	return r
}

func (r *Route) addBuildVarsFunc(f BuildVarsFunc) {
	first := r.buildVarsFunc
	if first == nil {
		r.buildVarsFunc = f
		return
	}
	r.buildVarsFunc = func(vars map[string]string) map[string]string { return f(first(vars)) }
}

// URL builds a URL that the route matches, from pairs of a variable's name and
// its value. All variables of host, path and queries are required, and the
// values must match their patterns. A route with a host template yields an
// absolute URL.
//
//	u, err := router.Get("article").URL("category", "go", "id", "42")
func (r *Route) URL(pairs ...string) (*url.URL, error) {
	return r.build(pairs, func(g templateGroup) (templateGroup, error) { return g, nil })
}

// URLHost builds the scheme and host of [Route.URL]. The route must have a host
// template.
func (r *Route) URLHost(pairs ...string) (*url.URL, error) {
	return r.build(pairs, func(g templateGroup) (templateGroup, error) {
		if g.host == nil {
			return g, errNo("a host")
		}
		return templateGroup{host: g.host}, nil
	})
}

// URLPath builds the path of [Route.URL]. The route must have a path template.
func (r *Route) URLPath(pairs ...string) (*url.URL, error) {
	return r.build(pairs, func(g templateGroup) (templateGroup, error) {
		if g.path == nil {
			return g, errNo("a path")
		}
		return templateGroup{path: g.path}, nil
	})
}

// build builds a URL from the templates that part selects. part is called before
// the route's BuildVarsFunc.
func (r *Route) build(pairs []string, part func(templateGroup) (templateGroup, error)) (*url.URL, error) {
	r.rlock()
	templates, scheme, err, buildVars := r.templates, r.buildScheme, r.err, r.buildVarsFunc
	r.runlock()
	if err != nil {
		return nil, err
	}
	if templates, err = part(templates); err != nil {
		return nil, err
	}
	if len(pairs)%2 != 0 {
		// The values may be personal, so the text does not quote them.
		return nil, fmt.Errorf("mux: number of parameters must be multiple of 2, got %d", len(pairs))
	}
	vars := mapOf(pairs)
	if buildVars != nil {
		vars = buildVars(vars)
	}
	u := &url.URL{}
	if templates.host != nil {
		u.Scheme = cmp.Or(scheme, "http")
		if u.Host, err = templates.host.build(vars); err != nil {
			return nil, err
		}
	}
	if templates.path != nil {
		if u.Path, err = templates.path.build(vars); err != nil {
			return nil, err
		}
	}
	queries := make([]string, len(templates.queries))
	for i, q := range templates.queries {
		if queries[i], err = q.build(vars); err != nil {
			return nil, err
		}
	}
	u.RawQuery = strings.Join(queries, "&")
	return u, nil
}

// build fills in the variables. It fails if a variable is missing, and if the
// value of one keeps the result from matching the template.
func (t *template) build(vars map[string]string) (string, error) {
	var out strings.Builder
	out.WriteString(t.literals[0])
	for i, name := range t.names {
		value, ok := vars[name]
		if !ok {
			return "", fmt.Errorf("mux: missing route variable %q", name)
		}
		if t.kind == queryTemplate {
			value = url.QueryEscape(value)
		}
		out.WriteString(value)
		out.WriteString(t.literals[i+1])
	}
	if t.matches(out.String()) {
		return out.String(), nil
	}
	for i, name := range t.names {
		if check := t.check(i); !check.MatchString(vars[name]) {
			// The value may be personal, so the text does not quote it.
			return "", fmt.Errorf("mux: variable %q doesn't match, expected %q", name, check)
		}
	}
	return out.String(), nil
}

// GetPathTemplate returns the path template, including that of the routers
// above. It fails if the route has an error or no path.
func (r *Route) GetPathTemplate() (string, error) {
	t, err := r.getTemplate(pathTemplate, "mux: route doesn't have a path")
	if err != nil {
		return "", err
	}
	return t.text, nil
}

// GetPathRegexp returns the regular expression for the path. It fails if
// [Route.GetPathTemplate] does.
func (r *Route) GetPathRegexp() (string, error) {
	t, err := r.getTemplate(pathTemplate, "mux: route does not have a path")
	if err != nil {
		return "", err
	}
	return t.source, nil
}

// GetHostTemplate returns the host template. It fails if the route has an error
// or no host.
func (r *Route) GetHostTemplate() (string, error) {
	t, err := r.getTemplate(hostTemplate, "mux: route doesn't have a host")
	if err != nil {
		return "", err
	}
	return t.text, nil
}

// getTemplate returns the path or the host template. The error text for a
// missing one is a parameter, because programs compare it.
func (r *Route) getTemplate(kind templateKind, none string) (*template, error) {
	r.rlock()
	defer r.runlock()
	t := r.templates.path
	if kind == hostTemplate {
		t = r.templates.host
	}
	switch {
	case r.err != nil:
		return nil, r.err
	case t == nil:
		return nil, errors.New(none)
	}
	return t, nil
}

// GetQueriesTemplates returns the query templates, each as "key=template". It
// fails if the route has an error or, when it was not made by a router, no
// queries.
func (r *Route) GetQueriesTemplates() ([]string, error) {
	return r.mapQueries(func(t *template) string { return t.text })
}

// GetQueriesRegexp returns the regular expressions for the queries. It fails if
// [Route.GetQueriesTemplates] does.
func (r *Route) GetQueriesRegexp() ([]string, error) {
	return r.mapQueries(func(t *template) string { return t.source })
}

func (r *Route) mapQueries(f func(*template) string) ([]string, error) {
	r.rlock()
	defer r.runlock()
	if r.err != nil {
		return nil, r.err
	}
	if r.templates.queries == nil {
		return nil, errNo("queries")
	}
	out := make([]string, len(r.templates.queries))
	for i, t := range r.templates.queries {
		out[i] = f(t)
	}
	return out, nil
}

// GetMethods returns the methods of the first call of [Route.Methods], of the
// route or of a route above it. It fails if the route has an error or no
// methods.
func (r *Route) GetMethods() ([]string, error) {
	r.rlock()
	defer r.runlock()
	if r.err != nil {
		return nil, r.err
	}
	names, ok := firstMethods(r.matchers)
	if !ok {
		return nil, errNo("methods")
	}
	return slices.Clone(names), nil
}

// GetVarNames returns the names of the variables of host, path and queries, in
// this order. It fails if the route has an error.
func (r *Route) GetVarNames() ([]string, error) {
	r.rlock()
	defer r.runlock()
	if r.err != nil {
		return nil, r.err
	}
	return r.templates.varNames(), nil
}
