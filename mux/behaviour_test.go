package mux_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

// label returns a handler that answers with text.
func label(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, text) })
}

// serve sends a request and describes the answer: the body of a 200, the status
// and location of a redirect, or the status otherwise.
func serve(h http.Handler, method, target string, edits ...func(*http.Request)) string {
	req := httptest.NewRequest(method, target, nil)
	req.URL.Scheme, req.URL.Host = "", ""
	for _, edit := range edits {
		edit(req)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	switch {
	case w.Code == 200:
		return w.Body.String()
	case w.Header().Get("Location") != "":
		return fmt.Sprint(w.Code, " ", w.Header().Get("Location"))
	default:
		return fmt.Sprint(w.Code)
	}
}

// TestBehaviour checks what users of gorilla/mux rely on, with one case for
// each statement of the migration page and of the package comment.
func TestBehaviour(t *testing.T) {
	for _, tt := range []struct {
		name   string
		build  func(*mux.Router)
		method string
		target string
		want   string
	}{
		{"first match wins", func(r *mux.Router) {
			r.Handle("/{x}", label("first"))
			r.Handle("/a", label("second"))
		}, "GET", "/a", "first"},
		{"paths of one route must all match", func(r *mux.Router) {
			r.Path("/a").Path("/b").Handler(label("x"))
		}, "GET", "/a/b", "404"},
		{"a wrong method does not end the search", func(r *mux.Router) {
			r.Handle("/a", label("post")).Methods("POST")
			r.Handle("/a", label("get")).Methods("GET")
		}, "GET", "/a", "get"},
		{"the last mismatch decides: query", func(r *mux.Router) {
			r.Handle("/a", label("x")).Methods("POST")
			r.Handle("/a", label("x")).Methods("GET").Queries("k", "v")
		}, "GET", "/a", "404"},
		{"the last mismatch decides: method", func(r *mux.Router) {
			r.Handle("/a", label("x")).Methods("GET").Queries("k", "v")
			r.Handle("/a", label("x")).Methods("POST")
		}, "GET", "/a", "405"},
		{"no handler", func(r *mux.Router) {
			r.Path("/a")
			r.Handle("/a", label("x"))
		}, "GET", "/a", "404"},
		{"a route with an error never matches", func(r *mux.Router) {
			r.Handle("/{", label("x"))
			r.Handle("/{x:[}", label("x"))
			r.Handle("a", label("x"))
		}, "GET", "/a", "404"},
		{"HEAD is not GET", func(r *mux.Router) { r.Handle("/a", label("x")).Methods("GET") }, "HEAD", "/a", "405"},
		{"clean path", func(r *mux.Router) {}, "GET", "/a//b/../c?q=1", "301 /a/c?q=1"},
		{"skip clean", func(r *mux.Router) { r.SkipClean(true).Handle("/a//b", label("x")) }, "GET", "/a//b", "x"},
		{"add a slash", func(r *mux.Router) { r.StrictSlash(true).Handle("/a/", label("x")) }, "GET", "/a?q=1",
			"301 /a/?q=1"},
		{"remove a slash", func(r *mux.Router) { r.StrictSlash(true).Handle("/a", label("x")) }, "POST", "/a/", "301 /a"},
		{"the other form registered first redirects", func(r *mux.Router) {
			r.StrictSlash(true)
			r.Handle("/a/", label("x"))
			r.Handle("/a", label("y"))
		}, "GET", "/a", "301 /a/"},
		{"no redirect after a mismatch", func(r *mux.Router) {
			r.StrictSlash(true).Handle("/a", label("x")).Methods("POST")
		}, "GET", "/a/", "405"},
		{"a prefix may end in a segment", func(r *mux.Router) { r.PathPrefix("/foo").Handler(label("x")) }, "GET",
			"/foobar", "x"},
		{"encoded slash, decoded", func(r *mux.Router) { r.Handle("/{x}/{y}", label("x")) }, "GET", "/a%2Fb", "x"},
		{"encoded slash, encoded", func(r *mux.Router) { r.UseEncodedPath().Handle("/{x}", label("x")) }, "GET",
			"/a%2Fb", "x"},
		{"cleaning keeps the encoding", func(r *mux.Router) { r.UseEncodedPath() }, "GET", "/a%2Fb//c", "301 /a%2Fb/c"},
		{"a slash redirect keeps the encoding", func(r *mux.Router) {
			r.UseEncodedPath().StrictSlash(true).Handle("/{x}/", label("x"))
		}, "GET", "/a%2Fb", "301 /a%2Fb/"},
		{"a slash redirect stays on the host", func(r *mux.Router) {
			r.SkipClean(true).StrictSlash(true).Handle("/{x:.*}", label("x"))
		}, "GET", "http://a//example.org/", "301 /example.org"},
		{"greedy variables", func(r *mux.Router) {
			r.HandleFunc("/{a}-{b}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, mux.Vars(r)["a"]) })
		}, "GET", "/1-2-3", "1-2"},
		{"one name twice in a template", func(r *mux.Router) {
			r.HandleFunc("/{a}/{a}", func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, mux.Var(r, "a"), mux.Vars(r))
			})
		}, "GET", "/1/2", "2map[a:2]"},
		{"host is case-sensitive", func(r *mux.Router) { r.Host("Example.com").Handler(label("x")) }, "GET", "/", "404"},
		{"host without port", func(r *mux.Router) { r.Host("example.{tld}").Handler(label("x")) }, "GET",
			"http://example.com:80/", "x"},
		{"host with a colon in a pattern", func(r *mux.Router) { r.Host("example.{tld:(?:com)}").Handler(label("x")) }, "GET",
			"http://example.com:80/", "404"},
		{"first value of a query", func(r *mux.Router) { r.Queries("k", "v").Handler(label("x")) }, "GET",
			"/?k=w&k=v", "404"},
		{"semicolons separate", func(r *mux.Router) { r.Queries("k", "v").Handler(label("x")) }, "GET", "/?a=b;k=v", "x"},
		{"any value of a query", func(r *mux.Router) { r.Queries("k", "").Handler(label("x")) }, "GET", "/?k", "x"},
		{"a subrouter falls through", func(r *mux.Router) {
			r.PathPrefix("/a").Subrouter().Handle("/b", label("x"))
			r.Handle("/a/c", label("later"))
		}, "GET", "/a/c", "later"},
		{"a subrouter's own 404 wins", func(r *mux.Router) {
			r.PathPrefix("/a").Subrouter().NotFoundHandler = label("none")
			r.Handle("/a/c", label("later"))
		}, "GET", "/a/c", "none"},
		{"with only a 404 handler a 405 falls through", func(r *mux.Router) {
			s := r.PathPrefix("/a").Subrouter()
			s.NotFoundHandler = label("none")
			s.Handle("/c", label("x")).Methods("POST")
			r.Handle("/a/c", label("later"))
		}, "GET", "/a/c", "later"},
		{"a subrouter keeps the matchers its route had when it was made", func(r *mux.Router) {
			route := r.PathPrefix("/a")
			s := route.Subrouter()
			route.Methods("POST")
			s.Handle("/b", label("x"))
		}, "POST", "/a/b", "x"},
		{"fields set by a matcher reach later routes", func(r *mux.Router) {
			r.MatcherFunc(func(_ *http.Request, m *mux.RouteMatch) bool {
				m.Vars = map[string]string{"set": "yes"}
				return false
			})
			r.HandleFunc("/a", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, mux.Vars(r)["set"]) })
		}, "GET", "/a", "yes"},
		{"schemes", func(r *mux.Router) { r.Schemes("https").Handler(label("x")) }, "GET", "/", "404"},
		{"later changes take effect", func(r *mux.Router) {
			route := r.Path("/a")
			serve(r, "GET", "/a")
			route.Handler(label("x"))
		}, "GET", "/a", "x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := mux.NewRouter()
			tt.build(r)
			if got := serve(r, tt.method, tt.target); got != tt.want {
				t.Errorf("%s %s: got %s, want %s", tt.method, tt.target, got, tt.want)
			}
		})
	}
}

