package settings

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// WriteReference writes what docs/configuration.md says of every command: its
// arguments and its settings with their variables, keys, defaults and units.
func WriteReference(out io.Writer, app *kong.Application) error {
	var b strings.Builder
	b.WriteString("## All commands\n")
	referenceTables(&b, app.Node)
	for _, node := range app.Children {
		referenceOf(&b, node)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// referenceOf writes the section of a command, and those of the commands below
// it.
func referenceOf(b *strings.Builder, node *kong.Node) {
	if node.Hidden {
		return
	}
	fmt.Fprintf(b, "\n## pulsegate %s\n%s\n", node.Path(), node.Help)
	referenceTables(b, node)
	for _, child := range node.Children {
		referenceOf(b, child)
	}
}

// referenceTables writes the arguments and the flags of a command.
func referenceTables(b *strings.Builder, node *kong.Node) {
	if len(node.Positional) > 0 {
		b.WriteString("\n| argument | default | what |\n|---|---|---|\n")
		for _, arg := range node.Positional {
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", arg.Summary(), code(arg.Default), cell(arg.Help))
		}
	}
	first := true
	for _, flag := range node.Flags {
		if flag.Hidden || flag.Name == "help" {
			continue
		}
		if first {
			b.WriteString("\n| flag | variable | key | default | value | what |\n|---|---|---|---|---|---|\n")
			first = false
		}
		key := ""
		if isSetting(flag) {
			key = tableOf(node) + "." + flag.Name
		}
		defaultText := flag.Default
		if isDuration(flag) && flag.HasDefault {
			if d, err := ParseDuration(flag.Default); err == nil {
				defaultText = FormatDuration(d)
			}
		}
		if flag.IsBool() && defaultText == "" && !isAction(flag) {
			defaultText = "false"
		}
		fmt.Fprintf(b, "| `--%s` | %s | %s | %s | %s | %s |\n",
			flag.Name, code(strings.Join(flag.Envs, " ")), code(key), code(defaultText), valueOf(flag), cell(flag.Help))
	}
}

// valueOf says what a flag takes, and in which unit.
func valueOf(flag *kong.Flag) string {
	switch kind := flag.Target.Kind(); {
	case isDuration(flag):
		return "duration with its unit, such as `90s`"
	case isBytes(flag):
		return "bytes, or with a unit, such as `1MiB`"
	case flag.Enum != "":
		return "`" + strings.Join(flag.EnumSlice(), "`, `") + "`"
	case flag.Target.Type() == reflect.TypeFor[slog.Level]():
		return "`debug`, `info`, `warn`, `error`"
	case kind == reflect.Bool:
		return "`true`, `false`"
	case kind == reflect.Map:
		return code(flag.FormatPlaceHolder()) + "; in a file a table"
	case kind == reflect.Slice:
		return "list"
	case kind == reflect.Float64:
		return "number"
	case flag.Target.Type().PkgPath() == "" && kind >= reflect.Int && kind <= reflect.Uint64:
		return "whole number"
	case flag.Tag.Type == "path":
		return "path"
	}
	return "text"
}

// code returns a text as code, or nothing for an empty one.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}

// cell returns a text as the cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
