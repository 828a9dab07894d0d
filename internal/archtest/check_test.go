package archtest_test

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
)

// A rule is the name of one.
type rule string

const (
	roleRule        rule = "role"             // imports point down the list of roles
	standardRule    rule = "standard library" // some packages import nothing else
	libraryRule     rule = "library"          // only listed libraries are imported
	storeRule       rule = "store"            // only cmd and server name a concrete store
	moduleRule      rule = "module"           // bench and tools are modules of their own
	dotImportRule   rule = "dot import"       // a name tells where it comes from
	unsafeRule      rule = "unsafe"           // no unsafe, no cgo
	flagsRule       rule = "flags"            // no library reads the command line
	environmentRule rule = "environment"      // no library reads the environment
	loggerRule      rule = "logger"           // no library uses a global logger
	initRule        rule = "init"             // no func init
	globalRule      rule = "global state"     // no package-level variable changes
	nameRule        rule = "name"             // no package called util
	commentRule     rule = "package comment"  // each package says what it promises and what not
	symbolRule      rule = "symbol"           // what a package comment names exists
)

// rules lists every rule with what looks for its violations.
var rules = []struct {
	names []rule
	check func(*checker, *pkg)
}{
	{[]rule{roleRule}, (*checker).roles},
	{[]rule{standardRule, libraryRule}, (*checker).libraries},
	{[]rule{storeRule}, (*checker).stores},
	{[]rule{moduleRule}, (*checker).modules},
	{[]rule{dotImportRule, unsafeRule}, (*checker).importForms},
	{[]rule{flagsRule, environmentRule, loggerRule}, (*checker).surroundings},
	{[]rule{initRule}, (*checker).inits},
	{[]rule{globalRule}, (*checker).globals},
	{[]rule{nameRule}, (*checker).names},
	{[]rule{commentRule}, (*checker).comments},
	{[]rule{symbolRule}, (*checker).symbols},
}

// A violation is one place that breaks a rule.
type violation struct {
	exception
	place token.Position
	text  string
}

func (v violation) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", v.place.Filename, v.place.Line, v.rule, v.text)
}

// A checker gathers violations.
type checker struct {
	source     *source
	declaredBy map[string]symbols // by the package's folder
	violations []violation
}

// check returns the places of s that break a rule, in the order of files and
// lines, exceptions left out, and the exceptions that were used.
func check(s *source) (violations []violation, used map[exception]bool) {
	c := &checker{source: s, declaredBy: symbolsOf(s)}
	for _, r := range rules {
		for _, p := range s.packages {
			r.check(c, p)
		}
	}
	used = make(map[exception]bool)
	for _, v := range c.violations {
		if _, ok := exceptions[v.exception]; ok {
			used[v.exception] = true
		} else {
			violations = append(violations, v)
		}
	}
	slices.SortStableFunc(violations, func(a, b violation) int {
		return cmp.Or(cmp.Compare(a.place.Filename, b.place.Filename), cmp.Compare(a.place.Line, b.place.Line))
	})
	return violations, used
}

// report notes that p breaks r at pos. what is the import or name in question,
// as an exception would give it.
func (c *checker) report(r rule, p *pkg, pos token.Pos, what, format string, args ...any) {
	place := c.source.fset.Position(pos)
	c.violations = append(c.violations, violation{
		exception: exception{r, p.dir, isTest(place.Filename), what},
		place:     place,
		text:      fmt.Sprintf(format, args...),
	})
}
