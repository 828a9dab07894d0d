package tracing_test

import (
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentID    = "b7ad6b7169203331"
	traceparent = "00-" + traceID + "-" + parentID + "-01"
)

func TestParseTraceparent(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     bool
		flags    byte
	}{
		{"sampled", traceparent, true, 1},
		{"not sampled", traceparent[:53] + "00", true, 0},
		{"other flags", traceparent[:53] + "ff", true, 0xff},
		{"later version", "01" + traceparent[2:], true, 1},
		{"later version with more", "cc" + traceparent[2:] + "-what-the-future-brings", true, 1},

		{"empty", "", false, 0},
		{"short", traceparent[:54], false, 0},
		{"version 00 with more", traceparent + "-x", false, 0},
		{"later version with a truncated field", "01" + traceparent[2:] + "x", false, 0},
		{"forbidden version", "ff" + traceparent[2:], false, 0},
		{"no version", "0x" + traceparent[2:], false, 0},
		{"upper case", strings.ToUpper(traceparent), false, 0},
		{"no trace", "00-" + strings.Repeat("0", 32) + "-" + parentID + "-01", false, 0},
		{"no span", "00-" + traceID + "-" + strings.Repeat("0", 16) + "-01", false, 0},
		{"not hexadecimal", strings.Replace(traceparent, "7", "g", 1), false, 0},
		{"no hyphens", strings.ReplaceAll(traceparent, "-", "_"), false, 0},
		{"flags not hexadecimal", traceparent[:53] + "0x", false, 0},
	} {
		got, ok := tracing.ParseTraceparent(tt.in)
		if ok != tt.want || got.Flags != tt.flags {
			t.Errorf("%s: got %v, flags %x; want %v, %x", tt.name, ok, got.Flags, tt.want, tt.flags)
		}
		if ok && (hex.EncodeToString(got.TraceID[:]) != traceID || hex.EncodeToString(got.SpanID[:]) != parentID) {
			t.Errorf("%s: got %x and %x", tt.name, got.TraceID, got.SpanID)
		}
		if !ok && !got.IsZero() {
			t.Errorf("%s: malformed, but got %+v", tt.name, got)
		}
	}
}

func TestParentOf(t *testing.T) {
	for _, tt := range []struct {
		name      string
		header    http.Header
		want      bool
		wantState string
	}{
		{"none", http.Header{}, false, ""},
		{"alone", http.Header{"Traceparent": {traceparent}}, true, ""},
		{"twice", http.Header{"Traceparent": {traceparent, traceparent}}, false, ""},
		{"malformed, with state", http.Header{"Traceparent": {"x"}, "Tracestate": {"a=b"}}, false, ""},
		{"with state", http.Header{"Traceparent": {traceparent}, "Tracestate": {"a=b"}}, true, "a=b"},
		{"with two states", http.Header{"Traceparent": {traceparent}, "Tracestate": {"a=b", "c=d"}}, true, "a=b,c=d"},
		{"state too long", http.Header{"Traceparent": {traceparent}, "Tracestate": {strings.Repeat("x", 513)}}, true, ""},
		{"state with odd bytes", http.Header{"Traceparent": {traceparent}, "Tracestate": {"a=\xff"}}, true, ""},
	} {
		got := tracing.ParentOf(tt.header)
		if got.IsZero() == tt.want || got.State != tt.wantState {
			t.Errorf("%s: got %+v; want one: %v, state %q", tt.name, got, tt.want, tt.wantState)
		}
	}
}

// FuzzParseTraceparent checks that accepted values have the form of the standard.
func FuzzParseTraceparent(f *testing.F) {
	f.Add(traceparent)
	f.Add("cc" + traceparent[2:] + "-x")
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := tracing.ParseTraceparent(s)
		if !ok {
			return
		}
		back := s[:2] + "-" + hex.EncodeToString(p.TraceID[:]) + "-" + hex.EncodeToString(p.SpanID[:]) + "-" +
			hex.EncodeToString([]byte{p.Flags})
		if !strings.HasPrefix(s, back) || p.IsZero() || p.SpanID == [8]byte{} {
			t.Errorf("%q was parsed as %q", s, back)
		}
	})
}
