package settings

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"
	"github.com/go-json-experiment/json/jsontext"
)

// Print writes the settings of the parsed command as a settings file with the same effect, and
// beside each setting its source. The notes come first.
func (s *Settings) Print(out io.Writer, ctx *kong.Context, notes ...string) error {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintf(&b, "# Settings of pulsegate %s in effect, each with its source.\n", ctx.Selected().Path())
	b.WriteString("# Flags override environment variables, which override the file, which overrides the defaults.\n")
	for _, note := range notes {
		fmt.Fprintf(&b, "# %s\n", note)
	}
	fmt.Fprintf(&b, "\n[%s]\n", tableOf(ctx.Selected()))
	for _, one := range s.of(ctx) {
		switch text := tomlText(one.value); {
		case one.source == "" && one.value.IsZero():
			fmt.Fprintf(columns, "# %s\t# not set\n", one.flag.Name)
		case isSecret(one.flag, one.value):
			fmt.Fprintf(columns, "# %s\t# secret, not shown; from %s\n", one.flag.Name, one.source)
		case one.source == "": // chosen for this machine, and wrong for others
			fmt.Fprintf(columns, "# %s = %s\t# not set, chosen at startup\n", one.flag.Name, text)
		default:
			fmt.Fprintf(columns, "%s = %s\t# %s\n", one.flag.Name, text, one.source)
		}
	}
	_ = columns.Flush() // a Builder never fails
	_, err := io.WriteString(out, b.String())
	return err
}

// tomlText returns a value as TOML.
func tomlText(value reflect.Value) string {
	switch v := value.Interface().(type) {
	case string:
		return quote(v)
	case time.Duration:
		return quote(FormatDuration(v))
	case time.Time:
		return quote(v.Format(time.RFC3339))
	case slog.Level:
		return quote(strings.ToLower(v.String()))
	case map[string]string:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, quote(name)+" = "+quote(v[name]))
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	case []string:
		var items []string
		for _, item := range v {
			items = append(items, quote(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case *string: // nil
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// quote returns a text as a basic string of TOML, which has the escapes of JSON. Unlike JSON,
// TOML requires DEL to be escaped.
func quote(text string) string {
	quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		panic("settings: " + err.Error()) // the text is valid UTF-8
	}
	return strings.ReplaceAll(string(quoted), "\x7f", `\u007f`)
}

// secretName matches the names of flags whose values are not shown. A path is not secret, even
// if the file is.
var secretName = regexp.MustCompile(`(^|-)(token|password|passphrase|secret|key|headers?|credentials)(-|$)`)

// isSecret reports whether the value of a setting must not be shown: the tag or the name of the
// flag says so, or a URL contains a user or a query.
func isSecret(flag *kong.Flag, value reflect.Value) bool {
	text, isText := value.Interface().(string)
	switch {
	case flag.Tag.Has("secret"):
		return true
	case flag.Tag.Type == "path", value.IsZero(), !isText && !flag.IsMap() && !flag.IsSlice():
		return false
	case secretName.MatchString(flag.Name):
		return true
	case !strings.Contains(text, "://"):
		return false
	}
	// A URL that cannot be parsed may contain anything.
	u, err := url.Parse(text)
	return err != nil || u.User != nil || u.RawQuery != ""
}
