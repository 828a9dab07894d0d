package reply

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// An Answer is a response of which nothing varies. It is an [http.Handler], and
// may also be called from inside another handler that has not yet written. It is
// immutable: any number of goroutines may serve it.
type Answer struct {
	status int
	vary   *varyList

	// variants holds the body as it is first, then in other codings, the
	// smallest first. All of them are answers to the same question.
	variants []variant

	// http1Retry is the line of the Retry-After that the answer was made with,
	// if any. A response may have another one in its place.
	http1Retry []byte
}

// A variant is the body in one content coding, and all that goes with it.
type variant struct {
	coding string // "" for the body as it is
	body   []byte
	etag   string // in quotes; "" where there is none

	fields      fieldList // of the answer
	headFields  fieldList // of the answer to a HEAD
	notModified fieldList // of a 304

	http1            []byte // status line and fields, without the empty line
	http1NotModified []byte
}

// New prepares an answer. The body is copied. The content type may be empty only
// if the body is. New panics if the status is not a final one (200 to 599), if a
// field is malformed, or if there is a body where the status allows none: such
// mistakes show when the program starts.
func New(status int, contentType string, body []byte, opts ...Option) *Answer {
	mustFinalStatus(status)
	if !bodyAllowed(status) && len(body) > 0 {
		panic("reply: body for status " + strconv.Itoa(status))
	}
	if contentType == "" && len(body) > 0 {
		panic("reply: body without a content type")
	}
	s := new(spec)
	for _, opt := range opts {
		opt(s)
	}
	bodies := codings(bytes.Clone(body), s)
	if len(bodies) > 1 {
		s.vary = append(s.vary, "Accept-Encoding")
	}
	a := &Answer{
		status:     status,
		vary:       newVaryList(s.vary),
		variants:   make([]variant, len(bodies)),
		http1Retry: retryLine(s.fields),
	}
	common := commonFields(contentType, s)
	for i, b := range bodies {
		a.variants[i] = a.newVariant(b, common, s)
	}
	return a
}

// maxImplicitLengthBytes is the longest body for which net/http is certain to
// add a Content-Length (bufferBeforeChunkingSize in net/http/server.go; the
// buffer of HTTP/2 is longer).
const maxImplicitLengthBytes = 2048

// JSON prepares an answer from a value, which is marshalled by encoding/json
// here and never again. It panics where [New] does, and if v cannot be
// marshalled.
func JSON(status int, v any, opts ...Option) *Answer {
	body, err := json.Marshal(v)
	if err != nil {
		panic("reply: marshal answer: " + err.Error())
	}
	return New(status, "application/json", body, opts...)
}

// Status returns the answer's status code.
func (a *Answer) Status() int { return a.status }

// Body returns the body, not encoded. It must not be modified.
func (a *Answer) Body() []byte { return a.variants[0].body }

// ETag returns the strong entity tag of the body as it is, in quotes, or "".
// The encoded variants have tags of their own.
func (a *Answer) ETag() string { return a.variants[0].etag }

// codings returns the body in all of its codings: as it is first, then the
// smallest.
func codings(body []byte, s *spec) []encoded {
	all := []encoded{{"", body}}
	if s.gzip {
		all = append(all, encoded{"gzip", compress(body)})
	}
	for _, e := range s.encoded {
		if slices.ContainsFunc(all, func(o encoded) bool { return o.coding == e.coding }) {
			panic("reply: two variants with the coding " + e.coding)
		}
		all = append(all, encoded{e.coding, bytes.Clone(e.body)})
	}
	if len(all) > maxVariants {
		panic("reply: more than " + strconv.Itoa(maxVariants) + " variants")
	}
	useful := slices.DeleteFunc(all[1:], func(e encoded) bool { return len(e.body) >= len(body) })
	slices.SortStableFunc(useful, func(a, b encoded) int { return len(a.body) - len(b.body) })
	return all[:1+len(useful)]
}

// compress returns body as gzip. Neither a name nor a time goes into it, so that
// the bytes and the entity tag are the same on every server of a fleet.
func compress(body []byte) []byte {
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		panic("reply: " + err.Error()) // the level is a constant
	}
	w.Write(body) // to a bytes.Buffer: neither can fail
	w.Close()
	return buf.Bytes()
}

// cacheable reports whether to make an entity tag. Only a 200 is a
// representation of the resource that was asked for.
func cacheable(status int, cacheControl string) bool {
	if status != http.StatusOK || cacheControl == "" {
		return false
	}
	for directive := range strings.SplitSeq(cacheControl, ",") {
		if strings.EqualFold(strings.Trim(directive, " \t"), "no-store") {
			return false
		}
	}
	return true
}

// newVariant lays out the fields of one coding. common is shared by all.
func (a *Answer) newVariant(e encoded, common fieldList, s *spec) variant {
	v := variant{coding: e.coding, body: e.body, fields: common}
	if e.coding != "" {
		v.fields = v.fields.with("Content-Encoding", e.coding)
	}
	var tagged fieldList
	if cacheable(a.status, s.cacheControl) {
		v.etag = entityTag(e)
		v.fields = v.fields.with("Etag", v.etag)
		// What a 304 repeats of the 200: RFC 9110, section 15.4.5.
		for _, f := range v.fields {
			switch f.key {
			case "Etag", "Cache-Control", "Content-Location", "Expires":
				tagged = append(tagged, f)
			}
		}
	}
	v.notModified = tagged
	v.headFields = v.fields
	if bodyAllowed(a.status) {
		v.headFields = v.fields.with("Content-Length", strconv.Itoa(len(e.body)))
	}
	if !s.lean || len(e.body) > maxImplicitLengthBytes {
		v.fields = v.headFields
	}

	wire := v.headFields
	if a.vary != nil {
		wire = wire.with("Vary", a.vary.value[0])
		tagged = tagged.with("Vary", a.vary.value[0])
	}
	v.http1 = wire.appendHTTP1(appendStatusLine(nil, a.status))
	if v.etag != "" {
		v.http1NotModified = tagged.appendHTTP1(appendStatusLine(nil, http.StatusNotModified))
	}
	return v
}

// entityTag returns a strong tag: 128 bits of the SHA-256 of the bytes that are
// sent, so that variants differ in their tags as RFC 9110, section 8.8.3, asks.
func entityTag(e encoded) string {
	h := sha256.New()
	h.Write([]byte(e.coding))
	h.Write([]byte{0})
	h.Write(e.body)
	return `"` + base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16]) + `"`
}
