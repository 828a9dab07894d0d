package mux

import (
	"slices"
	"sync/atomic"
)

// A routerCell has the compiled versions of a router. Copies of a Router value
// share it: values with the same version have the same routes.
type routerCell struct {
	tree *routeTree

	// compiled is the most recently requested version. others are those of
	// copies that have changed since, at most maxOthers.
	compiled atomic.Pointer[compiledRouter]
	others   atomic.Pointer[[]*compiledRouter]
}

const maxOthers = 3

// find returns a compiled router of the version, possibly of an older
// generation, or nil.
func (c *routerCell) find(version uintptr) *compiledRouter {
	if compiled := c.compiled.Load(); compiled != nil && compiled.version == version {
		return compiled
	}
	if others := c.others.Load(); others != nil {
		for _, compiled := range *others {
			if compiled.version == version {
				return compiled
			}
		}
	}
	return nil
}

// keep stores a compiled router for find. It replaces old, the version of the
// same Router, or one that is out of date.
func (c *routerCell) keep(compiled, old *compiledRouter) {
	var others []*compiledRouter
	add := func(o *compiledRouter) {
		same := o == nil || o == old || o.version == compiled.version || o.router == compiled.router
		if !same && o.structure == compiled.structure && len(others) < maxOthers {
			others = append(others, o)
		}
	}
	add(c.compiled.Load())
	if list := c.others.Load(); list != nil {
		for _, o := range *list {
			add(o)
		}
	}
	c.compiled.Store(compiled)
	if others != nil || c.others.Load() != nil {
		c.others.Store(&others)
	}
}

// compiled returns the router as of now.
func (r *Router) compiled() *compiledRouter {
	if cell := r.cell; cell != nil {
		generation := cell.tree.generation.Load()
		version := atomic.LoadUintptr(&r.version)
		if c := cell.compiled.Load(); c != nil && c.version == version && c.generation == generation {
			return c
		}
		if c := cell.find(version); c != nil && c.generation == generation {
			return c
		}
	}
	return r.compile()
}

// compile makes a new version unless another goroutine just did.
func (r *Router) compile() *compiledRouter {
	if r.cell == nil {
		// A zero Router without routes. Nothing is stored, because requests may
		// come from several goroutines.
		return (*routeTree)(nil).newCompiler(r, false).router(r)
	}
	t := r.cell.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.compileLocked()
}

func (r *Router) compileLocked() *compiledRouter {
	t := r.cell.tree
	generation := t.generation.Load()
	if c := r.cell.find(r.version); c != nil && c.generation == generation {
		return c
	}
	if t.updates > 0 {
		// A copy, or a router that was made during the current change.
		return t.newCompiler(r, false).router(r)
	}
	t.catchUpLocked()
	c := r.cell.find(r.version)
	if c == nil || c.structure != t.structure.Load() {
		return t.newCompiler(r, true).router(r)
	}
	if c.generation == generation {
		return c
	}
	// Another part of the tree has grown.
	next := *c
	next.generation = generation
	c.state.current.CompareAndSwap(c, &next)
	r.cell.keep(&next, c)
	return &next
}

// catchUpLocked adds new routes to the compiled routers that lack them.
func (t *routeTree) catchUpLocked() {
	for i, r := range t.grown {
		t.grown[i] = nil
		if t.has(r) {
			r.extendLocked()
		}
	}
	t.grown = t.grown[:0]
	t.caughtUp.Store(t.generation.Load())
}

// has reports whether the router still belongs to this tree. It does not if a
// router of another tree was assigned to it.
func (t *routeTree) has(r *Router) bool { return r.cell.tree == t }

// extendLocked adds new routes to the router's compiled version, if one exists
// for this Router value.
func (r *Router) extendLocked() {
	t := r.cell.tree
	isOwn := func(c *compiledRouter) bool {
		return c.router == r && c.structure == t.structure.Load() && c.state.current.Load() == c
	}
	own := r.cell.compiled.Load()
	if own != nil && !isOwn(own) {
		own = nil
		if others := r.cell.others.Load(); others != nil {
			if i := slices.IndexFunc(*others, isOwn); i >= 0 {
				own = (*others)[i]
			}
		}
	}
	if own == nil || own.version == r.version {
		return
	}
	if n := len(own.routes); n > len(r.routes) || (n > 0 && own.routes[n-1].route != r.routes[n-1]) {
		// Another Router was assigned to this one.
		t.structure.Add(1)
		return
	}
	t.newCompiler(own.root, true).extend(own, r)
}

// A routeCell has the compiled copy of a route. Copies of a Route value share
// it.
type routeCell struct {
	compiled atomic.Pointer[compiledRoute]
}

// compiled returns the route as of now, and the generation at which the routers
// below it are to be searched.
func (r *Route) compiled() (c *compiledRoute, generation uint64) {
	t := r.tree
	if t == nil {
		return t.newCompiler(nil, false).route(r, 0), 0
	}
	generation = t.generation.Load()
	version := atomic.LoadUintptr(&r.version)
	if c := r.cell.compiled.Load(); c.isCurrent(t, version) && t.caughtUp.Load() == generation {
		return c, generation
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	generation = t.generation.Load()
	if t.updates > 0 {
		if c := r.cell.compiled.Load(); c.isCurrent(t, r.version) {
			return c, generation
		}
		return t.newCompiler(nil, false).route(r, 0), generation
	}
	t.catchUpLocked()
	if len(t.routers) > 0 && t.has(t.routers[0]) {
		// The router is likely to be needed too, and its compilation includes
		// the route.
		t.routers[0].compileLocked()
	}
	if c := r.cell.compiled.Load(); c.isCurrent(t, r.version) {
		return c, generation
	}
	return t.newCompiler(nil, true).route(r, 0), generation
}

func (c *compiledRoute) isCurrent(t *routeTree, version uintptr) bool {
	return c != nil && c.version == version && c.structure == t.structure.Load()
}
