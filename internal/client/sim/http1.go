package sim

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxAnswerBytes bounds the size of an answer. A larger one is an error.
const maxAnswerBytes = 8 << 20

// ErrProtocol is wrapped by the errors of answers that are not of the protocol.
var ErrProtocol = errors.New("the answer is not")

// Each returns an error with the reason. Its text never quotes the answer.
func notHTTP(reason string) error { return fmt.Errorf("%w HTTP/1.1: %s", ErrProtocol, reason) }
func notMLLP(reason string) error { return fmt.Errorf("%w MLLP: %s", ErrProtocol, reason) }
func notMQTT(reason string) error { return fmt.Errorf("%w MQTT: %s", ErrProtocol, reason) }

// errTooLarge is returned by the connection of an answerReader.
var errTooLarge = errors.New("the answer is larger than 8 MiB")

// An answerReader reads the answers of one connection.
type answerReader struct {
	conn io.Reader
	left int   // bytes left that the current answer may have
	err  error // last error of conn
	in   *bufio.Reader
}

// reset makes r read a new connection.
func (r *answerReader) reset(conn io.Reader) {
	*r = answerReader{conn: conn, in: r.in}
	if r.in == nil {
		r.in = bufio.NewReader(r)
	}
	r.in.Reset(r)
}

// Read implements io.Reader for the buffer. It reads from the connection.
func (r *answerReader) Read(p []byte) (n int, err error) {
	if r.left == 0 {
		return 0, errTooLarge
	}
	n, r.err = r.conn.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, r.err
}

// A response is one HTTP/1.1 answer.
type response struct {
	status      int
	close       bool // the server closes the connection after this answer
	contentType string
	retryAfter  string
	body        []byte
}

// read reads one answer, and skips informational ones. Errors other than [ErrProtocol] are from the connection; io.EOF
// means that it ended too early.
func (r *answerReader) read() (response, error) {
	r.left = maxAnswerBytes
	if _, err := r.in.Peek(1); err != nil {
		return response{}, err
	}
	resp, err := http.ReadResponse(r.in, nil)
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(r.in, nil)
	}
	if err == nil && (resp.ProtoMajor != 1 || resp.StatusCode < 200) {
		return response{}, notHTTP("another protocol")
	}
	var body []byte
	if err == nil {
		body, err = io.ReadAll(resp.Body)
	}
	switch {
	case errors.Is(err, errTooLarge):
		return response{}, notHTTP(errTooLarge.Error())
	case err != nil && (r.err != nil || errors.Is(err, ErrProtocol)):
		return response{}, cmp.Or(r.err, err)
	case err != nil:
		return response{}, notHTTP("net/http cannot read it") // net/http's errors quote the answer
	case r.in.Buffered() > 0:
		return response{}, notHTTP("more than one answer to a request")
	}
	return response{resp.StatusCode, resp.Close, resp.Header.Get("Content-Type"), resp.Header.Get("Retry-After"), body},
		nil
}
