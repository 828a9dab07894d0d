package server

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
)

// reloadLogging reads the settings anew and applies those of the log. When they
// cannot be used, all stay as they are.
func (s *Server) reloadLogging() error {
	l := s.logging
	if s.reread == nil {
		return nil // demo
	}
	c, needRestart, err := s.reread()
	if err == nil {
		err = c.checkLogging()
	}
	if err == nil {
		err = l.apply(c)
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
func (s *Server) withLevel(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.Handle("/loglevel", s.adminOnly(http.HandlerFunc(s.logging.serveLevel)))
	return mux
}

func (l *Log) serveLevel(w http.ResponseWriter, r *http.Request) {
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
