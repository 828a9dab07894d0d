package mux_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

func manyRoutes(n int) *mux.Router {
	r := mux.NewRouter()
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for i := range n {
		if i%2 == 0 {
			r.Handle(fmt.Sprintf("/r%d", i), h).Methods("GET")
		} else {
			r.Handle(fmt.Sprintf("/r%d/{id}", i), h).Methods("GET")
		}
	}
	return r
}

// TestChangesWhileServing is meant for -race. It checks that old routes never
// disappear and that a new route is found once its registration has returned.
func TestChangesWhileServing(t *testing.T) {
	r := mux.NewRouter()
	ok := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mux.Vars(req)
		if _, err := mux.CurrentRoute(req).GetPathTemplate(); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	first := r.Handle("/old/{x}", ok)
	sub := r.PathPrefix("/sub").Subrouter()
	sub.Handle("/old", ok)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, path := range []string{"/old/1", "/sub/old", "/none"} {
					w := httptest.NewRecorder()
					r.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
					if want := path != "/none"; (w.Code == 200) != want {
						t.Errorf("%s: status %d", path, w.Code)
						return
					}
				}
				r.Conflicts()
			}
		})
	}
	for i := range 60 {
		path := fmt.Sprintf("/new%d", i)
		r.Handle(path, ok).Name(path).Metadata("i", i)
		sub.HandleFunc(path, ok).Methods("GET")
		first.Handler(ok)
		r.StrictSlash(i%2 == 0).SkipClean(i%3 == 0)
		if i%20 == 0 {
			sub.Use(func(next http.Handler) http.Handler { return next })
		}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 || r.Get(path) == nil || len(r.Routes()) < i {
			t.Fatalf("%s: status %d right after it was added", path, w.Code)
		}
	}
	close(stop)
	wg.Wait()
}

// TestUpdateIsOneChange checks that no request sees half of an Update.
func TestUpdateIsOneChange(t *testing.T) {
	r := mux.NewRouter()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	get := func(method, path string) int {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code
	}
	r.Update(func() {
		route := r.HandleFunc("/admin", status(201))
		if got := get("GET", "/admin"); got != 404 {
			t.Errorf("GET during the update: %d, want 404", got)
		}
		r.Update(func() { route.Methods("POST") })
		if got := get("POST", "/admin"); got != 404 {
			t.Errorf("POST during the update: %d, want 404", got)
		}
	})
	if got := get("GET", "/admin"); got != 405 {
		t.Errorf("GET after the update: %d, want 405", got)
	}
	if got := get("POST", "/admin"); got != 201 {
		t.Errorf("POST after the update: %d, want 201", got)
	}
}

// TestContextOutlivesHandler keeps requests after their handlers return, as
// http.TimeoutHandler does. They must not change with later requests.
func TestContextOutlivesHandler(t *testing.T) {
	r := mux.NewRouter()
	var kept []*http.Request
	var contexts []context.Context
	r.HandleFunc("/{a}", func(_ http.ResponseWriter, req *http.Request) {
		kept = append(kept, req)
		contexts = append(contexts, req.Context())
	})
	for i := range 100 {
		r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", fmt.Sprint("/", i), nil))
	}
	for i, req := range kept {
		other := httptest.NewRequest("GET", "/", nil).WithContext(contexts[i])
		if got, want := mux.Var(req, "a"), fmt.Sprint(i); got != want || mux.Vars(other)["a"] != want {
			t.Errorf("request %d: variable %q", i, got)
		}
	}
}

// TestRequestSeesOneMoment adds routes, and serves another request with them,
// while a request is being matched. The first must not see them.
func TestRequestSeesOneMoment(t *testing.T) {
	r := mux.NewRouter()
	add := func() {}
	r.MatcherFunc(func(*http.Request, *mux.RouteMatch) bool { add(); return false })
	sub := r.PathPrefix("/s").Subrouter()
	sub.Handle("/old/{x}", label("old"))
	for _, path := range []string{"/s/new/1", "/s/static", "/new/1", "/static", "/deep/er/than/all/before"} {
		add = func() {
			add = func() {}
			if strings.HasPrefix(path, "/s/") {
				sub.Handle(path[len("/s"):], label("new"))
			} else {
				r.Handle(path, label("new"))
			}
			if got := serve(r, "GET", path); got != "new" {
				t.Errorf("%s: the other request gets %s", path, got)
			}
		}
		if got := serve(r, "GET", path); got != "404" {
			t.Errorf("%s: got %s", path, got)
		}
	}
}
