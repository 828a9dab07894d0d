package logbudget

import (
	"context"
	"log"
	"log/slog"
	"strings"
)

// A Class is what becomes of a text that begins with Prefix: a record of this
// level and message, with the whole text as the attribute "text".
type Class struct {
	Prefix  string
	Level   slog.Level
	Message string
}

// NewLogLogger returns a logger for code that logs texts, such as net/http's. A
// text is of the first class whose prefix it has. What has none is not logged:
// the last class is to have an empty prefix.
//
// A text of several lines, such as a panic with its stack, is one record.
func NewLogLogger(h slog.Handler, classes ...Class) *log.Logger {
	return log.New(textWriter{slog.New(h), classes}, "", 0)
}

// A textWriter is given one text at a time.
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
