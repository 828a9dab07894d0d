package mux_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/mux"
)

// newSharing returns a router with ShareRequest set.
func newSharing(share bool) *mux.Router { return mux.NewRouter().ShareRequest(share) }

// pass is middleware that changes nothing.
func pass(next http.Handler) http.Handler { return next }

// TestRequestIsIsolated changes the request in middleware, and examines the
// request that was passed to the router.
func TestRequestIsIsolated(t *testing.T) {
	change := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			req.Method, req.RemoteAddr = "CHANGED", "changed"
			_ = req.ParseForm() // of a request without a body
			next.ServeHTTP(w, req)
		})
	}
	for name, build := range map[string]func(*mux.Router){
		"router's middleware": func(r *mux.Router) { r.Use(change); r.Handle("/a", label("x")) },
		"route's middleware":  func(r *mux.Router) { r.Handle("/a", label("x")).Use(change) },
		"subrouter's middleware": func(r *mux.Router) {
			s := r.NewRoute().Subrouter()
			s.Use(change)
			s.Handle("/a",
				label("x"))
		},
		"variables": func(r *mux.Router) {
			r.Handle("/{a}", change(label("x")))
		},
		"a matcher's handler": func(r *mux.Router) {
			r.MatcherFunc(func(_ *http.Request, m *mux.RouteMatch) bool { m.Handler = change(label("x")); return true })
		},
	} {
		r := mux.NewRouter()
		build(r)
		req := httptest.NewRequest("GET", "/a?k=v", nil)
		before := *req
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		if w.Body.String() != "x" {
			t.Errorf("%s: answer %d %q", name, w.Code, w.Body)
		}
		if req.Method != before.Method || req.RemoteAddr != before.RemoteAddr || req.Form != nil ||
			req.Pattern != "" || req.Response != nil || req.Context() != before.Context() {
			t.Errorf("%s: the original request was changed: %+v", name, req)
		}
		if mux.CurrentRoute(req) != nil || mux.Vars(req) != nil {
			t.Errorf("%s: the route is visible outside the router", name)
		}
	}
}

// TestHeadServedAsGet has middleware that answers HEAD with the handler for
// GET. net/http must still see the method HEAD, and send no body.
func TestHeadServedAsGet(t *testing.T) {
	r := mux.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodHead {
				req.Method = http.MethodGet
			}
			next.ServeHTTP(w, req)
		})
	})
	r.Handle("/a", label("a body"))
	server := httptest.NewServer(r)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "HEAD /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := strings.Cut(string(answer), "\r\n\r\n")
	if !ok || body != "" {
		t.Errorf("the answer to HEAD has the body %q", body)
	}
}

// TestCloneOutside is meant for -race: a goroutine that was started around the
// router clones the request while it is served.
func TestCloneOutside(t *testing.T) {
	r := mux.NewRouter()
	r.Handle("/static", label("x")).Use(pass)
	r.Handle("/var/{a}", label("x"))
	r.Host("{h}.example.com").Path("/host/{a}").Handler(label("x"))
	r.PathPrefix("/sub/{a}").Subrouter().Handle("/b", label("x")).Use(pass)
	for _, path := range []string{"/static", "/var/1", "/host/1", "/sub/1/b"} {
		for range 20 {
			req := httptest.NewRequest("GET", "http://a.example.com"+path, nil)
			var wg sync.WaitGroup
			wg.Go(func() {
				for range 10 {
					clone := req.Clone(context.Background())
					if clone.Pattern != "" || mux.CurrentRoute(clone) != nil || mux.Vars(clone) != nil {
						t.Errorf("%s: a clone made outside the router has the route", path)
					}
				}
			})
			w := httptest.NewRecorder()
			r.ServeHTTP(w, req)
			wg.Wait()
			if w.Code != 200 {
				t.Fatalf("%s: status %d", path, w.Code)
			}
		}
	}
}

// TestReentry has a handler that passes the request to the router again. What
// the outer middleware reads afterwards must be that of its own route.
func TestReentry(t *testing.T) {
	for _, share := range []bool{false, true} {
		for _, outer := range []string{"/static", "/var/1"} {
			for _, inner := range []string{"/inner", "/inner/2", "/middleware", "/none"} {
				r := newSharing(share)
				var route *mux.Route
				var vars string
				around := func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
						next.ServeHTTP(w, req)
						route, vars = mux.CurrentRoute(req), mux.Var(req, "a")
					})
				}
				again := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					req.URL.Path = inner
					r.ServeHTTP(w, req)
				})
				static := r.Handle("/static", again).Use(around)
				variable := r.Handle("/var/{a}", again).Use(around)
				r.Handle("/inner", label(""))
				r.Handle("/inner/{a}", label(""))
				r.Handle("/middleware", label("")).Use(pass)
				r.NotFoundHandler = label("none")
				serve(r, "GET", outer)
				want, wantVars := static, ""
				if outer != "/static" {
					want, wantVars = variable, "1"
				}
				if route != want || vars != wantVars {
					t.Errorf("share %v, %s then %s: the outer middleware sees the wrong route, or %q as its variable", share,
						outer, inner, vars)
				}
			}
		}
	}
}
