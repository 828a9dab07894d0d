package mux

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// A MatcherFunc is a matcher supplied by the caller; see [Route.MatcherFunc].
type MatcherFunc func(*http.Request, *RouteMatch) bool

// Match calls m.
func (m MatcherFunc) Match(r *http.Request, match *RouteMatch) bool {
	return m(r, match)
}

type matcherKind uint8

const (
	matchTemplate matcherKind = iota
	matchMethods
	matchSchemes
	matchHeaders
	matchFunc
	matchRouter
)

// A matcher is one condition of a route. It is a struct and not an interface so
// that the state of a search need not escape to the heap.
type matcher struct {
	kind     matcherKind
	template *template    // matchTemplate
	names    []string     // matchMethods, matchSchemes
	headers  []headerRule // matchHeaders
	fn       MatcherFunc  // matchFunc
	router   *Router      // matchRouter

	// below is the compiled router, in compiled routes.
	below *compiledRouter
}

// accepts reports whether the request meets the condition.
func (m *matcher) accepts(req *http.Request, s *search) bool {
	switch m.kind {
	case matchTemplate:
		return m.template == s.proven || m.template.accepts(req)
	case matchMethods:
		return slices.Contains(m.names, req.Method)
	case matchSchemes:
		return slices.Contains(m.names, requestScheme(req))
	case matchHeaders:
		return acceptsHeaders(m.headers, req.Header)
	case matchFunc:
		return s.callMatcherFunc(m.fn, req)
	default:
		return m.below.search(req, s)
	}
}

// decides reports whether the matcher examines the request alone and, when it
// rejects, leaves no trace in the search other than that of a wrong method.
func (m *matcher) decides() bool {
	switch m.kind {
	case matchFunc, matchRouter:
		return false
	case matchTemplate:
		return m.template.kind != queryTemplate
	default:
		return true
	}
}

// accepts reports whether the template's part of the request matches.
func (t *template) accepts(req *http.Request) bool {
	var src sources
	switch t.kind {
	case hostTemplate:
		src.host = requestHost(req)
	case queryTemplate:
		src.query = req.URL.RawQuery
	default:
		src.path = requestPath(req, t.encoded)
	}
	return t.extractFrom(&src, nil)
}

// extractFrom is extract for the template's part of the request.
func (t *template) extractFrom(src *sources, values []string) bool {
	switch t.kind {
	case hostTemplate:
		host := src.host
		if t.anyPort {
			host, _, _ = strings.Cut(host, ":")
		}
		return t.extract(host, values)
	case queryTemplate:
		value, found := firstQueryValue(src.query, t.key)
		if t.value != nil {
			return found && t.value.run(value, values)
		}
		pair := ""
		if found {
			pair = t.key + "=" + value
		}
		return t.extract(pair, values)
	default:
		return t.extract(src.path, values)
	}
}

func requestHost(req *http.Request) string {
	if req.URL.IsAbs() {
		return req.URL.Host
	}
	return req.Host
}

func requestPath(req *http.Request, encoded bool) string {
	if encoded {
		return req.URL.EscapedPath()
	}
	return req.URL.Path
}

// requestScheme returns the scheme of the URL or, since a server's requests
// have none, that of the connection.
func requestScheme(req *http.Request) string {
	switch {
	case req.URL.Scheme != "":
		return req.URL.Scheme
	case req.TLS != nil:
		return "https"
	default:
		return "http"
	}
}

// A headerRule asks for one value of a header.
type headerRule struct {
	name  string // canonical
	value string // empty means any
	expr  *regexp.Regexp
}

// newHeaderRules turns pairs into rules. Of two pairs with identical names, the
// last one wins.
func newHeaderRules(pairs []string) ([]headerRule, error) {
	if len(pairs)%2 != 0 {
		return nil, errOddPairs(pairs)
	}
	values := mapOf(pairs)
	var rules []headerRule
	for _, name := range slices.Sorted(maps.Keys(values)) {
		rules = append(rules, headerRule{name: http.CanonicalHeaderKey(name), value: values[name]})
	}
	return rules, nil
}

// newHeaderPatterns is newHeaderRules with regular expressions for values. All
// of them must be valid, including those that a later pair replaces.
func newHeaderPatterns(pairs []string) ([]headerRule, error) {
	rules, err := newHeaderRules(pairs)
	if err != nil {
		return nil, err
	}
	exprs := make(map[string]*regexp.Regexp, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		if exprs[pairs[i+1]], err = RegexpCompileFunc(pairs[i+1]); err != nil {
			return nil, err
		}
	}
	for i := range rules {
		rules[i].expr = exprs[rules[i].value]
	}
	return rules, nil
}

// mapOf returns the values by the names before them.
func mapOf(pairs []string) map[string]string {
	values := make(map[string]string, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return values
}

func acceptsHeaders(rules []headerRule, header http.Header) bool {
	for i := range rules {
		values := header[rules[i].name]
		if values == nil || !rules[i].acceptsOneOf(values) {
			return false
		}
	}
	return true
}

func (h *headerRule) acceptsOneOf(values []string) bool {
	switch {
	case h.expr != nil:
		return slices.ContainsFunc(values, h.expr.MatchString)
	case h.value == "":
		return true
	default:
		return slices.Contains(values, h.value)
	}
}

func errOddPairs(pairs []string) error {
	return fmt.Errorf("mux: number of parameters must be multiple of 2, got %v", pairs)
}
