package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew in TestReference")

// docs/configuration.md documents every setting as it is in the code. make docs writes it.
func TestReference(t *testing.T) {
	const path, mark = "../../docs/configuration.md", "<!-- What follows is written by `make docs`."
	doc, err := os.ReadFile(path)
	try(t, err)
	begin := strings.Index(string(doc), mark)
	if begin < 0 {
		t.Fatalf("%s has no line that begins with %q", path, mark)
	}
	line := strings.Index(string(doc[begin:]), "\n")
	written, existing := string(doc[:begin+line+1]), string(doc[begin+line+1:])
	var reference strings.Builder
	parser, err := newParser(new(commands), stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard}, "")
	try(t, err)
	writeReference(&reference, settings.Commands(parser.Model))
	if existing == reference.String() {
		return
	}
	if *update {
		try(t, os.WriteFile(path, []byte(written+reference.String()), 0o666))
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

// writeReference writes the arguments and flags of every command.
func writeReference(b *strings.Builder, all []settings.Command) {
	for i, c := range all {
		if i == 0 {
			b.WriteString("## All commands\n")
		} else {
			fmt.Fprintf(b, "\n## pulsegate %s\n%s\n", c.Path, c.Help)
		}
		if len(c.Arguments) > 0 {
			b.WriteString("\n| argument | default | what |\n|---|---|---|\n")
		}
		for _, s := range c.Arguments {
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", s.Name, code(s.Default), escapeCell(s.Help))
		}
		if len(c.Flags) > 0 {
			b.WriteString("\n| flag | variable | key | default | value | what |\n|---|---|---|---|---|---|\n")
		}
		for _, s := range c.Flags {
			if s.Name == "--help" {
				continue
			}
			fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", s.Name, code(strings.Join(s.Variables, " ")), code(s.Key),
				cmp.Or(code(s.Default), escapeCell(s.Note)), strings.ReplaceAll(s.Value, "|", `\|`), escapeCell(s.Help))
		}
	}
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
