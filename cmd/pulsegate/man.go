package main

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
)

// manCommand prints the manual page, which is made of the command line's own
// description.
type manCommand struct{}

func (manCommand) Run(kctx *kong.Context, std stdio) error {
	p := &manPage{}
	p.write(kctx.Model)
	_, err := std.out.Write(p.Bytes())
	return err
}

// A manPage is text in the macros of man(7).
type manPage struct{ bytes.Buffer }

// macro writes a line that begins with a macro. Arguments are quoted.
func (p *manPage) macro(name string, args ...string) {
	p.WriteString("." + name)
	for _, arg := range args {
		p.WriteString(` "` + strings.ReplaceAll(roff(arg), `"`, `\(dq`) + `"`)
	}
	p.WriteByte('\n')
}

// maxLineBytes is the length of a line of text that formatters like to see.
const maxLineBytes = 79

// text writes the text of a paragraph.
func (p *manPage) text(s string) {
	length := 0
	for _, word := range strings.Fields(s) {
		word = roff(word)
		switch {
		case length > 0 && length+1+len(word) <= maxLineBytes:
			p.WriteByte(' ')
			length++
		case length > 0:
			p.WriteByte('\n')
			length = 0
		}
		if length == 0 && (word[0] == '.' || word[0] == '\'') {
			word = `\&` + word // it is no macro
		}
		p.WriteString(word)
		length += len(word)
	}
	if length > 0 {
		p.WriteByte('\n')
	}
}

// roff escapes what formatters give a meaning to. A plain hyphen would be broken
// at, and become another character, which cannot be copied into a shell.
func roff(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// section writes a section of given text: paragraphs, and terms with what they
// mean.
func (p *manPage) section(name string, paragraphs ...string) {
	p.macro("SH", name)
	for i, text := range paragraphs {
		if term, meaning, ok := strings.Cut(text, "\t"); ok {
			p.macro("TP")
			p.macro("B", term)
			p.text(meaning)
			continue
		}
		if i > 0 {
			p.macro("PP")
		}
		p.text(text)
	}
}

func (p *manPage) write(app *kong.Application) {
	// The date is for formatters to read, which know no escapes in it.
	fmt.Fprintf(p, ".TH \"%s\" 1 \"%s\" \"%s\" \"User Commands\"\n", strings.ToUpper(app.Name), buildDate(), roff(app.Name+" "+versionText()))
	p.section("NAME")
	p.text(app.Name + " - " + strings.TrimSuffix(strings.ToLower(app.Help[:1])+app.Help[1:], "."))
	p.macro("SH", "SYNOPSIS")
	p.macro("B", app.Name)
	p.text("COMMAND [FLAG]... [ARGUMENT]...")
	p.section("DESCRIPTION",
		"Takes vital-sign readings (blood pressure, SpO2, heart rate, resting heart rate) that wearables' gateways POST as JSON, acknowledges only what is on stable storage, and serves them back.",
		"Each flag may be set by the environment variable that stands beside it, or by the file that --config names. A flag comes before a variable, and a variable before the file.")
	p.macro("SH", "COMMANDS")
	for _, node := range app.Leaves(true) {
		p.command(node)
	}
	p.macro("SH", "FLAGS OF ALL COMMANDS")
	p.flags(app.Node)
	p.section("EXIT STATUS", "0\tDone.", "1\tFailed.", "2\tWrong usage.")
	p.section("SIGNALS",
		"SIGTERM, SIGINT\tserve drains: readyz says no, after --drain-delay new readings are refused, requests under way are answered, the store is closed. A second one ends the delay early, a further one the process.",
		"SIGHUP\tserve reads tokens, certificates and the settings of its log again.")
	p.section("SEE ALSO", "systemd.service(5), https://github.com/pulsegate/pulsegate")
}

// command writes a command with its arguments and flags.
func (p *manPage) command(node *kong.Node) {
	p.macro("SS", node.FullPath())
	p.text(node.Help)
	if node.Detail != "" {
		p.macro("PP")
		p.text(node.Detail)
	}
	for _, arg := range node.Positional {
		p.macro("TP")
		p.macro("B", arg.Summary())
		p.text(described(arg, nil))
	}
	p.flags(node)
}

func (p *manPage) flags(node *kong.Node) {
	for _, flag := range node.Flags {
		if flag.Hidden {
			continue
		}
		p.macro("TP")
		term := "--" + flag.Name
		if flag.Short != 0 {
			term = "-" + string(flag.Short) + ", " + term
		}
		if !flag.IsBool() && !flag.IsCounter() {
			term += "=" + placeholder(flag)
		}
		p.macro("B", term)
		p.text(described(flag.Value, flag.Envs))
	}
}

// placeholder returns what stands for a flag's value.
func placeholder(flag *kong.Flag) string {
	switch {
	case flag.PlaceHolder != "":
		return flag.PlaceHolder
	case flag.Enum != "":
		return strings.Join(flag.EnumSlice(), "|")
	case flag.Tag.Type == "path":
		return "PATH"
	}
	return "VALUE"
}

// described returns the help of a value, its default and its variables.
func described(v *kong.Value, envs []string) string {
	text := v.Help
	if v.Default != "" && !v.IsBool() {
		text += " Default: " + v.Default + "."
	}
	if len(envs) > 0 {
		text += " (" + strings.Join(envs, ", ") + ")"
	}
	return text
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
