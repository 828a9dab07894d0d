package mux_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

// TestTexts checks the texts that programs compare or display, for every reason for which
// a route cannot be built.
func TestTexts(t *testing.T) {
	route := mux.NewRouter().NewRoute()
	text := func(_ any, err error) string { return fmt.Sprint(err) }
	for name, tt := range map[string]struct{ got, want string }{
		"GetMethods":      {text(route.GetMethods()), "mux: route doesn't have methods"},
		"GetPathTemplate": {text(route.GetPathTemplate()), "mux: route doesn't have a path"},
		"GetPathRegexp":   {text(route.GetPathRegexp()), "mux: route does not have a path"},
		"GetHostTemplate": {text(route.GetHostTemplate()), "mux: route doesn't have a host"},
		"URLHost":         {text(route.URLHost()), "mux: route doesn't have a host"},
		"URLPath":         {text(route.URLPath()), "mux: route doesn't have a path"},

		"GetQueriesTemplates": {text(new(mux.Route).GetQueriesTemplates()), "mux: route doesn't have queries"},
		"GetQueriesRegexp":    {text(new(mux.Route).GetQueriesRegexp()), "mux: route doesn't have queries"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %q, want %q", name, tt.got, tt.want)
		}
	}
	for name, tt := range map[string]struct {
		build func(*mux.Route)
		want  string
	}{
		"slash":         {func(r *mux.Route) { r.Path("a") }, `mux: path must start with a slash, got "a"`},
		"braces":        {func(r *mux.Route) { r.Path("/{a") }, `mux: unbalanced braces in "/{a"`},
		"closing brace": {func(r *mux.Route) { r.Path("/a}") }, `mux: unbalanced braces in "/a}"`},
		"name":          {func(r *mux.Route) { r.Path("/{:a}") }, `mux: missing name or pattern in "{:a}"`},
		"pattern":       {func(r *mux.Route) { r.Path("/{a:}") }, `mux: missing name or pattern in "{a:}"`},
		"pattern first": {func(r *mux.Route) { r.Path("/{a:[}/{}") },
			"mux: error compiling regex for \"{a:[}\": error parsing regexp: missing closing ]: `[$`"},
		"template":    {func(r *mux.Route) { r.Path("/\xff") }, "error parsing regexp: invalid UTF-8: `\xff$`"},
		"second name": {func(r *mux.Route) { r.Name("a").Name("b") }, `mux: route already has name "a", can't set "b"`},
		"variable":    {func(r *mux.Route) { r.Host("{a}.com").Path("/{a}") }, `mux: duplicated route variable "a"`},
		"two queries": {func(r *mux.Route) { r.Queries("k", "{a}", "l", "{a}") }, `mux: duplicated route variable "a"`},
		"queries":     {func(r *mux.Route) { r.Queries("k") }, "mux: number of parameters must be multiple of 2, got [k]"},
		"headers":     {func(r *mux.Route) { r.Headers("k") }, "mux: number of parameters must be multiple of 2, got [k]"},
		"header":      {func(r *mux.Route) { r.HeadersRegexp("k", "[") }, "error parsing regexp: missing closing ]: `[`"},
	} {
		router := mux.NewRouter()
		route := router.NewRoute()
		tt.build(route)
		err := route.GetError()
		if got := fmt.Sprint(err); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		route.Path("/later").Handler(label("x"))
		if route.GetError() != err || route.GetHandler() != nil || serve(router, "GET", "/later") != "404" {
			t.Errorf("%s: a route with an error was changed", name)
		}
		if _, err := route.URL(); err == nil {
			t.Errorf("%s: URL of a route with an error returned no error", name)
		}
		if _, err := route.GetPathTemplate(); err != route.GetError() {
			t.Errorf("%s: a getter returned %v, want the route's error", name, err)
		}
	}
	missing, err := mux.NewRouter().Path("/{a}").URL()
	if missing != nil || fmt.Sprint(err) != `mux: missing route variable "a"` {
		t.Errorf("a missing variable: %v, %v", missing, err)
	}
	defer func() {
		const want = "route /{a:(b)} contains capture groups in its regexp. Only non-capturing groups are accepted: e.g. " +
			"(?:pattern) instead of (pattern)"
		if got := recover(); got != want {
			t.Errorf("panic %v, want %v", got, want)
		}
	}()
	mux.NewRouter().Path("/{a:(b)}")
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
