package reply

import (
	"time"
)

// HTTP1 says how an answer is written by a server that puts bytes on its
// connections itself. The zero HTTP1 is the answer to a GET on a connection that
// stays open, without a Date.
type HTTP1 struct {
	Head       bool          // the request's method was HEAD: no body
	Date       []byte        // an IMF-fixdate, as Clock.AppendDate makes it; empty for none
	Connection string        // "close", "keep-alive", or empty for no such field
	RetryAfter time.Duration // rounded up to seconds; 0 for that of the answer, if any

	// The request's fields, for answers with variants or an entity tag. Where a
	// request repeats the field, join the values with a comma.
	AcceptEncoding []byte
	IfNoneMatch    []byte // only of a GET or a HEAD
}

// AppendHTTP1 appends the answer as an HTTP/1.1 message: status line, fields and
// body. All of it but Date, Connection and Retry-After was laid out when the
// answer was made. It allocates only where dst has no room.
func (a *Answer) AppendHTTP1(dst []byte, m HTTP1) []byte {
	v := &a.variants[0]
	if len(a.variants) > 1 {
		v = selectVariantHTTP1(a.variants, m.AcceptEncoding)
	}
	if v.etag != "" && len(m.IfNoneMatch) > 0 && matchETagList(m.IfNoneMatch, v.etag) {
		dst = append(dst, v.http1NotModified...)
		m.RetryAfter = 0
		return m.appendEnd(dst, nil)
	}
	dst = append(dst, v.http1...)
	dst = m.appendEnd(dst, a.http1Retry)
	if m.Head {
		return dst
	}
	return append(dst, v.body...)
}

// appendEnd appends the fields of the one response and the empty line. retry is
// the line to use where m has no Retry-After.
func (m *HTTP1) appendEnd(dst, retry []byte) []byte {
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
	} else {
		dst = append(dst, retry...)
	}
	return append(dst, "\r\n"...)
}

// retryLine returns the line of the Retry-After among fields, or nil.
func retryLine(fields fieldList) []byte {
	value := fields.get("Retry-After")
	if value == nil {
		return nil
	}
	return []byte("Retry-After: " + value[0] + "\r\n")
}
