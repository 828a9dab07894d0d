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
	Take profileTakeCommand `cmd:"" default:"withargs" help:"Profile a running server (the default)."`
	Show profileShowCommand `cmd:"" help:"Show a saved profile again."`
	Diff profileDiffCommand `cmd:"" help:"Compare two saved profiles: what got more or less expensive per request, beyond the sampling error."`
}

type profileTakeCommand struct {
	Target string        `arg:"" optional:"" default:"http://127.0.0.1:6060" help:"Address of the server's admin listener."`
	For    time.Duration `default:"10s" help:"Window, in whole seconds up to 10m."`
	Save   string        `type:"path" placeholder:"DIR" help:"Folder to keep the raw profiles (for go tool pprof) and a JSON summary in."`
	Flame  string        `type:"path" placeholder:"FILE.svg" help:"File to write the CPU profile to, as a flame graph."`
	Top    int           `default:"15" help:"Functions and lines to show."`
	JSON   bool          `help:"Print the report as one JSON object."`
}

func (c *profileTakeCommand) Run(ctx context.Context, std stdio) error {
	if c.For < profile.MinWindow || c.For > profile.MaxWindow || c.For%time.Second != 0 {
		return settings.Usagef("--for is not of whole seconds from %v to %v", profile.MinWindow, profile.MaxWindow)
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
	_ = bar.RenderBlank() // begins to count the time
	capture, err := profile.Collect(ctx, target, c.For)
	bar.finish()
	if capture.Before == nil && capture.CPU == nil {
		return explainTarget(target, err)
	}
	report := profile.Analyze(capture)
	errs := []error{err, showProfile(std, capture, report, c.Top, c.JSON, c.Flame)}
	if c.Save != "" {
		errs = append(errs, capture.Save(c.Save, report))
	}
	if err == nil {
		errs = append(errs, report.Problem) // which the missing profiles explain otherwise
	}
	return errors.Join(errs...)
}

// explainTarget adds to an error of a target what to do about it.
func explainTarget(target string, err error) error {
	if errors.Is(err, profile.ErrNotPulsegate) {
		return fmt.Errorf("%s: %w. The admin listener is the one of 'serve --admin-addr', by default 127.0.0.1:6060", target, err)
	}
	return fmt.Errorf("%s: %w", target, err)
}

// showProfile prints a report and draws its flame graph, if asked to.
func showProfile(std stdio, capture *profile.Capture, report *profile.Report, top int, asJSON bool, flame string) error {
	var err error
	if asJSON {
		err = report.WriteJSON(std.out)
	} else {
		err = report.WriteText(std.out, top)
	}
	if err != nil || flame == "" {
		return err
	}
	return writeFile(flame, func(w io.Writer) error { return profile.WriteFlame(w, capture) })
}

type profileShowCommand struct {
	Dir   string `arg:"" type:"path" help:"Folder of 'profile --save'."`
	Flame string `type:"path" placeholder:"FILE.svg" help:"File to write the CPU profile to, as a flame graph."`
	Top   int    `default:"15" help:"Functions and lines to show."`
	JSON  bool   `help:"Print the report as one JSON object."`
}

func (c *profileShowCommand) Run(std stdio) error {
	capture, err := profile.Open(c.Dir)
	if err != nil {
		return err
	}
	return showProfile(std, capture, profile.Analyze(capture), c.Top, c.JSON, c.Flame)
}

type profileDiffCommand struct {
	A    string `arg:"" type:"path" help:"Folder of 'profile --save', before."`
	B    string `arg:"" type:"path" help:"Folder of 'profile --save', after."`
	Top  int    `default:"20" help:"Rows to show in a table."`
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
