package live

import (
	"net/http"
	"sync"
	"time"
)

// A stream is the connection of a subscriber.
type stream struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration // per write
	wake    chan struct{} // holds one if there is something to take, or the stream has ended

	mu      sync.Mutex // guards the write deadline, and the following fields
	ended   error      // why nothing more is written; nil means not ended
	inWrite bool       // a write is in progress
}

// end ends the stream; a write in progress fails. It is called by other goroutines than the
// handler's.
func (s *stream) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = why
		if s.inWrite {
			_ = s.rc.SetWriteDeadline(time.Now()) // a writer without deadlines does not block
		}
	}
	signal(s.wake)
}

func (s *stream) endedWith() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// write writes texts, with a deadline, and sends them.
func (s *stream) write(texts [][]byte) error {
	if err := s.setWriting(true, time.Now().Add(s.timeout)); err != nil {
		return err
	}
	var err error
	for i := 0; i < len(texts) && err == nil; i++ {
		_, err = s.w.Write(texts[i])
	}
	if err == nil {
		err = s.rc.Flush()
	}
	// With HTTP/2, the deadline would end an idle stream.
	if ended := s.setWriting(false, time.Time{}); err == nil {
		err = ended
	}
	return err
}

// setWriting sets whether a write is in progress, and its deadline. It returns why the stream has
// ended, if it has.
func (s *stream) setWriting(inWrite bool, deadline time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inWrite = inWrite && s.ended == nil
	if s.ended == nil {
		_ = s.rc.SetWriteDeadline(deadline)
	}
	return s.ended
}

// close lets the server send the end of the stream.
func (s *stream) close() { _ = s.rc.SetWriteDeadline(time.Now().Add(s.timeout)) }
