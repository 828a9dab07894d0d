package settings

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completeFiles is a line that asks for names of files.
const completeFiles = ":files\n"

// Complete returns what the last of words may become, which are those after the program's
// name. Each is a line: the word, a tab, and what it means, or a line that asks the shell
// for names of files.
func Complete(root *kong.Node, words []string) (lines []string) {
	// bash makes three words of --flag=value.
	joined := strings.NewReplacer("\x00=\x00", "=", "\x00=", "=").Replace(strings.Join(words, "\x00"))
	split := len(words) > 1 && !strings.HasSuffix(joined, "\x00"+words[len(words)-1])
	words = strings.Split(joined, "\x00")
	node, pending := position(root, words[:len(words)-1])
	last := words[len(words)-1]
	add := func(word, help string) {
		if strings.HasPrefix(word, last) {
			first, _, _ := strings.Cut(strings.ReplaceAll(help, "\n", " "), ". ")
			lines = append(lines, word+"\t"+strings.TrimSuffix(first, ".")+"\n")
		}
	}
	values := func(v *kong.Value, lead string) {
		switch {
		case v.Enum != "":
			for _, value := range v.EnumSlice() {
				add(lead+value, "")
			}
		case namesFile(v):
			lines = append(lines, completeFiles)
		}
	}
	name, value, isPair := strings.Cut(last, "=")
	switch {
	case pending != nil:
		values(pending.Value, "")
	case isPair && strings.HasPrefix(name, "--"):
		lead := name + "="
		if split { // bash replaces what follows the equals sign only
			last, lead = value, ""
		}
		if flag := flagCalled(node, name); flag != nil {
			values(flag.Value, lead)
		}
	case strings.HasPrefix(last, "-"):
		for _, flag := range flagsOf(node) {
			if !flag.Hidden {
				add("--"+flag.Name, flag.Help)
			}
		}
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				add(child.Name, child.Help)
			}
		}
		for _, arg := range node.Positional {
			values(arg, "")
		}
		if node.DefaultCmd != nil {
			for _, arg := range node.DefaultCmd.Positional {
				values(arg, "")
			}
		}
	}
	return lines
}

// position returns the command that words have come to, and the flag whose value comes
// next, if one's does.
func position(node *kong.Node, words []string) (_ *kong.Node, pending *kong.Flag) {
	for _, word := range words {
		child := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word })
		switch {
		case pending != nil:
			pending = nil
		case strings.HasPrefix(word, "-"):
			if flag := flagCalled(node, word); flag != nil && !flag.IsBool() && !flag.IsCounter() {
				pending = flag
			}
		case child >= 0:
			node = node.Children[child]
		}
	}
	return node, pending
}

// flagsOf returns the flags that may be given after a command: its own, those of the
// command that runs below it if none is named, and those of the commands above.
func flagsOf(node *kong.Node) (all []*kong.Flag) {
	if node.DefaultCmd != nil {
		all = node.DefaultCmd.Flags
	}
	for ; node != nil; node = node.Parent {
		all = append(slices.Clip(all), node.Flags...)
	}
	return all
}

// flagCalled returns the flag of a word such as --name, or nil.
func flagCalled(node *kong.Node, word string) *kong.Flag {
	for _, flag := range flagsOf(node) {
		if "--"+flag.Name == word {
			return flag
		}
	}
	return nil
}

// namesFile reports whether a value is the name of a file or a folder. Not all that are
// have kong's type for it, which would make them absolute.
func namesFile(v *kong.Value) bool {
	name := strings.ToUpper(v.Name)
	if v.Flag != nil {
		name = v.Flag.PlaceHolder
	}
	return v.Tag.Type == "path" || name == "DIR" || name == "LEDGER" || strings.HasPrefix(name, "FILE") && !strings.Contains(name, "=")
}
