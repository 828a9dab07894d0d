package main

import (
	"embed"
	"io"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// completionCommand prints a script that makes a shell complete command lines. The
// script asks the program itself, so that it never differs from what the program
// takes.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell that the script is for: bash, zsh or fish."`
}

// completionScripts call 'pulsegate __complete -- WORD...', with the words after the
// program's name, the last of which is to be completed.
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

// completeCommand prints what the last word may become, as [settings.Complete] has it.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

func (c *completeCommand) Run(kctx *kong.Context, std stdio) error {
	words := c.Words[min(1, len(c.Words)):] // after --
	_, err := io.WriteString(std.out, strings.Join(settings.Complete(kctx.Model.Node, words), ""))
	return err
}
