package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
)

// reload reads again what may change while the server runs: the options of the log,
// tokens, certificates, the labels of devices and the rules of alerts. What is invalid changes nothing, and is logged.
func (s *server) reload() {
	err := errors.Join(s.log.reload(s.opt.Reload), s.access.reload(), s.roster.Reload(), s.alerts.reload())
	if err != nil {
		s.log.Error("reload failed in part", "error", err)
		return
	}
	s.log.Info("reloaded")
}

// reload reads the log options again and applies them. If any is invalid, none
// changes.
func (l *Log) reload(read func() (*LogOptions, []string, error)) error {
	opt, needRestart, err := read()
	if err == nil {
		err = l.apply(opt)
	}
	if err != nil {
		return fmt.Errorf("settings are unchanged: %w", err)
	}
	l.Info("log settings reloaded", "level", opt.LogLevel, "access_log", opt.AccessLog)
	if len(needRestart) > 0 {
		l.Warn("changed settings require a restart", "settings", strings.Join(needRestart, ","))
	}
	return nil
}

// serveLevel serves /loglevel: GET returns the log level, PUT sets it until the next
// SIGHUP.
func (l *Log) serveLevel(w http.ResponseWriter, r *http.Request) {
	answer := func(status int, text string) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text+"\n") // fails only if the client has disconnected
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPut:
		const maxLevelBytes = 32
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLevelBytes))
		if err == nil {
			err = l.level.UnmarshalText(bytes.TrimSpace(body))
		}
		if err != nil {
			answer(http.StatusUnprocessableEntity, "send debug, info, warn or error")
			return
		}
		l.Log(r.Context(), max(l.level.Level(), slog.LevelInfo), "log level set", "level", l.level.Level())
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT")
		answer(http.StatusMethodNotAllowed, "GET and PUT are allowed")
		return
	}
	answer(http.StatusOK, strings.ToLower(l.level.Level().String()))
}
