package ingest

import (
	"io"
	"net/http"
	"time"
)

// The pace of compressed bodies.
const (
	// A compressed body must make progress by paceBytes in each paceTime: even a few bytes
	// may keep the memory of a whole batch reserved.
	paceBytes = 4 << 10
	paceTime  = 5 * time.Second
)

// paced returns the body of a request. If the body is compressed, reads return
// os.ErrDeadlineExceeded when it arrives too slowly.
func (h *handler) paced(w http.ResponseWriter, r *http.Request) io.Reader {
	if r.Header.Get("Content-Encoding") == "" {
		return r.Body
	}
	began := time.Now()
	return &pacedReader{src: r.Body, out: http.NewResponseController(w), last: began.Add(h.core.cfg.BodyTimeout)}
}

// A pacedReader extends the read deadline of a request while its body makes progress.
type pacedReader struct {
	src  io.Reader
	out  *http.ResponseController
	last time.Time // deadline of the whole body
	due  int       // bytes until the deadline is extended
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
		_ = p.out.SetReadDeadline(p.last) // net/http keeps reading while the request is answered
	}
	return n, err
}
