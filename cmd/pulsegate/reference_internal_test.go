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

// sharedBy is the number of commands from which on a flag that they have in common is described once.
const sharedBy = 5

// writeReference writes the arguments and flags of every command.
func writeReference(b *strings.Builder, all []settings.Command) {
	const flagsHead = "\n| flag | default | value | what |\n|---|---|---|---|\n"
	commands := map[string]int{} // by the rows of their flags
	for _, c := range all {
		for _, s := range c.Flags {
			commands[flagRow(&s, c.Path)]++
		}
	}
	var shared strings.Builder
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
		var own strings.Builder
		var common []string
		for _, s := range c.Flags {
			row := flagRow(&s, c.Path)
			switch {
			case s.Name == "--help":
			case commands[row] < sharedBy:
				own.WriteString(row)
			default:
				common = append(common, s.Name)
				if !strings.Contains(shared.String(), row) {
					shared.WriteString(row)
				}
			}
		}
		if own.Len() > 0 {
			b.WriteString(flagsHead + own.String())
		}
		if len(common) > 0 {
			fmt.Fprintf(b, "\nAnd [`%s`](#flags-of-several-commands).\n", strings.Join(common, "`, `"))
		}
	}
	b.WriteString("\n## Flags of several commands\n" + flagsHead + shared.String())
}

// flagRow returns the row of a flag of a command. It names the variable and the key only if they do not follow from the
// flag.
func flagRow(s *settings.Setting, command string) string {
	usual := strings.TrimPrefix(s.Name, "--")
	also := ""
	switch variables := strings.Join(s.Variables, " "); {
	case variables == "" && s.Key == "":
		also = ", only as a flag"
	case variables == "":
		also = ", no variable"
	case variables != "PULSEGATE_"+strings.ToUpper(strings.ReplaceAll(usual, "-", "_")):
		also = ", `" + strings.Join(s.Variables, "`, `") + "`"
	}
	if key := strings.TrimPrefix(strings.ReplaceAll(command, " ", ".")+"."+usual, "."); s.Key == "" && also == "" {
		also = ", not in a file"
	} else if s.Key != "" && s.Key != key {
		also += ", key `" + s.Key + "`"
	}
	return fmt.Sprintf("| `%s`%s | %s | %s | %s |\n", s.Name, also, cmp.Or(code(s.Default), escapeCell(s.Note)),
		strings.ReplaceAll(s.Value, "|", `\|`), escapeCell(s.Help))
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
