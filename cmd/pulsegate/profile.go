package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/profile"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

type profileCommand struct {
	Target string        `arg:"" optional:"" default:"http://127.0.0.1:6060" help:"URL of the server's admin listener."`
	For    time.Duration `default:"10s" help:"Duration of the profile, in whole seconds up to 10m."`
	Save   string        `type:"path" placeholder:"DIR" help:"Directory for the raw profiles (for go tool pprof) and a summary in JSON."`
	Top    int           `default:"15" help:"Number of functions and lines to show."`
	JSON   bool          `help:"Print the report as one JSON object."`
}

func (c *profileCommand) Run(ctx context.Context, std stdio) error {
	if c.For < profile.MinWindow || c.For > profile.MaxWindow || c.For%time.Second != 0 {
		return settings.Usagef("--for is not a number of whole seconds from %v to %v", profile.MinWindow, profile.MaxWindow)
	}
	target, err := profile.ParseTarget(c.Target)
	if err != nil {
		return settings.Usage(err)
	}
	if c.Save != "" {
		if err := profile.PrepareDir(c.Save); err != nil {
			return err
		}
	}
	bar := newProgress(std.err, fmt.Sprintf("profiling for %v", c.For))
	_ = bar.RenderBlank() // starts its clock
	capture, err := profile.Collect(ctx, target, c.For)
	bar.finish()
	if capture.Before == nil && capture.CPU == nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	report := profile.Analyze(capture)
	errs := []error{err}
	if c.JSON {
		errs = append(errs, report.WriteJSON(std.out))
	} else {
		errs = append(errs, report.WriteText(std.out, c.Top))
	}
	if c.Save != "" {
		errs = append(errs, capture.Save(c.Save, report))
	}
	if err == nil {
		errs = append(errs, report.Problem) // otherwise err explains it
	}
	return errors.Join(errs...)
}
