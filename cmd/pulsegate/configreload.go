package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// reloadable are the settings that SIGHUP changes. Others need a restart.
var reloadable = []string{"log-level", "log-budget", "access-log", "access-log-sample", "access-log-budget"}

// A settingsReader reads the settings of a running serve anew: the same command
// line, the same environment, and the file as it is now.
type settingsReader struct {
	args []string
	now  map[string]string // settings as TOML, by key; what was read last
}

func newSettingsReader(ctx *kong.Context, file *configFile) (*settingsReader, error) {
	now, err := settingTexts(ctx, file)
	return &settingsReader{ctx.Args, now}, err
}

// read returns the settings, and the names of those that differ from before and
// are not reloadable.
func (r *settingsReader) read() (_ *serveCommand, needRestart []string, err error) {
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
	if err := cmds.Serve.checkLogging(); err != nil {
		return nil, nil, err
	}
	now, err := settingTexts(ctx, cmds.file)
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
	return &cmds.Serve, needRestart, nil
}

// settingTexts returns the settings of a command as TOML, by name.
func settingTexts(ctx *kong.Context, file *configFile) (map[string]string, error) {
	texts := map[string]string{}
	for _, s := range settingsOf(ctx, file) {
		text, err := tomlText(s.value)
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", s.flag.Name, err)
		}
		texts[s.flag.Name] = text
	}
	return texts, nil
}

// reloadLogging reads the settings anew and applies those of the log. When they
// cannot be used, all stay as they are.
func (s *server) reloadLogging() error {
	l := s.logging
	if l.settings == nil {
		return nil // demo
	}
	c, needRestart, err := l.settings.read()
	if err == nil {
		err = l.apply(&c.loggingFlags)
	}
	if err != nil {
		return fmt.Errorf("settings stay as they are: %w", err)
	}
	l.log.Info("log settings read again", "level", c.LogLevel, "access_log", c.AccessLog)
	if len(needRestart) > 0 {
		l.log.Warn("settings have changed that need a restart", "settings", strings.Join(needRestart, ","))
	}
	return nil
}

// withLevel serves /loglevel beside next, for administrators. GET tells the level
// of the log, PUT sets it until the next SIGHUP.
func (s *server) withLevel(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.Handle("/loglevel", s.adminOnly(http.HandlerFunc(s.logging.serveLevel)))
	return mux
}

func (l *logging) serveLevel(w http.ResponseWriter, r *http.Request) {
	say := func(status int, text string) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text+"\n") // a client that has gone needs no answer
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPut:
		const maxLevelBytes = 32
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLevelBytes))
		var level slog.Level
		if err == nil {
			err = level.UnmarshalText([]byte(strings.TrimSpace(string(body))))
		}
		if err != nil {
			say(http.StatusUnprocessableEntity, "send debug, info, warn or error")
			return
		}
		l.level.Set(level)
		l.log.Log(r.Context(), max(level, slog.LevelInfo), "log level set", "level", level)
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT")
		say(http.StatusMethodNotAllowed, "GET and PUT are allowed")
		return
	}
	say(http.StatusOK, strings.ToLower(l.level.Level().String()))
}
