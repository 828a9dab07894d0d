package archtest_test

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
)

// A rule is the name of a rule.
type rule string

const (
	roleRule     rule = "role"             // imports point down the list of roles
	standardRule rule = "standard library" // some packages import only the standard library
	libraryRule  rule = "library"          // only listed libraries are imported
	storeRule    rule = "store"            // only cmd and server name a concrete store
	partRule     rule = "part"             // the parts of the embedded store import only what they may know
	moduleRule   rule = "module"           // bench and tools are separate modules
	unsafeRule   rule = "unsafe"           // no unsafe, no cgo
	globalRule   rule = "global state"     // package-level variables never change
	// each package comment says what the package promises and what it leaves to others
	commentRule rule = "package comment"
	symbolRule  rule = "symbol"  // symbols named in a package comment exist
	methodsRule rule = "methods" // no type has many methods
	messageRule rule = "message" // texts of errors do not begin with the name of a package: people read them
	widthRule   rule = "width"   // lines end by column maxColumn
	signRule    rule = "sign"    // only the table of signs and a few mappings name a sign
)

// rules lists every rule with the function that checks it.
var rules = []struct {
	names []rule
	check func(*checker, *pkg)
}{
	{[]rule{roleRule}, (*checker).roles},
	{[]rule{standardRule, libraryRule}, (*checker).libraries},
	{[]rule{storeRule}, (*checker).stores},
	{[]rule{partRule}, (*checker).parts},
	{[]rule{moduleRule}, (*checker).modules},
	{[]rule{unsafeRule}, (*checker).importForms},
	{[]rule{globalRule}, (*checker).globals},
	{[]rule{commentRule}, (*checker).comments},
	{[]rule{symbolRule}, (*checker).symbols},
	{[]rule{methodsRule}, (*checker).methods},
	{[]rule{messageRule}, (*checker).messages},
	{[]rule{widthRule}, (*checker).widths},
	{[]rule{signRule}, (*checker).signs},
}

// A violation is a place that breaks a rule.
type violation struct {
	exception
	place token.Position
	text  string
}

func (v violation) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", v.place.Filename, v.place.Line, v.rule, v.text)
}

// A checker collects violations.
type checker struct {
	source     *source
	declaredBy map[string]symbols // by the package's directory
	signNames  signNames
	violations []violation
}

// check returns the places in s that break a rule, except those covered by an
// exception, in the order of files and lines. It also returns the exceptions that were
// used.
func check(s *source) (violations []violation, used map[exception]bool) {
	c := &checker{source: s, declaredBy: symbolsOf(s), signNames: signsOf(s)}
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

// report records that p breaks r at pos. what is the import or name in question, as in
// an exception.
func (c *checker) report(r rule, p *pkg, pos token.Pos, what, format string, args ...any) {
	place := c.source.fset.Position(pos)
	c.violations = append(c.violations, violation{
		exception: exception{r, p.dir, isTest(place.Filename), what},
		place:     place,
		text:      fmt.Sprintf(format, args...),
	})
}
