package reply

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// An Answer is a constant response. It is an [http.Handler], and may also be called by
// another handler that has not written anything yet. It is immutable and safe for
// concurrent use.
type Answer struct {
	status     int
	body       []byte
	fields     fieldList
	headFields fieldList // for the response to a HEAD
	http1      []byte    // status line and fields, without the empty line
}

// maxImplicitLengthBytes is the maximum length of a body for which net/http adds a
// Content-Length (bufferBeforeChunkingSize in net/http/server.go; the buffer for HTTP/2
// is larger).
const maxImplicitLengthBytes = 2048

// New prepares an answer. It copies the body. The content type may be empty only if the
// body is. New panics if the status is not a final one (200 to 599), if a field is
// malformed, or if the status allows no body but there is one, so that such mistakes
// are detected when the program starts.
func New(status int, contentType string, body []byte, opts ...Option) *Answer {
	mustFinalStatus(status)
	if !bodyAllowed(status) && len(body) > 0 {
		panic("reply: body for status " + strconv.Itoa(status))
	}
	if contentType == "" && len(body) > 0 {
		panic("reply: body without a content type")
	}
	s := newSpec(opts)
	a := &Answer{status: status, body: bytes.Clone(body), fields: commonFields(contentType, s)}
	a.headFields = a.fields
	if bodyAllowed(status) {
		a.headFields = a.fields.with("Content-Length", strconv.Itoa(len(body)))
	}
	if !s.lean || len(body) > maxImplicitLengthBytes {
		a.fields = a.headFields
	}
	a.http1 = a.headFields.appendHTTP1(appendStatusLine(nil, status))
	return a
}

// JSON prepares an answer whose body is v, marshalled once with encoding/json, and a
// newline. It panics like [New], and if v cannot be marshalled.
func JSON(status int, v any, opts ...Option) *Answer {
	body, err := json.Marshal(v)
	if err != nil {
		panic("reply: marshal answer: " + err.Error())
	}
	return New(status, "application/json", append(body, '\n'), opts...)
}

// Status returns the answer's status code.
func (a *Answer) Status() int { return a.status }

// Body returns the body. It must not be modified.
func (a *Answer) Body() []byte { return a.body }

// ServeHTTP sends the answer. It does not allocate.
//
// It removes fields that describe another body, such as an ETag that the caller set before it decided on this answer.
// It keeps a Content-Encoding, because compressing middleware sets it; a caller that set one for another body must
// delete it. ServeHTTP ignores an error of Write, which means that the client has disconnected.
func (a *Answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.serve(w, r, nil)
}

// WriteRetryAfter is like ServeHTTP, with a Retry-After of d, rounded up to seconds. It
// does not allocate for up to 4,095 seconds.
func (a *Answer) WriteRetryAfter(w http.ResponseWriter, r *http.Request, d time.Duration) {
	a.serve(w, r, retryValue(d))
}

// serve sends the answer, with the given Retry-After unless it is nil.
func (a *Answer) serve(w http.ResponseWriter, r *http.Request, retryAfter []string) {
	h := w.Header()
	isHead := r.Method == http.MethodHead
	fields := a.fields
	if isHead {
		fields = a.headFields
	}
	fields.put(h)
	if retryAfter != nil {
		h["Retry-After"] = retryAfter
	}
	if isHead || len(a.body) == 0 {
		w.WriteHeader(a.status)
		return
	}
	// Write implies a 200.
	if a.status != http.StatusOK {
		w.WriteHeader(a.status)
	}
	w.Write(a.body)
}

// retryValue returns d as the value of Retry-After.
func retryValue(d time.Duration) []string {
	return IntValue(int(retrySeconds(d)))
}

// retrySeconds rounds d up, so that clients do not retry too early.
func retrySeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}
