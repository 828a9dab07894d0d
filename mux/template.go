package mux

import (
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
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

	// base is the path template that this one extends, or nil.
	base *template
}

// A template matches one part of a URL and can build it. It is immutable.
type template struct {
	text string // as given, after the base's text
	kind templateKind
	templateOptions

	// source is the regular expression for the text that the template matches,
	// as returned by RegexpCompileFunc. If plan is not nil, it matches the same
	// text faster; expr is then nil, unless a RegexpCompileFunc of the
	// program's made it.
	source string
	expr   *regexp.Regexp
	plan   *plan

	// shape is what the index knows about a path template.
	shape shape

	// names and patterns have one entry per variable. checks are the
	// expressions for the values alone, if a RegexpCompileFunc of the program's
	// made them.
	names    []string
	patterns []string
	checks   []*regexp.Regexp

	// literals surround the variables: len(literals) == len(names)+1.
	literals []string

	// anyPort is set for a host template that ignores the port.
	anyPort bool

	// key is the query key, and value the plan for what follows "key=".
	key   string
	value *plan
}

// newTemplate parses a template. It panics if a pattern has capturing groups,
// because they would shift the groups of the variables.
func newTemplate(text string, kind templateKind, opts templateOptions) (*template, error) {
	braces, err := findBraces(text)
	if err != nil {
		return nil, err
	}
	t := &template{text: text, kind: kind, templateOptions: opts}
	rest := text
	if opts.strictSlash {
		rest = strings.TrimSuffix(rest, "/")
	}
	own := ownCompiler()
	var expr strings.Builder
	expr.WriteByte('^')
	end := 0
	for i, b := range braces {
		literal := rest[end:b.start]
		end = b.end
		name, pattern, found := strings.Cut(text[b.start+1:b.end-1], ":")
		if !found {
			pattern = kind.defaultPattern()
		}
		if name == "" || pattern == "" {
			return nil, fmt.Errorf("mux: missing name or pattern in %q", text[b.start:b.end])
		}
		if err := t.addVariable(literal, name, pattern, own); err != nil {
			return nil, fmt.Errorf("mux: error compiling regex for %q: %w", text[b.start:b.end], err)
		}
		expr.WriteString(regexp.QuoteMeta(literal))
		expr.WriteString("(?P<v" + strconv.Itoa(i) + ">" + pattern + ")")
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
	t.anyPort = kind == hostTemplate && !strings.Contains(expr.String(), ":")
	return t, t.compile(expr.String(), own)
}

func (t *template) addVariable(literal, name, pattern string, own bool) error {
	t.literals = append(t.literals, literal)
	t.names = append(t.names, name)
	t.patterns = append(t.patterns, pattern)
	if own {
		check, err := RegexpCompileFunc(anchored(pattern))
		t.checks = append(t.checks, check)
		return err
	}
	if pattern == t.kind.defaultPattern() {
		return nil
	}
	_, err := syntax.Parse(anchored(pattern), syntax.Perl)
	return err
}

func anchored(pattern string) string { return "^" + pattern + "$" }

// check returns the expression for the value of one variable.
func (t *template) check(i int) *regexp.Regexp {
	if t.checks != nil {
		return t.checks[i]
	}
	// The pattern's syntax was checked when the template was made.
	return regexp.MustCompile(anchored(t.patterns[i]))
}

// ownCompiler reports whether the program has set a RegexpCompileFunc. If not,
// expressions are parsed but not compiled until they are needed, which saves
// most of the time and the memory of a route.
func ownCompiler() bool {
	return reflect.ValueOf(RegexpCompileFunc).Pointer() != reflect.ValueOf(regexp.Compile).Pointer()
}

// compile sets the fields that are derived from the expression.
func (t *template) compile(source string, own bool) error {
	t.source = source
	if own {
		return t.compileOwn()
	}
	re, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		return err
	}
	t.panicOnGroups(re.MaxCap())
	t.analyse(re)
	if t.plan == nil {
		t.expr, err = regexp.Compile(source)
	}
	return err
}

// compileOwn is compile for the program's RegexpCompileFunc.
func (t *template) compileOwn() (err error) {
	source := t.source
	if t.expr, err = RegexpCompileFunc(source); err != nil {
		return err
	}
	t.source = t.expr.String()
	t.panicOnGroups(t.expr.NumSubexp())
	if t.source != source || !keepsLines() {
		return nil
	}
	if re, err := syntax.Parse(source, syntax.Perl); err == nil {
		t.analyse(re)
	}
	return nil
}

// keepsLines reports whether the expressions of RegexpCompileFunc treat ends of
// lines as ordinary characters. POSIX expressions do not.
func keepsLines() bool {
	probe, err := RegexpCompileFunc("^a$")
	return err == nil && !probe.MatchString("b\na\nb")
}

func (t *template) panicOnGroups(groups int) {
	if groups != len(t.names) {
		panic(fmt.Sprintf("route %s contains capture groups in its regexp. "+
			"Only non-capturing groups are accepted: e.g. (?:pattern) instead of (pattern)", t.text))
	}
}

// braces is one pair of outermost braces; end is after the second.
type braces struct{ start, end int }

// findBraces finds the outermost braces. Patterns may contain balanced braces.
func findBraces(text string) ([]braces, error) {
	var found []braces
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
			if depth == 0 {
				found = append(found, braces{start, i + 1})
			}
		}
		if depth < 0 {
			break
		}
	}
	if depth != 0 {
		return nil, fmt.Errorf("mux: unbalanced braces in %q", text)
	}
	return found, nil
}

// matches reports whether the template matches s, which is the path, the host,
// or the query's "key=value".
func (t *template) matches(s string) bool {
	return t.extract(s, nil)
}

// extract writes the values of the variables to values, which has one element
// for each or is nil, and reports whether the template matches s. The values are
// substrings of s.
func (t *template) extract(s string, values []string) bool {
	switch {
	case t.plan != nil:
		return t.plan.run(s, values)
	case values == nil:
		return t.expr.MatchString(s)
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

// A templateGroup holds the templates of a route, by part of the URL.
type templateGroup struct {
	path    *template
	host    *template
	queries []*template
}

// all appends the templates that may hold variables to dst, in the order in which
// their values are taken.
func (g *templateGroup) all(dst []*template) []*template {
	if g.host != nil {
		dst = append(dst, g.host)
	}
	if g.path != nil {
		dst = append(dst, g.path)
	}
	return append(dst, g.queries...)
}

// varNames returns the names of the variables of host, path and queries, in this
// order.
func (g *templateGroup) varNames() (names []string) {
	for _, t := range g.all(nil) {
		names = append(names, t.names...)
	}
	return names
}
