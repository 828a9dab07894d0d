package reply

import (
	"strconv"
	"time"
)

// HTTP1 has the parameters for formatting an answer as an HTTP/1.1 message, for a
// server that writes to its connections directly. The zero HTTP1 is for a GET on a
// connection that stays open, without a Date.
type HTTP1 struct {
	Head       bool          // the request's method was HEAD: no body
	Date       []byte        // an IMF-fixdate as from Clock.AppendDate; empty means no Date
	Connection string        // "close" or "keep-alive"; empty means no Connection field
	RetryAfter time.Duration // rounded up to seconds; 0 means no Retry-After
}

// AppendHTTP1 appends the answer as an HTTP/1.1 message: status line, fields and body.
// Everything except Date, Connection and Retry-After was formatted when the answer was
// created. It allocates only if the capacity of dst is too small.
func (a *Answer) AppendHTTP1(dst []byte, m HTTP1) []byte {
	return m.appendRest(append(dst, a.http1...), a.body)
}

// appendRest appends the variable fields, the empty line and the body.
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
		dst = strconv.AppendInt(dst, retrySeconds(m.RetryAfter), 10)
		dst = append(dst, "\r\n"...)
	}
	dst = append(dst, "\r\n"...)
	if m.Head {
		return dst
	}
	return append(dst, body...)
}
