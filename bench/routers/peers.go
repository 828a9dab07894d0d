package routers

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	gorilla "github.com/gorilla/mux"
	gorilla181 "github.com/gorilla/mux181"
	"github.com/julienschmidt/httprouter"
	"github.com/labstack/echo/v4"
	"github.com/uptrace/bunrouter"

	"github.com/pulsegate/pulsegate/mux"
)

// A Peer is a router of the comparison.
type Peer struct {
	Name string

	// Build returns a handler for the set, or nil if the router cannot do what
	// the set asks for.
	Build func(*Set) http.Handler
}

// Peers returns the routers in the order of the table. This project's comes
// twice: as it is, and with ShareRequest. So does ServeMux: as it is, and with a
// copy of the request, as gorilla/mux gives to handlers.
func Peers() []Peer {
	return []Peer{
		{"pulsegate", func(s *Set) http.Handler { return buildMux(s, false) }},
		{"pulsegate-share", func(s *Set) http.Handler { return buildMux(s, true) }},
		{"gorilla-1.8.1", buildGorilla181},
		{"gorilla-main", func(s *Set) http.Handler { return buildGorilla(s, false) }},
		{"gorilla-main-omit", func(s *Set) http.Handler { return buildGorilla(s, true) }},
		{"chi", buildChi},
		{"servemux", buildServeMux},
		{"servemux-copy", buildServeMuxCopy},
		{"httprouter", buildHTTPRouter},
		{"gin", buildGin},
		{"echo", buildEcho},
		{"bunrouter", buildBunrouter},
	}
}

// variable is the name that handlers of sets with Read ask for.
const variable = "name"

// answer is what handlers do. A variable that was asked for must have come.
func answer(w http.ResponseWriter, s *Set, value func() string) {
	if s.Read && value() != "12345" {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func buildMux(s *Set, share bool) http.Handler {
	r := mux.NewRouter().ShareRequest(share)
	handle(s, r.HandleFunc, mux.Var)
	return r
}

func buildGorilla(s *Set, omit bool) http.Handler {
	r := gorilla.NewRouter().OmitRouteFromContext(omit).OmitRouterFromContext(omit)
	handle(s, r.HandleFunc, func(req *http.Request, name string) string { return gorilla.Vars(req)[name] })
	return r
}

func buildGorilla181(s *Set) http.Handler {
	r := gorilla181.NewRouter()
	handle(s, r.HandleFunc, func(req *http.Request, name string) string { return gorilla181.Vars(req)[name] })
	return r
}

// A muxRoute is a route of gorilla/mux, in one of its versions or in ours.
type muxRoute[R any] interface {
	Methods(...string) R
	Host(string) R
}

// handle adds the routes of a set to a router of that family. variableOf returns a
// variable of a request's path.
func handle[R muxRoute[R]](s *Set, handleFunc func(string, func(http.ResponseWriter, *http.Request)) R, variableOf func(*http.Request, string) string) {
	h := func(w http.ResponseWriter, req *http.Request) {
		answer(w, s, func() string { return variableOf(req, variable) })
	}
	for _, route := range s.Routes {
		rt := handleFunc(route.Path, h).Methods(route.Method)
		if s.Host != "" {
			rt.Host(s.Host)
		}
	}
}

func buildChi(s *Set) http.Handler {
	if s.Host != "" {
		return nil
	}
	r := chi.NewRouter()
	h := func(w http.ResponseWriter, req *http.Request) {
		answer(w, s, func() string { return chi.URLParam(req, variable) })
	}
	for _, route := range s.Routes {
		r.MethodFunc(route.Method, route.Path, h)
	}
	return r
}

func buildServeMux(s *Set) http.Handler {
	if s.Patterns() {
		return nil
	}
	m := http.NewServeMux()
	h := func(w http.ResponseWriter, req *http.Request) {
		answer(w, s, func() string { return req.PathValue(variable) })
	}
	for _, route := range s.Routes {
		path := route.Path
		if path[len(path)-1] == '/' {
			path += "{$}"
		}
		m.HandleFunc(route.Method+" "+s.Host+path, h)
	}
	return m
}

// buildServeMuxCopy builds a ServeMux that gives handlers a copy of the request. It has
// the least cost of any router that does.
func buildServeMuxCopy(s *Set) http.Handler {
	m := buildServeMux(s)
	if m == nil {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		m.ServeHTTP(w, req.WithContext(req.Context()))
	})
}

func buildHTTPRouter(s *Set) http.Handler {
	if s.Patterns() || s.Host != "" {
		return nil
	}
	r := httprouter.New()
	h := func(w http.ResponseWriter, _ *http.Request, params httprouter.Params) {
		answer(w, s, func() string { return params.ByName(variable) })
	}
	for _, route := range s.Routes {
		r.Handle(route.Method, Colons(route.Path), h)
	}
	return r
}

func buildGin(s *Set) http.Handler {
	if s.Patterns() || s.Host != "" {
		return nil
	}
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultWriter = io.Discard
	r := gin.New()
	r.HandleMethodNotAllowed = true
	h := func(c *gin.Context) {
		answer(c.Writer, s, func() string { return c.Param(variable) })
	}
	for _, route := range s.Routes {
		r.Handle(route.Method, Colons(route.Path), h)
	}
	return r
}

func buildEcho(s *Set) http.Handler {
	if s.Patterns() || s.Host != "" {
		return nil
	}
	e := echo.New()
	h := func(c echo.Context) error {
		answer(c.Response(), s, func() string { return c.Param(variable) })
		return nil
	}
	for _, route := range s.Routes {
		e.Add(route.Method, Colons(route.Path), h)
	}
	return e
}

func buildBunrouter(s *Set) http.Handler {
	if s.Patterns() || s.Host != "" {
		return nil
	}
	r := bunrouter.New()
	h := func(w http.ResponseWriter, req bunrouter.Request) error {
		answer(w, s, func() string { return req.Param(variable) })
		return nil
	}
	for _, route := range s.Routes {
		r.Handle(route.Method, Colons(route.Path), h)
	}
	return r
}
