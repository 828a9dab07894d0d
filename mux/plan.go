package mux

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// A plan matches a template without running its expression.
//
// It exists for templates in which the end of every variable is determined: the
// literal after a variable begins with a byte that the variable cannot contain,
// or nothing follows. A string can then be read in one way only, so one pass
// from left to right, without backtracking, finds what the expression finds.
// TestPlanAgreesWithRegexp and FuzzPlan compare the two.
type plan struct {
	head string // before the first variable
	vars []planVariable
	end  planEnd
}

type planVariable struct {
	// stop is the byte at which the value ends. If hasStop is false, or the
	// string has no such byte, the value ends with the string.
	stop    byte
	hasStop bool

	// longest makes the value end where set ends, for a variable at the end of
	// a prefix.
	longest bool

	check    planCheck
	excluded byte           // for checkExcluded
	set      *runeSet       // for checkSet
	expr     *regexp.Regexp // for checkExpr, anchored at both ends
	minBytes int

	literal string // after the variable
}

type planCheck uint8

const (
	checkLength   planCheck = iota // nothing but minBytes
	checkExcluded                  // no byte excluded
	checkSet                       // runes of set only
	checkExpr                      // expr
)

type planEnd uint8

const (
	endExact planEnd = iota // nothing may follow
	endSlash                // one slash may follow
	endOpen                 // anything may follow
)

// run reports whether the plan matches s. If values is not nil, it has one
// element per variable and receives the substrings; they are meaningless after
// a mismatch.
//
// Invariant: each byte of s is examined a constant number of times, apart from
// the work of the expressions of single variables, which is linear too.
// BenchmarkHostilePath shows it.
func (p *plan) run(s string, values []string) bool {
	if !strings.HasPrefix(s, p.head) {
		return false
	}
	s = s[len(p.head):]
	for i := range p.vars {
		v := &p.vars[i]
		n := len(s)
		if v.longest {
			n = v.set.prefixLen(s)
		} else if v.hasStop {
			if at := strings.IndexByte(s, v.stop); at >= 0 {
				n = at
			}
		}
		if n < v.minBytes || !v.accepts(s[:n]) {
			return false
		}
		if values != nil {
			values[i] = s[:n]
		}
		s = s[n:]
		if !strings.HasPrefix(s, v.literal) {
			return false
		}
		s = s[len(v.literal):]
	}
	switch p.end {
	case endExact:
		return s == ""
	case endSlash:
		return s == "" || s == "/"
	default:
		return true
	}
}

func (v *planVariable) accepts(value string) bool {
	switch v.check {
	case checkExcluded:
		return strings.IndexByte(value, v.excluded) < 0
	case checkSet:
		return v.set.prefixLen(value) == len(value)
	case checkExpr:
		return v.expr.MatchString(value)
	default:
		return true
	}
}

// after returns the plan for the text after a literal with which every match
// begins, or nil.
func (p *plan) after(literal string) *plan {
	head, found := strings.CutPrefix(p.head, literal)
	if !found {
		return nil
	}
	return &plan{head: head, vars: p.vars, end: p.end}
}

// newPlan makes a plan, or returns nil if the end of some variable is not
// determined.
func newPlan(items []item, end planEnd) *plan {
	p := &plan{end: end}
	if len(items) > 0 && items[0].sub == nil {
		p.head = items[0].literal
		items = items[1:]
	}
	for len(items) > 0 {
		if items[0].sub == nil {
			return nil
		}
		sub, literal := items[0].sub, ""
		items = items[1:]
		if len(items) > 0 && items[0].sub == nil {
			literal = items[0].literal
			items = items[1:]
		}
		v, ok := newPlanVariable(sub, literal, len(items) == 0, end)
		if !ok {
			return nil
		}
		p.vars = append(p.vars, v)
	}
	return p
}

// newPlanVariable decides how to find the end of a variable and how to check
// its value. last is set if only literal and end follow.
func newPlanVariable(sub *syntax.Regexp, literal string, last bool, end planEnd) (planVariable, bool) {
	v := planVariable{literal: literal}
	switch {
	case literal != "":
		v.stop, v.hasStop = literal[0], true
	case !last:
		return v, false // a variable follows directly
	case end == endSlash:
		v.stop, v.hasStop = '/', true
	}
	if v.hasStop && (v.stop >= utf8.RuneSelf || mayContain(sub, rune(v.stop))) {
		return v, false
	}
	open := last && literal == "" && end == endOpen

	set, least, greedy := repeatedSet(sub)
	if set == nil {
		if open || hasAssertion(sub) {
			return v, false
		}
		expr, err := regexp.Compile(`\A(?:` + sub.String() + `)\z`)
		if err != nil {
			return v, false
		}
		v.check, v.expr = checkExpr, expr
		return v, true
	}
	v.minBytes = least
	excluded, single := set.excludesOne()
	switch {
	case open && !greedy:
		return v, false
	case open && single:
		v.stop, v.hasStop = excluded, true
	case open:
		v.set, v.longest = set, true
	case single && v.hasStop && v.stop == excluded:
		// The value ends before the only byte that it must not contain.
	case single:
		v.check, v.excluded = checkExcluded, excluded
	case !set.all():
		v.check, v.set = checkSet, set
	}
	return v, true
}
