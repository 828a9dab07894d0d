package mux

import (
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// A shape is what the index knows of a path template: which paths it cannot
// match. It says less than the template.
type shape struct {
	// known is false for a template of which nothing is known. It may match any
	// path.
	known bool

	// literal is set for a template that matches text alone, and, with
	// optionalSlash, text with a slash after it.
	literal bool
	text    string

	// segments are the parts between slashes, after the leading slash, of all
	// paths that the template matches. With open, further text may follow:
	// then the last segment is only the beginning of one, and a literal.
	segments []segment
	open     bool

	// optionalSlash allows one more slash at the end.
	optionalSlash bool
}

// A segment is a literal, or, if it is wild, any text without a slash.
//
// any and filled tell more of a wild segment; they are not for the index, which
// may err to one side only. any: it is one variable that takes whatever is not
// empty. filled: it is never empty.
type segment struct {
	wild    bool
	literal string
	any     bool
	filled  bool
}

// An item is a literal of an expression, or a variable.
type item struct {
	literal string
	sub     *syntax.Regexp // nil for a literal
}

// analyse sets the plan and the shape from the expression's source.
func (t *template) analyse(source string) {
	if t.expr.String() != source {
		return
	}
	items, end, ok := parseItems(source)
	if !ok {
		return
	}
	// An expression compiled by other rules, as POSIX ones, may take line ends
	// for the ends of the text.
	if len(items) == 1 && items[0].sub == nil && end != endOpen && t.expr.MatchString(items[0].literal+"\n") {
		return
	}
	t.plan = newPlan(items, end)
	if t.kind == queryTemplate && t.plan != nil {
		t.value = t.plan.after(t.key + "=")
	}
	if t.kind == pathTemplate || t.kind == prefixTemplate {
		t.shape = newShape(items, end)
	}
}

// parseItems takes the expression of a template apart. It reports false when
// the expression has other parts than literals, variables and the known ends.
func parseItems(source string) (items []item, end planEnd, ok bool) {
	re, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		return nil, 0, false
	}
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = re.Sub
	}
	if parts[0].Op != syntax.OpBeginText {
		return nil, 0, false
	}
	parts, end = parts[1:], endOpen
	if n := len(parts); n > 0 && parts[n-1].Op == syntax.OpEndText {
		parts, end = parts[:n-1], endExact
		if n := len(parts); n > 0 && isOptionalSlash(parts[n-1]) {
			parts, end = parts[:n-1], endSlash
		}
	}
	for i, part := range parts {
		switch {
		case part.Op == syntax.OpLiteral && part.Flags&syntax.FoldCase == 0:
			literal := string(part.Rune)
			// U+FFFD in an expression also matches invalid bytes.
			if strings.ContainsRune(literal, utf8.RuneError) {
				return nil, 0, false
			}
			items = append(items, item{literal: literal})
		case part.Op == syntax.OpCapture:
			items = append(items, item{sub: part.Sub[0]})
		case part.Op == syntax.OpStar && i == 1 && len(parts) == 2 && end == endExact:
			// Any value of a query key, which is not a variable.
			items = append(items, item{sub: part})
		default:
			return nil, 0, false
		}
	}
	return items, end, true
}

func isOptionalSlash(re *syntax.Regexp) bool {
	return re.Op == syntax.OpQuest && re.Sub[0].Op == syntax.OpLiteral && string(re.Sub[0].Rune) == "/"
}

// newShape derives a shape. Invariant: every path that the items match has it.
// TestPlanAgreesWithRegexp checks it too.
func newShape(items []item, end planEnd) shape {
	s := shape{known: true, optionalSlash: end == endSlash}
	if len(items) == 0 || (len(items) == 1 && items[0].sub == nil) {
		if len(items) == 1 {
			s.text = items[0].literal
		}
		s.literal = end != endOpen
		if s.literal {
			return s
		}
	}
	if len(items) == 0 || items[0].sub != nil || items[0].literal[0] != '/' {
		return shape{}
	}
	current := segment{}
	for i, it := range items {
		if it.sub == nil {
			literal := it.literal
			if i == 0 {
				literal = literal[1:]
			}
			for {
				before, after, slash := strings.Cut(literal, "/")
				current.literal += before
				if !slash {
					break
				}
				s.segments = append(s.segments, current)
				current, literal = segment{}, after
			}
			continue
		}
		if mayContain(it.sub, '/') {
			// From here on anything may come. A literal in front of the
			// variable still counts.
			end = endOpen
			break
		}
		set, least, _ := repeatedSet(it.sub)
		excluded, single := byte(0), false
		if set != nil {
			excluded, single = set.excludesOne()
		}
		current.any = !current.wild && current.literal == "" && single && excluded == '/' && least == 1
		current.filled = current.filled || least == 1
		current.wild = true
	}
	if end == endOpen {
		s.open, s.optionalSlash = true, false
		if current.wild {
			current = segment{}
		}
	}
	s.segments = append(s.segments, current)
	for i := range s.segments {
		if seg := &s.segments[i]; seg.wild {
			seg.any = seg.any && seg.literal == ""
			seg.filled = seg.filled || seg.literal != ""
			seg.literal = ""
		}
	}
	return s
}
