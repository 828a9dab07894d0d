// Package logbudget writes log lines for log/slog within a budget of lines and
// bytes, and never makes the caller wait for whoever reads them.
//
// # Promise
//
// In any minute, no more than [Options.BytesPerMinute] bytes are handed to the
// writer, whatever is logged: every kind of line has a budget of lines, all kinds
// together have one of bytes, the number of kinds is bounded, and so is the length
// of a line. A kind is a level and a message; what varies belongs into attributes.
//
// What exceeds a budget is counted, and told once a minute in a line for each
// kind: "suppressed lines like this", with their number.
//
// Logging does not wait for the writer. Lines are queued; when the queue is full,
// because the reader of standard error stands still, lines are dropped, counted
// and told later.
//
// A record is one line, at most [MaxLineBytes] long, whatever its message and its
// attributes hold. A line whose level is off costs no allocation.
//
// # How the bytes are shared
//
// Of BytesPerMinute a part is kept for the summaries, and one for what the queue
// still holds from before. Of the rest, lines below [slog.LevelWarn] may take
// half, so that no flood of them crowds out warnings and errors.
//
// # Not here
//
// No files, no rotation, no levels of its own: the level is the caller's
// slog.Leveler. Lines that were accepted are lost when the process is killed
// before they are written, which takes microseconds unless the reader stands
// still.
package logbudget
