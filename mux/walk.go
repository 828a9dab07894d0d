package mux

import "slices"

// A WalkFunc is called by [Router.Walk] for a route, the router that contains
// it, and the routes that lead to that router, outermost first. It may keep
// ancestors. Returning [SkipRouter] skips what is below the route; any other
// error ends the walk.
type WalkFunc func(route *Route, router *Router, ancestors []*Route) error

// Walk calls walkFn for each route of the router and, after a route, for those
// of its subrouters and of a Router that is its handler. Routes are visited in
// the order in which they were added. Walk returns the first error of walkFn
// other than SkipRouter.
//
// walkFn may add and change routes; routes added to a router during its walk
// are not visited.
func (r *Router) Walk(walkFn WalkFunc) error {
	return r.walk(walkFn, []*Route{})
}

func (r *Router) walk(walkFn WalkFunc, ancestors []*Route) error {
	for _, route := range r.routeList() {
		err := walkFn(route, r, ancestors)
		if err == SkipRouter {
			continue
		}
		if err != nil {
			return err
		}
		for _, below := range route.routersBelow() {
			if err := below.walk(walkFn, append(slices.Clip(ancestors), route)); err != nil {
				return err
			}
		}
	}
	return nil
}

// routeList returns the routes as of now.
func (r *Router) routeList() []*Route {
	t := r.tree()
	if t == nil {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clip(r.routes)
}

// routersBelow returns the subrouters of the route and its handler, if that is
// a Router.
func (r *Route) routersBelow() []*Router {
	r.rlock()
	defer r.runlock()
	var routers []*Router
	for i := range r.matchers {
		if r.matchers[i].kind == matchRouter {
			routers = append(routers, r.matchers[i].router)
		}
	}
	if h, ok := r.handler.(*Router); ok {
		routers = append(routers, h)
	}
	return routers
}
