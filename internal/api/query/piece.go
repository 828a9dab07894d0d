package query

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

var (
	// ErrRevoked means that the client may no longer read.
	ErrRevoked = errors.New("the token was revoked during the request")

	// ErrClientGone means that a response could not be written.
	ErrClientGone = errors.New("the client has disconnected or does not read")
)

// allowedEvery is the interval at which the access of a client that blocks a Write is
// checked again.
const allowedEvery = 500 * time.Millisecond

// A pieceWriter writes the pieces of a response body. It sends the header before the
// first one, has a timeout for each one, and stops when the client may no longer read.
type pieceWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begin func() error // sends the header, or nothing if it returns an error
	begun bool

	timeout time.Duration // per piece
	allowed func() bool   // reports whether the client may still read

	mu    sync.Mutex  // guards the following fields
	timer *time.Timer // runs look
	ended error       // why no further piece is written; nil means not ended
}

// watch makes a blocked Write fail soon after the client loses the right to read, until
// stop is called.
func (p *pieceWriter) watch() (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(allowedEvery, p.look)
	return func() {
		p.mu.Lock() // waits for look
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
	p.ended = ErrRevoked
	_ = p.rc.SetWriteDeadline(time.Now()) // a writer without deadlines does not block
}

// next prepares the writer for the next piece.
func (p *pieceWriter) next() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil && !p.allowed() {
		p.ended = ErrRevoked
	}
	if p.ended != nil {
		return p.ended
	}
	// A writer without deadlines, as in tests, does not block.
	if err := p.rc.SetWriteDeadline(time.Now().Add(p.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errors.Join(ErrClientGone, err)
	}
	return nil
}

// start sends the header, unless it was sent.
func (p *pieceWriter) start() error {
	if p.begun {
		return nil
	}
	if err := p.begin(); err != nil {
		return err
	}
	p.begun = true
	return nil
}

// Write implements [io.Writer]. Its errors wrap [ErrRevoked], [ErrClientGone] or that of begin.
func (p *pieceWriter) Write(b []byte) (int, error) {
	if err := p.next(); err != nil {
		return 0, err
	}
	if err := p.start(); err != nil {
		return 0, err
	}
	n, err := p.w.Write(b)
	if err != nil {
		err = errors.Join(ErrClientGone, err)
	}
	return n, err
}
