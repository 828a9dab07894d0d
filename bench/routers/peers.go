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

// A Peer is one of the compared routers.
type Peer struct {
	Name string

	// Build returns a handler for the set, or nil if the router does not
	// support its routes.
	Build func(*Set) http.Handler
}

// plain returns a Build for a router that supports neither patterns of variables nor hosts.
func plain(build func(*Set) http.Handler) func(*Set) http.Handler {
	return func(s *Set) http.Handler {
		if s.Patterns() || s.Host != "" {
			return nil
		}
		return build(s)
	}
}

// Peers returns the routers in the order of the table. This project's router is
// listed twice: with default settings, and with ShareRequest. So is ServeMux:
// alone, and with a copy of the request for the handler, as gorilla/mux makes
// one.
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
		{"httprouter", plain(buildHTTPRouter)},
		{"gin", plain(buildGin)},
		{"echo", plain(buildEcho)},
		{"bunrouter", plain(buildBunrouter)},
	}
}

// variable is the variable that handlers of sets with Read read.
const variable = "name"

// answer is the body of all handlers. It checks the variable if the set demands that.
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

// A muxRoute is a route of gorilla/mux, in one of its versions, or of package mux.
type muxRoute[R any] interface {
	Methods(...string) R
	Host(string) R
}

// handle adds the routes of a set to such a router. variableOf returns a variable
// of a request's path.
func handle[R muxRoute[R]](s *Set, handleFunc func(string, func(http.ResponseWriter, *http.Request)) R,
	variableOf func(*http.Request, string) string) {
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

// buildServeMuxCopy builds a ServeMux that passes a copy of the request to handlers. No
// router that copies the request can cost less.
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
