package mux

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
)

// Vars returns the variables of the request's route. The first call builds the
// map; later calls for the request return the same map. Vars may be called from
// several goroutines at once.
//
// For a route without variables the map is empty. Entries written to an empty
// map persist if the request was copied for the route, as it is for middleware,
// and are lost otherwise. Without a route, Vars returns nil.
func Vars(r *http.Request) map[string]string {
	if c := varsOf(r); c != nil {
		return c.all()
	}
	if CurrentRoute(r) != nil {
		return make(map[string]string)
	}
	return nil
}

// Var returns one variable of the request's route, or an empty string. It does
// not build the map that [Vars] returns, but sees entries written to it.
func Var(r *http.Request, name string) string {
	if c := varsOf(r); c != nil {
		return c.one(name)
	}
	return ""
}

// SetURLVars returns a shallow copy of the request with the given variables,
// for tests of handlers. The request itself is returned if there are none.
func SetURLVars(r *http.Request, val map[string]string) *http.Request {
	if len(val) == 0 {
		return r
	}
	ctx := &varsContext{Context: r.Context()}
	ctx.rest.Store(&extraVars{vars: val})
	return r.WithContext(ctx)
}

type varsKey struct{}

// A varsContext is the context of a request with variables. It keeps the
// strings that hold the variables and extracts the variables on demand.
//
// It is made for one request and is never reused, because handlers may keep it
// after they return. Its size, 48 bytes, is a size class of the allocator.
type varsContext struct {
	context.Context

	// route names the variables. It is nil if they were given by SetURLVars or
	// a MatcherFunc.
	route *compiledRoute

	// path is the path that holds the path variables.
	path string

	// rest holds what few requests need: the map, and the sources other than
	// the path.
	rest atomic.Pointer[extraVars]
}

type extraVars struct {
	host, query string

	// mu guards vars, which is built on demand.
	mu   sync.Mutex
	vars map[string]string
}

// sources are the strings that hold the variables of a route.
type sources struct{ path, host, query string }

func (c *compiledRoute) sourcesOf(req *http.Request) sources {
	return sources{path: requestPath(req, c.encoded), host: requestHost(req), query: req.URL.RawQuery}
}

// readsPathOnly reports whether all variables are in the path.
func (c *compiledRoute) readsPathOnly() bool {
	return c.path == nil && len(c.varNames) == 0 || c.path != nil && len(c.varNames) == len(c.path.names)
}

// Value returns the context itself for the package's key.
func (c *varsContext) Value(key any) any {
	if _, ok := key.(varsKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// varsOf returns the variables that the request's route sees: its own, or else
// those of the routers around it.
func varsOf(r *http.Request) *varsContext {
	c := varsIn(r.Context())
	for c != nil && c.isEmpty() {
		outer := varsIn(c.Context)
		if outer == nil {
			break
		}
		c = outer
	}
	return c
}

func varsIn(ctx context.Context) *varsContext {
	if c, ok := ctx.(*varsContext); ok {
		return c
	}
	c, _ := ctx.Value(varsKey{}).(*varsContext)
	return c
}

// isEmpty reports whether c belongs to a route without variables.
func (c *varsContext) isEmpty() bool { return c.route != nil && len(c.route.varNames) == 0 }

// allocRest returns the rest and allocates it if necessary.
func (c *varsContext) allocRest() *extraVars {
	if rest := c.rest.Load(); rest != nil {
		return rest
	}
	c.rest.CompareAndSwap(nil, new(extraVars))
	return c.rest.Load()
}

func (c *varsContext) all() map[string]string {
	rest := c.allocRest()
	rest.mu.Lock()
	defer rest.mu.Unlock()
	if rest.vars == nil {
		src := sources{c.path, rest.host, rest.query}
		if rest.vars = c.route.addVars(nil, &src); rest.vars == nil {
			rest.vars = make(map[string]string)
		}
	}
	return rest.vars
}

func (c *varsContext) one(name string) string {
	src := sources{path: c.path}
	if rest := c.rest.Load(); rest != nil {
		rest.mu.Lock()
		defer rest.mu.Unlock()
		if rest.vars != nil {
			return rest.vars[name]
		}
		src.host, src.query = rest.host, rest.query
	}
	return c.route.oneVar(name, &src)
}

// addVars adds the variables to a map, which it allocates if it is nil and
// there are any.
func (c *compiledRoute) addVars(vars map[string]string, src *sources) map[string]string {
	c.eachVar(src, func(name, value string) {
		if vars == nil {
			vars = make(map[string]string, len(c.varNames))
		}
		vars[name] = value
	})
	return vars
}

// oneVar returns one variable. Of several with the name, the last one wins.
func (c *compiledRoute) oneVar(name string, src *sources) (value string) {
	c.eachVar(src, func(n, v string) {
		if n == name {
			value = v
		}
	})
	return value
}

// eachVar calls f for each variable.
func (c *compiledRoute) eachVar(src *sources, f func(name, value string)) {
	var some [4]*template
	for _, t := range c.all(some[:0]) {
		if len(t.names) == 0 {
			continue
		}
		var few [8]string
		values := few[:]
		if len(t.names) > len(few) {
			values = make([]string, len(t.names))
		}
		if !t.extractFrom(src, values[:len(t.names)]) {
			// Possible only if a MatcherFunc changed the request.
			continue
		}
		for i, name := range t.names {
			f(name, values[i])
		}
	}
}
