package settings

import (
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// A Command is a command with its own arguments and flags in words, as the manual page and
// docs/configuration.md list them.
type Command struct {
	Path, Help       string // Path is empty for the program
	Leaf             bool   // it has no subcommands
	Arguments, Flags []Setting
}

// A Setting is a flag or an argument in words.
type Setting struct {
	Name      string   // --max-ahead or <file>
	Usage     string   // with a placeholder for its value: --max-ahead=DURATION
	Variables []string // environment variables
	Key       string   // in a file: serve.max-ahead; empty if a file cannot set it
	Group     string   // title of the group that it is in, or empty
	Default   string   // a value, if there is one
	Note      string   // otherwise a description of the default
	Help      string   // without the default
}

// Commands returns the program and all of its commands that are not hidden.
func Commands(app *kong.Application) []Command { return appendCommands(nil, app.Node) }

func appendCommands(all []Command, node *kong.Node) []Command {
	if node.Hidden {
		return all
	}
	c := Command{Help: node.Help, Leaf: len(node.Children) == 0}
	if node.Type == kong.CommandNode {
		c.Path = node.Path()
	}
	for _, arg := range node.Positional {
		c.Arguments = append(c.Arguments, Setting{Name: arg.Summary(), Usage: arg.Summary(), Default: arg.Default,
			Help: arg.Help})
	}
	for _, flag := range node.Flags {
		if !flag.Hidden {
			c.Flags = append(c.Flags, flagSetting(node, flag))
		}
	}
	all = append(all, c)
	for _, child := range node.Children {
		all = appendCommands(all, child)
	}
	return all
}

// flagSetting describes a flag of a command.
func flagSetting(node *kong.Node, flag *kong.Flag) Setting {
	s := Setting{Name: "--" + flag.Name, Usage: flag.String(), Variables: flag.Envs, Default: flag.Default}
	s.Help, s.Note = splitHelp(flag.Value)
	if flag.Group != nil {
		s.Group = flag.Group.Title
	}
	if isSetting(flag) {
		s.Key = tableOf(node) + "." + flag.Name
	}
	if d, err := ParseDuration(flag.Default); err == nil && flag.Target.Type() == reflect.TypeFor[time.Duration]() {
		s.Default = FormatDuration(d)
	}
	if flag.IsBool() && s.Default == "" && s.Key != "" {
		s.Default = "false"
	}
	return s
}

// splitHelp returns the help of a value, and what it says of a default that is not a value.
func splitHelp(v *kong.Value) (help, note string) {
	help, note, _ = strings.Cut(v.Help, "Default: ")
	return strings.TrimSpace(help), strings.TrimSuffix(note, ".")
}

// placeHolder returns the placeholder for the value of a flag whose tag has none.
func placeHolder(flag *kong.Flag) string {
	words := strings.Split(flag.Name, "-")
	name := strings.ToUpper(words[len(words)-1])
	target := flag.Target.Type()
	switch kind := target.Kind(); {
	case flag.Enum != "":
		return strings.Join(flag.EnumSlice(), "|")
	case target == reflect.TypeFor[time.Duration]():
		return "DURATION"
	case isBytes(flag):
		return "BYTES"
	case target == reflect.TypeFor[slog.Level]():
		return "LEVEL"
	case kind == reflect.Float64, target.PkgPath() == "" && (flag.Target.CanInt() || flag.Target.CanUint()):
		return "N"
	case flag.Tag.Type == "path" && kind == reflect.String:
		return "FILE"
	}
	return name
}
