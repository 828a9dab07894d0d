// Package routers compares the mux package with gorilla/mux, and its speed with
// that of other routers.
//
// The differential tests build the same table of routes with both packages,
// send the same requests to both, and compare everything that a program can
// see: the handler, the variables, the answer, the order of middleware and of
// MatcherFuncs, what Match fills in, and what the getters of each route return.
//
// # Not here
//
// The absolute behaviour: tests of that stand beside the mux package.
package routers
