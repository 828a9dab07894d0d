package mux

import (
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A runeSet holds the characters that one character of a pattern matches. Bytes
// that are not valid UTF-8 count as U+FFFD, as in package regexp.
type runeSet struct {
	ascii  [2]uint64 // a bit for each
	ranges []rune    // pairs of first and last, ascending
}

func newRuneSet(ranges []rune) *runeSet {
	s := &runeSet{ranges: ranges}
	for r := range rune(utf8.RuneSelf) {
		if inRanges(ranges, r) {
			s.ascii[r/64] |= 1 << (r % 64)
		}
	}
	return s
}

func inRanges(ranges []rune, r rune) bool {
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i] <= r && r <= ranges[i+1] {
			return true
		}
	}
	return false
}

// prefixLen returns the length in bytes of the longest prefix of s whose
// characters are all in the set.
func (s *runeSet) prefixLen(str string) int {
	for i := 0; i < len(str); {
		if c := str[i]; c < utf8.RuneSelf {
			if s.ascii[c/64]&(1<<(c%64)) == 0 {
				return i
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(str[i:])
		if !inRanges(s.ranges, r) {
			return i
		}
		i += size
	}
	return len(str)
}

func (s *runeSet) all() bool {
	return len(s.ranges) == 2 && s.ranges[0] == 0 && s.ranges[1] == unicode.MaxRune
}

// excludesOne reports whether the set has all characters except one, which is
// ASCII, and returns that one.
func (s *runeSet) excludesOne() (byte, bool) {
	r := s.ranges
	if len(r) == 4 && r[0] == 0 && r[3] == unicode.MaxRune && r[1]+2 == r[2] && r[1]+1 < utf8.RuneSelf {
		return byte(r[1] + 1), true
	}
	return 0, false
}

// repeatedSet returns the set of a pattern such as [a-z]+ or .*, and the
// minimum number of characters. It returns nil for patterns of another form.
func repeatedSet(re *syntax.Regexp) (set *runeSet, least int, greedy bool) {
	switch re.Op {
	case syntax.OpPlus:
		least = 1
	case syntax.OpStar:
	default:
		return nil, 0, false
	}
	greedy = re.Flags&syntax.NonGreedy == 0
	switch sub := re.Sub[0]; sub.Op {
	case syntax.OpCharClass:
		return newRuneSet(sub.Rune), least, greedy
	case syntax.OpAnyCharNotNL:
		return newRuneSet([]rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}), least, greedy
	case syntax.OpAnyChar:
		return newRuneSet([]rune{0, unicode.MaxRune}), least, greedy
	default:
		return nil, 0, false
	}
}

// mayContain reports whether a match of the pattern may contain the ASCII
// character. It may return true when none does.
func mayContain(re *syntax.Regexp, c rune) bool {
	switch re.Op {
	case syntax.OpNoMatch, syntax.OpEmptyMatch:
		return false
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			if r == c || re.Flags&syntax.FoldCase != 0 && strings.EqualFold(string(r), string(c)) {
				return true
			}
		}
		return false
	case syntax.OpCharClass:
		return inRanges(re.Rune, c)
	case syntax.OpAnyCharNotNL:
		return c != '\n'
	case syntax.OpAnyChar:
		return true
	case syntax.OpCapture, syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat,
		syntax.OpConcat, syntax.OpAlternate:
		for _, sub := range re.Sub {
			if mayContain(sub, c) {
				return true
			}
		}
		return false
	default:
		// Assertions match no characters.
		return false
	}
}

// hasAssertion reports whether the pattern contains an assertion, such as ^, $
// or \b.
func hasAssertion(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	for _, sub := range re.Sub {
		if hasAssertion(sub) {
			return true
		}
	}
	return false
}
