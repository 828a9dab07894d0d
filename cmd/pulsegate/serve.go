package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/server"
)

type serveCommand struct {
	server.Options `embed:""`

	PrintConfig bool `action:"" help:"Print the settings as they would take effect, as a file for --config, with where each comes from; check them, and exit."`
}

func (c *serveCommand) Run(ctx context.Context, std stdio, kctx *kong.Context, cmds *commands) error {
	c.fromEnvironment()
	if c.PrintConfig {
		return c.printConfig(std.out, kctx, cmds)
	}
	logs, err := server.OpenLog(std.err, &c.LogOptions)
	if err != nil {
		return err
	}
	defer logs.Close()
	slog.SetDefault(logs.Logger())
	log.SetFlags(0)
	log.SetOutput(logs.Others())
	reader, err := newSettingsReader(kctx, cmds)
	if err != nil {
		return err
	}
	c.Reload = reader.read
	for _, text := range unknownVariables(kctx) {
		logs.Logger().Warn("unknown environment variable", "what", text)
	}
	return server.Run(ctx, &c.Options, logs)
}

// fromEnvironment sets what no flag sets.
func (c *serveCommand) fromEnvironment() {
	c.Version, c.Getenv, c.OTLPHeaders = versionText(), os.Getenv, os.Getenv("OTEL_EXPORTER_OTLP_HEADERS")
}

// printConfig prints the settings, and refuses what Start would refuse without a look
// at anything but them.
func (c *serveCommand) printConfig(out io.Writer, kctx *kong.Context, cmds *commands) error {
	server.TakeResources(&c.Options, slog.New(slog.DiscardHandler))
	if err := cmds.Print(out, kctx, c.LogOptions.Note()); err != nil {
		return err
	}
	return c.Check()
}

// defaultServe returns the serve command with the default of every flag.
func defaultServe() (*serveCommand, error) {
	var c serveCommand
	parser, err := kong.New(&c, kong.Vars(server.Defaults()))
	if err != nil {
		return nil, fmt.Errorf("read defaults of serve: %w", err)
	}
	if _, err := parser.Parse(nil); err != nil {
		return nil, fmt.Errorf("read defaults of serve: %w", err)
	}
	c.fromEnvironment()
	return &c, nil
}
