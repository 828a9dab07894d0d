package logbudget

import (
	"context"
	"log"
	"log/slog"
	"strings"
)

// A Class turns texts that begin with Prefix into records with this level and message,
// and with the whole text as the attribute "text".
type Class struct {
	Prefix  string
	Level   slog.Level
	Message string
}

// NewLogLogger returns a logger for code that logs plain texts, such as net/http. A
// text belongs to the first class whose prefix it has. A text without a class is not
// logged, so the last class should have an empty prefix.
//
// A text of several lines, such as a panic with its stack, is one record.
func NewLogLogger(h slog.Handler, classes ...Class) *log.Logger {
	return log.New(textWriter{slog.New(h), classes}, "", 0)
}

// A textWriter receives one text per Write.
type textWriter struct {
	log     *slog.Logger
	classes []Class
}

func (w textWriter) Write(p []byte) (int, error) {
	for _, c := range w.classes {
		if len(p) < len(c.Prefix) || string(p[:len(c.Prefix)]) != c.Prefix {
			continue
		}
		ctx := context.Background()
		if w.log.Enabled(ctx, c.Level) {
			w.log.LogAttrs(ctx, c.Level, c.Message, slog.String("text", strings.TrimRight(string(p), "\n")))
		}
		break
	}
	return len(p), nil
}
