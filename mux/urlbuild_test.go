package mux_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

func TestURL(t *testing.T) {
	for _, tt := range []struct {
		name  string
		build func(*mux.Router) *mux.Route
		pairs []string
		want  string // empty for an error
	}{
		{"path", func(r *mux.Router) *mux.Route { return r.Path("/a/{x}/{n:[0-9]+}") }, []string{"x", "b", "n", "1"}, "/a/b/1"},
		{"missing", func(r *mux.Router) *mux.Route { return r.Path("/a/{x}") }, nil, ""},
		{"mismatch", func(r *mux.Router) *mux.Route { return r.Path("/{n:[0-9]+}") }, []string{"n", "x"}, ""},
		{"odd", func(r *mux.Router) *mux.Route { return r.Path("/") }, []string{"n"}, ""},
		{"percent", func(r *mux.Router) *mux.Route { return r.Path("/100%/{x}") }, []string{"x", "b"}, "/100%25/b"},
		{"slash", func(r *mux.Router) *mux.Route { return r.StrictSlash(true).Path("/a/") }, nil, "/a/"},
		{"host", func(r *mux.Router) *mux.Route { return r.Host("{h}.com").Schemes("https").Path("/") }, []string{"h", "a"}, "https://a.com/"},
		{"query", func(r *mux.Router) *mux.Route { return r.Queries("k", "{q}", "l", "m").Path("/") }, []string{"q", "a b"}, "/?k=a+b&l=m"},
		{"functions", func(r *mux.Router) *mux.Route {
			add := func(suffix string) mux.BuildVarsFunc {
				return func(vars map[string]string) map[string]string { vars["x"] += suffix; return vars }
			}
			return r.BuildVarsFunc(add("1")).BuildVarsFunc(add("2")).Path("/{x}")
		}, []string{"x", "a"}, "/a12"},
		{"subrouter", func(r *mux.Router) *mux.Route { return r.PathPrefix("/{x}/").Subrouter().Path("/b") }, []string{"x", "a"}, "/a/b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u, err := tt.build(mux.NewRouter()).URL(tt.pairs...)
			if (err != nil) != (tt.want == "") || (err == nil && u.String() != tt.want) {
				t.Errorf("got %v, %v, want %q", u, err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), `"x"`) && tt.name == "mismatch" {
				t.Errorf("the error quotes the value: %v", err)
			}
		})
	}
	r := mux.NewRouter()
	both := r.Host("a.com").Path("/p")
	if u, err := both.URLHost(); err != nil || u.String() != "http://a.com" {
		t.Errorf("URLHost: %v, %v", u, err)
	}
	if u, err := both.URLPath(); err != nil || u.String() != "/p" {
		t.Errorf("URLPath: %v, %v", u, err)
	}
	if _, err := r.Path("/p").URLHost(); err == nil {
		t.Error("URLHost without a host returned no error")
	}
	if _, err := r.Host("a.com").URLPath(); err == nil {
		t.Error("URLPath without a path returned no error")
	}
}

