package mux

import "sync/atomic"

// A routerCell has the compiled copy of a router. Copies of a Router value
// share it: values with the same version have the same routes.
type routerCell struct {
	tree *routeTree

	// compiled is the copy that was made last. routeTree.compiled also has
	// those of copied Router values with other versions.
	compiled atomic.Pointer[compiledRouter]
}

// compiled returns the router as of now.
func (r *Router) compiled() *compiledRouter {
	if cell := r.cell; cell != nil {
		generation := cell.tree.generation.Load()
		version := atomic.LoadUintptr(&r.version)
		if c := cell.compiled.Load(); c != nil && c.version == version && c.generation == generation {
			return c
		}
	}
	return r.compile()
}

// compile compiles the router unless another goroutine just did.
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
	if c := t.compiled[r.version]; c != nil {
		return c
	}
	// During an update this is a copy, or a router made by it: the result
	// contains half of the update.
	return t.newCompiler(r, t.updates == 0).router(r)
}

// has reports whether the router still belongs to this tree. It does not if a
// router of another tree was assigned to it.
func (t *routeTree) has(r *Router) bool { return r.cell.tree == t }

// A routeCell has the compiled copy of a route. Copies of a Route value share
// it.
type routeCell struct {
	compiled atomic.Pointer[compiledRoute]
}

// compiled returns the route as of now.
func (r *Route) compiled() *compiledRoute {
	t := r.tree
	if t == nil {
		return t.newCompiler(nil, false).route(r, 0)
	}
	if c := r.cell.compiled.Load(); r.isCurrent(c) {
		return c
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.updates == 0 && len(t.routers) > 0 && t.has(t.routers[0]) {
		// The router is likely to be needed too, and its compilation includes
		// the route.
		t.routers[0].compileLocked()
	}
	if c := r.cell.compiled.Load(); r.isCurrent(c) {
		return c
	}
	return t.newCompiler(nil, t.updates == 0).route(r, 0)
}

func (r *Route) isCurrent(c *compiledRoute) bool {
	return c != nil && c.version == atomic.LoadUintptr(&r.version) && c.generation == r.tree.generation.Load()
}
