package main

import (
	"context"
	"io"
	"log"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/server"
)

type serveCommand struct {
	server.Options `embed:""`

	PrintConfig bool `action:"" group:"first" help:"Check the settings, print them as a file for --config with the source and the effective value of each, limits included, and exit."`
}

func (c *serveCommand) Run(ctx context.Context, std stdio, kctx *kong.Context, cmds *commands) error {
	c.Version, c.Getenv = versionText(), os.Getenv
	if c.PrintConfig {
		return c.printConfig(std.out, kctx, cmds)
	}
	logs, err := server.OpenLog(std.err, &c.LogOptions)
	if err != nil {
		return err
	}
	defer logs.Close()
	slog.SetDefault(logs.Logger)
	log.SetFlags(0)
	log.SetOutput(logs.Others())
	c.Reload = reread(kctx.Args, cmds.Texts(kctx))
	c.Hangups = std.hangups
	for _, text := range unknownVariables(kctx) {
		logs.Warn("unknown environment variable", "what", text)
	}
	return server.Run(ctx, &c.Options, logs, nil)
}

// printConfig prints the settings, and returns the error that the server would return before it
// opens anything.
func (c *serveCommand) printConfig(out io.Writer, kctx *kong.Context, cmds *commands) error {
	c.Fit(slog.New(slog.DiscardHandler))
	if err := cmds.Print(out, kctx, c.Notes()...); err != nil {
		return err
	}
	return c.Check()
}

// reloadable are the settings that SIGHUP reloads. Others require a restart. The list is never
// written to.
var reloadable = []string{"log-level", "log-budget", "access-log"}

// reread returns a function that reads the settings of a running serve again: the same command
// line, the same environment, and the file with its present contents. The function returns the
// settings, and the names of those that have changed and require a restart. now are the settings
// that were read last as TOML, by key.
func reread(args []string, now map[string]string) func() (*server.LogOptions, []string, error) {
	return func() (_ *server.LogOptions, needRestart []string, err error) {
		var cmds commands
		parser, err := newParser(&cmds, stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard}, "")
		if err != nil {
			return nil, nil, err
		}
		ctx, err := parser.Parse(args)
		if err != nil {
			return nil, nil, err
		}
		last := now
		now = cmds.Texts(ctx)
		for name, text := range now {
			if text != last[name] && !slices.Contains(reloadable, name) {
				needRestart = append(needRestart, name)
			}
		}
		slices.Sort(needRestart)
		return &cmds.Serve.LogOptions, needRestart, nil
	}
}
