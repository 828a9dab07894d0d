package query

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// errRevoked means that the client may no longer read.
var errRevoked = errors.New("query: the token was revoked while it was used")

// allowedEvery is the time between two looks at whether a client that keeps the server
// waiting may still read.
const allowedEvery = 500 * time.Millisecond

// A pieceWriter sends the header before the first piece of the body, and gives the
// client the same time for each piece, as long as it may read at all.
type pieceWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begin func() error // sends the header; after an error nothing was sent
	begun bool

	timeout time.Duration // for one piece
	allowed func() bool   // whether the client may still read

	mu    sync.Mutex  // guards what follows
	timer *time.Timer // runs look
	ended error       // no further piece is written, and why
}

// watch fails a Write that waits for its client soon after the client may no longer
// read, until stop is called.
func (p *pieceWriter) watch() (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(allowedEvery, p.look)
	return func() {
		p.mu.Lock() // look is not running
		defer p.mu.Unlock()
		p.timer.Stop()
		p.ended = io.ErrClosedPipe
	}
}

func (p *pieceWriter) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return
	}
	if p.allowed() {
		p.timer.Reset(allowedEvery)
		return
	}
	p.ended = errRevoked
	_ = p.rc.SetWriteDeadline(time.Now()) // without deadlines nothing waits
}

// next prepares the writer for a piece.
func (p *pieceWriter) next() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil && !p.allowed() {
		p.ended = errRevoked
	}
	if p.ended != nil {
		return p.ended
	}
	// A writer without deadlines, such as a test's, never blocks.
	if err := p.rc.SetWriteDeadline(time.Now().Add(p.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errors.Join(errClientGone, err)
	}
	return nil
}

func (p *pieceWriter) Write(b []byte) (int, error) {
	if err := p.next(); err != nil {
		return 0, err
	}
	if !p.begun {
		if err := p.begin(); err != nil {
			return 0, err
		}
		p.begun = true
	}
	n, err := p.w.Write(b)
	if err != nil {
		err = errors.Join(errClientGone, err)
	}
	return n, err
}
