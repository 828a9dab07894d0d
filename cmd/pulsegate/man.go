package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
)

// manCommand prints the manual page: what is said here, and the description of the command
// line, in the macros of man(7).
type manCommand struct{}

const manHead = `.TH "PULSEGATE" 1 "%s" "pulsegate %s" "User Commands"
.SH NAME
pulsegate \- vital signs in over HTTP, acknowledged when they are on stable storage, and back out
.SH SYNOPSIS
.B pulsegate
COMMAND [FLAG]... [ARGUMENT]...
.SH DESCRIPTION
Takes vital\-sign readings (blood pressure, SpO2, heart rate, resting heart rate) that wearables\(aq gateways POST as JSON,
acknowledges only what is on stable storage, and serves them back.
.PP
Each flag may be set by the environment variable that stands beside it, or by the file that \-\-config names.
A flag comes before a variable, and a variable before the file.
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
.SH SIGNALS
.TP
.B SIGTERM, SIGINT
serve drains: readyz says no, after \-\-drain\-delay new readings are refused, requests under way are answered, the store
is closed.
A second one ends the delay early, a further one the process.
.TP
.B SIGHUP
serve reads tokens, certificates and the settings of its log again.
.SH SEE ALSO
systemd.service(5), https://github.com/pulsegate/pulsegate
`

func (manCommand) Run(kctx *kong.Context, std stdio) error {
	var b strings.Builder
	// The date is for formatters to read, which know no escapes in it.
	fmt.Fprintf(&b, manHead, buildDate(), roff(versionText()))
	item := func(term, text string) { fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(term), roff(text)) }
	flags := func(node *kong.Node) {
		for _, flag := range node.Flags {
			if len(flag.Envs) > 0 {
				item(flag.String(), flag.Help+" ("+strings.Join(flag.Envs, ", ")+")")
			} else {
				item(flag.String(), flag.Help)
			}
		}
	}
	b.WriteString(".SH COMMANDS\n")
	for _, node := range kctx.Model.Leaves(true) {
		fmt.Fprintf(&b, ".SS %s\n%s\n", roff(node.FullPath()), roff(node.Help))
		for _, arg := range node.Positional {
			item(arg.Summary(), arg.Help)
		}
		flags(node)
	}
	b.WriteString(".SH FLAGS OF ALL COMMANDS\n")
	flags(kctx.Model.Node)
	_, err := io.WriteString(std.out, b.String()+manTail)
	return err
}

// roff escapes what formatters give a meaning to, and begins a line with each sentence. A
// plain hyphen would become another character, which cannot be copied into a shell.
func roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`, `"`, `\(dq`, ". ", ".\n").Replace(text)
}

// buildDate returns the date of the commit that was built, if it is known.
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
