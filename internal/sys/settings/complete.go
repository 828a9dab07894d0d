package settings

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completeFiles asks the shell to complete file names.
const completeFiles = ":files\n"

// Complete returns the completions of the last of words, the words after the program's name.
// Each is a line: the completed word, a tab and its description, or a line that asks the shell
// to complete file names.
func Complete(root *kong.Node, words []string) (lines []string) {
	// bash splits --flag=value into three words.
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
		if split { // bash replaces only what follows the equals sign
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

// position returns the command that words select, and the flag that the next word is the value
// of, or nil.
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

// flagsOf returns the flags that a command accepts: its own, those of its default subcommand,
// and those of its parents.
func flagsOf(node *kong.Node) (all []*kong.Flag) {
	if node.DefaultCmd != nil {
		all = node.DefaultCmd.Flags
	}
	for ; node != nil; node = node.Parent {
		all = append(slices.Clip(all), node.Flags...)
	}
	return all
}

// flagCalled returns the flag that a word such as --name sets, or nil.
func flagCalled(node *kong.Node, word string) *kong.Flag {
	for _, flag := range flagsOf(node) {
		if "--"+flag.Name == word {
			return flag
		}
	}
	return nil
}

// namesFile reports whether a value is the path of a file or a directory. Some paths lack
// kong's type "path", which would make them absolute.
func namesFile(v *kong.Value) bool {
	name := strings.ToUpper(v.Name)
	if v.Flag != nil {
		name = v.Flag.PlaceHolder
	}
	return v.Tag.Type == "path" || name == "DIR" || name == "LEDGER" ||
		strings.HasPrefix(name, "FILE") && !strings.Contains(name, "=")
}
