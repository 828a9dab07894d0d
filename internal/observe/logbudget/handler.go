package logbudget

import (
	"context"
	"log/slog"
)

// A handler is the slog.Handler of a Log.
type handler struct {
	log *Log

	// format writes a line into log.line. log.mu must be held.
	format slog.Handler
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.log.level.Level()
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.log, h.format.WithAttrs(cutAttrs(attrs, maxValueBytes, 0))}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.log, h.format.WithGroup(cut(name, maxKeyBytes))}
}

// Handle implements slog.Handler. It always returns nil and does not wait for the
// writer.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	l := h.log
	if !l.admit(r.Level, r.Message) {
		return nil
	}
	// Resolving attributes may call the caller's code, which may log as well, so no
	// lock is held here.
	attrs := make([]slog.Attr, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	attrs = cutAttrs(attrs, maxValueBytes, 0)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.acceptLocked(r.Level, r.Message, h.lineLocked(ctx, &r, attrs))
	return nil
}

// lineLocked returns the line of a record. It is valid until the next call.
func (h *handler) lineLocked(ctx context.Context, r *slog.Record, attrs []slog.Attr) []byte {
	for limit := maxValueBytes; limit >= minValueBytes; limit /= 4 {
		if limit < maxValueBytes {
			attrs = cutAttrs(attrs, limit, 0)
		}
		cutRecord := slog.NewRecord(r.Time, r.Level, cut(r.Message, min(limit, 4*maxMessageBytes)), 0)
		cutRecord.AddAttrs(attrs...)
		if line := h.log.formatLocked(ctx, h.format, cutRecord); len(line) <= MaxLineBytes {
			return line
		}
	}
	bare := slog.NewRecord(r.Time, r.Level, cut(r.Message, maxMessageBytes), 0)
	bare.AddAttrs(slog.Bool("attributes_cut", true))
	return h.log.formatLocked(ctx, h.log.bare, bare)
}
