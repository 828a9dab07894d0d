package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/profile"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

type profileCommand struct {
	Take profileTakeCommand `cmd:"" default:"withargs" help:"Profile a running server. This is the default."`
	Show profileShowCommand `cmd:"" help:"Show a saved profile again."`
	Diff profileDiffCommand `cmd:"" help:"Compare two saved profiles: the changes in cost per request beyond the sampling error."`
}

// Help is the text below the description in the help.
func (profileCommand) Help() string {
	return `Examples:

    pulsegate profile --for 30s --save before
    pulsegate profile diff before after`
}

type profileTakeCommand struct {
	Target string        `arg:"" optional:"" default:"http://127.0.0.1:6060" help:"URL of the server's admin listener."`
	For    time.Duration `default:"10s" help:"Duration of the profile, in whole seconds up to 10m."`
	Save   string        `type:"path" placeholder:"DIR" help:"Directory for the raw profiles (for go tool pprof) and a summary in JSON."`
	Flame  string        `type:"path" placeholder:"FILE.svg" help:"File for a flame graph of the CPU profile."`
	Top    int           `default:"15" help:"Number of functions and lines to show."`
	JSON   bool          `help:"Print the report as one JSON object."`
}

func (c *profileTakeCommand) Run(ctx context.Context, std stdio) error {
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
	flame, err := openFlame(c.Flame)
	if err != nil {
		return err
	}
	defer flame.abandon()
	bar := newProgress(std.err, fmt.Sprintf("profiling for %v", c.For))
	_ = bar.RenderBlank() // starts its clock
	capture, err := profile.Collect(ctx, target, c.For)
	bar.finish()
	if capture.Before == nil && capture.CPU == nil {
		return explainTarget(target, err)
	}
	report := profile.Analyze(capture)
	errs := []error{err, showProfile(std, capture, report, c.Top, c.JSON, flame)}
	if c.Save != "" {
		errs = append(errs, capture.Save(c.Save, report))
	}
	if err == nil {
		errs = append(errs, report.Problem) // otherwise err explains it
	}
	return errors.Join(errs...)
}

// explainTarget adds the target and a remedy to an error.
func explainTarget(target string, err error) error {
	if errors.Is(err, profile.ErrNotPulsegate) {
		return fmt.Errorf("%s: %w. 'serve --admin-addr' sets the address of the admin listener; its default is 127.0.0.1:6060", target, err)
	}
	return fmt.Errorf("%s: %w", target, err)
}

// openFlame opens the file of a flame graph; nil for none.
func openFlame(path string) (*output, error) {
	if path == "" {
		return nil, nil
	}
	return replaceOutput(path)
}

// showProfile prints a report and writes its flame graph, unless flame is nil.
func showProfile(std stdio, capture *profile.Capture, report *profile.Report, top int, asJSON bool, flame *output) error {
	var err error
	if asJSON {
		err = report.WriteJSON(std.out)
	} else {
		err = report.WriteText(std.out, top)
	}
	if err != nil || flame == nil {
		return err
	}
	return flame.write(func(w io.Writer) error { return profile.WriteFlame(w, capture) })
}

type profileShowCommand struct {
	Dir   string `arg:"" type:"path" help:"Directory of 'profile --save'."`
	Flame string `type:"path" placeholder:"FILE.svg" help:"File for a flame graph of the CPU profile."`
	Top   int    `default:"15" help:"Number of functions and lines to show."`
	JSON  bool   `help:"Print the report as one JSON object."`
}

func (c *profileShowCommand) Run(std stdio) error {
	capture, err := profile.Open(c.Dir)
	if err != nil {
		return err
	}
	flame, err := openFlame(c.Flame)
	if err != nil {
		return err
	}
	defer flame.abandon()
	return showProfile(std, capture, profile.Analyze(capture), c.Top, c.JSON, flame)
}

type profileDiffCommand struct {
	A    string `arg:"" name:"before" type:"path" help:"Directory of 'profile --save' before the change."`
	B    string `arg:"" name:"after" type:"path" help:"Directory of 'profile --save' after the change."`
	Top  int    `default:"20" help:"Number of rows in each table."`
	JSON bool   `help:"Print the comparison as one JSON object."`
}

func (c *profileDiffCommand) Run(std stdio) error {
	a, err := profile.Open(c.A)
	if err != nil {
		return err
	}
	b, err := profile.Open(c.B)
	if err != nil {
		return err
	}
	comparison, err := profile.Compare(profile.Analyze(a), profile.Analyze(b))
	if err != nil {
		return err
	}
	if c.JSON {
		return comparison.WriteJSON(std.out)
	}
	return comparison.WriteText(std.out, c.Top)
}
