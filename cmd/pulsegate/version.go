package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
)

// version is set by release builds with -ldflags "-X main.version=1.2.3". Other
// builds tell what the Go command recorded.
var version string

type versionCommand struct{}

func (versionCommand) Run(std stdio) error {
	fmt.Fprintf(std.out, "pulsegate %s\n", versionText())
	fmt.Fprintf(std.out, "%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	shown := []string{"-buildmode", "-compiler", "-ldflags", "-pgo", "-race", "-tags", "-trimpath", "CGO_ENABLED", "GOAMD64", "GOEXPERIMENT", "vcs.revision", "vcs.time", "vcs.modified"}
	for _, s := range info.Settings {
		if slices.Contains(shown, s.Key) {
			fmt.Fprintf(std.out, "%s=%s\n", s.Key, s.Value)
		}
	}
	return nil
}

// versionText returns the release's version, or what is known of the build.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
