package token

import (
	"errors"
	"slices"
	"strings"
)

// MaxSubjects bounds the subjects of a token.
const MaxSubjects = 16

// Subjects are the patients whose readings a token may read. They are a text, the subjects in
// order, separated by commas, so that tokens can be compared. The zero Subjects bind a token to
// none: it is not bound.
type Subjects string

var errSubjects = errors.New("subjects are 1 to 16 distinct texts, each 1 to 64 of A-Z, a-z, 0-9, hyphen and dot")

// MakeSubjects returns subjects, which may be in any order.
func MakeSubjects(subjects []string) (Subjects, error) {
	if len(subjects) == 0 {
		return "", nil
	}
	subjects = slices.Sorted(slices.Values(subjects))
	all := Subjects(strings.Join(subjects, ","))
	if len(all.List()) != len(subjects) || all.check() != nil {
		return "", errSubjects
	}
	return all, nil
}

// List returns the subjects, in order.
func (s Subjects) List() []string {
	if s == "" {
		return nil
	}
	return strings.Split(string(s), ",")
}

// check returns an error unless s is what MakeSubjects returns.
func (s Subjects) check() error {
	all := s.List()
	if len(all) > MaxSubjects || !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		return errSubjects
	}
	for _, subject := range all {
		if len(subject) < 1 || len(subject) > 64 {
			return errSubjects
		}
		for i := range len(subject) {
			switch c := subject[i]; {
			case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '.':
			default:
				return errSubjects
			}
		}
	}
	return nil
}
