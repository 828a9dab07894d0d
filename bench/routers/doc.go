// Package routers compares package mux with gorilla/mux, and its speed with that of
// other routers.
//
// The differential tests build the same table of routes with both packages, send the
// same requests to both, and compare everything that a program can observe: the
// handler, the variables, the response, the order of middleware and MatcherFuncs, the
// results of Match, and the getters of each route.
//
// # Not here
//
// Tests of one package's behaviour alone: these are in package mux.
package routers
