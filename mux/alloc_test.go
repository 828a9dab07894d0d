package mux_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

// TestAllocations checks the allocation counts in the package comment.
func TestAllocations(t *testing.T) {
	router := mux.NewRouter()
	var route *mux.Route
	router.HandleFunc("/static/{$}", nil)
	router.HandleFunc("/static", func(_ http.ResponseWriter, r *http.Request) { route = mux.CurrentRoute(r) }).
		Methods("GET")
	router.HandleFunc("/strict/{a}", func(_ http.ResponseWriter, r *http.Request) { route = mux.CurrentRoute(r) }).
		Methods("POST")
	router.HandleFunc("/strict/{a}", func(_ http.ResponseWriter, r *http.Request) { route = mux.CurrentRoute(r) }).
		Methods("GET")
	router.PathPrefix("/prefix/").HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { route = mux.CurrentRoute(r) })
	router.HandleFunc("/var/{name}", func(_ http.ResponseWriter, r *http.Request) {
		if mux.Var(r, "name") == "" {
			panic("no variable")
		}
	})
	router.HandleFunc("/five/{a}/{b}/{c}/{d}/{e}", func(_ http.ResponseWriter, r *http.Request) { mux.Var(r, "e") })
	router.HandleFunc("/eight/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}", func(_ http.ResponseWriter, r *http.Request) {
		mux.Var(r, "h")
	})
	router.HandleFunc("/regexp/{id:[0-9]+}/{hex:(?:[0-9a-f]{2})+}", func(_ http.ResponseWriter, r *http.Request) {
		mux.Var(r, "id")
	})
	router.Host("{sub}.example.com").Path("/host/{x}").Queries("k", "{q}").
		HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { mux.Var(r, "q") })
	router.HandleFunc("/map/{name}", func(_ http.ResponseWriter, r *http.Request) { _ = mux.Vars(r)["name"] })
	sub := router.PathPrefix("/sub/{tenant}").Subrouter()
	sub.HandleFunc("/static", func(_ http.ResponseWriter, r *http.Request) { mux.Var(r, "tenant") })
	plain := router.PathPrefix("/plain").Subrouter()
	plain.HandleFunc("/static", func(_ http.ResponseWriter, r *http.Request) { route = mux.CurrentRoute(r) })
	silent := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	router.NotFoundHandler, router.MethodNotAllowedHandler = silent, silent

	w := httptest.NewRecorder()
	for _, tt := range []struct {
		name   string
		method string
		url    string
		want   float64
	}{
		{"static", "GET", "http://a.example.com/static", 0},
		{"prefix", "GET", "http://a.example.com/prefix/x/y", 0},
		{"static below a prefix", "GET", "http://a.example.com/plain/static", 0},
		{"404", "GET", "http://a.example.com/none", 0},
		{"405", "PUT", "http://a.example.com/static", 0},
		{"one variable", "GET", "http://a.example.com/var/1", 1},
		{"second method", "GET", "http://a.example.com/strict/1", 1},
		{"five variables", "GET", "http://a.example.com/five/1/2/3/4/5", 1},
		{"eight variables", "GET", "http://a.example.com/eight/1/2/3/4/5/6/7/8", 1},
		{"regexp", "GET", "http://a.example.com/regexp/12/0aff", 1},
		{"host, path and query", "GET", "http://a.example.com/host/1?k=v", 1},
		{"variable of a prefix", "GET", "http://a.example.com/sub/1/static", 1},
		{"the map", "GET", "http://a.example.com/map/1", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			route = nil
			original := httptest.NewRequest(tt.method, tt.url, nil)
			original.URL.Scheme = "" // as on a server
			req := new(http.Request)
			got := testing.AllocsPerRun(100, func() {
				*req = *original
				router.ServeHTTP(w, req)
			})
			if got > tt.want {
				t.Errorf("%v allocations, want at most %v", got, tt.want)
			}
			if tt.want == 0 && w.Code == 200 && tt.name[0] != '4' && route == nil {
				t.Error("CurrentRoute returned nil")
			}
		})
	}
}

// TestAllocSharing counts the allocations for middleware and variables, with a
// copied and with a shared request. A shared request must be the one passed to
// ServeHTTP.
func TestAllocSharing(t *testing.T) {
	for _, tt := range []struct {
		url            string
		copied, shared float64
	}{
		{"http://a.example.com/static", 0, 0},
		{"http://a.example.com/middleware", 1, 0},
		{"http://a.example.com/var/1", 1, 1},
		{"http://a.example.com/var/middleware/1", 1, 1},
		{"http://a.example.com/many/1/2/3/4/5/6/7/8/9", 1, 1},
		{"http://a.example.com/host/1?k=v", 1, 1},
		{"http://a.example.com/sub/middleware", 1, 0},
		{"http://a.example.com/strict/1", 1, 1},
	} {
		for _, share := range []bool{false, true} {
			var got *http.Request
			h := func(_ http.ResponseWriter, r *http.Request) { got = r }
			router := newSharing(share)
			router.HandleFunc("/static", h)
			router.HandleFunc("/middleware", h).Use(pass)
			router.HandleFunc("/var/{x}", h)
			router.HandleFunc("/var/middleware/{x}", h).Use(pass)
			router.HandleFunc("/many/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}", h)
			router.Host("{sub}.example.com").Path("/host/{x}").Queries("k", "{q}").HandlerFunc(h)
			sub := router.PathPrefix("/sub").Subrouter()
			sub.Use(pass)
			sub.HandleFunc("/middleware", h)
			router.StrictSlash(true).HandleFunc("/strict/{x}", h)

			original := httptest.NewRequest("GET", tt.url, nil)
			original.URL.Scheme = "" // as on a server
			req, w := new(http.Request), httptest.NewRecorder()
			allocs := testing.AllocsPerRun(100, func() {
				*req = *original
				router.ServeHTTP(w, req)
			})
			want := tt.copied
			if share {
				want = tt.shared
			}
			if allocs != want {
				t.Errorf("share %v, %s: %v allocations, want %v", share, tt.url, allocs, want)
			}
			if isShared := got == req; isShared != (share || want == 0) {
				t.Errorf("share %v, %s: handler got the original request: %v", share, tt.url, isShared)
			}
			if mux.CurrentRoute(got) == nil || got.Pattern == "" {
				t.Errorf("share %v, %s: no route in the request", share, tt.url)
			}
		}
	}
}
