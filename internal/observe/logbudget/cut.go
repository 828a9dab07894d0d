package logbudget

import (
	"fmt"
	"log/slog"
	"strconv"
	"unicode/utf8"
)

// Bounds of a record. Longer values are cut and marked.
const (
	maxValueBytes = 3 << 10 // text of an attribute; reduced if the line is too long
	minValueBytes = 48      // lower bound of the reduction
	maxKeyBytes   = 48
	maxAttrs      = 24 // per record and per group
	maxDepth      = 3  // of nested groups
)

// cut returns s or, if s is too long, its first bytes and the number of bytes that were
// cut.
func cut(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	keep := maxBytes
	for keep > 0 && !utf8.RuneStart(s[keep]) {
		keep--
	}
	return s[:keep] + "… (" + strconv.Itoa(len(s)-keep) + " bytes cut)"
}

// cutValue returns a value of bounded length. Formatting it calls no methods of it.
func cutValue(v slog.Value, maxBytes, depth int) slog.Value {
	v = v.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(cut(v.String(), maxBytes))
	case slog.KindGroup:
		if depth >= maxDepth {
			return slog.StringValue("(group cut)")
		}
		return slog.GroupValue(cutAttrs(v.Group(), maxBytes, depth+1)...)
	case slog.KindAny, slog.KindLogValuer: // KindLogValuer if Resolve gives up
		return slog.StringValue(cut(fmt.Sprint(v.Any()), maxBytes))
	case slog.KindDuration: // JSON would have nanoseconds, without a unit
		return slog.StringValue(v.Duration().String())
	default:
		return v // numbers, times and bools are short
	}
}

// cutAttrs returns at most maxAttrs attributes, followed by the number of those that
// were cut.
func cutAttrs(attrs []slog.Attr, maxBytes, depth int) []slog.Attr {
	out := make([]slog.Attr, 0, min(len(attrs), maxAttrs+1))
	for i, a := range attrs {
		if i == maxAttrs {
			return append(out, slog.Int("attributes_cut", len(attrs)-i))
		}
		out = append(out, slog.Attr{Key: cut(a.Key, maxKeyBytes), Value: cutValue(a.Value, maxBytes, depth)})
	}
	return out
}