// TestMiddleware checks the order of middleware, that it runs for each request,
// and that it does not run for 404 and 405.
func TestMiddleware(t *testing.T) {
	var log []string
	mw := func(name string) mux.MiddlewareFunc {
		return func(next http.Handler) http.Handler {
			log = append(log, "wrap "+name)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				log = append(log, name)
				next.ServeHTTP(w, r)
			})
		}
	}
	r := mux.NewRouter().StrictSlash(true)
	r.Use(mw("1"), mw("2"))
	r.Handle("/a", label("x")).Methods("POST")
	r.Handle("/a", label("x")).Methods("GET").Use(mw("route"))
	s := r.PathPrefix("/s").Subrouter()
	s.Use(mw("sub"))
	s.Handle("/a", label("x"))
	const both = "wrap 2,wrap 1,1,2"
	for _, tt := range []struct{ method, target, want string }{
		{"GET", "/a", "wrap route,wrap 2,wrap 1,1,2,route"},
		{"POST", "/a", both},
		{"POST", "/a/", both},
		{"PUT", "/a", ""},
		{"GET", "/none", ""},
		{"GET", "/s/a", "wrap sub,wrap 2,wrap 1,1,2,sub"},
	} {
		for range 2 {
			log = nil
			serve(r, tt.method, tt.target)
			if got := strings.Join(log, ","); got != tt.want {
				t.Errorf("%s %s: got %s, want %s", tt.method, tt.target, got, tt.want)
			}
		}
	}
}
