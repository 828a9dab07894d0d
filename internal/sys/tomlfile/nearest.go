package tomlfile

import (
	"reflect"
	"strings"
)

// keysOf returns the keys that values of a type may have, those of nested tables too.
func keysOf(t reflect.Type) (keys []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
		return keysOf(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if key, _, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ","); key != "" && key != "-" {
				keys = append(append(keys, key), keysOf(t.Field(i).Type)...)
			}
		}
	}
	return keys
}

// Nearest returns the name that a misspelt one probably means, as the end of an error text, or "".
func Nearest(misspelt string, names []string) string {
	best, least := "", min(3, len(misspelt)/2+1)
	for _, name := range names {
		if d := distance(strings.ToLower(misspelt), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance returns how many bytes must be inserted, deleted or replaced to make b of a, in at most 64 bytes.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