func TestGetters(t *testing.T) {
	r := mux.NewRouter()
	route := r.Host("{h}.com").Path("/{x}").Queries("k", "{q}").Methods("get", "POST").Name("n")
	show := func(v any, err error) string { return fmt.Sprintf("%v %v", v, err) }
	for _, tt := range []struct{ got, want string }{
		{show(route.GetPathTemplate()), "/{x} <nil>"},
		{show(route.GetPathRegexp()), "^/(?P<v0>[^/]+)$ <nil>"},
		{show(route.GetHostTemplate()), "{h}.com <nil>"},
		{show(route.GetQueriesTemplates()), "[k={q}] <nil>"},
		{show(route.GetQueriesRegexp()), "[^k=(?P<v0>.*)$] <nil>"},
		{show(route.GetMethods()), "[GET POST] <nil>"},
		{show(route.GetVarNames()), "[h x q] <nil>"},
		{show(route.GetName(), route.GetError()), "n <nil>"},
		{show(r.Get("n") == route, nil), "true <nil>"},
		{show(r.GetRoute("n") == route, nil), "true <nil>"},
		{show(r.NewRoute().SkipClean(), nil), "false <nil>"},
		{show(r.Name("m").GetHandlerWithMiddlewares(), nil), "<nil> <nil>"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
	empty := r.NewRoute()
	for name, f := range map[string]func() (string, error){
		"path": empty.GetPathTemplate, "path regexp": empty.GetPathRegexp, "host": empty.GetHostTemplate,
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s of an empty route returned no error", name)
		}
	}
	if _, err := empty.GetMethods(); err == nil {
		t.Error("GetMethods of an empty route returned no error")
	}
	methods, _ := route.GetMethods()
	methods[0] = "changed"
	if again, _ := route.GetMethods(); again[0] != "GET" {
		t.Error("GetMethods returned the route's own slice")
	}
}

func TestMetadata(t *testing.T) {
	route := mux.NewRouter().NewRoute()
	if route.GetMetadata() != nil || route.MetadataContains("a") {
		t.Error("a new route has metadata")
	}
	route.Metadata("a", 1).Metadata("b", 2)
	if _, err := route.GetMetadataValue("c"); !errors.Is(err, mux.ErrMetadataKeyNotFound) {
		t.Errorf("missing key: %v", err)
	}
	value, err := route.GetMetadataValue("a")
	if err != nil || value != 1 || route.GetMetadataValueOr("c", 3) != 3 || route.GetMetadataValueOr("b", 3) != 2 {
		t.Errorf("wrong metadata: %v", route.GetMetadata())
	}
	if !maps.Equal(route.GetMetadata(), map[any]any{"a": 1, "b": 2}) {
		t.Errorf("got %v", route.GetMetadata())
	}
}

func TestWalk(t *testing.T) {
	r, handler := mux.NewRouter(), mux.NewRouter()
	handler.Path("/inner")
	r.Path("/a")
	s := r.PathPrefix("/s").Subrouter()
	s.Path("/b")
	r.PathPrefix("/h").Handler(handler)
	walk := func(stop string, result error) (string, error) {
		var log []string
		err := r.Walk(func(route *mux.Route, router *mux.Router, ancestors []*mux.Route) error {
			tpl, _ := route.GetPathTemplate()
			log = append(log, fmt.Sprintf("%s %d %v %v", tpl, len(ancestors), router == r, ancestors == nil))
			if tpl == stop {
				return result
			}
			return nil
		})
		return strings.Join(log, " "), err
	}
	failed := errors.New("failed")
	const a, sub, b, h = "/a 0 true false", "/s 0 true false", "/s/b 1 false false", "/h 0 true false"
	for _, tt := range []struct {
		stop   string
		result error
		want   string
		err    error
	}{
		{"", nil, strings.Join([]string{a, sub, b, h, "/inner 1 false false"}, " "), nil},
		{"/s", mux.SkipRouter, strings.Join([]string{a, sub, h, "/inner 1 false false"}, " "), nil},
		{"/s/b", failed, strings.Join([]string{a, sub, b}, " "), failed},
	} {
		if got, err := walk(tt.stop, tt.result); got != tt.want || err != tt.err {
			t.Errorf("stop at %q: got %s, %v, want %s, %v", tt.stop, got, err, tt.want, tt.err)
		}
	}
}

// TestContextValues: values and cancellation of the request's own context
// remain visible, and variables survive derived contexts.
func TestContextValues(t *testing.T) {
	r := mux.NewRouter()
	r.HandleFunc("/{a}", func(_ http.ResponseWriter, req *http.Request) {
		if req.Context().Value(contextKey{}) != "outer" || req.Context().Err() == nil {
			t.Error("a value of the outer context is missing")
		}
		inner := req.WithContext(context.WithValue(req.Context(), contextKey{}, "inner"))
		if mux.Var(inner, "a") != "1" || mux.Vars(inner)["a"] != "1" {
			t.Error("the variables are missing in a derived context")
		}
	})
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), contextKey{}, "outer"))
	cancel()
	r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/1", nil).WithContext(ctx))
}
