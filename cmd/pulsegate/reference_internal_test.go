package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew in TestReference")

// docs/configuration.md documents every setting as it is in the code. make docs writes it.
func TestReference(t *testing.T) {
	const path, mark = "../../docs/configuration.md", "<!-- What follows is written by `make docs`."
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin := strings.Index(string(doc), mark)
	if begin < 0 {
		t.Fatalf("%s has no line that begins with %q", path, mark)
	}
	line := strings.Index(string(doc[begin:]), "\n")
	written, existing := string(doc[:begin+line+1]), string(doc[begin+line+1:])
	var reference strings.Builder
	parser, err := newParser(new(commands), stdio{strings.NewReader(""), io.Discard, io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	writeReference(&reference, parser.Model)
	if existing == reference.String() {
		return
	}
	if *update {
		if err := os.WriteFile(path, []byte(written+reference.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, want := strings.Split(existing, "\n"), strings.Split(reference.String(), "\n")
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("%s is out of date; 'make docs' updates it. The first difference:\n%s\nwant\n%s", path, got[i], want[i])
		}
	}
	t.Fatalf("%s is out of date: %d lines, want %d; 'make docs' updates it", path, len(got), len(want))
}

// writeReference writes the arguments and settings of every command, with their variables, keys,
// defaults and units.
func writeReference(b *strings.Builder, app *kong.Application) {
	b.WriteString("## All commands\n")
	referenceTables(b, app.Node)
	for _, node := range app.Children {
		referenceOf(b, node)
	}
}

// referenceOf writes the section of a command and those of its subcommands.
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
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", arg.Summary(), code(arg.Default), escapeCell(arg.Help))
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
		key, defaultText, action := "", flag.Default, flag.Tag.Has("action")
		if flag.Name != "config" && !action {
			key = strings.ReplaceAll(node.Path(), " ", ".") + "." + flag.Name
		}
		if d, err := settings.ParseDuration(flag.Default); err == nil && isDuration(flag) {
			defaultText = settings.FormatDuration(d)
		}
		if flag.IsBool() && defaultText == "" && !action {
			defaultText = "false"
		}
		// A default that is not a value is described at the end of the help.
		help, note, _ := strings.Cut(flag.Help, " Default: ")
		if defaultText = code(defaultText); defaultText == "" {
			defaultText = escapeCell(strings.TrimSuffix(note, "."))
		}
		fmt.Fprintf(b, "| `--%s` | %s | %s | %s | %s | %s |\n",
			flag.Name, code(strings.Join(flag.Envs, " ")), code(key), defaultText, valueOf(flag), escapeCell(help))
	}
}

func isDuration(flag *kong.Flag) bool { return flag.Target.Type() == reflect.TypeFor[time.Duration]() }

// valueOf describes the value of a flag and its unit.
func valueOf(flag *kong.Flag) string {
	switch kind := flag.Target.Kind(); {
	case isDuration(flag):
		return "duration with its unit, such as `90s`"
	case strings.HasSuffix(flag.Name, "-bytes") && flag.Target.CanInt():
		return "bytes, or with a unit, such as `1MiB`"
	case flag.Enum != "":
		return "`" + strings.Join(flag.EnumSlice(), "`, `") + "`"
	case flag.Target.Type() == reflect.TypeFor[time.Time]():
		return "RFC 3339 with zone"
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

// code formats a text as code. An empty text stays empty.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + escapeCell(text) + "`"
}

// escapeCell escapes a text for a table cell.
func escapeCell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
