package mux_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

func TestAllow(t *testing.T) {
	r := mux.NewRouter().AllowHeader(true).AnswerOptions(true)
	r.Handle("/a", label("x")).Methods("PUT", "GET")
	r.Handle("/a", label("x")).Methods("POST").Headers("X-A", "1")
	r.Handle("/{x:[0-9]+}", label("x")).Methods("DELETE")
	s := r.PathPrefix("/s").Subrouter()
	s.Handle("/a", label("x")).Methods("PATCH")
	s.Handle("/own", label("own")).Methods("OPTIONS")
	for _, tt := range []struct {
		method, target string
		code           int
		allow          string
	}{
		{"DELETE", "/a", 405, "GET, PUT"},
		{"OPTIONS", "/a", 204, "GET, OPTIONS, PUT"},
		{"GET", "/1", 405, "DELETE"},
		{"GET", "/s/a", 405, "PATCH"},
		{"OPTIONS", "/s/own", 200, ""},
		{"OPTIONS", "/none", 404, ""},
		{"GET", "/a", 200, ""},
	} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(tt.method, tt.target, nil))
		if got := w.Header().Get("Allow"); w.Code != tt.code || got != tt.allow {
			t.Errorf("%s %s: got %d with Allow %q, want %d with %q", tt.method, tt.target, w.Code, got, tt.code, tt.allow)
		}
	}
	r.MethodNotAllowedHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, w.Header().Get("Allow"), http.StatusMethodNotAllowed)
	})
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("GET", "/1", nil))
	if got := strings.TrimSpace(w.Body.String()); got != "DELETE" {
		t.Errorf("MethodNotAllowedHandler saw Allow %q", got)
	}
}

func TestPathValues(t *testing.T) {
	r := mux.NewRouter().PathValues(true)
	h := func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprint(w, req.PathValue("x"), req.PathValue("set"))
	}
	r.HandleFunc("/a/{x}", h)
	r.HandleFunc("/static", h)
	r.MatcherFunc(func(_ *http.Request, m *mux.RouteMatch) bool {
		m.Vars = map[string]string{"set": "by a matcher"}
		return true
	}).HandlerFunc(h)
	for target, want := range map[string]string{"/a/1": "1", "/static": "", "/none": "by a matcher"} {
		if got := serve(r, "GET", target); got != want {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
}

// With UseEncodedPath, PathValue has the decoded value, as with http.ServeMux, and Vars the
// encoded one, as in gorilla. Variables of the host and of queries are not encoded.
func TestPathValuesEncoded(t *testing.T) {
	serveMux := http.NewServeMux()
	serveMux.HandleFunc("/{x}", func(w http.ResponseWriter, req *http.Request) { fmt.Fprint(w, req.PathValue("x")) })
	r := mux.NewRouter().UseEncodedPath().PathValues(true)
	r.Host("{h}.example.com").Path("/{x}").Queries("q", "{q:.*}").
		HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			fmt.Fprint(w, req.PathValue("h"), " ", req.PathValue("x"), " ", req.PathValue("q"), " ", mux.Vars(req)["x"])
		})
	r.HandleFunc("/{x}", func(w http.ResponseWriter, req *http.Request) { fmt.Fprint(w, req.PathValue("x")) })
	for _, path := range []string{"/a%2Fb", "/a%20b", "/a%252Fb", "/a", "/%C3%A9", "/a+b"} {
		want := serve(serveMux, "GET", path)
		if got := serve(r, "GET", path); got != want {
			t.Errorf("%s: PathValue = %q, want %q", path, got, want)
		}
		all := "%41 " + want + " %2F " + path[1:]
		if got := serve(r, "GET", "http://x.example.com"+path+"?q=%252F", func(req *http.Request) {
			req.Host = "%41.example.com"
		}); got != all {
			t.Errorf("%s: got %q, want %q", path, got, all)
		}
	}
}

func TestPermanentRedirect(t *testing.T) {
	r := mux.NewRouter().StrictSlash(true).PermanentRedirect(true)
	r.Handle("/a", label("x"))
	for target, want := range map[string]string{"/a/": "308 /a", "//a": "308 /a", "/b/../a": "308 /a"} {
		if got := serve(r, "POST", "/", func(req *http.Request) { req.URL.Path = target }); got != want {
			t.Errorf("%s: got %s, want %s", target, got, want)
		}
	}
}

