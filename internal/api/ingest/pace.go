package ingest

import (
	"io"
	"net/http"
	"time"
)

// Bounds of the time for compressed bodies.
const (
	// A compressed body must go on by paceBytes in each paceTime. A few bytes of it may
	// hold the memory of a whole batch.
	paceBytes = 4 << 10
	paceTime  = 5 * time.Second
)

// paced returns the body of a request. Reads of one that is compressed end with
// os.ErrDeadlineExceeded when it comes too slowly.
func (h *handler) paced(w http.ResponseWriter, r *http.Request) io.Reader {
	if r.Header.Get("Content-Encoding") == "" {
		return r.Body
	}
	began := time.Now()
	return &pacedReader{src: r.Body, out: http.NewResponseController(w), last: began.Add(h.core.cfg.BodyTimeout)}
}

// A pacedReader moves the deadline of a request while its body goes on.
type pacedReader struct {
	src  io.Reader
	out  *http.ResponseController
	last time.Time // deadline of the whole body
	due  int       // bytes until the deadline is moved
}

func (p *pacedReader) Read(b []byte) (int, error) {
	if p.due <= 0 {
		p.due = paceBytes
		deadline := time.Now().Add(paceTime)
		if deadline.After(p.last) {
			deadline = p.last
		}
		_ = p.out.SetReadDeadline(deadline) // a writer without deadlines, such as a test's, never blocks
	}
	n, err := p.src.Read(b)
	p.due -= n
	if err == io.EOF {
		_ = p.out.SetReadDeadline(p.last) // the connection is read on while the request is answered
	}
	return n, err
}
