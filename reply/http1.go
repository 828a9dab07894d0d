package reply

import "time"

// HTTP1 is what an answer needs besides itself when a server puts bytes on its
// connections itself. The zero HTTP1 is the answer to a GET on a connection that
// stays open, without a Date.
type HTTP1 struct {
	Head       bool          // the request's method was HEAD: no body
	Date       []byte        // an IMF-fixdate, as Clock.AppendDate makes it; empty for none
	Connection string        // "close", "keep-alive", or empty for no such field
	RetryAfter time.Duration // rounded up to seconds; 0 for none
}

// AppendHTTP1 appends the answer as an HTTP/1.1 message: status line, fields and
// body. All of it but Date, Connection and Retry-After was laid out when the
// answer was made. It allocates only where dst has no room.
func (a *Answer) AppendHTTP1(dst []byte, m HTTP1) []byte {
	return m.appendRest(append(dst, a.http1...), a.body)
}

// appendRest appends the fields of the one response, the empty line and the body.
func (m *HTTP1) appendRest(dst, body []byte) []byte {
	if len(m.Date) > 0 {
		dst = append(dst, "Date: "...)
		dst = append(dst, m.Date...)
		dst = append(dst, "\r\n"...)
	}
	if m.Connection != "" {
		dst = append(dst, "Connection: "...)
		dst = append(dst, m.Connection...)
		dst = append(dst, "\r\n"...)
	}
	if m.RetryAfter > 0 {
		dst = append(dst, "Retry-After: "...)
		dst = AppendInt(dst, retrySeconds(m.RetryAfter))
		dst = append(dst, "\r\n"...)
	}
	dst = append(dst, "\r\n"...)
	if m.Head {
		return dst
	}
	return append(dst, body...)
}
