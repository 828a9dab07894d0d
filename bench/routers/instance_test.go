package routers_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// Numbers of kinds of user code: see instance.matcher and instance.middleware.
const (
	matcherFuncKinds = 12
	middlewareKinds  = 8
)

// An instance is a router built from a table with one of the two packages, and
// the log of what user code saw.
type instance struct {
	root   router
	served router // the root, or a copy of its value
	routes []route
	access accessors
	log    []string

	// hasVars records, for each reading of the variables, whether there was a
	// map.
	hasVars []bool

	// update publishes several changes as one, if the package can.
	update func(func())

	// depth is the number of reentrant calls of the root for the request, and
	// maxDepth their maximum.
	depth, maxDepth int
}

func (in *instance) logf(format string, args ...any) {
	in.log = append(in.log, fmt.Sprintf(format, args...))
}

func (in *instance) build(t *table, r router, label string) {
	r.setFlags(t)
	var notFound, notAllowed http.Handler
	if t.notFound {
		notFound = in.handler(label+"404", "")
	}
	if t.notAllowed {
		notAllowed = in.handler(label+"405", "")
	}
	r.setHandlers(notFound, notAllowed)
	for i, kind := range t.middlewares {
		r.use(in.middleware(fmt.Sprintf("%smw%d", label, i), kind))
	}
	for i := range t.routes {
		in.buildRoute(&t.routes[i], r, fmt.Sprintf("%s%d", label, i))
		if t.lateStrict {
			r.setStrict(!t.strictSlash)
		}
	}
}

func (in *instance) buildRoute(spec *routeSpec, r router, label string) {
	rt := r.newRoute()
	in.routes = append(in.routes, rt)
	rt.label(label)
	for _, s := range spec.steps {
		in.apply(rt, s)
	}
	if spec.name != "" {
		rt.setName(spec.name)
	}
	if spec.handler {
		rt.handler(in.handler(label, spec.reenter))
	}
	if spec.buildOnly {
		rt.buildOnly()
	}
	for i := range spec.middlewares {
		rt.use(in.middleware(fmt.Sprintf("%sroute%d", label, i), 0))
	}
	if spec.sub != nil {
		in.build(spec.sub, rt.subrouter(), label+"/")
	}
	for _, s := range spec.after {
		in.apply(rt, s)
	}
}

func (in *instance) apply(rt route, s step) {
	rt.apply(s, in.matcher(s), func(vars map[string]string) map[string]string {
		in.logf("build vars %s %q", s.label, vars)
		vars["x"] = "1" + vars["x"]
		return vars
	})
}

// logRequest logs the request and what it shows of its route.
func (in *instance) logRequest(what string, req *http.Request) {
	vars := in.access.vars(req)
	in.hasVars = append(in.hasVars, vars != nil)
	in.logf("%s vars %q route %s router %v request %s %s %s form %v", what, vars, in.access.currentRoute(req),
		in.access.hasRouter(req),
		req.Method, req.URL, req.RemoteAddr, req.Form)
}

// handler returns a handler that may call the root again with another path.
func (in *instance) handler(label, reenter string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		in.logRequest("handler "+label, req)
		if reenter != "" && in.depth < in.maxDepth {
			in.depth++
			req.URL.Path, req.URL.RawPath = reenter, ""
			in.served.ServeHTTP(rw, req)
			in.logRequest("handler again "+label, req)
			return
		}
		rw.WriteHeader(299)
		fmt.Fprint(rw, label)
	})
}

// middleware returns middleware of a kind.
func (in *instance) middleware(label string, kind int) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		in.logf("wrap %s", label)
		return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			in.logRequest("enter "+label, req)
			inner := req
			switch kind {
			case 1:
				req.Method = map[string]string{"HEAD": "GET", "GET": "POST"}[req.Method]
			case 2:
				req.RemoteAddr = "changed by " + label
			case 3:
				_ = req.ParseForm() // an error is the same in both
			case 4:
				inner = req.Clone(req.Context())
			case 5:
				shallow := *req
				inner = &shallow
				inner.Method = "INNER"
			case 6:
				req.URL.Path = "/rewritten"
			}
			next.ServeHTTP(rw, inner)
			in.logRequest("leave "+label, req)
		})
	}
}

// matcher returns a MatcherFunc of the step's kind.
func (in *instance) matcher(s step) matcherFunc {
	return func(req *http.Request, m *matchState) bool {
		in.logf("matcher %s vars %q route %s err %s handler %v path %s", s.label, m.vars, m.route, m.err, m.handler != nil,
			req.URL.Path)
		switch s.kind {
		case 1:
			return false
		case 2:
			return req.Method == "GET"
		case 3, 4:
			vars := maps.Clone(m.vars)
			if vars == nil {
				vars = map[string]string{}
			}
			vars["x"], vars["set"] = "set", s.label
			m.vars = vars
			return s.kind == 3
		case 5:
			m.handler = in.handler("set by "+s.label, "")
		case 6:
			m.err = "notfound"
			return false
		case 7:
			m.err = "method"
			return false
		case 8:
			return strings.HasPrefix(req.URL.Path, "/a")
		case 9, 10:
			req.URL.Path, req.URL.RawPath = map[string]string{"/a": "/b", "/b": "/a/b", "/1": "/a"}[req.URL.Path]+"/1", ""
			return s.kind == 9
		case 11:
			req.Host = "a.com"
			return false
		}
		return true
	}
}

// applyChanges applies the changes of a scenario. It changes either the root or
// its copy: in gorilla they would overwrite each other's routes.
func (in *instance) applyChanges(changes []change) {
	changed := in.root
	if len(changes) > 0 && changes[0].on%2 == 1 {
		changed = in.served
	}
	for i, c := range changes {
		label := fmt.Sprintf("late%d", i)
		switch {
		case c.on < 2:
			in.changeRouter(changed, c, label)
		case len(in.routes) > 0:
			in.changeRoute(in.routes[c.on%len(in.routes)], c, label)
		}
	}
}

func (in *instance) changeRouter(r router, c change, label string) {
	switch c.kind {
	case 0:
		r.use(in.middleware(label+"mw", 0))
	case 1:
		r.setStrict(true)
	default:
		in.buildRoute(&c.spec, r, label)
	}
}

func (in *instance) changeRoute(rt route, c change, label string) {
	switch c.kind {
	case 0:
		rt.handler(in.handler(label, ""))
	case 1:
		rt.buildOnly()
	case 2:
		rt.setName("n3")
	case 3:
		sub := rt.subrouter()
		sub.newRoute().handler(in.handler(label, ""))
	default:
		in.apply(rt, c.step)
	}
}
