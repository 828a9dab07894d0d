package reply

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Option says something about the header of an answer, or about its
// variants. Options are applied in their order when the answer is made.
type Option func(*spec)

// spec is what the options of one answer add up to.
type spec struct {
	fields       []headerField // besides those that every answer has
	cacheControl string
	vary         []string
	lean         bool
	gzip         bool
	encoded      []encoded
}

// encoded is the body in a content coding; "" is the body as it is.
type encoded struct {
	coding string
	body   []byte
}

// Header adds a field that every answer carries. It replaces one of the same
// name. It panics for fields that have their own options, and for those that are
// the package's or the server's business: Content-Type, Content-Length,
// Content-Encoding, Cache-Control, ETag, Vary, X-Content-Type-Options, Date,
// Connection, Transfer-Encoding and Trailer.
func Header(name, value string) Option {
	mustFieldName(name)
	mustFieldValue(value)
	key := http.CanonicalHeaderKey(name)
	switch key {
	case "Content-Type", "Content-Length", "Content-Encoding", "Cache-Control", "Etag", "Vary",
		"Date", "Connection", "Transfer-Encoding", "Trailer", "X-Content-Type-Options":
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

// CacheControl sets Cache-Control, such as "no-store" or "public, max-age=3600".
// An [Answer] with status 200 and a Cache-Control without no-store gets a strong
// entity tag and answers If-None-Match with 304.
func CacheControl(value string) Option {
	mustFieldValue(value)
	return func(s *spec) { s.cacheControl = value }
}

// NoStore is CacheControl("no-store").
func NoStore() Option { return CacheControl("no-store") }

// Allow lists the methods that a resource understands, as a 405 must do
// (RFC 9110, section 15.5.6).
func Allow(methods ...string) Option {
	for _, m := range methods {
		mustFieldName(m) // a method is a token, as a field name is
	}
	return Header("Allow", strings.Join(methods, ", "))
}

// RetryAfter tells when to try again, rounded up to whole seconds. Where the
// delay is only known per response, see [Answer.WriteRetryAfter].
func RetryAfter(d time.Duration) Option {
	return Header("Retry-After", strconv.FormatInt(retrySeconds(d), 10))
}

// Vary names request fields on which the choice of this answer depends, besides
// Accept-Encoding, which an answer with variants adds by itself.
func Vary(names ...string) Option {
	for _, n := range names {
		mustFieldName(n)
	}
	names = slices.Clone(names)
	return func(s *spec) { s.vary = append(s.vary, names...) }
}

// Lean leaves out what programs that poll do not need: nosniff, and, for methods
// other than HEAD, a Content-Length that net/http adds by itself, which it does
// for bodies of at most 2,048 bytes. Each field that is put into an http.Header
// costs some 10 ns here and more in the server, which copies, sorts and writes
// it. As an HTTP/1.1 message ([Answer.AppendHTTP1]) a lean answer has its
// Content-Length.
func Lean() Option { return func(s *spec) { s.lean = true } }

// retrySeconds rounds d up, so that a client never comes back too early.
func retrySeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// Gzip adds a variant that is compressed by compress/gzip when the answer is
// made.
func Gzip() Option { return func(s *spec) { s.gzip = true } }

// Zstd adds a variant that the caller has compressed (RFC 8878).
func Zstd(body []byte) Option { return Encoded("zstd", body) }

// Encoded adds a variant in any registered content coding, such as "br". That
// body decodes to the answer's body is not checked. As with all variants, it is
// left out if it is not smaller than the answer's body, and of two codings that
// a client likes equally the one with the smaller body is sent.
func Encoded(coding string, body []byte) Option {
	mustFieldName(coding)
	coding = strings.ToLower(coding)
	if coding == "identity" || coding == "x-gzip" {
		panic("reply: Encoded with the coding " + coding)
	}
	return func(s *spec) { s.encoded = append(s.encoded, encoded{coding, body}) }
}

// mustFieldName panics unless s is a token (RFC 9110, section 5.6.2).
func mustFieldName(s string) {
	if !isToken(s) {
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
