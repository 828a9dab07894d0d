package main

import (
	"fmt"

	"github.com/alecthomas/kong"
)

// printHelp prints the help of a command. Where a command below it runs when none
// is named, as sim run does for sim, its flags are shown too: they can be given.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	if node == nil || node.DefaultCmd == nil {
		return kong.DefaultHelpPrinter(options, ctx)
	}
	also := node.DefaultCmd
	group := &kong.Group{Key: also.Path(), Title: fmt.Sprintf("Flags of '%s', which is what '%s' means:", also.Path(), node.Path())}
	for _, flag := range also.Flags {
		if flag.Group == nil {
			flag.Group = group
		}
	}
	// The model is used for this help and then thrown away.
	node.Flags = append(node.Flags, also.Flags...)
	node.Positional = append(node.Positional, also.Positional...)
	return kong.DefaultHelpPrinter(options, ctx)
}
