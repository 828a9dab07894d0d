package fastparse

import "encoding/binary"

// A field is one name of the short list; a set of fields is their sum.
type field uint16

const (
	host field = 1 << iota
	contentLength
	connection
	contentType
	userAgent
	accept
	acceptEncoding
	authorization
	traceparent
	tracestate

	required = host | contentLength
)

// fieldOf returns the field of a name of at most maxNameBytes, or 0. To add a name, add it here, and in
// Recognise if its value matters.
func fieldOf(name []byte) field {
	var lower [maxNameBytes]byte
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		lower[i] = c
	}
	switch string(lower[:len(name)]) {
	case "host":
		return host
	case "accept":
		return accept
	case "user-agent":
		return userAgent
	case "tracestate":
		return tracestate
	case "connection":
		return connection
	case "traceparent":
		return traceparent
	case "content-type":
		return contentType
	case "authorization":
		return authorization
	case "content-length":
		return contentLength
	case "accept-encoding":
		return acceptEncoding
	}
	return 0
}

// maxNameBytes is the length of the longest name.
const maxNameBytes = len("accept-encoding")

// line parses the field line that begins at b[i]. With Accept, next is the index
// after its CR LF.
func line(b []byte, i int) (f field, value Span, next int, verdict Verdict) {
	start := i
	for i < len(b) && b[i] != ':' {
		// A CR may be the beginning of the empty line.
		if !isNameByte(b[i]) && !(b[i] == '\r' && i == start && i+1 == len(b)) || i-start >= maxNameBytes {
			return 0, Span{}, 0, Other
		}
		i++
	}
	if i == len(b) {
		return 0, Span{}, 0, More
	}
	if f = fieldOf(b[start:i]); f == 0 {
		return 0, Span{}, 0, Other
	}
	i++
	if i < len(b) && b[i] == ' ' {
		i++
	}
	value.Start = i
	for ; i+32 <= len(b); i += 32 { // tokens are long
		w := b[i : i+32]
		if invisible(binary.LittleEndian.Uint64(w))|invisible(binary.LittleEndian.Uint64(w[8:]))|
			invisible(binary.LittleEndian.Uint64(w[16:]))|invisible(binary.LittleEndian.Uint64(w[24:])) != 0 {
			break
		}
	}
	for i < len(b) && ' ' <= b[i] && b[i] <= '~' {
		i++
	}
	value.End = i
	switch {
	case value.Start < len(b) && (i == value.Start || b[value.Start] == ' '):
		return 0, Span{}, 0, Other // empty, or more than one leading space
	case i == len(b):
		return 0, Span{}, 0, More
	case b[i] != '\r' || b[i-1] == ' ':
		return 0, Span{}, 0, Other
	case i+1 == len(b):
		return 0, Span{}, 0, More
	case b[i+1] != '\n':
		return 0, Span{}, 0, Other
	}
	return f, value, i + 2, Accept
}

// invisible returns 0 if each byte of x is from ' ' to '~', and otherwise not: below ' ', the first difference borrows;
// above '~', the sum or x itself has the high bit.
func invisible(x uint64) uint64 {
	const each = 0x0101010101010101
	return ((x - ' '*each) | (x + each) | x) & (0x80 * each)
}

func isNameByte(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || c == '-'
}

// parseLength parses a Content-Length of 1 to MaxBodyBytes. It rejects a leading
// zero, because some parsers read an octal number. An empty body is left to
// net/http, which answers it properly.
func parseLength(b []byte) (n int, ok bool) {
	if b[0] == '0' || len(b) > len("65536") {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, n <= MaxBodyBytes
}

// isHost reports whether b has only the characters of a name, an address and a port.
// net/http accepts more.
func isHost(b []byte) bool {
	for _, c := range b {
		switch {
		case 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9':
		case c == '.', c == '-', c == '_', c == ':', c == '[', c == ']':
		default:
			return false
		}
	}
	return true
}

// parseConnection accepts keep-alive, which is the default of HTTP/1.1, and close. It
// rejects every other option.
func parseConnection(b []byte) (closes, ok bool) {
	switch string(b) {
	case "keep-alive", "Keep-Alive":
		return false, true
	case "close":
		return true, true
	}
	return false, false
}
