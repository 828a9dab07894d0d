package settings

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// globalGroup holds the flags that every command has.
var globalGroup = kong.Group{Key: "global", Title: "Flags of every command:"}

// Help shows the kind of value of each flag, such as DURATION, and its default
// beside its description.
func Help() kong.Option {
	return kong.OptionFunc(func(k *kong.Kong) error {
		for _, option := range []kong.Option{kong.HelpOptions{Compact: true}, kong.ValueFormatter(describe)} {
			if err := option.Apply(k); err != nil {
				return err
			}
		}
		return kong.PostBuild(func(k *kong.Kong) error {
			k.Model.HelpFlag.Help = "Show this help."
			for _, flag := range k.Model.Flags {
				flag.Group = &globalGroup
			}
			eachFlag(k.Model.Node, func(node *kong.Node, flag *kong.Flag) {
				if flag.PlaceHolder == "" {
					flag.PlaceHolder = placeHolder(flag)
				}
			})
			return nil
		}).Apply(k)
	})
}

// describe returns the description of a flag or an argument for its help. The default comes at
// the end in parentheses: that of the tag, or what follows "Default: " in the description.
func describe(v *kong.Value) string {
	text, note := splitHelp(v)
	text = strings.TrimSuffix(text, ".")
	if v.HasDefault && v.Default != "" && !(v.IsBool() && v.Default == "false") {
		note = v.Default
	}
	if note != "" {
		text += fmt.Sprintf(" (default: %s)", note)
	}
	if own := ownVariables(v); own != "" {
		text += fmt.Sprintf(" ($%s)", own)
	}
	return text
}

// ownVariables returns the environment variables of a flag that do not follow from its name.
func ownVariables(v *kong.Value) string {
	var own []string
	for _, name := range v.Tag.Envs {
		if v.Flag != nil && name != variableOf(v.Name) {
			own = append(own, name)
		}
	}
	return strings.Join(own, ", $")
}
