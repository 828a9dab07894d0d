// This file and mux_test.go differ only by the imported package and by the
// names that begin with gorilla here and ours there. The two packages have the
// same methods, but with parameters and results of their own types. No
// interface fits both, so each needs an adapter. TestAdaptersAgree compares the
// files.

package routers_test

import (
	"fmt"
	"net/http"

	gorilla "github.com/gorilla/mux"
)

type gorillaRouter struct{ *gorilla.Router }

type gorillaRoute struct{ *gorilla.Route }

type gorillaLabel struct{}

var gorillaAccessors = accessors{
	vars:         gorilla.Vars,
	currentRoute: func(r *http.Request) string { return gorillaLabelOf(gorilla.CurrentRoute(r)) },
	hasRouter:    func(r *http.Request) bool { return gorilla.CurrentRouter(r) != nil },
}

func gorillaLabelOf(r *gorilla.Route) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprint(r.GetMetadataValueOr(gorillaLabel{}, "unlabelled"))
}

func (r gorillaRouter) setFlags(t *table) {
	r.StrictSlash(t.strictSlash).SkipClean(t.skipClean).OmitRouteFromContext(t.omitRoute).
		OmitRouterFromContext(t.omitRouter)
	if t.encoded {
		r.UseEncodedPath()
	}
}

func (r gorillaRouter) setStrict(v bool) { r.StrictSlash(v) }

func (r gorillaRouter) setHandlers(notFound, notAllowed http.Handler) {
	r.NotFoundHandler, r.MethodNotAllowedHandler = notFound, notAllowed
}

func (r gorillaRouter) use(f func(http.Handler) http.Handler) { r.Use(f) }

func (r gorillaRouter) copied() router {
	c := *r.Router
	return gorillaRouter{&c}
}

func (r gorillaRouter) named(name string) string { return gorillaLabelOf(r.Get(name)) }

func (r gorillaRouter) walk() (log []string) {
	err := r.Walk(func(rt *gorilla.Route, _ *gorilla.Router, ancestors []*gorilla.Route) error {
		line := gorillaLabelOf(rt)
		for _, a := range ancestors {
			line += " below " + gorillaLabelOf(a)
		}
		log = append(log, line)
		return nil
	})
	return append(log, fmt.Sprint(err))
}

func (r gorillaRouter) newRoute() route { return gorillaRoute{r.NewRoute()} }

func (r gorillaRouter) corsMethods() func(http.Handler) http.Handler {
	return gorilla.CORSMethodMiddleware(r.Router)
}

func (r gorillaRouter) match(req *http.Request) matchResult {
	var m gorilla.RouteMatch
	ok := r.Match(req, &m)
	return matchResult{ok, gorillaState(&m)}
}

func gorillaState(m *gorilla.RouteMatch) matchState {
	s := matchState{route: gorillaLabelOf(m.Route), handler: m.Handler, vars: m.Vars}
	switch m.MatchErr {
	case gorilla.ErrMethodMismatch:
		s.err = "method"
	case gorilla.ErrNotFound:
		s.err = "notfound"
	}
	return s
}

func (r gorillaRoute) match(req *http.Request) matchResult {
	var m gorilla.RouteMatch
	ok := r.Match(req, &m)
	return matchResult{ok, gorillaState(&m)}
}

func (r gorillaRoute) matchCopy(req *http.Request) matchResult {
	c := *r.Route
	return gorillaRoute{&c}.match(req)
}

func (r gorillaRoute) apply(s step, matcher matcherFunc, buildVars func(map[string]string) map[string]string) {
	switch s.call {
	case "Path":
		r.Path(s.args[0])
	case "PathPrefix":
		r.PathPrefix(s.args[0])
	case "Host":
		r.Host(s.args[0])
	case "Methods":
		r.Methods(append([]string(nil), s.args...)...)
	case "Queries":
		r.Queries(s.args...)
	case "Headers":
		r.Headers(s.args...)
	case "HeadersRegexp":
		r.HeadersRegexp(s.args...)
	case "Schemes":
		r.Schemes(append([]string(nil), s.args...)...)
	case "BuildVarsFunc":
		r.BuildVarsFunc(buildVars)
	case "MatcherFunc":
		r.MatcherFunc(func(req *http.Request, m *gorilla.RouteMatch) bool {
			before := gorillaState(m)
			state := before
			ok := matcher(req, &state)
			m.Vars, m.Handler = state.vars, state.handler
			if state.err != before.err {
				m.MatchErr = map[string]error{"method": gorilla.ErrMethodMismatch, "notfound": gorilla.ErrNotFound}[state.err]
			}
			return ok
		})
	}
}

func (r gorillaRoute) handler(h http.Handler) { r.Handler(h) }
func (r gorillaRoute) buildOnly()             { r.BuildOnly() }
func (r gorillaRoute) setName(n string)       { r.Name(n) }
func (r gorillaRoute) subrouter() router      { return gorillaRouter{r.Subrouter()} }
func (r gorillaRoute) label(l string)         { r.Metadata(gorillaLabel{}, l) }

func (r gorillaRoute) use(f func(http.Handler) http.Handler) { r.Use(f) }

func (r gorillaRoute) describe() []string {
	var out []string
	add := func(v any, err error) { out = append(out, fmt.Sprintf("%q, %v", v, err)) }
	add(r.GetPathTemplate())
	add(r.GetPathRegexp())
	add(r.GetHostTemplate())
	add(r.GetQueriesTemplates())
	add(r.GetQueriesRegexp())
	add(r.GetMethods())
	add(r.GetVarNames())
	add(r.GetName(), r.GetError())
	add(r.SkipClean(), nil)
	add(r.GetHandler() == nil, nil)
	return out
}

func (r gorillaRoute) urls(pairs ...string) []string {
	var out []string
	add := func(v fmt.Stringer, err error) {
		if err != nil {
			v = nil
		}
		out = append(out, fmt.Sprintf("%v, %v", v, err))
	}
	add(r.URL(pairs...))
	add(r.URLPath(pairs...))
	add(r.URLHost(pairs...))
	return out
}
