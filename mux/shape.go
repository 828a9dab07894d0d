package mux

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// A shape describes what the index knows about a path template: the paths that
// it cannot match. The template itself may match fewer.
type shape struct {
	// known is false for a template that the index does not understand. It may
	// match any path.
	known bool

	// literal is set for a template that matches one text only and, with
	// optionalSlash, that text followed by a slash.
	literal bool
	text    string

	// segments are the parts between slashes, after the leading slash, of all
	// paths that the template matches. With open, further text may follow: the
	// last segment is then a literal that begins a segment.
	segments []segment
	open     bool

	// optionalSlash allows one more slash at the end.
	optionalSlash bool
}

// A segment is a literal, stored in prefix, or, if wild is set, any text
// without a slash that begins with the prefix and, after that, ends with the
// suffix.
//
// any and filled describe a wild segment further. The index does not use them:
// it may yield too many candidates. any means one variable that matches every
// text that is not empty; filled means a segment that is never empty.
type segment struct {
	wild           bool
	prefix, suffix string
	any            bool
	filled         bool
}

func (s segment) literal() string { return s.prefix }

// addLiteral appends text to the segment.
func (s *segment) addLiteral(text string) {
	if s.wild {
		s.suffix += text
	} else {
		s.prefix += text
	}
	s.any = s.any && text == ""
	s.filled = s.filled || text != ""
}

// addVariable appends a variable that matches no slash.
func (s *segment) addVariable(sub *syntax.Regexp) {
	set, least, _ := repeatedSet(sub)
	excluded, single := byte(0), false
	if set != nil {
		excluded, single = set.excludesOne()
	}
	s.any = !s.wild && s.prefix == "" && single && excluded == '/' && least == 1
	s.filled = s.filled || least == 1
	s.wild, s.suffix = true, ""
}

// An item is a literal of an expression, or a variable.
type item struct {
	literal string
	sub     *syntax.Regexp // nil for a literal
}

// analyse sets the plan and the shape from the expression.
func (t *template) analyse(re *syntax.Regexp) {
	items, end, ok := parseItems(re)
	if !ok {
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

// parseItems splits the expression of a template into items. It returns false
// if the expression has parts other than literals, variables and the known
// ends.
func parseItems(re *syntax.Regexp) (items []item, end planEnd, ok bool) {
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

// isCertain reports whether every path without empty segments that has the shape
// is certain to match.
func (s *shape) isCertain() bool {
	if !s.known || s.open {
		return false
	}
	return !slices.ContainsFunc(s.segments, func(seg segment) bool { return seg.wild && !seg.any })
}

// newShape derives a shape.
//
// Invariant: every path that the items match has it. TestPlanAgreesWithRegexp
// checks it too.
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
		if it.sub != nil {
			if mayContain(it.sub, '/') {
				// Any text may follow from here on. The text before the
				// variable must still match.
				end = endOpen
				break
			}
			current.addVariable(it.sub)
			continue
		}
		literal := it.literal
		if i == 0 {
			literal = literal[1:]
		}
		for {
			before, after, slash := strings.Cut(literal, "/")
			current.addLiteral(before)
			if !slash {
				break
			}
			s.segments = append(s.segments, current)
			current, literal = segment{}, after
		}
	}
	if end == endOpen {
		s.open, s.optionalSlash = true, false
		current = segment{prefix: current.prefix}
	}
	s.segments = append(s.segments, current)
	return s
}
