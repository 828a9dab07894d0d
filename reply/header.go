package reply

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// A headerField is one field, ready to be put in an http.Header.
type headerField struct {
	key   string // canonical
	value []string
}

// A fieldList is the part of a header that is the same in every response. It is
// immutable once it is made.
type fieldList []headerField

var nosniff = Value("nosniff")

// commonFields lays out the fields that every variant of an answer has.
func commonFields(contentType string, s *spec) fieldList {
	list := make(fieldList, 0, 8)
	if contentType != "" {
		mustFieldValue(contentType)
		list = append(list, headerField{"Content-Type", bucket(contentType)})
	}
	if s.cacheControl != "" {
		list = append(list, headerField{"Cache-Control", bucket(s.cacheControl)})
	}
	if !s.lean {
		list = append(list, headerField{"X-Content-Type-Options", nosniff})
	}
	return append(list, s.fields...)
}

// with returns a copy of l with one field more.
func (l fieldList) with(key, value string) fieldList {
	return append(l[:len(l):len(l)], headerField{key, bucket(value)})
}

// get returns the value of a field, nil if there is none.
func (l fieldList) get(key string) []string {
	for i := range l {
		if l[i].key == key {
			return l[i].value
		}
	}
	return nil
}

// put sets the fields in h, and removes what a handler may have said of another
// body before it came to this answer.
func (l fieldList) put(h http.Header) {
	for i := range l {
		h[l[i].key] = l[i].value
	}
	// A map of just these fields has nothing stale in it.
	if len(h) != len(l) {
		l.dropStale(h)
	}
}

// representation names the fields that describe a body.
var representation = [...]string{
	"Content-Encoding", "Content-Length", "Content-Range", "Etag", "Last-Modified", "Transfer-Encoding",
}

func (l fieldList) dropStale(h http.Header) {
	for _, key := range representation {
		if _, ok := h[key]; ok && l.get(key) == nil {
			delete(h, key)
		}
	}
}

// appendHTTP1 appends the fields as lines, but not Retry-After, which may differ
// per response. ETag is spelled as its specification does; the case of names has
// no meaning.
func (l fieldList) appendHTTP1(dst []byte) []byte {
	for _, f := range l {
		switch f.key {
		case "Retry-After":
			continue
		case "Etag":
			dst = append(dst, "ETag"...)
		default:
			dst = append(dst, f.key...)
		}
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

// A varyList is what an answer says in Vary. Other layers may have said more, so
// that it is joined with what they said. It is nil where there is nothing to say.
type varyList struct {
	names []string
	value []string // the names joined
}

func newVaryList(names []string) *varyList {
	if len(names) == 0 {
		return nil
	}
	return &varyList{names, bucket(strings.Join(names, ", "))}
}

// put joins the list with h's. It allocates only if another layer has named
// other fields.
func (l *varyList) put(h http.Header) {
	was := h["Vary"]
	if len(was) == 0 {
		h["Vary"] = l.value
		return
	}
	for _, name := range l.names {
		if !listHas(was, name) {
			was = append(slices.Clip(was), name)
			h["Vary"] = was
		}
	}
}

// listHas reports whether one of the comma-separated lists has name or "*".
func listHas(lists []string, name string) bool {
	for _, list := range lists {
		for element := range strings.SplitSeq(list, ",") {
			element = strings.Trim(element, " \t")
			if element == "*" || strings.EqualFold(element, name) {
				return true
			}
		}
	}
	return false
}

// bodyAllowed reports whether a response of this status has content
// (RFC 9110, sections 15.3.5 and 15.4.5).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
