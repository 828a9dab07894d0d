package settings

import (
	"encoding"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// A configFile is a TOML file of settings. Each command has a table, [serve] or
// [sim.run], whose keys are its flags.
type configFile struct {
	path   string
	values map[*kong.Flag]configValue
	lookup func(string) (string, bool) // in the environment
}

// A configValue is what a file says of a flag.
type configValue struct {
	value any // as kong's mappers take it
	line  int // from 1
}

// maxConfigBytes bounds a file of settings.
const maxConfigBytes = 1 << 20

// readConfigFile reads a file. Every key must be a flag of its command, and every
// value one that the flag takes, whichever command runs: a mistake is to be found
// before it matters. The error tells all of them.
func readConfigFile(path string, app *kong.Application, lookup func(string) (string, bool)) (*configFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if len(text) > maxConfigBytes {
		return nil, fmt.Errorf("%s has %d bytes; a file of settings has at most %d", path, len(text), maxConfigBytes)
	}
	var root map[string]any
	if err := toml.Unmarshal(text, &root); err != nil {
		if decodeErr, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := decodeErr.Position()
			return nil, fmt.Errorf("%s:%d:%d: not TOML: %s", path, line, column, strings.TrimPrefix(decodeErr.Error(), "toml: "))
		}
		return nil, fmt.Errorf("%s: not TOML: %w", path, err)
	}
	r := configReader{file: &configFile{path, map[*kong.Flag]configValue{}, lookup}, lines: linesOf(text)}
	r.table(app.Node, nil, root)
	slices.SortStableFunc(r.problems, func(a, b configProblem) int { return a.line - b.line })
	errs := make([]error, len(r.problems))
	for i, p := range r.problems {
		errs[i] = p
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r.file, nil
}

// Validate implements kong.Resolver. What can be checked was checked.
func (f *configFile) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver. kong asks when no flag was given, and would
// prefer the answer to the environment's.
func (f *configFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if _, ok := variableOf(flag, f.lookup); ok {
		return nil, nil
	}
	if v, ok := f.values[flag]; ok {
		return v.value, nil
	}
	return nil, nil
}

// A configProblem is something in a file that cannot be meant.
type configProblem struct {
	path string
	line int
	text string
}

func (p configProblem) Error() string { return fmt.Sprintf("%s:%d: %s", p.path, p.line, p.text) }

// A configReader compares a file with the flags.
type configReader struct {
	file     *configFile
	lines    map[string]int // by key, such as serve.max-ahead
	problems []configProblem
}

func (r *configReader) problem(key []string, format string, args ...any) {
	r.problems = append(r.problems, configProblem{r.file.path, r.lines[strings.Join(key, ".")], fmt.Sprintf(format, args...)})
}

// table reads the table of a command. at is its key.
func (r *configReader) table(node *kong.Node, at []string, table map[string]any) {
	for name, value := range table {
		key := append(slices.Clone(at), name)
		if child := commandNamed(node, name); child != nil {
			if inner, ok := value.(map[string]any); ok {
				r.table(child, key, inner)
			} else {
				r.problem(key, "%s is a command: its settings stand in a table [%s]", name, strings.Join(key, "."))
			}
			continue
		}
		flag := settingNamed(node, name)
		if flag == nil {
			r.problem(key, "%s", unknownKey(node, at, name))
			continue
		}
		value, err := fileValue(flag, value)
		if err == nil {
			err = tryValue(flag, value)
		}
		if err != nil {
			r.problem(key, "%s: %v", strings.Join(key, "."), err)
			continue
		}
		r.file.values[flag] = configValue{value, r.lines[strings.Join(key, ".")]}
	}
}

// commandNamed returns a command below node.
func commandNamed(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name && child.Type == kong.CommandNode {
			return child
		}
	}
	return nil
}

// settingNamed returns the flag of a command that a file can set.
func settingNamed(node *kong.Node, name string) *kong.Flag {
	for _, flag := range node.Flags {
		if flag.Name == name && isSetting(flag) {
			return flag
		}
	}
	return nil
}

// isSetting tells flags that a file can set from those that it cannot: --help,
// and --config, which names it.
func isSetting(flag *kong.Flag) bool {
	return flag.Name != "help" && flag.Name != "config" && !isAction(flag)
}

// unknownKey says what may have been meant by a key.
func unknownKey(node *kong.Node, at []string, name string) string {
	for _, flag := range node.Flags {
		if flag.Name == name {
			return fmt.Sprintf("%s can be given on the command line only", name)
		}
	}
	// Right, but in the wrong table?
	var elsewhere []string
	_ = eachFlag(node, func(below *kong.Node, flag *kong.Flag) error {
		if flag.Name == name && isSetting(flag) {
			elsewhere = append(elsewhere, "["+strings.ReplaceAll(below.Path(), " ", ".")+"]")
		}
		return nil
	})
	if len(elsewhere) > 0 {
		return fmt.Sprintf("%s stands in no table that has it; put it under %s", name, strings.Join(elsewhere, " or "))
	}
	var candidates []string
	for _, flag := range node.Flags {
		if isSetting(flag) {
			candidates = append(candidates, flag.Name)
		}
	}
	for _, child := range node.Children {
		candidates = append(candidates, "["+strings.Join(append(slices.Clone(at), child.Name), ".")+"]")
	}
	of := "pulsegate"
	if len(at) > 0 {
		of += " " + strings.Join(at, " ")
	}
	return fmt.Sprintf("%s is no setting of %s%s", name, of, didYouMean(name, candidates))
}

