package main

import (
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/server"
)

// reloadable are the settings that SIGHUP changes. Others need a restart.
var reloadable = []string{"log-level", "log-budget", "access-log", "access-log-sample", "access-log-budget"}

// A settingsReader reads the settings of a running serve anew: the same command
// line, the same environment, and the file as it is now.
type settingsReader struct {
	args []string
	now  map[string]string // settings as TOML, by key; what was read last
}

func newSettingsReader(ctx *kong.Context, cmds *commands) (*settingsReader, error) {
	now, err := cmds.Texts(ctx)
	return &settingsReader{ctx.Args, now}, err
}

// read returns the settings, and the names of those that differ from before and
// are not reloadable.
func (r *settingsReader) read() (_ *server.LogOptions, needRestart []string, err error) {
	var cmds commands
	std := stdio{strings.NewReader(""), io.Discard, io.Discard}
	parser, err := newParser(&cmds, std, func(int) {}) // serve was parsed before: there is no --help
	if err != nil {
		return nil, nil, err
	}
	ctx, err := parser.Parse(r.args)
	if err != nil {
		return nil, nil, err
	}
	now, err := cmds.Texts(ctx)
	if err != nil {
		return nil, nil, err
	}
	for name, text := range now {
		if text != r.now[name] && !slices.Contains(reloadable, name) {
			needRestart = append(needRestart, name)
		}
	}
	slices.Sort(needRestart)
	r.now = now
	return &cmds.Serve.LogOptions, needRestart, nil
}
