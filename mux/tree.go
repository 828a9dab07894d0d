package mux

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A routeTree is what a root router, its subrouters and their routes share.
// Routes and routers point to it, so that their values can be copied.
type routeTree struct {
	// generation counts the published changes. A compiled router of an older
	// generation is stale.
	generation atomic.Uint64

	// mu guards the fields below and the unexported fields of every router and
	// route of the tree. No user code but RegexpCompileFunc runs under it.
	mu sync.RWMutex

	named map[string]*Route

	// updates counts the calls of Router.Update that are under way. Until it is
	// zero again, changes are not published.
	updates int
}

// changedLocked publishes what was changed under the lock.
func (t *routeTree) changedLocked() {
	if t.updates == 0 {
		t.generation.Add(1)
	}
}

// A routerCell holds the compiled copy of one router.
type routerCell struct {
	tree     *routeTree
	compiled atomic.Pointer[compiledRouter]
}

func (r *Router) init() {
	if r.cell == nil {
		r.cell = &routerCell{tree: &routeTree{named: make(map[string]*Route)}}
	}
}

func (r *Router) tree() *routeTree {
	if r.cell == nil {
		return nil
	}
	return r.cell.tree
}

// change runs f under the lock and publishes its effect.
func (r *Router) change(f func()) {
	r.init()
	t := r.cell.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.changedLocked()
	f()
}

// Update calls change and publishes all changes that are made to the router's
// tree meanwhile as one: until change returns, requests see the routes as they
// were before the call. Changes by other goroutines wait for the end too.
//
// Calls may nest and overlap; the last to end publishes.
func (r *Router) Update(change func()) {
	r.init()
	t := r.cell.tree
	t.mu.Lock()
	// Stale compiled copies must not be made from a half-finished change.
	r.compileLocked()
	t.updates++
	t.mu.Unlock()

	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.updates--
		t.changedLocked()
	}()
	change()
}

// routeConf is the configuration that a route takes over from its router, and
// a subrouter from its route.
type routeConf struct {
	useEncodedPath bool
	strictSlash    bool
	skipClean      bool
	omitRoute      bool
	omitRouter     bool
	extras         extras

	templates templateGroup
	matchers  []matcher

	// buildScheme is the scheme of built URLs; empty means http.
	buildScheme   string
	buildVarsFunc BuildVarsFunc
}

// copy returns a configuration that shares no slice with c. The templates are
// immutable and shared.
func (c *routeConf) copy() routeConf {
	d := *c
	// Never nil, see Route.GetQueriesTemplates.
	d.templates.queries = append(make([]*template, 0, len(c.templates.queries)), c.templates.queries...)
	d.matchers = slices.Clone(c.matchers)
	return d
}
