package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// helpTexts has the texts below the descriptions of commands in their help, such as
// help/token-create.txt.
//
//go:embed help
var helpTexts embed.FS

// details adds its text to each command.
func details() kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		return kong.Visit(k.Model, func(n kong.Visitable, next kong.Next) error {
			if node, ok := n.(*kong.Node); ok {
				text, err := helpTexts.ReadFile("help/" + strings.ReplaceAll(node.Path(), " ", "-") + ".txt")
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				node.Detail = strings.TrimSuffix(string(text), "\n")
			}
			return next(nil)
		})
	})
}

// helpCommand shows the help of a command, as its flag --help does.
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"Command, such as serve or token create. Default: the whole program."`
}

func (c *helpCommand) Run(std stdio) error {
	parser, err := newParser(new(commands), std, "")
	if err != nil {
		return err
	}
	if _, err = parser.Parse(append(c.Command, "--help")); err != nil { // exits if there is such a command
		return settings.Usagef("%s", settings.ErrorText(err))
	}
	return nil
}

// printHelp prints the help of a command. The help of a command with a default subcommand, such
// as sim with sim run, includes the flags of the subcommand, because the command accepts them.
// The model is used for this help only.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	options.FlagsLast = true
	node := ctx.Selected()
	if node == nil {
		options.NoExpandSubcommands = true
		return kong.DefaultHelpPrinter(options, ctx)
	}
	for _, child := range node.Children {
		child.Group = &kong.Group{Key: "commands", Title: "Commands:"}
	}
	if also := node.DefaultCmd; also != nil {
		group := &kong.Group{Key: also.Path(), Title: fmt.Sprintf("Flags of '%s', the default:", also.Path())}
		for _, flag := range also.Flags {
			if flag.Group == nil {
				flag.Group = group
			}
		}
		node.Flags = append(node.Flags, also.Flags...)
		node.Positional = append(node.Positional, also.Positional...)
	}
	// The flags of every command come last, without --version.
	for _, flag := range ctx.Model.Flags {
		if flag.Name != "version" {
			node.Flags = append(node.Flags, flag)
		}
	}
	ctx.Model.Flags = nil
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	_, err := io.WriteString(ctx.Stdout, `
Most flags can also be set in the environment: --token-file as PULSEGATE_TOKEN_FILE.
docs/configuration.md lists all settings.
`)
	return err
}
