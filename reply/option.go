package reply

import (
	"net/http"
	"strconv"
	"strings"
)

// An Option modifies the header of an answer. Options are applied in order when the
// answer is created.
type Option func(*spec)

// spec is the combined effect of an answer's options.
type spec struct {
	fields fieldList // in addition to the common fields
	lean   bool
}

func newSpec(opts []Option) *spec {
	s := new(spec)
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// Header adds a field to the answer. It replaces a field of the same name. It panics
// for fields set by this package or by the server: Content-Type, Content-Length,
// Retry-After, X-Content-Type-Options, Date, Connection, Transfer-Encoding and Trailer.
// It also panics for Vary, which belongs to the handler that chooses between answers.
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

// NoStore adds Cache-Control: no-store.
func NoStore() Option { return Header("Cache-Control", "no-store") }

// Allow adds the methods that a resource supports, as required for a 405 (RFC 9110,
// section 15.5.6).
func Allow(methods ...string) Option {
	for _, m := range methods {
		mustFieldName(m) // a method is a token, like a field name
	}
	return Header("Allow", strings.Join(methods, ", "))
}

// Lean omits fields that polling programs do not need: nosniff and, for methods other
// than HEAD, the Content-Length, which net/http adds for bodies of at most 2,048 bytes.
// Each field in an http.Header costs about 10 ns here and more in the server, which
// copies, sorts and writes it. As an HTTP/1.1 message ([Answer.AppendHTTP1]), a lean
// answer has its Content-Length.
func Lean() Option { return func(s *spec) { s.lean = true } }

// mustFieldName panics unless s is a token (RFC 9110, section 5.6.2).
func mustFieldName(s string) {
	const token = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	if s == "" || strings.Trim(s, token) != "" {
		panic("reply: not a token: " + strconv.Quote(s))
	}
}

// mustFieldValue panics unless s is a valid field value (RFC 9110, section 5.5).
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
