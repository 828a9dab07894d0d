package mux

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

type templateKind uint8

const (
	pathTemplate templateKind = iota
	prefixTemplate
	hostTemplate
	queryTemplate
)

// defaultPattern is what a variable without a pattern matches.
func (k templateKind) defaultPattern() string {
	switch k {
	case hostTemplate:
		return "[^.]+"
	case queryTemplate:
		return ".*"
	default:
		return "[^/]+"
	}
}

type templateOptions struct {
	// strictSlash makes the trailing slash optional in matching. Path templates
	// only.
	strictSlash bool

	// encoded makes the template match the path as the client encoded it.
	encoded bool

	// base is the path template that this one continues, or nil.
	base *template
}

// A template matches one part of a URL and can build it. It is immutable.
type template struct {
	text string // as given, after the base's text
	kind templateKind
	templateOptions

	// expr says what the template matches. Where plan is not nil it says the
	// same, and is faster.
	expr *regexp.Regexp
	plan *plan

	// shape is what the index knows of a path template.
	shape shape

	// names and checks have one entry per variable: its name, and the
	// expression for its value alone.
	names  []string
	checks []*regexp.Regexp

	// literals surround the variables: len(literals) == len(names)+1.
	literals []string

	// anyPort is set for a host template that does not look at the port.
	anyPort bool

	// key is the query key, and value the plan for what follows "key=".
	key   string
	value *plan
}

// A variable is one pair of braces in a template.
type variable struct {
	start, end    int // of the braces, end exclusive
	name, pattern string
}

// newTemplate parses a template. It panics for a pattern with capturing groups,
// since those would shift the groups of the variables.
func newTemplate(text string, kind templateKind, opts templateOptions) (*template, error) {
	vars, err := parseVariables(text, kind.defaultPattern())
	if err != nil {
		return nil, err
	}
	t := &template{text: text, kind: kind, templateOptions: opts}
	rest := text
	if opts.strictSlash {
		rest = strings.TrimSuffix(rest, "/")
	}

	var expr strings.Builder
	expr.WriteByte('^')
	end := 0
	for i, v := range vars {
		literal := rest[end:v.start]
		end = v.end
		t.literals = append(t.literals, literal)
		t.names = append(t.names, v.name)
		expr.WriteString(regexp.QuoteMeta(literal))
		expr.WriteString("(?P<v" + strconv.Itoa(i) + ">" + v.pattern + ")")
		check, err := RegexpCompileFunc("^" + v.pattern + "$")
		if err != nil {
			return nil, fmt.Errorf("mux: compile pattern of variable %q in template %q: %w", v.name, text, err)
		}
		t.checks = append(t.checks, check)
	}
	last := rest[end:]
	expr.WriteString(regexp.QuoteMeta(last))
	if opts.strictSlash {
		expr.WriteString("[/]?")
		if rest != text {
			last += "/"
		}
	}
	t.literals = append(t.literals, last)

	if kind == queryTemplate {
		key, value, _ := strings.Cut(text, "=")
		t.key = key
		if value == "" {
			expr.WriteString(kind.defaultPattern())
		}
	}
	if kind != prefixTemplate {
		expr.WriteByte('$')
	}
	source := expr.String()
	t.expr, err = RegexpCompileFunc(source)
	if err != nil {
		return nil, fmt.Errorf("mux: compile template %q: %w", text, err)
	}
	if t.expr.NumSubexp() != len(vars) {
		panic(fmt.Sprintf("mux: template %q has a capturing group: write (?:pattern) in place of (pattern)", text))
	}
	t.anyPort = kind == hostTemplate && !strings.Contains(source, ":")
	t.analyse(source)
	return t, nil
}

// parseVariables finds the outermost braces. Patterns may hold balanced braces.
func parseVariables(text, defaultPattern string) ([]variable, error) {
	var vars []variable
	depth, start := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			if depth == 0 {
				start = i
			}
			depth++
		case '}':
			depth--
			if depth < 0 {
				return nil, fmt.Errorf("mux: parse template %q: unbalanced braces", text)
			}
			if depth > 0 {
				continue
			}
			name, pattern, found := strings.Cut(text[start+1:i], ":")
			if !found {
				pattern = defaultPattern
			}
			if name == "" || pattern == "" {
				return nil, fmt.Errorf("mux: parse template %q: variable without a name or a pattern", text)
			}
			vars = append(vars, variable{start, i + 1, name, pattern})
		}
	}
	if depth != 0 {
		return nil, fmt.Errorf("mux: parse template %q: unbalanced braces", text)
	}
	return vars, nil
}

// matches reports whether the template matches s, which is the path, the host,
// or the query's "key=value".
func (t *template) matches(s string) bool {
	if t.plan != nil {
		return t.plan.run(s, nil)
	}
	return t.expr.MatchString(s)
}

// extract writes the values of the variables to values, which has one element
// for each, and reports whether the template matches s. The values are
// substrings of s.
func (t *template) extract(s string, values []string) bool {
	if t.plan != nil {
		return t.plan.run(s, values)
	}
	at := t.expr.FindStringSubmatchIndex(s)
	if at == nil {
		return false
	}
	for i := range values {
		values[i] = s[at[2*i+2]:at[2*i+3]]
	}
	return true
}

// A templateGroup is the templates of a route, by part of the URL.
type templateGroup struct {
	host    *template
	path    *template
	queries []*template
}
