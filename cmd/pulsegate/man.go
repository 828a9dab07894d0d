package main

import (
	_ "embed" // of texts
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// manCommand prints the manual page: the texts in man and the description of the command line, in
// the macros of man(7).
type manCommand struct{}

// manHead has the verbs of the date and the version.
//
//go:embed man/head.1
var manHead string

//go:embed man/tail.1
var manTail string

func (manCommand) Run(kctx *kong.Context, std stdio) error {
	var b strings.Builder
	// Formatters do not expand escapes in the date.
	fmt.Fprintf(&b, manHead, buildDate(), escapeRoff(versionText()))
	items := func(list []settings.Setting) {
		for _, s := range list {
			help := s.Help
			if len(s.Variables) > 0 {
				help += " (" + strings.Join(s.Variables, ", ") + ")"
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escapeRoff(s.Usage), escapeRoff(help))
		}
	}
	b.WriteString(".SH COMMANDS\n")
	all := settings.Commands(kctx.Model)
	for _, c := range all[1:] {
		if c.Leaf {
			fmt.Fprintf(&b, ".SS pulsegate %s\n%s\n", escapeRoff(c.Path), escapeRoff(c.Help))
			items(c.Arguments)
			items(c.Flags)
		}
	}
	b.WriteString(".SH FLAGS OF ALL COMMANDS\n")
	items(all[0].Flags)
	_, err := io.WriteString(std.out, b.String()+manTail)
	return err
}

// escapeRoff escapes the characters that formatters interpret, and begins a new line after each
// sentence. An unescaped hyphen would become another character, which a shell does not accept.
func escapeRoff(text string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`, `"`, `\(dq`, ". ",
		".\n").Replace(text)
}

// buildDate returns the date of the commit that was built, or "" if it is not known.
func buildDate() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if date, _, found := strings.Cut(s.Value, "T"); s.Key == "vcs.time" && found {
				return date
			}
		}
	}
	return ""
}
