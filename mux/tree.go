package mux

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A routeTree is shared by a root router, its subrouters and their routes.
// Routes and routers point to it, so that their values can be copied.
type routeTree struct {
	// generation counts the published changes. What was compiled in an older
	// generation is compiled again.
	generation atomic.Uint64

	// mu guards the fields below and the unexported fields of every router and
	// route of the tree. Except for RegexpCompileFunc, no user code runs while
	// it is held.
	mu sync.RWMutex

	named map[string]*Route

	// routers holds all routers of the tree except copies, the root first.
	routers []*Router

	// versions numbers the states of routers and routes, each value once.
	versions uintptr

	// compiled holds the routers that were compiled in the current generation,
	// by their version.
	compiled map[uintptr]*compiledRouter

	// updates counts the active calls of Router.Update. Until it is zero again,
	// changes are not published: changed holds the versions to set then.
	updates int
	changed []*uintptr

	// compiledRoutes counts the routes compiled, for tests.
	compiledRoutes int
}

func newTree() *routeTree {
	return &routeTree{named: make(map[string]*Route), compiled: make(map[uintptr]*compiledRouter)}
}

// changedLocked publishes a change that was made under the lock. version is
// that of the changed router or route.
func (t *routeTree) changedLocked(version *uintptr) {
	if t.updates == 0 {
		t.setVersion(version)
		t.publishLocked()
		return
	}
	t.changed = append(t.changed, version)
}

func (t *routeTree) setVersion(version *uintptr) {
	t.versions++
	atomic.StoreUintptr(version, t.versions)
}

func (t *routeTree) publishLocked() {
	clear(t.compiled)
	t.generation.Add(1)
}

func (r *Router) init() {
	if r.cell == nil {
		t := newTree()
		t.routers = append(t.routers, r)
		r.cell = &routerCell{tree: t}
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
	defer t.changedLocked(&r.version)
	f()
}

// Update calls change and publishes all changes that are made to the router's
// tree during the call as one: until change returns, requests see the routes as
// they were before. Changes by other goroutines are published at the end too.
//
// Calls may nest and overlap; the last one to return publishes.
func (r *Router) Update(change func()) {
	r.init()
	t := r.cell.tree
	t.mu.Lock()
	if t.updates == 0 {
		// No version may be compiled from a half-finished change.
		r.compileLocked()
		for _, router := range t.routers {
			if t.has(router) {
				router.compileLocked()
			}
		}
	}
	t.updates++
	t.mu.Unlock()

	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.updates--; t.updates > 0 {
			return
		}
		for _, version := range t.changed {
			t.setVersion(version)
		}
		t.changed = nil
		t.publishLocked()
	}()
	change()
}

// options are set by methods of Router. All of them are off in a new router.
type options struct {
	useEncodedPath bool
	strictSlash    bool
	skipClean      bool
	omitRoute      bool
	omitRouter     bool

	// gorilla/mux does not have the options below. Only the settings of the router
	// that serves a request apply.

	allowHeader   bool
	answerOptions bool
	pathValues    bool
	permanent     bool
	share         bool
}

// routeConf is the configuration that a route inherits from its router, and a
// subrouter from its route.
type routeConf struct {
	options

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
	// Never nil; see Route.GetQueriesTemplates.
	d.templates.queries = append(make([]*template, 0, len(c.templates.queries)), c.templates.queries...)
	d.matchers = slices.Clone(c.matchers)
	return d
}
