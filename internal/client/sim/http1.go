package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
)

// maxAnswerBytes bounds the size of an answer. A larger one is an error.
const maxAnswerBytes = 8 << 20

// ErrNotHTTP is wrapped by the errors of answers that are not HTTP/1.1.
var ErrNotHTTP = errors.New("sim: the answer is not HTTP/1.1")

// notHTTP returns an error with the reason. Its text never quotes the answer.
func notHTTP(reason string) error { return fmt.Errorf("%w: %s", ErrNotHTTP, reason) }

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
		return 0, notHTTP("the answer is larger than 8 MiB")
	}
	n, r.err = r.conn.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, r.err
}

// A response is one HTTP/1.1 answer.
type response struct {
	status      int
	close       bool   // the server closes the connection after this answer
	contentType string // of a problem
	retryAfter  string
	body        []byte // valid until the next read
}

// read reads one answer. Errors other than [ErrNotHTTP] are from the connection; io.EOF
// means that it ended too early.
func (r *answerReader) read() (response, error) {
	r.left = maxAnswerBytes
	if _, err := r.in.Peek(1); err != nil {
		return response{}, err
	}
	arrived, _ := r.in.Peek(r.in.Buffered()) // never blocks
	resp, length := scan(arrived)
	if length > 0 {
		r.in.Discard(length)
	} else {
		var err error
		if resp, err = r.parse(); err != nil {
			return response{}, err
		}
	}
	if r.in.Buffered() > 0 {
		return response{}, notHTTP("more than one answer to a request")
	}
	return resp, nil
}

// usualFields are the header fields that scan accepts with any value.
var usualFields = [][]byte{[]byte("Content-Type: "), []byte("Cache-Control: "), []byte("X-Content-Type-Options: "), []byte("Date: "), []byte("Server: ")}

// scan recognises the usual answer, a 200 as Pulsegate or a proxy before it writes it,
// without allocating. It returns the length of the answer, or 0 if it is another one or
// incomplete. net/http reads every answer that scan accepts in the same way;
// FuzzResponse checks that.
func scan(text []byte) (resp response, length int) {
	rest, ok := bytes.CutPrefix(text, []byte("HTTP/1.1 200 OK\r\n"))
	bodyBytes := -1
	for ok {
		var line []byte
		if line, rest, ok = bytes.Cut(rest, []byte("\r\n")); !ok || len(line) == 0 {
			break
		}
		if slices.ContainsFunc(line, func(c byte) bool { return c < ' ' || c > '~' }) {
			return resp, 0
		}
		if value, found := bytes.CutPrefix(line, []byte("Content-Length: ")); found && bodyBytes < 0 {
			bodyBytes, ok = decimal(value)
		} else {
			ok = slices.ContainsFunc(usualFields, func(field []byte) bool { return bytes.HasPrefix(line, field) })
		}
	}
	if !ok || bodyBytes < 0 || bodyBytes > len(rest) {
		return resp, 0
	}
	return response{status: http.StatusOK, body: rest[:bodyBytes]}, len(text) - len(rest) + bodyBytes
}

// parse reads any final answer. It skips informational ones.
func (r *answerReader) parse() (response, error) {
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
	case err == nil:
		return response{resp.StatusCode, resp.Close, resp.Header.Get("Content-Type"), resp.Header.Get("Retry-After"), body}, nil
	case r.err != nil || errors.Is(err, ErrNotHTTP):
		return response{}, cmp.Or(r.err, err)
	}
	return response{}, notHTTP("net/http cannot read it") // net/http's errors quote the answer
}

// decimal parses a decimal number of at most 9 digits.
func decimal(text []byte) (n int, ok bool) {
	if len(text) > 9 || len(text) == 0 || text[0] < '0' || text[0] > '9' {
		return 0, false // strconv accepts signs
	}
	n, err := strconv.Atoi(string(text))
	return n, err == nil
}
