package settings

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/pulsegate/pulsegate/internal/sys/tomlfile"
)

// A file is a TOML settings file. Each command has a table, [serve] or [sim.run], whose
// keys are its flags.
type file struct {
	path   string
	values map[*kong.Flag]fileValue
}

// A fileValue is the value of a flag in a file.
type fileValue struct {
	text string // in the form of the command line
	line int    // from 1
}

// has reports whether f sets a flag. A nil file sets none.
func (f *file) has(flag *kong.Flag) bool { return f != nil && f.values[flag].line > 0 }

// A problem is an invalid line of a file.
type problem struct {
	path string
	line int
	text string
}

func (p problem) Error() string { return fmt.Sprintf("%s:%d: %s", p.path, p.line, p.text) }

// maxFileBytes bounds a settings file.
const maxFileBytes = 1 << 20

// readFile reads a file and checks all of it, whichever command runs, so that a mistake is
// found before it matters: every key must be a flag of its command, and every value one that
// the flag accepts. The error joins all problems.
func readFile(path string, app *kong.Application) (*file, error) {
	var root map[string]any
	text, err := tomlfile.Read(path, maxFileBytes, &root)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	r := reader{file: &file{path, map[*kong.Flag]fileValue{}}, lines: tomlfile.Lines(text)}
	r.table(app.Node, nil, root)
	slices.SortStableFunc(r.problems, func(a, b error) int { return cmp.Compare(a.(problem).line, b.(problem).line) })
	return r.file, errors.Join(r.problems...)
}

// A reader checks a file against the flags.
type reader struct {
	file     *file
	lines    map[string]int // by key, such as serve.max-ahead
	problems []error        // each a problem
}

// table reads the table of a command. at is its key.
func (r *reader) table(node *kong.Node, at []string, table map[string]any) {
	for name, value := range table {
		key := strings.Join(append(at, name), ".")
		line := r.lines[key]
		report := func(format string, args ...any) {
			r.problems = append(r.problems, problem{r.file.path, line, fmt.Sprintf(format, args...)})
		}
		flag := flagNamed(node, name)
		child := slices.IndexFunc(node.Children, func(n *kong.Node) bool {
			return n.Name == name &&
				n.Type == kong.CommandNode
		})
		inner, isTable := value.(map[string]any)
		switch {
		case child >= 0 && isTable:
			r.table(node.Children[child], append(slices.Clone(at), name), inner)
		case child >= 0:
			report("%s is a command; put its settings into a table [%s]", name, key)
		case flag == nil:
			report("%s", unknownKey(node, at, name))
		case !isSetting(flag):
			report("%s is accepted on the command line only", name)
		default:
			text, err := flagText(flag, value)
			if err == nil {
				err = try(flag, text)
			}
			if err != nil {
				report("%s: %v", key, err)
			} else {
				r.file.values[flag] = fileValue{text, line}
			}
		}
	}
}

// unknownKey returns a sentence about an unknown key.
func unknownKey(node *kong.Node, at []string, name string) string {
	// The key may be right and its table wrong.
	var elsewhere []string
	eachFlag(node, func(below *kong.Node, flag *kong.Flag) {
		if flag.Name == name && isSetting(flag) {
			elsewhere = append(elsewhere, "["+tableOf(below)+"]")
		}
	})
	if len(elsewhere) > 0 {
		return fmt.Sprintf("%s does not belong here; put it under %s", name, strings.Join(elsewhere, " or "))
	}
	return fmt.Sprintf("%s is not a setting of %s", name, strings.Join(append([]string{"pulsegate"}, at...), " "))
}

// tableOf returns the key of a command's table, such as sim.run.
func tableOf(node *kong.Node) string { return strings.ReplaceAll(node.Path(), " ", ".") }

// flagText returns a value of a file in the form of the command line.
func flagText(flag *kong.Flag, value any) (string, error) {
	var parts []string
	switch v := value.(type) {
	case string, bool, int64, float64:
		return fmt.Sprint(v), nil
	case []any:
		if flag.IsSlice() {
			for _, part := range v {
				parts = append(parts, fmt.Sprint(part))
			}
			return kong.JoinEscaped(parts, flag.Tag.Sep), nil
		}
	case map[string]any:
		if flag.IsMap() {
			for name, part := range v {
				parts = append(parts, fmt.Sprint(name, "=", part))
			}
			return kong.JoinEscaped(parts, flag.Tag.MapSep), nil
		}
	}
	switch {
	case flag.IsMap():
		return "", errors.New(`write a table, such as { name = "value" }`)
	case flag.IsSlice():
		return "", errors.New(`write a list, such as ["value"]`)
	}
	return "", errors.New("write a string, a number, true or false")
}

// try parses a text as the value of a flag, without setting the flag.
func try(flag *kong.Flag, text string) error {
	target := reflect.New(flag.Target.Type()).Elem()
	err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value,
		Scan: kong.Scan().PushTyped(text, kong.FlagValueToken)}, target)
	if allowed := flag.EnumSlice(); err == nil && flag.Enum != "" && !slices.Contains(allowed, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(allowed, ", "))
	}
	return err
}
