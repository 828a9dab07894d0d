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

	PrintConfig bool `action:"" help:"Print the settings as they would take effect, as a file for --config, with where each comes from; check them, and exit."`
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
	c.Reload = (&settingsReader{kctx.Args, cmds.Texts(kctx)}).read
	for _, text := range unknownVariables(kctx) {
		logs.Warn("unknown environment variable", "what", text)
	}
	return server.Run(ctx, &c.Options, logs, nil)
}

// printConfig prints the settings, and refuses those that the server would refuse without
// a look at anything else.
func (c *serveCommand) printConfig(out io.Writer, kctx *kong.Context, cmds *commands) error {
	c.Fit(slog.New(slog.DiscardHandler))
	if err := cmds.Print(out, kctx, c.Note()); err != nil {
		return err
	}
	return c.Check()
}

// reloadable are the settings that SIGHUP changes. Others need a restart.
var reloadable = []string{"log-level", "log-budget", "access-log", "access-log-sample", "access-log-budget"}

// A settingsReader reads the settings of a running serve anew: the same command
// line, the same environment, and the file as it is now.
type settingsReader struct {
	args []string
	now  map[string]string // settings as TOML, by key; what was read last
}

// read returns the settings, and the names of those that differ from before and
// are not reloadable.
func (r *settingsReader) read() (_ *server.LogOptions, needRestart []string, err error) {
	var cmds commands
	std := stdio{strings.NewReader(""), io.Discard, io.Discard}
	parser, err := newParser(&cmds, std)
	if err != nil {
		return nil, nil, err
	}
	ctx, err := parser.Parse(r.args)
	if err != nil {
		return nil, nil, err
	}
	now := cmds.Texts(ctx)
	for name, text := range now {
		if text != r.now[name] && !slices.Contains(reloadable, name) {
			needRestart = append(needRestart, name)
		}
	}
	slices.Sort(needRestart)
	r.now = now
	return &cmds.Serve.LogOptions, needRestart, nil
}
