package reply

import (
	"net/http"
	"strconv"
)

// A headerField is a field in the form of an http.Header.
type headerField struct {
	key   string // canonical
	value []string
}

// A fieldList is the constant part of a header. It is immutable.
type fieldList []headerField

var nosniff = Value("nosniff")

// commonFields returns the fields that do not depend on the body.
func commonFields(contentType string, s *spec) fieldList {
	list := make(fieldList, 0, 8)
	if contentType != "" {
		mustFieldValue(contentType)
		list = append(list, headerField{"Content-Type", bucket(contentType)})
	}
	if !s.lean {
		list = append(list, headerField{"X-Content-Type-Options", nosniff})
	}
	return append(list, s.fields...)
}

// with returns a copy of l with an additional field.
func (l fieldList) with(key, value string) fieldList {
	return append(l[:len(l):len(l)], headerField{key, bucket(value)})
}

// has reports whether l has the field.
func (l fieldList) has(key string) bool {
	for i := range l {
		if l[i].key == key {
			return true
		}
	}
	return false
}

// put sets the fields in h, and removes fields that a handler may have set for another body. It keeps
// Content-Encoding: compressing middleware sets it before it calls the handler, and encodes this body, too
// (golang/go#66343 is about the same fault).
func (l fieldList) put(h http.Header) {
	for i := range l {
		h[l[i].key] = l[i].value
	}
	// If h has only these fields, none is stale.
	if len(h) != len(l) {
		l.dropStale(h)
	}
}

// representation lists the fields that describe a body, and that no middleware sets before
// it knows the body.
var representation = [...]string{"Content-Length", "Content-Range", "Etag", "Last-Modified"}

func (l fieldList) dropStale(h http.Header) {
	for _, key := range representation {
		if _, ok := h[key]; ok && !l.has(key) {
			delete(h, key)
		}
	}
}

// appendHTTP1 appends the fields as lines.
func (l fieldList) appendHTTP1(dst []byte) []byte {
	for _, f := range l {
		dst = append(dst, f.key...)
		dst = append(dst, ": "...)
		dst = append(dst, f.value[0]...)
		dst = append(dst, "\r\n"...)
	}
	return dst
}

// appendStatusLine appends a line such as "HTTP/1.1 200 OK".
func appendStatusLine(dst []byte, status int) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, http.StatusText(status)...)
	return append(dst, "\r\n"...)
}

// bodyAllowed reports whether a response with this status may have content (RFC 9110,
// sections 15.3.5 and 15.4.5).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
