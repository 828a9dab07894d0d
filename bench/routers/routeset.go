package routers

import (
	"bufio"
	"embed"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// A Route is a method and a path with variables in braces, which may have a
// pattern: /users/{id:[0-9]+}.
type Route struct {
	Method, Path string
}

// A Set is a table of routes and the requests that a benchmark sends to it.
type Set struct {
	Name   string
	Host   string // of all routes, if not empty
	Routes []Route

	// Requests are sent in rotation.
	Requests []Route

	// Status is the expected answer.
	Status int

	// Read makes the handlers read the variable "name".
	Read bool
}

//go:embed testdata/routes/*.txt
var routeFiles embed.FS

// Sets returns the sets of the comparison.
func Sets() ([]Set, error) {
	var sets []Set
	for _, name := range []string{"static", "github", "gplus", "parse"} {
		routes, err := readRoutes(name)
		if err != nil {
			return nil, err
		}
		sets = append(sets, newSet(name, routes))
	}
	one := []Route{{"GET", "/user/{name}"}}
	read := newSet("one-variable-read", one)
	read.Read = true
	host := newSet("host", []Route{{"GET", "/users/{id}"}})
	host.Host = "api.example.com"
	sets = append(sets,
		newSet("one-static", []Route{{"GET", "/user/repos"}}),
		newSet("one-variable", one),
		read,
		newSet("five-variables", []Route{{"GET", "/{a}/{b}/{c}/{d}/{e}"}}),
		newSet("regexp", []Route{{"GET", "/user/{id:[0-9]+}"}}),
		host,
	)
	for _, n := range []int{10, 100, 1_000, 10_000} {
		sets = append(sets, newSet(fmt.Sprintf("routes-%d", n), numbered(n)))
	}
	github := sets[1]
	notFound, notAllowed := github, github
	notFound.Name, notFound.Status = "404", http.StatusNotFound
	notFound.Requests = []Route{{"GET", "/repos/o/r/none"}, {"GET", "/none"}}
	notAllowed.Name, notAllowed.Status = "405", http.StatusMethodNotAllowed
	notAllowed.Requests = []Route{{"PATCH", "/user/emails"}, {"DELETE", "/events"}}
	return append(sets, notFound, notAllowed), nil
}

func newSet(name string, routes []Route) Set {
	s := Set{Name: name, Routes: routes, Status: http.StatusNoContent}
	for _, r := range routes {
		s.Requests = append(s.Requests, Route{r.Method, fill(r.Path)})
	}
	// Large tables are tested with a sample of their routes, so that all sets
	// make similar demands on the processor's caches.
	const maxRequests = 250
	if n := len(s.Requests); n > maxRequests {
		var sample []Route
		// The step is odd because static routes and others alternate.
		for i := 0; i < n; i += n/maxRequests | 1 {
			sample = append(sample, s.Requests[i])
		}
		s.Requests = sample
	}
	return s
}

// numbered returns n routes, half of them without variables.
func numbered(n int) []Route {
	routes := make([]Route, n)
	for i := range routes {
		path := fmt.Sprintf("/service%d/items", i)
		if i%2 == 1 {
			path += "/{id}"
		}
		routes[i] = Route{"GET", path}
	}
	return routes
}

func readRoutes(name string) ([]Route, error) {
	f, err := routeFiles.Open("testdata/routes/" + name + ".txt")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var routes []Route
	for lines := bufio.NewScanner(f); lines.Scan(); {
		method, path, ok := strings.Cut(lines.Text(), " ")
		if ok && method != "#" {
			routes = append(routes, Route{method, path})
		}
	}
	return routes, nil
}

var variables = regexp.MustCompile(`\{(\w+)(?::[^}]*)?\}`)

// fill replaces variables by digits, which match all patterns used here.
func fill(path string) string {
	return variables.ReplaceAllString(path, "12345")
}

// Colons turns {name} into :name.
func Colons(path string) string {
	return variables.ReplaceAllString(path, ":$1")
}

// Patterns reports whether a route of the set has a variable with a pattern.
func (s *Set) Patterns() bool {
	for _, r := range s.Routes {
		if strings.Contains(r.Path, ":") {
			return true
		}
	}
	return false
}

// NewRequests makes the requests of the set.
func (s *Set) NewRequests() []*http.Request {
	requests := make([]*http.Request, len(s.Requests))
	for i, r := range s.Requests {
		requests[i] = &http.Request{
			Method: r.Method, URL: &url.URL{Path: r.Path}, RequestURI: r.Path, Host: s.Host,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody,
		}
	}
	return requests
}
