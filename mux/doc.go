// Package mux routes HTTP requests by host, path, method, header and query.
//
//	r := mux.NewRouter()
//	r.HandleFunc("/articles/{category}/{id:[0-9]+}", show).Methods("GET")
//	http.ListenAndServe("127.0.0.1:8080", r)
//
// It is a drop-in replacement for github.com/gorilla/mux: it has the names,
// signatures and behaviour of that project's main branch, but finds the route
// in another way. To migrate, change the import path.
//
// # Promise
//
// The selected route, the variables, the middleware and its order, the
// redirects, the answers to unmatched requests and the texts of errors are
// those of gorilla/mux, except as listed below under "Differences". A request
// costs no allocation in this package when its route has neither variables nor
// middleware, and one otherwise.
//
// # How a request finds its route
//
//  1. The router keeps a compiled copy of its routes, with an index. When a
//     route, a middleware or a flag changes, a generation counter shows that both
//     are out of date, and the next request replaces them.
//  2. The index yields candidates in registration order: from a table of
//     templates without variables, a tree over the path segments of the others, a
//     table of hosts, and a list of the routes that nothing can rule out. For most
//     paths a single node holds all candidates.
//  3. Where the path and the method alone decide, the first candidate that
//     matches serves the request. Otherwise each candidate's matchers run in the
//     order in which they were added, exactly as they would without an index.
//  4. The first full match ends the search. Without one, the recorded mismatches
//     (a wrong method, a missing query value) decide between 404 and 405.
//
// Invariant: the index may yield too many candidates, never too few, and
// skipping a route has the same effect on the search as evaluating it.
// TestIndexAgreesWithScan checks both, for all small route tables.
//
// Invariant: a request sees the routes as of one moment, because what is
// compiled never changes. TestUpdateIsOneChange and TestRequestSeesOneMoment
// check it.
//
// Invariant: nothing that a request or its context can reach is ever reused for
// another request. Handlers may keep requests and contexts after they return.
//
// Invariant: the router does not write to a request that it copies.
// TestCloneOutside checks it.
//
// Invariant: except for [RegexpCompileFunc], no user code (matchers,
// middleware, handlers, walk functions) runs while the router holds a lock.
//
// # Changing routes while serving
//
// Every method of [Router] and [Route] may be called while requests are in
// flight. A request sees the routes as of one moment. A chain such as
//
//	r.HandleFunc("/admin", admin).Methods("POST")
//
// is two changes, and a request may be served between them; [Router.Update]
// publishes several changes as one. The exported fields of Router are plain
// fields: set them before serving.
//
// A change makes the next request compile all routes again, which takes a few
// microseconds per route. Use Update to add many routes to a serving router.
//
// # Beyond gorilla
//
// [Var] reads one variable without building the map. The matched template is in
// http.Request.Pattern. [Router.ShareRequest] avoids copying the request.
// [Router.AllowHeader], [Router.AnswerOptions], [Router.PathValues] and
// [Router.PermanentRedirect] are off by default. [Router.Conflicts] reports
// routes that can never match, [Router.Routes] lists all routes, and
// [Router.Update] publishes several changes at once.
//
// # Differences
//
// Deliberate differences from gorilla/mux, main branch:
//
//   - A static route without middleware, NotFoundHandler and
//     MethodNotAllowedHandler get the request that was passed to ServeHTTP, with
//     its Pattern and Response fields set, and not a copy. One *http.Request must
//     therefore not be served by several goroutines at once. Afterwards
//     [CurrentRoute] of that request may return the route; gorilla's returns nil.
//   - With both [Router.OmitRouteFromContext] and [Router.OmitRouterFromContext],
//     middleware still gets a copy; gorilla's gets the request itself.
//   - The matched route is stored in the request (in its Response field, which
//     servers leave nil), not in its context: it survives WithContext, Clone
//     and a shallow copy, but [CurrentRoute] of a new request that merely
//     shares the context is nil. With both flags set the field is not changed.
//   - [Vars] of a route without variables is an empty map, as in v1.8.1;
//     gorilla's main branch has nil.
//   - Middleware added by [Route.Use] also runs when an earlier route
//     mismatched on the method or on a query value; gorilla skips it then.
//   - With [Router.UseEncodedPath], redirects to the clean path and redirects
//     that add or remove a trailing slash keep the encoding of the request. In the
//     former gorilla escapes percent signs a second time, and in the latter it
//     decodes encoded slashes.
//   - A slash redirect of a path that begins with two slashes, which is possible
//     only with [Router.SkipClean], leads to the clean path; gorilla's leads to
//     whatever host the path names.
//   - After a match, [Router.Match] and [Route.Match] leave Vars set to a map,
//     also for routes without variables.
//   - A percent sign in a template is an ordinary character when a URL is
//     built.
//   - [Route.Methods] and [Route.Schemes] copy their arguments, and
//     [Route.GetMethods] returns a copy.
//   - A copy of a Router value and its original each keep the routes that were
//     added to them; in gorilla they may overwrite each other's. Assigning to a
//     *Route or to a subrouter takes effect with the next change.
//   - When the panic about a capturing group is recovered, no route is left;
//     gorilla leaves an empty one, which matches every request.
//   - [Route.Name] works on routes of a zero Router; gorilla panics.
//   - The zero Router may be used, but its first change must not happen while
//     it serves.
//   - Errors of [Route.URL] and similar methods do not quote the values that they
//     were given, which may be personal.
//   - A [RegexpCompileFunc] that the program sets is also called with a short
//     expression of this package, to learn how it treats line breaks.
//
// # Not here
//
// The package does not log, recover from panics, answer HEAD from GET, or
// limit request sizes.
package mux
