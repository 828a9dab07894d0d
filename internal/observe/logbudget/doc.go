// Package logbudget writes log lines for log/slog within a budget of lines and bytes.
// The caller never waits for the writer.
//
// # Promise
//
// In any minute, no more than [Options.BytesPerMinute] bytes are passed to the writer,
// whatever is logged: every kind of line has a budget of lines, all kinds share a
// budget of bytes, and the number of kinds and the length of a line are bounded. A kind
// is a level and a message; variable parts belong in attributes.
//
// Lines beyond a budget are counted, and reported once a minute in one line per kind:
// "suppressed lines like this", with their number.
//
// Logging does not wait for the writer. Lines are queued. When the queue is full,
// because the reader of standard error is stuck, lines are dropped, counted and
// reported later.
//
// A record is one line, at most [MaxLineBytes] long, whatever its message and its
// attributes contain. A line whose level is disabled does not allocate.
//
// # How the bytes are divided
//
// Parts of BytesPerMinute are reserved for summaries and for lines that are still
// queued from the previous minute. Of the rest, lines below [slog.LevelWarn] may use
// half, so that a flood of them does not crowd out warnings and errors.
//
// # Not here
//
// No files, no rotation, and no levels: the caller provides a slog.Leveler. Accepted
// lines are lost if the process is killed before they are written, which takes
// microseconds unless the reader is stuck.
package logbudget
