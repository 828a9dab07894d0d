package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// manCommand prints the manual page: the text below and the description of the command line, in
// the macros of man(7).
type manCommand struct{}

const manHead = `.TH "PULSEGATE" 1 "%s" "pulsegate %s" "User Commands"
.SH NAME
pulsegate \- store and serve vital signs, acknowledged when they are on stable storage
.SH SYNOPSIS
.B pulsegate
COMMAND [FLAG]... [ARGUMENT]...
.SH DESCRIPTION
Accepts vital\-sign readings (blood pressure, SpO2, heart rate, resting heart rate) that the gateways of wearables POST as
JSON, acknowledges them when they are on stable storage, and serves them.
.PP
The environment variable beside a flag sets it too, and so does the file that \-\-config names.
A flag overrides a variable, and a variable overrides the file.
`

const manTail = `.SH EXIT STATUS
.TP
.B 0
Done.
.TP
.B 1
Failed.
.TP
.B 2
Wrong usage.
.TP
.B 3
import: the server has rejected rows, and stored the others. See \-\-allow\-rejected.
.SH SIGNALS
.TP
.B SIGTERM, SIGINT
serve drains: readyz fails, new readings are rejected after \-\-drain\-delay, pending requests are answered, and the store
is closed.
A second signal ends the delay early, and another one the process.
.TP
.B SIGHUP
serve reloads tokens, certificates and log settings.
.SH SEE ALSO
systemd.service(5), https://github.com/pulsegate/pulsegate
`

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
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`, `"`, `\(dq`, ". ", ".\n").Replace(text)
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
