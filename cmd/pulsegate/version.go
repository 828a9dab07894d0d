package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/alecthomas/kong"
)

// version is set by release builds with -ldflags "-X main.version=1.2.3". Other builds use
// what the go command recorded.
var version string

// versionFlag is --version.
type versionFlag bool

// BeforeReset prints the version and exits.
func (versionFlag) BeforeReset(k *kong.Kong) error {
	fmt.Fprintf(k.Stdout, "pulsegate %s\n", versionText())
	k.Exit(exitDone)
	return nil
}

type versionCommand struct {
	JSON bool `help:"Print one JSON object."`
}

// A build describes the program.
type build struct {
	Version  string            `json:"version"`
	Go       string            `json:"go"`
	OS       string            `json:"os"`
	Arch     string            `json:"arch"`
	Settings map[string]string `json:"settings"`
}

func (c *versionCommand) Run(std stdio) error {
	b := build{versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH, map[string]string{}}
	var names []string
	if info, ok := debug.ReadBuildInfo(); ok {
		shown := []string{"-buildmode", "-compiler", "-ldflags", "-pgo", "-race", "-tags", "-trimpath", "CGO_ENABLED",
			"GOAMD64", "GOEXPERIMENT", "vcs.revision", "vcs.time", "vcs.modified"}
		for _, s := range info.Settings {
			if slices.Contains(shown, s.Key) {
				b.Settings[s.Key], names = s.Value, append(names, s.Key)
			}
		}
	}
	if c.JSON {
		return printJSON(std.out, b)
	}
	fmt.Fprintf(std.out, "pulsegate %s\n%s %s/%s\n", b.Version, b.Go, b.OS, b.Arch)
	for _, name := range names {
		fmt.Fprintf(std.out, "%s=%s\n", name, b.Settings[name])
	}
	return nil
}

// versionText returns the version of the release, or what is known of the build.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
