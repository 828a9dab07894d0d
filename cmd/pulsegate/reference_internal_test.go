package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew in TestReference")

// maxServeSettings is as many as one can read.
const maxServeSettings = 70

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
	all := settings.Commands(parser.Model)
	writeReference(&reference, all)
	serve := slices.IndexFunc(all, func(c settings.Command) bool { return c.Path == "serve" })
	if n := len(all[serve].Flags) - 1; n > maxServeSettings { // --help is none
		t.Errorf("serve has %d settings, want at most %d: what nobody sets is a constant, or follows --memory", n,
			maxServeSettings)
	}
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

// writeReference writes the arguments and flags of every command: those of serve with their help, by group, and those
// of the others in a line, because the help of a command is at hand where it runs.
func writeReference(b *strings.Builder, all []settings.Command) {
	for i, c := range all {
		if i == 0 {
			b.WriteString("## All commands\n")
		} else {
			fmt.Fprintf(b, "\n## pulsegate %s\n%s\n", c.Path, c.Help)
		}
		var short, groups []string
		ofGroup := map[string]string{} // the lines of each of groups
		for _, s := range c.Arguments {
			short = append(short, "`"+s.Name+"`"+initial(s.Default, ""))
		}
		for _, s := range c.Flags {
			switch {
			case s.Name == "--help":
			case c.Path == "serve":
				if ofGroup[s.Group] == "" {
					groups = append(groups, s.Group)
				}
				ofGroup[s.Group] += fmt.Sprintf("- %s%s: %s\n", flagText(&s, c.Path), initial(s.Default, s.Note), s.Help)
			default:
				short = append(short, flagText(&s, c.Path)+initial(s.Default, ""))
			}
		}
		if len(short) > 0 {
			fmt.Fprintf(b, "\n%s\n", strings.Join(short, "; "))
		}
		for _, group := range groups {
			fmt.Fprintf(b, "\n### %s\n\n%s", strings.TrimSuffix(group, ":"), ofGroup[group])
		}
	}
}

// flagText returns a flag of a command. It names the variable and the key only if they do not follow from
// the flag.
func flagText(s *settings.Setting, command string) string {
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
	return "`" + s.Usage + "`" + also
}

// initial returns the default of a setting, or else a note about it, in parentheses.
func initial(value, note string) string {
	switch {
	case value != "" && value != "false":
		return " (`" + value + "`)"
	case note != "":
		return " (" + note + ")"
	}
	return ""
}
