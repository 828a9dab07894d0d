package mux_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

// TestMatcherRewritesRequest has a MatcherFunc that changes the path or the
// host. The routes after it must be looked up for the changed request.
func TestMatcherRewritesRequest(t *testing.T) {
	rewrite := func(path string) mux.MatcherFunc {
		return func(req *http.Request, _ *mux.RouteMatch) bool { req.URL.Path = path; return false }
	}
	for _, tt := range []struct {
		name  string
		build func(*mux.Router)
		want  string
	}{
		{"to a literal", func(r *mux.Router) {
			r.MatcherFunc(rewrite("/b"))
			r.Handle("/a", label("a"))
			r.Handle("/b", label("b"))
		}, "b"},
		{"to a variable", func(r *mux.Router) {
			r.MatcherFunc(rewrite("/c/1"))
			r.Handle("/a", label("a"))
			r.HandleFunc("/c/{x}", func(w http.ResponseWriter, req *http.Request) { fmt.Fprint(w, mux.Vars(req)["x"]) })
		}, "1"},
		{"not to an earlier route", func(r *mux.Router) {
			r.Handle("/b", label("b"))
			r.MatcherFunc(rewrite("/b"))
			r.Handle("/a", label("a"))
		}, "404"},
		{"twice", func(r *mux.Router) {
			r.MatcherFunc(rewrite("/b"))
			r.Handle("/b", label("b")).Methods("POST")
			r.MatcherFunc(rewrite("/c"))
			r.Handle("/c", label("c"))
		}, "c"},
		{"in a subrouter", func(r *mux.Router) {
			r.NewRoute().Subrouter().MatcherFunc(rewrite("/b"))
			r.Handle("/a", label("a"))
			r.Handle("/b", label("b"))
		}, "b"},
		{"before a path of its own route", func(r *mux.Router) {
			r.MatcherFunc(func(req *http.Request, _ *mux.RouteMatch) bool { req.URL.Path = "/b/1"; return true }).Path("/b/{x}").Handler(label("b"))
		}, "b"},
		{"the host", func(r *mux.Router) {
			r.MatcherFunc(func(req *http.Request, _ *mux.RouteMatch) bool { req.Host = "b.com"; return false })
			r.Host("example.com").Handler(label("a"))
			r.Host("b.com").Handler(label("b"))
		}, "b"},
		{"a new URL", func(r *mux.Router) {
			r.MatcherFunc(func(req *http.Request, _ *mux.RouteMatch) bool { req.URL = &url.URL{Path: "/b"}; return false })
			r.Handle("/b", label("b"))
		}, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := mux.NewRouter()
			tt.build(r)
			if got := serve(r, "GET", "/a"); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestVarsWithoutVariables: v1.8.1 returns an empty map for a route without
// variables, and programs write to it.
func TestVarsWithoutVariables(t *testing.T) {
	for _, share := range []bool{false, true} {
		r := newSharing(share)
		write := func(_ http.ResponseWriter, req *http.Request) {
			vars := mux.Vars(req)
			if vars == nil || len(vars) != 0 {
				t.Errorf("%s: Vars returned %#v, want an empty map", req.URL.Path, vars)
				return
			}
			vars["written"] = "1"
		}
		r.HandleFunc("/static", write)
		r.HandleFunc("/middleware", write).Use(pass)
		r.PathPrefix("/sub").Subrouter().HandleFunc("/static", write)
		r.NotFoundHandler = http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			if vars := mux.Vars(req); vars != nil {
				t.Errorf("without a route Vars returned %#v", vars)
			}
		})
		for _, path := range []string{"/static", "/middleware", "/sub/static", "/none"} {
			serve(r, "GET", path)
		}
	}
	// The handler reads what middleware writes.
	r := mux.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			mux.Vars(req)["user"] = "known"
			next.ServeHTTP(w, req)
		})
	})
	r.HandleFunc("/static", func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprint(w, mux.Vars(req)["user"], mux.Var(req, "user"))
	})
	if got := serve(r, "GET", "/static"); got != "knownknown" {
		t.Errorf("handler read %q", got)
	}
}

// TestSubrouterServedDuringUpdate serves a subrouter for the first time during
// an Update.
func TestSubrouterServedDuringUpdate(t *testing.T) {
	r := mux.NewRouter()
	sub := r.PathPrefix("/s").Subrouter()
	sub.Handle("/old", label("old"))
	route := sub.Handle("/post", label("post"))
	r.Update(func() {
		sub.Handle("/new", label("new"))
		route.Methods("POST")
		if got := serve(sub, "GET", "/s/new"); got != "404" {
			t.Errorf("a request sees half of a change: %s", got)
		}
		if got := serve(sub, "GET", "/s/old") + serve(sub, "GET", "/s/post"); got != "oldpost" {
			t.Errorf("a request does not see the routes before the change: %s", got)
		}
		if !route.Match(httptest.NewRequest("GET", "/s/post", nil), &mux.RouteMatch{}) {
			t.Error("Route.Match sees half of a change")
		}
	})
	if got := serve(sub, "GET", "/s/new") + serve(sub, "GET", "/s/post"); got != "new405" {
		t.Errorf("after the change: %s", got)
	}
}

// TestRegistrationPanicLeavesNoRoute: when the panic of a capturing group is
// recovered, gorilla keeps the empty route, which matches every request.
func TestRegistrationPanicLeavesNoRoute(t *testing.T) {
	r := mux.NewRouter()
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "capture groups") {
				t.Errorf("panic %s", text)
			}
		}()
		r.Handle("/{a:(b)}", label("x"))
	}()
	if got := serve(r, "GET", "/any"); got != "404" {
		t.Errorf("got %s", got)
	}
}

// TestAssigning assigns to a route and to a subrouter that have served.
func TestAssigning(t *testing.T) {
	r := mux.NewRouter()
	route := r.Handle("/a", label("old"))
	sub := r.PathPrefix("/s").Subrouter()
	sub.Handle("/b", label("old"))
	both := func() string { return serve(r, "GET", "/a") + " " + serve(r, "GET", "/s/b") }
	both()
	*route = *mux.NewRouter().Handle("/a", label("new"))
	fresh := mux.NewRouter().PathPrefix("/s").Subrouter()
	fresh.Handle("/b", label("new"))
	*sub = *fresh
	r.StrictSlash(false) // a change
	if got := both(); got != "new new" {
		t.Errorf("after the next change: %s", got)
	}
}
