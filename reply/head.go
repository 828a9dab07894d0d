package reply

import (
	"net/http"
	"strconv"
	"time"
)

// A Head is the header of answers that differ only in their bodies. It is immutable and
// safe for concurrent use.
type Head struct {
	status int
	fields fieldList
	http1  []byte // status line and fields, without Content-Length
}

// NewHead prepares a header. It panics like [New], and with [Lean], which needs a body.
func NewHead(status int, contentType string, opts ...Option) *Head {
	mustFinalStatus(status)
	s := newSpec(opts)
	if s.lean {
		panic("reply: NewHead with Lean")
	}
	fields := commonFields(contentType, s)
	return &Head{
		status: status,
		fields: fields,
		http1:  fields.appendHTTP1(appendStatusLine(nil, status)),
	}
}

// Status returns the status code.
func (hd *Head) Status() int { return hd.status }

// Write sends the header and the body. It does not retain body. After an error, body
// must not be modified, because a failed HTTP/2 Write may still be reading it. Write
// does not allocate for bodies of up to 4,095 bytes.
func (hd *Head) Write(w http.ResponseWriter, r *http.Request, body []byte) error {
	return hd.write(w, r, body, nil)
}

// WriteRetryAfter is like Write, with a Retry-After of d, rounded up to seconds.
func (hd *Head) WriteRetryAfter(w http.ResponseWriter, r *http.Request, d time.Duration, body []byte) error {
	return hd.write(w, r, body, retryValue(d))
}

// Begin sends the header for a body of unknown length. The caller writes the body to w,
// except for HEAD.
func (hd *Head) Begin(w http.ResponseWriter) {
	hd.fields.put(w.Header())
	w.WriteHeader(hd.status)
}

func (hd *Head) write(w http.ResponseWriter, r *http.Request, body []byte, retryAfter []string) error {
	h := w.Header()
	hd.fields.put(h)
	if bodyAllowed(hd.status) {
		h["Content-Length"] = IntValue(len(body))
	}
	if retryAfter != nil {
		h["Retry-After"] = retryAfter
	}
	w.WriteHeader(hd.status)
	if len(body) == 0 || r.Method == http.MethodHead {
		return nil
	}
	_, err := w.Write(body)
	return err
}

// AppendHTTP1 appends header and body as an HTTP/1.1 message. It allocates only if the
// capacity of dst is too small. The body must not overlap dst's spare capacity.
func (hd *Head) AppendHTTP1(dst []byte, m HTTP1, body []byte) []byte {
	dst = append(dst, hd.http1...)
	if bodyAllowed(hd.status) {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, int64(len(body)), 10)
		dst = append(dst, "\r\n"...)
	}
	return m.appendRest(dst, body)
}

func mustFinalStatus(status int) {
	if status < 200 || status > 599 {
		panic("reply: not a final status: " + strconv.Itoa(status))
	}
}
