package settings

import (
	"encoding"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"
	"github.com/pelletier/go-toml/v2"
)

// A setting is a flag with its effective value.
type setting struct {
	flag   *kong.Flag
	key    string // in a file, such as serve.max-ahead
	value  any
	source string // flag, env NAME, FILE:LINE, default; empty where nothing sets it
}

// of returns the settings of the command that was parsed, in the order of
// its help.
func (c *Settings) of(ctx *kong.Context) []setting {
	given := map[*kong.Flag]bool{}
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved {
			given[p.Flag] = true
		}
	}
	var all []setting
	node := ctx.Selected()
	for _, flag := range node.Flags {
		if !isSetting(flag) {
			continue
		}
		target := flag.Target
		if target.Kind() == reflect.Pointer && !target.IsNil() {
			target = target.Elem()
		}
		s := setting{flag: flag, key: strings.ReplaceAll(node.Path(), " ", ".") + "." + flag.Name, value: target.Interface()}
		name, inEnvironment := variableOf(flag, c.LookupEnv)
		switch {
		case given[flag]:
			s.source = "flag"
		case inEnvironment:
			s.source = "env " + name
		case c.file != nil && c.file.values[flag].value != nil:
			s.source = fmt.Sprintf("%s:%d", c.file.path, c.file.values[flag].line)
		case flag.HasDefault, target.Kind() == reflect.Bool:
			s.source = "default"
		}
		all = append(all, s)
	}
	return all
}

// Print writes the settings of a command in the form of a file of settings
// that would have the same effect, and beside each where it comes from. notes are
// said at the top.
func (c *Settings) Print(out io.Writer, ctx *kong.Context, notes ...string) error {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintf(&b, "# Settings of pulsegate %s, as they take effect. Beside each stands where it comes from;\n", ctx.Selected().Path())
	b.WriteString("# flags override environment variables, those a file, and that the defaults.\n")
	for _, note := range notes {
		fmt.Fprintf(&b, "# %s\n", note)
	}
	fmt.Fprintf(&b, "\n[%s]\n", strings.ReplaceAll(ctx.Selected().Path(), " ", "."))
	for _, s := range c.of(ctx) {
		switch {
		case s.source == "" && reflect.ValueOf(s.value).IsZero():
			fmt.Fprintf(columns, "# %s\t# not set\n", s.flag.Name)
		case isSecret(s.flag, s.value):
			fmt.Fprintf(columns, "# %s\t# secret, not shown; from %s\n", s.flag.Name, s.source)
		default:
			text, err := tomlText(s.value)
			if err != nil {
				return fmt.Errorf("print %s: %w", s.key, err)
			}
			if s.source == "" { // as a setting it would not fit another machine
				fmt.Fprintf(columns, "# %s = %s\t# not set, chosen at the start\n", s.flag.Name, text)
			} else {
				fmt.Fprintf(columns, "%s = %s\t# %s\n", s.flag.Name, text, s.source)
			}
		}
	}
	_ = columns.Flush() // a Builder takes everything
	_, err := io.WriteString(out, b.String())
	return err
}

// Texts returns the settings of a command as TOML, by name.
func (c *Settings) Texts(ctx *kong.Context) (map[string]string, error) {
	texts := map[string]string{}
	for _, s := range c.of(ctx) {
		text, err := tomlText(s.value)
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", s.flag.Name, err)
		}
		texts[s.flag.Name] = text
	}
	return texts, nil
}

// tomlText returns a value as TOML, as fileValue takes it.
func tomlText(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return tomlString(v), nil
	case time.Duration:
		return tomlString(FormatDuration(v)), nil
	case slog.Level:
		return tomlString(strings.ToLower(v.String())), nil
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		if err != nil {
			return "", err
		}
		return tomlString(string(text)), nil
	}
	switch v := reflect.ValueOf(value); {
	case v.Kind() == reflect.Map && v.IsNil():
		return "{}", nil
	case v.Kind() == reflect.Slice && v.IsNil():
		return "[]", nil
	case v.Kind() == reflect.Pointer && v.IsNil():
		return "", nil // is not set
	}
	// Marshal formats whole documents, and this one on a single line.
	text, err := toml.Marshal(struct {
		V any `toml:"v,inline"`
	}{value})
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(strings.TrimSpace(string(text)), "v = "), nil
}

// tomlString returns a text as a basic string of TOML.
func tomlString(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// isSecret tells settings whose value is not shown. A path is no secret; what is
// behind it may be.
func isSecret(flag *kong.Flag, value any) bool {
	switch kind := kindOf(flag); {
	case flag.Tag.Has("secret"):
		return true
	case flag.Tag.Type == "path", isDuration(flag), isNumber(kind), kind == reflect.Bool, reflect.ValueOf(value).IsZero():
		return false
	}
	for _, word := range strings.Split(flag.Name, "-") {
		switch word {
		case "token", "password", "passphrase", "secret", "key", "header", "headers", "credentials":
			return true
		}
	}
	text, ok := value.(string)
	if !ok || !strings.Contains(text, "://") {
		return false
	}
	// What cannot be parsed as an address may hold anything.
	u, err := url.Parse(text)
	return err != nil || u.User != nil || u.RawQuery != ""
}
