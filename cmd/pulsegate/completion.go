package main

import (
	"embed"
	"io"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// completionCommand prints a script that completes command lines in a shell. The script calls
// the program, so that the completions are always those of the installed version.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
}

// completionScripts call 'pulsegate __complete -- WORD...' with the words after the program's
// name. The last word is the one to complete.
//
//go:embed completion
var completionScripts embed.FS

func (c *completionCommand) Run(std stdio) error {
	script, err := completionScripts.ReadFile("completion/pulsegate." + c.Shell)
	if err == nil {
		_, err = std.out.Write(script)
	}
	return err
}

// completeCommand prints the completions of the last word; see [settings.Complete].
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

func (c *completeCommand) Run(kctx *kong.Context, std stdio) error {
	words := c.Words[min(1, len(c.Words)):] // after --
	_, err := io.WriteString(std.out, strings.Join(settings.Complete(kctx.Model.Node, words), ""))
	return err
}
