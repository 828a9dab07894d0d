package tracing

import (
	"encoding/hex"
	"net/http"
	"strings"
)

// A Parent is the span that caused a request. The zero Parent means none.
type Parent struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
	State   string // value of tracestate as sent; at most maxStateBytes
}

// Flags of a traceparent.
const flagSampled = 1

// IsZero reports whether there is no parent.
func (p *Parent) IsZero() bool { return p.TraceID == [16]byte{} }

const (
	// maxStateBytes is the minimum that W3C Trace Context, section 3.3.1.5, requires to
	// be propagated. A longer tracestate is omitted.
	maxStateBytes = 512

	traceparentBytes = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
)

// ParentOf returns the parent named in a request's header. It returns the zero Parent
// if the field is missing, malformed or repeated (W3C Trace Context, section 4.3).
func ParentOf(h http.Header) Parent {
	fields := h["Traceparent"]
	if len(fields) != 1 {
		return Parent{}
	}
	p, ok := ParseTraceparent(fields[0])
	if !ok {
		return Parent{}
	}
	switch state := h["Tracestate"]; len(state) {
	case 0:
	case 1:
		p.State = state[0]
	default:
		p.State = strings.Join(state, ",")
	}
	if len(p.State) > maxStateBytes || !visible(p.State) {
		p.State = ""
	}
	return p
}

// ParseTraceparent parses the value of a traceparent field. Of later versions it parses
// the fields of version 00, as section 3.2.4 of W3C Trace Context requires.
func ParseTraceparent(s string) (p Parent, ok bool) {
	if len(s) < traceparentBytes || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return Parent{}, false
	}
	var version, flags [1]byte
	if !lowerHex(version[:], s[:2]) || version[0] == 0xff ||
		len(s) > traceparentBytes && (version[0] == 0 || s[traceparentBytes] != '-') {
		return Parent{}, false
	}
	if !lowerHex(p.TraceID[:], s[3:35]) || !lowerHex(p.SpanID[:], s[36:52]) || !lowerHex(flags[:], s[53:55]) ||
		p.IsZero() || p.SpanID == [8]byte{} {
		return Parent{}, false
	}
	p.Flags = flags[0]
	return p, true
}

// lowerHex decodes s into dst. It rejects upper-case letters.
func lowerHex(dst []byte, s string) bool {
	if strings.ContainsAny(s, "ABCDEF") {
		return false
	}
	_, err := hex.Decode(dst, []byte(s))
	return err == nil
}

// visible reports whether s has only visible ASCII, spaces and tabs.
func visible(s string) bool {
	for _, c := range []byte(s) {
		if c != '\t' && (c < ' ' || c > '~') {
			return false
		}
	}
	return true
}
