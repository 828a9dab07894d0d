// Package settings reads the settings of a command line that package kong describes.
//
// A setting comes from a flag, from the environment, from a file or from its default; the
// first of these that sets it wins. [Settings.Print] prints the settings in effect,
// [Commands] describes all of them for the manual page and docs/configuration.md, [Help] words the
// help of commands, and [Complete] completes command lines for shells.
//
// # Not here
//
// Package settings does not define settings: the fields of the commands do, in their kong
// tags. It does not read the environment: the caller passes it.
package settings

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// A UsageError reports settings that are invalid. Commands exit with a code of its own for it.
type UsageError struct{ Reason string }

func (e UsageError) Error() string { return e.Reason }

// Usagef returns a [UsageError] with a formatted text.
func Usagef(format string, args ...any) error { return UsageError{fmt.Sprintf(format, args...)} }

// Usage returns err as a [UsageError], and nil for nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return UsageError{err.Error()}
}

// Settings are the flags that every command has, and the contents of the file that they name.
type Settings struct {
	// LookupEnv is os.LookupEnv.
	LookupEnv func(name string) (string, bool) `kong:"-"`

	file *file // nil means none

	Config string `type:"path" placeholder:"FILE" help:"TOML file with settings. Flags and environment variables override it."`
}

// BeforeResolve reads the file. kong takes from it what neither flags nor the environment set.
func (s *Settings) BeforeResolve(ctx *kong.Context) error {
	path, _ := ctx.FlagValue(flagNamed(ctx.Model.Node, "config")).(string)
	if path == "" {
		return nil
	}
	var err error
	if s.file, err = readFile(path, ctx.Model); err != nil {
		return err
	}
	// kong would prefer the file to the environment.
	ctx.AddResolver(kong.ResolverFunc(func(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		v, ok := s.file.values[flag]
		if !ok {
			v, ok = s.file.values[namesake(ctx.Model.Node, flag)]
		}
		if ok && s.variable(flag) == "" {
			return v.text, nil
		}
		return nil, nil
	}))
	return nil
}

// namesake returns the flag from whose key in a file a flag takes its value if it has none of its own, or nil: a flag
// tagged as:"serve" is about the server, and follows the flag of serve that has its name.
func namesake(app *kong.Node, flag *kong.Flag) *kong.Flag {
	for _, command := range app.Children {
		if as := flag.Tag.Get("as"); as != "" && command.Name == as {
			return flagNamed(command, flag.Name)
		}
	}
	return nil
}

// variable returns the environment variable that sets a flag, or "" if none does.
func (s *Settings) variable(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, ok := s.LookupEnv(name); ok {
			return name
		}
	}
	return ""
}

// A setting is a flag with its effective value.
type setting struct {
	flag   *kong.Flag
	value  reflect.Value // not a pointer, unless it is nil
	source string        // flag, env NAME, FILE:LINE, default; empty where nothing sets it
}

// of returns the settings of the parsed command, in the order of its help.
func (s *Settings) of(ctx *kong.Context) (all []setting) {
	given := map[*kong.Flag]bool{}
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved {
			given[p.Flag] = true
		}
	}
	for _, flag := range ctx.Selected().Flags {
		if !isSetting(flag) {
			continue
		}
		value, source := flag.Target, ""
		if value.Kind() == reflect.Pointer && !value.IsNil() {
			value = value.Elem()
		}
		switch variable := s.variable(flag); {
		case given[flag]:
			source = "flag"
		case variable != "":
			source = "env " + variable
		case s.file.has(flag):
			source = fmt.Sprintf("%s:%d", s.file.path, s.file.values[flag].line)
		case flag.HasDefault, value.Kind() == reflect.Bool:
			source = "default"
		}
		all = append(all, setting{flag, value, source})
	}
	return all
}

// Texts returns the settings of the parsed command as TOML, by name.
func (s *Settings) Texts(ctx *kong.Context) map[string]string {
	texts := map[string]string{}
	for _, one := range s.of(ctx) {
		texts[one.flag.Name] = tomlText(one.value)
	}
	return texts
}

