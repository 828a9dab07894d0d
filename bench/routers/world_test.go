package routers_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// Numbers of things that user code may do: see world.matcher and world.middleware.
const (
	matcherFuncKinds = 12
	middlewareKinds  = 8
)

// A world is one of the two packages with a router built from a table, and the
// log of what user code saw.
type world struct {
	root   router
	served router // the root, or a copy of its value
	routes []route
	ask    asker
	log    []string

	// notNil has for each time that variables were asked for whether there was a
	// map.
	notNil []bool

	// update makes several changes as one, as far as the package can.
	update func(func())

	// depth is how often the request has been given back to the root, and most
	// how often that may be.
	depth, most int
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) build(t *table, r router, label string) {
	r.setFlags(t)
	var notFound, notAllowed http.Handler
	if t.notFound {
		notFound = w.handler(label+"404", "")
	}
	if t.notAllowed {
		notAllowed = w.handler(label+"405", "")
	}
	r.setHandlers(notFound, notAllowed)
	for i, kind := range t.middlewares {
		r.use(w.middleware(fmt.Sprintf("%smw%d", label, i), kind))
	}
	for i := range t.routes {
		w.buildRoute(&t.routes[i], r, fmt.Sprintf("%s%d", label, i))
		if t.lateStrict {
			r.setStrict(!t.strictSlash)
		}
	}
}

func (w *world) buildRoute(spec *routeSpec, r router, label string) {
	rt := r.newRoute()
	w.routes = append(w.routes, rt)
	rt.label(label)
	for _, s := range spec.steps {
		w.apply(rt, s)
	}
	if spec.name != "" {
		rt.setName(spec.name)
	}
	if spec.handler {
		rt.handler(w.handler(label, spec.again))
	}
	if spec.buildOnly {
		rt.buildOnly()
	}
	for i := range spec.middlewares {
		rt.use(w.middleware(fmt.Sprintf("%sroute%d", label, i), 0))
	}
	if spec.sub != nil {
		w.build(spec.sub, rt.subrouter(), label+"/")
	}
	for _, s := range spec.after {
		w.apply(rt, s)
	}
}

func (w *world) apply(rt route, s step) {
	rt.apply(s, w.matcher(s), func(vars map[string]string) map[string]string {
		w.say("build vars %s %q", s.label, vars)
		vars["x"] = "1" + vars["x"]
		return vars
	})
}

// see writes down what a request shows of its route.
func (w *world) see(what string, req *http.Request) {
	vars := w.ask.vars(req)
	w.notNil = append(w.notNil, vars != nil)
	w.say("%s vars %q route %s router %v request %s %s %s form %v", what, vars, w.ask.currentRoute(req), w.ask.hasRouter(req),
		req.Method, req.URL, req.RemoteAddr, req.Form)
}

// handler returns a handler that may give the request back to the root, with
// another path.
func (w *world) handler(label, again string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.see("handler "+label, req)
		if again != "" && w.depth < w.most {
			w.depth++
			req.URL.Path, req.URL.RawPath = again, ""
			w.served.ServeHTTP(rw, req)
			w.see("handler again "+label, req)
			return
		}
		rw.WriteHeader(299)
		fmt.Fprint(rw, label)
	})
}

// middleware returns middleware that does one of the things that it may do.
func (w *world) middleware(label string, kind int) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		w.say("wrap %s", label)
		return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			w.see("enter "+label, req)
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
			w.see("leave "+label, req)
		})
	}
}

// matcher returns a MatcherFunc that does one of the things that they may do.
func (w *world) matcher(s step) matcherFunc {
	return func(req *http.Request, m *matchState) bool {
		w.say("matcher %s vars %q route %s err %s handler %v path %s", s.label, m.vars, m.route, m.err, m.handler != nil, req.URL.Path)
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
			m.handler = w.handler("set by "+s.label, "")
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

// make applies the changes of a scenario. Only one of the root and its copy is
// changed: gorilla's would overwrite each other's routes.
func (w *world) make(changes []change) {
	changed := w.root
	if len(changes) > 0 && changes[0].on%2 == 1 {
		changed = w.served
	}
	for i, c := range changes {
		label := fmt.Sprintf("late%d", i)
		switch {
		case c.on < 2:
			w.changeRouter(changed, c, label)
		case len(w.routes) > 0:
			w.changeRoute(w.routes[c.on%len(w.routes)], c, label)
		}
	}
}

func (w *world) changeRouter(r router, c change, label string) {
	switch c.kind {
	case 0:
		r.use(w.middleware(label+"mw", 0))
	case 1:
		r.setStrict(true)
	default:
		w.buildRoute(&c.spec, r, label)
	}
}

func (w *world) changeRoute(rt route, c change, label string) {
	switch c.kind {
	case 0:
		rt.handler(w.handler(label, ""))
	case 1:
		rt.buildOnly()
	case 2:
		rt.setName("n3")
	case 3:
		sub := rt.subrouter()
		sub.newRoute().handler(w.handler(label, ""))
	default:
		w.apply(rt, c.step)
	}
}
