package vitals

import "strings"

// IsUCUM reports whether unit is a case-sensitive UCUM code (https://ucum.org/ucum) made of the
// units below: terms with an optional metric prefix and exponent, joined by "." and "/", such as
// mm[Hg], /min, mL/kg/min or 10*3/uL. A term may end with an annotation in braces. The list has the
// units in which vital signs, laboratory values and activities are given, not all of UCUM.
func IsUCUM(unit string) bool {
	if unit == "" || len(unit) > maxUnitBytes {
		return false
	}
	rest := strings.TrimPrefix(unit, "/")
	for {
		i := strings.IndexAny(rest, "./")
		if open := strings.IndexByte(rest, '{'); open >= 0 && open < i {
			end := strings.IndexByte(rest, '}')
			if end < 0 {
				return false
			}
			if i = strings.IndexAny(rest[end:], "./"); i >= 0 {
				i += end
			}
		}
		term := rest
		if i >= 0 {
			term, rest = rest[:i], rest[i+1:]
		}
		if !isTerm(term) {
			return false
		}
		if i < 0 {
			return true
		}
	}
}

const maxUnitBytes = 32

// isTerm reports whether term is a unit with an exponent and an annotation.
func isTerm(term string) bool {
	if open := strings.IndexByte(term, '{'); open >= 0 {
		note, ok := strings.CutSuffix(term[open+1:], "}")
		if !ok || note == "" || !isAnnotation(note) {
			return false
		}
		if term = term[:open]; term == "" {
			return true
		}
	}
	if term == "" {
		return false
	}
	if rest, ok := strings.CutPrefix(term, "10*"); ok {
		return isExponent(rest)
	}
	if isDigits(term) {
		return term[0] != '0'
	}
	atom := strings.TrimRight(term, "0123456789")
	if exponent := term[len(atom):]; exponent != "" {
		if cut, ok := strings.CutSuffix(atom, "-"); ok {
			atom = cut
		} else {
			atom = strings.TrimSuffix(atom, "+")
		}
	}
	if whole[atom] || metric[atom] {
		return true
	}
	for _, prefix := range [...]string{"da", "k", "h", "d", "c", "m", "u", "n", "p", "f", "M", "G"} {
		if rest, ok := strings.CutPrefix(atom, prefix); ok && metric[rest] {
			return true
		}
	}
	return false
}

// metric has units that take a prefix, whole others. They are never modified.
var (
	metric = units("m g s L l mol eq osm Pa bar J W V A Hz K Cel cal U [iU] B kat N lm lx Bq Gy Sv Ohm S m[Hg] m[H2O]")
	whole  = units(
		"% [ppth] [ppm] [ppb] deg min h d wk mo a [degF] [in_i] [ft_i] [mi_i] [lb_av] [oz_av] [pH] [MET] [Cal] [diop]")
)

func units(list string) map[string]bool {
	set := map[string]bool{}
	for _, unit := range strings.Fields(list) {
		set[unit] = true
	}
	return set
}

func isExponent(text string) bool {
	if cut, ok := strings.CutPrefix(text, "-"); ok {
		text = cut
	} else {
		text = strings.TrimPrefix(text, "+")
	}
	return text != "" && len(text) <= 2 && isDigits(text)
}

func isDigits(text string) bool {
	for i := range len(text) {
		if !isDigit(text[i]) {
			return false
		}
	}
	return text != ""
}

func isAnnotation(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c > '~' || c == '{' || c == '}' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
