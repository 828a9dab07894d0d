package main

import (
	"bytes"
	_ "embed" // for the scripts
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand prints a script that makes a shell complete command lines. The
// script asks the program itself, so that it never differs from what the program
// takes.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell that the script is for: bash, zsh or fish."`
}

// The scripts. Each calls 'pulsegate __complete -- WORD...', with the words behind
// the program's name, the last of which is to be completed. See completeCommand.
var (
	//go:embed completion/pulsegate.bash
	bashCompletion string
	//go:embed completion/pulsegate.zsh
	zshCompletion string
	//go:embed completion/pulsegate.fish
	fishCompletion string
)

func (c *completionCommand) Run(std stdio) error {
	script := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell]
	_, err := fmt.Fprint(std.out, script)
	return err
}

// completeCommand prints what the last word may become, one a line: the word, a
// tab, and what it means. A line completeFiles asks for names of files.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

const completeFiles = ":files"

func (c *completeCommand) Run(kctx *kong.Context, std stdio) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	var out bytes.Buffer
	for _, line := range complete(kctx.Model.Node, words) {
		out.WriteString(line + "\n")
	}
	_, err := std.out.Write(out.Bytes())
	return err
}

// complete returns the lines for words, which are those behind the program's name.
func complete(root *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	words, split := joined(words)
	node, pending := root, (*kong.Flag)(nil)
	for _, word := range words[:len(words)-1] {
		switch {
		case pending != nil:
			pending = nil
		case strings.HasPrefix(word, "-"):
			pending = wantsValue(node, word)
		default:
			if child := childOf(node, word); child != nil {
				node = child
			}
		}
	}
	last := words[len(words)-1]
	if pending != nil {
		return completeValue(pending.Value, "", last)
	}
	if name, value, ok := strings.Cut(last, "="); ok && strings.HasPrefix(name, "--") {
		flag := flagOf(node, strings.TrimPrefix(name, "--"))
		if flag == nil {
			return nil
		}
		if split { // bash replaces what stands behind the equals sign only
			return completeValue(flag.Value, "", value)
		}
		return completeValue(flag.Value, name+"=", value)
	}
	if strings.HasPrefix(last, "-") {
		return completeFlag(node, last)
	}
	var lines []string
	for _, child := range node.Children {
		if !child.Hidden && strings.HasPrefix(child.Name, last) {
			lines = append(lines, line(child.Name, child.Help))
		}
	}
	for _, n := range withDefault(node) {
		for _, arg := range n.Positional {
			lines = append(lines, completeValue(arg, "", last)...)
		}
	}
	return lines
}

// joined undoes what bash does to --flag=value: three words. split says that it has
// done so to the last.
func joined(words []string) (_ []string, split bool) {
	var out []string
	for i := 0; i < len(words); i++ {
		if words[i] != "=" || len(out) == 0 || !strings.HasPrefix(out[len(out)-1], "--") {
			out = append(out, words[i])
			split = false
			continue
		}
		out[len(out)-1] += "="
		if i+1 < len(words) {
			i++
			out[len(out)-1] += words[i]
		}
		split = true
	}
	return out, split
}

// withDefault returns a command and the one that runs below it if none is named.
func withDefault(node *kong.Node) []*kong.Node {
	if node.DefaultCmd != nil {
		return []*kong.Node{node, node.DefaultCmd}
	}
	return []*kong.Node{node}
}

// flagsOf returns the flags that may be given behind a command.
func flagsOf(node *kong.Node) (all []*kong.Flag) {
	for _, n := range withDefault(node) {
		all = append(all, n.Flags...)
	}
	for n := node.Parent; n != nil; n = n.Parent {
		all = append(all, n.Flags...)
	}
	return all
}

func flagOf(node *kong.Node, name string) *kong.Flag {
	for _, flag := range flagsOf(node) {
		if flag.Name == name {
			return flag
		}
	}
	return nil
}

// wantsValue returns the flag of a word, if the next word is its value.
func wantsValue(node *kong.Node, word string) *kong.Flag {
	name, ok := strings.CutPrefix(word, "--")
	if !ok || strings.Contains(name, "=") {
		return nil
	}
	flag := flagOf(node, name)
	if flag == nil || flag.IsBool() || flag.IsCounter() {
		return nil
	}
	return flag
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

// completeFlag returns the flags that begin with prefix.
func completeFlag(node *kong.Node, prefix string) (lines []string) {
	for _, flag := range flagsOf(node) {
		if word := "--" + flag.Name; !flag.Hidden && strings.HasPrefix(word, prefix) {
			lines = append(lines, line(word, flag.Help))
		}
	}
	return lines
}

// completeValue returns what a flag or an argument may be set to, each behind lead.
func completeValue(v *kong.Value, lead, prefix string) (lines []string) {
	switch {
	case v.Enum != "":
		for _, value := range v.EnumSlice() {
			if strings.HasPrefix(value, prefix) {
				lines = append(lines, line(lead+value, ""))
			}
		}
	case namesFile(v):
		lines = append(lines, completeFiles)
	}
	return lines
}

// namesFile reports whether a value is the name of a file or a folder. Not all that
// are have kong's type for it, which would make them absolute.
func namesFile(v *kong.Value) bool {
	if v.Tag.Type == "path" {
		return true
	}
	name := strings.ToUpper(v.Name)
	if v.Flag != nil {
		name = v.Flag.PlaceHolder
	}
	return name == "DIR" || name == "LEDGER" || strings.HasPrefix(name, "FILE") && !strings.Contains(name, "=")
}

// line returns a candidate with the first sentence of its help.
func line(word, help string) string {
	help, _, _ = strings.Cut(help, ". ")
	return word + "\t" + strings.TrimSuffix(strings.ReplaceAll(help, "\n", " "), ".")
}
