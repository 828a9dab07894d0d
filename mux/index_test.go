package mux_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

// smallRoutes returns the building blocks of the small tables: every kind of
// route that the index distinguishes, and every trace that a mismatch can
// leave. All of them have the handler h.
func smallRoutes(log *[]string, h http.Handler) []func(*mux.Router) {
	say := func(label string, ok bool) mux.MatcherFunc {
		return func(_ *http.Request, m *mux.RouteMatch) bool {
			*log = append(*log, fmt.Sprint(label, m.MatchErr, m.Vars, m.Route != nil))
			return ok
		}
	}
	path := func(tpl string) func(*mux.Router) {
		return func(r *mux.Router) { r.Handle(tpl, h) }
	}
	prefix := func(tpl string) func(*mux.Router) {
		return func(r *mux.Router) { r.PathPrefix(tpl).Handler(h) }
	}
	return []func(*mux.Router){
		path("/a"), path("/a/"), path("/{x}"), path("/{x}/"), path("/a/{x}"), path("/{x}/b"),
		path("/{x:.*}"), path("/a{x}"), path("/{x:a|b}/{y:b*}"), path(""), path("/a//b"),
		prefix("/a"), prefix("/"), prefix("/{x}/"), prefix("/ab"), prefix(""), prefix("/{x:a+}"),
		func(r *mux.Router) { r.Methods("POST").Path("/a").Handler(h) },
		func(r *mux.Router) { r.Path("/a").Methods("POST").Handler(h) },
		func(r *mux.Router) { r.Path("/a").Queries("k", "v").Handler(h) },
		func(r *mux.Router) { r.Queries("k", "v").Path("/a").Handler(h) },
		func(r *mux.Router) { r.MatcherFunc(say("first", true)).Path("/a").Handler(h) },
		func(r *mux.Router) { r.Path("/a").MatcherFunc(say("last", false)).Handler(h) },
		func(r *mux.Router) { r.Headers("X", "y").Path("/b") },
		func(r *mux.Router) { r.Path("/a") },
		func(r *mux.Router) { r.Path("/a").Path("/b").Handler(h) },
		func(r *mux.Router) {
			s := r.PathPrefix("/a").Subrouter()
			s.Handle("/b", h)
			s.Handle("/{x}", h).Methods("POST")
		},
		func(r *mux.Router) {
			s := r.PathPrefix("/{x}").Subrouter()
			s.NotFoundHandler = h
			s.Handle("/b", h)
		},
		func(r *mux.Router) {
			s := r.MatcherFunc(say("sub", true)).Subrouter()
			s.Handle("/a", h)
		},
		func(r *mux.Router) { r.Path("/a").BuildOnly() },
		func(r *mux.Router) { r.Host("h").Handler(h) },
		func(r *mux.Router) { r.Handle("/{x}/{y}", h).Headers("X", "y") },
	}
}

// words returns all strings over the alphabet with at most n characters.
func words(alphabet string, n int) []string {
	all := []string{""}
	for from := 0; n > 0; n-- {
		to := len(all)
		for _, w := range all[from:to] {
			for _, c := range alphabet {
				all = append(all, w+string(c))
			}
		}
		from = to
	}
	return all
}

type seen struct {
	ok    bool
	route *mux.Route
	err   error
	set   bool
	vars  map[string]string
	log   []string
}

func (a seen) equal(b seen) bool {
	return a.ok == b.ok && a.route == b.route && a.err == b.err && a.set == b.set &&
		maps.Equal(a.vars, b.vars) && slices.Equal(a.log, b.log)
}

// TestIndexAgreesWithScan tries all tables of two routes on all short paths, with
// and without the index.
func TestIndexAgreesWithScan(t *testing.T) { compareWithScan(t, false) }

// TestIndexAgreesWithScanExhaustive does the same with tables of three routes, in make
// exhaustive.
func TestIndexAgreesWithScanExhaustive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	compareWithScan(t, true)
}

// TestFastPath tries all tables of two routes on all short paths, and on some
// with dot segments: where the index returns a single list, it must hold all
// candidates.
func TestFastPath(t *testing.T) {
	var log []string
	small := smallRoutes(&log, http.NotFoundHandler())
	paths := append(words("/ab", 4), "/.", "/..", "/a/.", "/a/..", "/./b", "/.a", "/...", "/a/.b")
	fast := 0
	for a := range small {
		for b := range small {
			for _, strict := range []bool{false, true} {
				r := mux.NewRouter().StrictSlash(strict)
				small[a](r)
				small[b](r)
				for _, path := range paths {
					found, agree := mux.FastPath(r, path)
					if !agree {
						t.Fatalf("routes %d and %d, strict %v, path %q: the single list holds other routes", a, b, strict, path)
					}
					if found {
						fast++
					}
				}
			}
		}
	}
	if fast == 0 {
		t.Error("no path has a single list")
	}
}