// flagNamed returns the flag of a command with the given name, or nil.
func flagNamed(node *kong.Node, name string) *kong.Flag {
	i := slices.IndexFunc(node.Flags, func(f *kong.Flag) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return node.Flags[i]
}

// isSetting reports whether a file can set a flag. It cannot set --help, actions, or --config,
// which names the file.
func isSetting(flag *kong.Flag) bool {
	return flag.Name != "help" && flag.Name != "config" && !isAction(flag)
}

// isAction reports whether a flag requests an action, and so is not a setting.
func isAction(flag *kong.Flag) bool { return flag.Tag.Has("action") }

// eachFlag visits the flags of a command and of its subcommands, in the order of their help.
func eachFlag(node *kong.Node, visit func(*kong.Node, *kong.Flag)) {
	for _, flag := range node.Flags {
		visit(node, flag)
	}
	for _, child := range node.Children {
		eachFlag(child, visit)
	}
}

// variablePrefix begins the name of every environment variable of pulsegate.
const variablePrefix = "PULSEGATE_"

// Environment gives every flag an environment variable: that of --max-ahead is
// PULSEGATE_MAX_AHEAD in every command. A flag tagged env:"-" differs in meaning from flags of
// the same name in other commands; its variable contains the command, as in
// PULSEGATE_DEMO_DATA. A flag tagged action:"" requests an action and has no variable.
func Environment() kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		eachFlag(k.Model.Node, func(node *kong.Node, flag *kong.Flag) {
			words := flag.Name
			switch {
			case flag.Name == "help" || isAction(flag):
				flag.Envs, flag.Tag.Envs = nil, nil
				return
			case slices.Equal(flag.Envs, []string{"-"}):
				words = node.Path() + "-" + flag.Name
			case len(flag.Envs) > 0:
				return
			}
			name := variableOf(words)
			flag.Envs, flag.Tag.Envs = []string{name}, []string{name}
		})
		return nil
	})
}

// Defaults replaces ${name} in defaults and descriptions of flags and arguments by values[name]. kong.Vars does the
// same, but reads all values again for each flag, which took most of the time in which a command starts.
func Defaults(values map[string]string) kong.Option {
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, "${"+name+"}", value)
	}
	replacer := strings.NewReplacer(pairs...)
	return kong.PostBuild(func(k *kong.Kong) error {
		return kong.Visit(k.Model, func(n kong.Visitable, next kong.Next) error {
			if v, ok := n.(*kong.Value); ok {
				v.Default, v.Help = replacer.Replace(v.Default), replacer.Replace(v.Help)
			}
			return next(nil)
		})
	})
}

// variableOf returns the environment variable of a flag, or of a command and its flag.
func variableOf(words string) string {
	return variablePrefix + strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(words))
}

// serviceVariable matches the variables that Kubernetes adds to the environment of every container for a
// Service called pulsegate or pulsegate-public. A port looks like tcp://10.0.0.1:80.
var serviceVariable = regexp.MustCompile(
	`^PULSEGATE(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?=.*|PORT=(tcp|udp|sctp)://.*|PORT_[0-9]+_(TCP|UDP|SCTP)(` +
		`_(PROTO|PORT|ADDR))?=.*)$`)

// UnknownVariables returns a sentence about each variable in environ that has the prefix of
// Pulsegate's variables and sets no flag. The variable also is known although it belongs to no
// flag. The sentences do not contain values, which may be secret.
func UnknownVariables(environ []string, app *kong.Node, also string) (unknown []string) {
	known := []string{also}
	eachFlag(app, func(_ *kong.Node, flag *kong.Flag) { known = append(known, flag.Envs...) })
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, variablePrefix) && !slices.Contains(known, name) && !serviceVariable.MatchString(entry) {
			unknown = append(unknown, fmt.Sprintf("the environment variable %s sets nothing", name))
		}
	}
	slices.Sort(unknown)
	return unknown
}