// fileValue returns a value of a file as the mapper of a flag takes it. The error
// says what to write.
func fileValue(flag *kong.Flag, value any) (any, error) {
	kind := kindOf(flag)
	switch v := value.(type) {
	case string:
		if kind == reflect.Bool {
			return nil, errors.New("write true or false, without quotes")
		}
		if isNumber(kind) && !isBytes(flag) {
			return nil, errors.New("write a number, without quotes")
		}
		return v, nil
	case bool:
		if kind == reflect.Bool {
			return v, nil
		}
	case int64:
		switch {
		case isDuration(flag):
			return nil, fmt.Errorf(`%d needs a unit, such as "%ds"`, v, v)
		case isBytes(flag):
			return fmt.Sprint(v), nil
		case isNumber(kind):
			return v, nil
		}
	case float64:
		if isDuration(flag) {
			return nil, fmt.Errorf(`%v needs a unit, such as "%vs"`, v, v)
		}
		if kind == reflect.Float64 || kind == reflect.Float32 {
			return v, nil
		}
		if isNumber(kind) {
			return nil, errors.New("write a whole number")
		}
	case []any:
		if kind == reflect.Slice {
			return v, nil
		}
	case map[string]any:
		if kind == reflect.Map {
			texts := make(map[string]any, len(v))
			for name, value := range v {
				switch value.(type) {
				case string, int64, float64, bool:
					texts[name] = fmt.Sprint(value)
				default:
					return nil, fmt.Errorf("%s: write a text or a number", name)
				}
			}
			return texts, nil
		}
	}
	switch {
	case kind == reflect.Bool:
		return nil, errors.New("write true or false")
	case isNumber(kind):
		return nil, errors.New("write a number")
	case kind == reflect.Map:
		return nil, errors.New("write a table, such as { name = \"value\" }")
	case kind == reflect.Slice:
		return nil, errors.New("write a list, such as [\"value\"]")
	}
	return nil, errors.New("write a text, in quotes")
}

// kindOf returns the kind of what a flag takes. Durations, levels and others that
// are written as texts are texts.
func kindOf(flag *kong.Flag) reflect.Kind {
	t := flag.Target.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if isDuration(flag) || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return reflect.String
	}
	return t.Kind()
}

func isNumber(kind reflect.Kind) bool { return kind >= reflect.Int && kind <= reflect.Float64 }

// tryValue asks the flag's mapper whether it takes a value.
func tryValue(flag *kong.Flag, value any) error {
	target := reflect.New(flag.Target.Type()).Elem()
	if target.Kind() == reflect.Map {
		target.Set(reflect.MakeMap(target.Type()))
	}
	err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: kong.Scan().PushTyped(value, kong.FlagValueToken)}, target)
	if err != nil {
		return err
	}
	if flag.Enum == "" || target.Kind() != reflect.String {
		return nil
	}
	if allowed := flag.EnumSlice(); !slices.Contains(allowed, target.String()) {
		return fmt.Errorf("%q is none of %s", target.String(), strings.Join(allowed, ", "))
	}
	return nil
}

// linesOf returns the line of each key of a TOML text, by the whole key, such as
// serve.max-ahead. The text was parsed without an error before.
func linesOf(text []byte) map[string]int {
	lines := map[string]int{}
	var p unstable.Parser
	p.Reset(text)
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = keyOf(&p, e, nil, lines)
		case unstable.KeyValue:
			pairLines(&p, e, table, lines)
		}
	}
	return lines
}

// pairLines notes the lines of a pair, and of those in its value.
func pairLines(p *unstable.Parser, pair *unstable.Node, table []string, lines map[string]int) {
	key := keyOf(p, pair, table, lines)
	value := pair.Value()
	if value.Kind != unstable.InlineTable {
		return
	}
	for children := value.Children(); children.Next(); {
		if child := children.Node(); child.Kind == unstable.KeyValue {
			pairLines(p, child, key, lines)
		}
	}
}

// keyOf returns the whole key of a table or a pair, and notes its line, also for
// the tables that it names on its way.
func keyOf(p *unstable.Parser, e *unstable.Node, table []string, lines map[string]int) []string {
	key := slices.Clone(table)
	for parts := e.Key(); parts.Next(); {
		part := parts.Node()
		key = append(key, string(part.Data))
		if whole := strings.Join(key, "."); lines[whole] == 0 {
			lines[whole] = p.Shape(part.Raw).Start.Line
		}
	}
	return key
}
