// This file and gorilla_test.go differ only by the imported package and by the
// names that begin with ours here and gorilla there. The two packages have the same
// methods, but with parameters and results of their own types. No interface fits
// both, so each needs an adapter. TestAdaptersAgree compares the files.

package routers_test

import (
	"fmt"
	"net/http"

	mux "github.com/pulsegate/pulsegate/mux"
)

type oursRouter struct{ *mux.Router }

type oursRoute struct{ *mux.Route }

type oursLabel struct{}

var oursAccessors = accessors{
	vars:         mux.Vars,
	currentRoute: func(r *http.Request) string { return oursLabelOf(mux.CurrentRoute(r)) },
	hasRouter:    func(r *http.Request) bool { return mux.CurrentRouter(r) != nil },
}

func oursLabelOf(r *mux.Route) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprint(r.GetMetadataValueOr(oursLabel{}, "unlabelled"))
}

func (r oursRouter) setFlags(t *table) {
	r.StrictSlash(t.strictSlash).SkipClean(t.skipClean).OmitRouteFromContext(t.omitRoute).
		OmitRouterFromContext(t.omitRouter)
	if t.encoded {
		r.UseEncodedPath()
	}
}

func (r oursRouter) setStrict(v bool) { r.StrictSlash(v) }

func (r oursRouter) setHandlers(notFound, notAllowed http.Handler) {
	r.NotFoundHandler, r.MethodNotAllowedHandler = notFound, notAllowed
}

func (r oursRouter) use(f func(http.Handler) http.Handler) { r.Use(f) }

func (r oursRouter) copied() router {
	c := *r.Router
	return oursRouter{&c}
}

func (r oursRouter) named(name string) string { return oursLabelOf(r.Get(name)) }

func (r oursRouter) walk() (log []string) {
	err := r.Walk(func(rt *mux.Route, _ *mux.Router, ancestors []*mux.Route) error {
		line := oursLabelOf(rt)
		for _, a := range ancestors {
			line += " below " + oursLabelOf(a)
		}
		log = append(log, line)
		return nil
	})
	return append(log, fmt.Sprint(err))
}

func (r oursRouter) newRoute() route { return oursRoute{r.NewRoute()} }

func (r oursRouter) corsMethods() func(http.Handler) http.Handler {
	return mux.CORSMethodMiddleware(r.Router)
}

func (r oursRouter) match(req *http.Request) matchResult {
	var m mux.RouteMatch
	ok := r.Match(req, &m)
	return matchResult{ok, oursState(&m)}
}

func oursState(m *mux.RouteMatch) matchState {
	s := matchState{route: oursLabelOf(m.Route), handler: m.Handler, vars: m.Vars}
	switch m.MatchErr {
	case mux.ErrMethodMismatch:
		s.err = "method"
	case mux.ErrNotFound:
		s.err = "notfound"
	}
	return s
}

func (r oursRoute) match(req *http.Request) matchResult {
	var m mux.RouteMatch
	ok := r.Match(req, &m)
	return matchResult{ok, oursState(&m)}
}

func (r oursRoute) matchCopy(req *http.Request) matchResult {
	c := *r.Route
	return oursRoute{&c}.match(req)
}

func (r oursRoute) apply(s step, matcher matcherFunc, buildVars func(map[string]string) map[string]string) {
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
		r.MatcherFunc(func(req *http.Request, m *mux.RouteMatch) bool {
			before := oursState(m)
			state := before
			ok := matcher(req, &state)
			m.Vars, m.Handler = state.vars, state.handler
			if state.err != before.err {
				m.MatchErr = map[string]error{"method": mux.ErrMethodMismatch, "notfound": mux.ErrNotFound}[state.err]
			}
			return ok
		})
	}
}

func (r oursRoute) handler(h http.Handler) { r.Handler(h) }
func (r oursRoute) buildOnly()             { r.BuildOnly() }
func (r oursRoute) setName(n string)       { r.Name(n) }
func (r oursRoute) subrouter() router      { return oursRouter{r.Subrouter()} }
func (r oursRoute) label(l string)         { r.Metadata(oursLabel{}, l) }

func (r oursRoute) use(f func(http.Handler) http.Handler) { r.Use(f) }

func (r oursRoute) describe() []string {
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

func (r oursRoute) urls(pairs ...string) []string {
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