func compareWithScan(t *testing.T, three bool) {
	var log []string
	small := smallRoutes(&log, http.NotFoundHandler())
	paths := words("/ab", 4)
	shortPaths := len(words("/ab", 3))
	requests := make([]*http.Request, len(paths))
	for i, p := range paths {
		requests[i] = &http.Request{Method: "GET", URL: &url.URL{Path: p}, Host: "h", Header: http.Header{}}
	}
	look := func(r *mux.Router, req *http.Request, match func(*mux.Router, *http.Request, *mux.RouteMatch) bool) seen {
		log = nil
		var m mux.RouteMatch
		ok := match(r, req, &m)
		return seen{ok, m.Route, m.MatchErr, m.Handler != nil, m.Vars, log}
	}
	try := func(strict bool, requests []*http.Request, table ...int) {
		r := mux.NewRouter().StrictSlash(strict)
		for _, i := range table {
			small[i](r)
		}
		for i, req := range requests {
			want := look(r, req, mux.MatchByScan)
			got := look(r, req, (*mux.Router).Match)
			if !got.equal(want) {
				t.Fatalf("table %v, strict %v, path %q: got %+v, without an index %+v", table, strict, paths[i], got, want)
			}
		}
	}
	for a := range small {
		for b := range small {
			if !three {
				try(true, requests, a, b)
				try(false, requests, a, b)
				continue
			}
			for c := range small {
				try(c%2 == 0, requests[:shortPaths], a, b, c)
			}
		}
	}
}

// TestServingAgreesWithScan serves all short paths from every fourth of the tables of two routes, from a random one on.
// The route, the variables and the redirects must be those of a match without an index: ServeHTTP finds some routes
// without a search. TestServingAgreesWithScanExhaustive (make exhaustive) serves them from all tables.
func TestServingAgreesWithScan(t *testing.T) { compareServing(t, 4) }

func TestServingAgreesWithScanExhaustive(t *testing.T) { compareServing(t, 1) }

// compareServing compares serving with every stride-th of the tables.
func compareServing(t *testing.T, stride int) {
	type served struct {
		status   int
		location string
		route    *mux.Route
		vars     map[string]string
	}
	const taken = http.StatusTeapot
	var got served
	var log []string
	small := smallRoutes(&log, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.route, got.vars = mux.CurrentRoute(r), mux.Vars(r)
		w.WriteHeader(taken)
	}))
	paths := words("/ab", 4)
	table := rand.IntN(stride)
	t.Logf("from table %d on", table)
	for flags := range 8 {
		strict, skipClean, share := flags&1 > 0, flags&2 > 0, flags&4 > 0
		if testing.Short() && (share != strict || skipClean) {
			continue
		}
		for a := range small {
			for b := range small {
				if table++; table%stride != 0 {
					continue
				}
				r := newSharing(share).StrictSlash(strict).SkipClean(skipClean)
				small[a](r)
				small[b](r)
				for _, path := range paths {
					if !skipClean && !mux.IsClean(path) {
						continue
					}
					newRequest := func() *http.Request {
						return &http.Request{Method: "GET", URL: &url.URL{Path: path}, Host: "h", Header: http.Header{}}
					}
					serve := func(h http.Handler) served {
						got = served{}
						w := httptest.NewRecorder()
						h.ServeHTTP(w, newRequest())
						got.status, got.location = w.Code, w.Header().Get("Location")
						return got
					}
					want := served{status: http.StatusNotFound}
					var m mux.RouteMatch
					if mux.MatchByScan(r, newRequest(), &m) && m.Handler != nil {
						want = serve(m.Handler)
						if want.status == taken && m.Route != nil {
							want.route, want.vars = m.Route, m.Vars
						}
					} else if m.MatchErr == mux.ErrMethodMismatch {
						want.status = http.StatusMethodNotAllowed
					}
					got := serve(r)
					if got.status != want.status || got.location != want.location || got.route != want.route ||
						!maps.Equal(got.vars, want.vars) {
						t.Fatalf("routes %d and %d, strict %v, skipClean %v, share %v, path %q: got %+v, by a scan %+v", a, b, strict,
							skipClean, share, path, got, want)
					}
				}
			}
		}
	}
}