// TestConflictsAreCertain builds all small tables and checks that no request
// matches a route that is reported.
func TestConflictsAreCertain(t *testing.T) {
	h := http.NotFoundHandler()
	small := []func(*mux.Router) *mux.Route{}
	for _, tpl := range []string{"/a", "/a/", "/{x}", "/{x}/", "/a/{y}", "/{x}/b", "/{x:a}", "/{x:.*}", "/a/b", "",
		"/{x}{y}", "/{x:a*}"} {
		small = append(small,
			func(r *mux.Router) *mux.Route { return r.Handle(tpl, h) },
			func(r *mux.Router) *mux.Route { return r.Handle(tpl, h).Methods("GET") })
	}
	for _, tpl := range []string{"/a", "/", "/{x}/", ""} {
		small = append(small, func(r *mux.Router) *mux.Route { return r.PathPrefix(tpl).Handler(h) })
	}
	small = append(small,
		func(r *mux.Router) *mux.Route { return r.NewRoute().Handler(h) },
		func(r *mux.Router) *mux.Route { return r.Path("/a").Path("/{x}").Handler(h) },
		func(r *mux.Router) *mux.Route { return r.Methods("GET").Methods("POST").Handler(h) },
		func(r *mux.Router) *mux.Route { return r.Handle("/a", h).Headers("X", "") },
		func(r *mux.Router) *mux.Route { return r.Handle("/a", h).Headers("X", "y") },
		func(r *mux.Router) *mux.Route { return r.Handle("/a", h).Queries("k", "{q}") },
		func(r *mux.Router) *mux.Route { return r.Handle("/a", h).Host("a.com") },
		func(r *mux.Router) *mux.Route { return r.Host("a.com").Handler(h) },
		func(r *mux.Router) *mux.Route { return r.Host("a.com:80").Handler(h) },
		func(r *mux.Router) *mux.Route { return r.Host("{x}.com").Handler(h) },
		func(r *mux.Router) *mux.Route { return r.Handle("/v{x}b/a", h) },
		func(r *mux.Router) *mux.Route { return r.PathPrefix("/v").Handler(h) },
		func(r *mux.Router) *mux.Route { return r.Handle("/a", h).Schemes("http", "https") },
	)
	var requests []*http.Request
	for _, p := range words("/ab", 4) {
		for _, method := range []string{"GET", "POST"} {
			for _, query := range []string{"", "k=v"} {
				req := httptest.NewRequest(method, "http://a.com/?"+query, nil)
				req.URL.Path, req.URL.Scheme = p, ""
				req.Header.Set("X", map[string]string{"": "y", "k=v": "z"}[query])
				requests = append(requests, req)
			}
		}
	}
	reported := 0
	for _, strict := range []bool{false, true} {
		for _, first := range small {
			for _, second := range small {
				r := mux.NewRouter().StrictSlash(strict)
				first(r)
				second(r)
				conflicts := r.Conflicts()
				if all := mux.ConflictsByScan(r); !slices.Equal(conflicts, all) {
					t.Fatalf("%v, without an index %v", conflicts, all)
				}
				reported += len(conflicts)
				if len(conflicts) == 0 {
					continue
				}
				for _, req := range requests {
					var m mux.RouteMatch
					if !r.Match(req, &m) {
						continue
					}
					for _, c := range conflicts {
						if m.Route == c.Route {
							t.Fatalf("%s %s reaches a route although it is reported: %s", req.Method, req.URL, c)
						}
					}
				}
			}
		}
	}
	if reported < len(small) {
		t.Errorf("%d conflicts in total, want at least one for each route registered twice", reported)
	}
}

func TestConflicts(t *testing.T) {
	r := mux.NewRouter()
	r.Handle("/users/{id}", label(""))
	r.Handle("/users/{name}", label("")).Methods("GET")
	r.Handle("/users/me", label(""))
	r.Handle("/users/{id}/x", label(""))
	r.PathPrefix("/static").Handler(label(""))
	s := r.PathPrefix("/static/css").Subrouter()
	s.Handle("/a", label(""))
	r.Path("/a").Path("/b")
	r.Handle("/bad/{", label(""))
	r.Path("/users/build").BuildOnly()
	var got []string
	for _, c := range r.Conflicts() {
		got = append(got, c.String())
	}
	want := []string{
		`route GET /users/{name} cannot match: route /users/{id}, added before, takes all of its requests`,
		`route /users/me cannot match: route /users/{id}, added before, takes all of its requests`,
		`route /static/css cannot match: route /static, added before, takes all of its requests`,
		`route /a/b cannot match: "/a" and "/a/b" exclude each other`,
		`route without a path has an error: mux: unbalanced braces in "/bad/{"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
