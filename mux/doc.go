// Package mux routes HTTP requests by host, path, method, header and query.
//
// It is a drop-in for github.com/gorilla/mux: the names, signatures and
// behaviour of that project's main branch, with another way of finding the
// route. Changing one import path is the whole migration.
//
//	r := mux.NewRouter()
//	r.HandleFunc("/articles/{category}/{id:[0-9]+}", show).Methods("GET")
//	http.ListenAndServe("127.0.0.1:8080", r)
//
// # Promise
//
// The route that is chosen, the variables, the middleware and its order, the
// redirects, the answers to unmatched requests and the texts of errors are those
// of gorilla/mux, except for what is listed below under "Differences". A request
// costs no allocation of its own when its route has neither variables nor
// middleware, and one otherwise.
//
// # How a request finds its route
//
//  1. The router keeps a compiled copy of its routes, with an index. Both are
//     replaced when a route, a middleware or a flag changes; a generation counter
//     detects it. Routes that are only added are added to the index in place.
//  2. The index yields candidates in registration order: a table for templates
//     without variables, a tree over path segments for the others, a table of
//     hosts, and a list of the routes that nothing can rule out.
//     Most paths lead straight to one node, whose routes are then all candidates.
//  3. Where the path and the method alone decide, the first candidate that fits
//     serves. Otherwise each candidate's matchers decide in the order in which
//     they were added, exactly as they would without an index.
//  4. The first full match ends the search. What a mismatch leaves behind (a
//     wrong method, a missing query value) decides between 404 and 405.
//
// Invariant: the index may yield too many candidates, never too few, and
// leaving a route out has the effect on the search that evaluating it would
// have had. TestIndexAgreesWithScan checks both, for all small route tables.
//
// Invariant: a request sees the routes as of one moment. What is added to an
// index carries the generation that first had it, and requests pass over what is
// younger than they are. TestUpdateIsOneChange and TestRequestSeesOneMoment
// check it.
//
// Invariant: nothing that a request or its context can reach is ever used for
// another request. Handlers keep requests and contexts past their return.
//
// Invariant: a request that is copied is not written to. TestCloneOutside checks
// it.
//
// Invariant: no user code (matchers, middleware, handlers, walk functions) but
// [RegexpCompileFunc] runs while the router holds a lock.
//
// # Changing routes while serving
//
// Every method of [Router] and [Route] may be called while requests are in
// flight. A request sees the routes as of one moment. A chain such as
//
//	r.HandleFunc("/admin", admin).Methods("POST")
//
// is two changes, and a request may come between them; [Router.Update]
// publishes several changes as one. The exported fields of Router are plain
// fields: set them before serving.
//
// A new route costs what one route costs. Any other change of what has served
// makes the next request compile all routes again.
//
// # Beyond gorilla
//
// [Var] reads one variable without building the map. The matched template is
// in http.Request.Pattern. [Router.ShareRequest] saves the copy of the request.
// [Router.AllowHeader], [Router.AnswerOptions], [Router.PathValues] and
// [Router.PermanentRedirect] are off unless asked for. [Router.Conflicts]
// reports routes that can never match, [Router.Routes] lists all of them, and
// [Router.Update] changes several at once.
//
// # Differences
//
// Deliberate differences from gorilla/mux, main branch:
//
//   - A static route without middleware, NotFoundHandler and
//     MethodNotAllowedHandler get the request that was given to ServeHTTP, with
//     its Pattern and Response fields set, and not a copy. One *http.Request must
//     therefore not be served by several goroutines at once. Afterwards
//     [CurrentRoute] of that request may name the route; gorilla's is nil there.
//   - With both [Router.OmitRouteFromContext] and [Router.OmitRouterFromContext],
//     middleware still gets a copy; gorilla's gets the request itself.
//   - The matched route travels with the request (in its Response field, which
//     servers leave nil), not with its context: it survives WithContext, Clone
//     and a shallow copy, but [CurrentRoute] of a new request that merely
//     shares the context is nil. The two flags together leave the field alone.
//   - [Vars] of a route without variables is an empty map, as in v1.8.1;
//     gorilla's main branch has nil.
//   - Middleware added by [Route.Use] also runs when an earlier route
//     mismatched on the method or on a query value; gorilla skips it then.
//   - With [Router.UseEncodedPath], the redirects to the clean path and to the
//     other form of a trailing slash keep the encoding of the request. gorilla
//     escapes percent signs a second time in the first, and decodes encoded
//     slashes in the second.
//   - A slash redirect of a path that begins with two slashes, which only
//     [Router.SkipClean] lets through, leads to the clean path;
//     gorilla's leads to whatever host the path names.
//   - After a match, [Router.Match] and [Route.Match] leave Vars set to a map,
//     also for routes without variables.
//   - A percent sign in a template is an ordinary character when a URL is
//     built.
//   - [Route.Methods] and [Route.Schemes] copy their arguments, and
//     [Route.GetMethods] returns a copy.
//   - A copy of a Router value and its original keep the routes that were added
//     to each; gorilla's may overwrite each other's. Assigning to a *Route or to a
//     subrouter is noticed with the next change that is more than a new route.
//   - When the panic about a capturing group is recovered, no route is left;
//     gorilla leaves an empty one, which matches every request.
//   - [Route.Name] works on routes of a zero Router; gorilla panics.
//   - The zero Router may be used, but its first change must not happen while
//     it serves.
//   - Errors of [Route.URL] and its like do not quote the values that they were
//     given, which may be personal.
//   - A [RegexpCompileFunc] of the program's is also called with a short
//     expression of this package's, to see how it treats line breaks.
//
// # Not here
//
// The package does not log, recover from panics, answer HEAD from GET, or
// limit request sizes.
package mux
