package mux_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

type contextKey struct{}

// TestCurrentRoute reads the route after everything that middleware may do to a
// request.
func TestCurrentRoute(t *testing.T) {
	for _, path := range []string{"/static", "/var/1"} {
		for name, change := range map[string]func(*http.Request) *http.Request{
			"nothing": func(r *http.Request) *http.Request { return r },
			"WithContext": func(r *http.Request) *http.Request {
				return r.WithContext(context.WithValue(r.Context(), contextKey{}, "v"))
			},
			"Clone":   func(r *http.Request) *http.Request { return r.Clone(context.Background()) },
			"copy":    func(r *http.Request) *http.Request { c := *r; return &c },
			"Pattern": func(r *http.Request) *http.Request { r.Pattern = "other"; return r },
		} {
			var got *mux.Route
			var router *mux.Router
			r := mux.NewRouter()
			r.Use(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { next.ServeHTTP(w, change(req)) })
			})
			h := func(_ http.ResponseWriter, req *http.Request) {
				got, router = mux.CurrentRoute(req), mux.CurrentRouter(req)
			}
			static, variable := r.HandleFunc("/static", h), r.HandleFunc("/var/{x}", h)
			serve(r, "GET", path)
			want := static
			if path != "/static" {
				want = variable
			}
			if got != want || router != r {
				t.Errorf("%s after %s: wrong route or router", path, name)
			}
		}
	}
}

// TestOmit checks the effect of the two flags, alone and below another router.
func TestOmit(t *testing.T) {
	for _, tt := range []struct{ route, router bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		for _, path := range []string{"/static", "/{x}"} {
			inner, outer := mux.NewRouter(), mux.NewRouter()
			inner.OmitRouteFromContext(tt.route).OmitRouterFromContext(tt.router)
			var route *mux.Route
			var router *mux.Router
			innerRoute := inner.HandleFunc(path, func(_ http.ResponseWriter, req *http.Request) {
				route, router = mux.CurrentRoute(req), mux.CurrentRouter(req)
			})
			check := func(outerRoute *mux.Route, outerRouter *mux.Router) {
				t.Helper()
				wantRoute, wantRouter := innerRoute, inner
				if tt.route {
					wantRoute = outerRoute
				}
				if tt.router {
					wantRouter = outerRouter
				}
				if route != wantRoute || router != wantRouter {
					t.Errorf("%+v %s: got %v, %v, want %v, %v", tt, path, route, router, wantRoute, wantRouter)
				}
			}
			serve(inner, "GET", "/static")
			check(nil, nil)
			outerRoute := outer.PathPrefix("/").Handler(inner)
			serve(outer, "GET", "/static")
			check(outerRoute, outer)
		}
	}
}

// TestPattern checks the label for metrics: it is always visible inside the
// router, and around it if the request is shared.
func TestPattern(t *testing.T) {
	for _, share := range []bool{false, true} {
		inside := ""
		h := func(_ http.ResponseWriter, req *http.Request) { inside = req.Pattern }
		r := newSharing(share).StrictSlash(true)
		r.HandleFunc("/a/{x}", h)
		r.HandleFunc("/static", h)
		r.PathPrefix("/s/{y}").Subrouter().HandleFunc("/b", h)
		r.Host("only.example.com").HandlerFunc(h)
		for target, want := range map[string]string{
			"/a/1": "/a/{x}", "/static": "/static", "/s/1/b": "/s/{y}/b", "/none": "", "http://only.example.com/": "",
		} {
			inside = ""
			req := httptest.NewRequest("GET", target, nil)
			r.ServeHTTP(httptest.NewRecorder(), req)
			outside := want
			if !share && want != "/static" {
				outside = ""
			}
			if inside != want || req.Pattern != outside {
				t.Errorf("share %v, %s: pattern %q, outside %q, want %q and %q", share, target, inside, req.Pattern, want, outside)
			}
		}
	}
}

// TestReverseProxy forwards a request with a route to another server. The
// Response field, which leads to the route, must not disturb the client.
func TestReverseProxy(t *testing.T) {
	backend := httptest.NewServer(label("backend"))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := mux.NewRouter()
	r.PathPrefix("/").Handler(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }})
	front := httptest.NewServer(r)
	defer front.Close()
	for range 3 {
		resp, err := front.Client().Get(front.URL + "/x")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
}

// TestShareKeepsOuterVariables: a request that holds variables already is copied also
// with ShareRequest, so that its owner still reads its own.
func TestShareKeepsOuterVariables(t *testing.T) {
	for _, template := range []string{"/static", "/{x}"} {
		r := newSharing(true)
		outer := mux.SetURLVars(httptest.NewRequest("GET", "/static", nil), map[string]string{"x": "outer"})
		want := "static"
		if template == "/static" {
			want = "outer" // the route has none of its own
		}
		r.HandleFunc(template, func(_ http.ResponseWriter, req *http.Request) {
			if got := mux.Var(req, "x"); got != want {
				t.Errorf("%s: the handler reads %q, want %q", template, got, want)
			}
		})
		r.ServeHTTP(httptest.NewRecorder(), outer)
		if got := mux.Var(outer, "x"); got != "outer" {
			t.Errorf("%s: the owner of the request reads %q, want its own", template, got)
		}
	}
}

// TestCopyKeepsItsRoutes: routes added to the original do not appear in a copy
// that was made before, although the two share an index.
func TestCopyKeepsItsRoutes(t *testing.T) {
	r := mux.NewRouter()
	r.Handle("/a", label("a"))
	r.Handle("/a/{x}", label("a"))
	serve(r, "GET", "/a")
	copied := *r
	r.Handle("/b", label("b"))
	r.Handle("/b/{x}", label("b"))
	for range 2 {
		for path, want := range map[string]string{"/a": "a a", "/a/1": "a a", "/b": "b 404", "/b/1": "b 404"} {
			if got := serve(r, "GET", path) + " " + serve(&copied, "GET", path); got != want {
				t.Errorf("%s: the original and the copy answered %s, want %s", path, got, want)
			}
		}
	}
}

func TestZeroRouter(t *testing.T) {
	var r mux.Router
	if got := serve(&r, "GET", "/a"); got != "404" {
		t.Errorf("without routes: got %s", got)
	}
	r.Handle("/a", label("x")).Name("a")
	if got := serve(&r, "GET", "/a"); got != "x" || r.Get("a") == nil {
		t.Errorf("with a route: got %s", got)
	}
}
