package reply

import (
	"net/http"
	"strconv"
	"strings"
)

// An Option adds to the header of an answer. Options are applied in their order
// when the answer is made.
type Option func(*spec)

// spec is what the options of one answer add up to.
type spec struct {
	fields fieldList // besides those that every answer has
	lean   bool
}

func newSpec(opts []Option) *spec {
	s := new(spec)
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// Header adds a field that every answer carries. It replaces one of the same
// name. It panics for fields that are the package's or the server's business:
// Content-Type, Content-Length, Retry-After, X-Content-Type-Options, Date,
// Connection, Transfer-Encoding and Trailer; and for Vary, which belongs to the
// handler that chooses between answers.
func Header(name, value string) Option {
	mustFieldName(name)
	mustFieldValue(value)
	key := http.CanonicalHeaderKey(name)
	switch key {
	case "Content-Type", "Content-Length", "Retry-After", "X-Content-Type-Options",
		"Date", "Connection", "Transfer-Encoding", "Trailer", "Vary":
		panic("reply: Header cannot set " + key)
	}
	return func(s *spec) {
		for i := range s.fields {
			if s.fields[i].key == key {
				s.fields[i].value = bucket(value)
				return
			}
		}
		s.fields = append(s.fields, headerField{key, bucket(value)})
	}
}

// NoStore keeps the answer out of caches: Cache-Control: no-store.
func NoStore() Option { return Header("Cache-Control", "no-store") }

// Allow lists the methods that a resource understands, as a 405 must do
// (RFC 9110, section 15.5.6).
func Allow(methods ...string) Option {
	for _, m := range methods {
		mustFieldName(m) // a method is a token, as a field name is
	}
	return Header("Allow", strings.Join(methods, ", "))
}

// Lean leaves out what programs that poll do not need: nosniff, and, for methods
// other than HEAD, a Content-Length that net/http adds by itself, which it does
// for bodies of at most 2,048 bytes. Each field that is put into an http.Header
// costs some 10 ns here and more in the server, which copies, sorts and writes
// it. As an HTTP/1.1 message ([Answer.AppendHTTP1]) a lean answer has its
// Content-Length.
func Lean() Option { return func(s *spec) { s.lean = true } }

// mustFieldName panics unless s is a token (RFC 9110, section 5.6.2).
func mustFieldName(s string) {
	const token = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	if s == "" || strings.Trim(s, token) != "" {
		panic("reply: not a token: " + strconv.Quote(s))
	}
}

// mustFieldValue panics if s could end the field or is not one line of text
// (RFC 9110, section 5.5).
func mustFieldValue(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			panic("reply: not a field value: " + strconv.Quote(s))
		}
	}
	if s != strings.Trim(s, " \t") {
		panic("reply: space around the field value " + strconv.Quote(s))
	}
}
