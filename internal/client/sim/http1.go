package sim

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Bounds of an answer. A server that exceeds them is not believed.
const (
	maxHeadBytes = 64 << 10
	maxBodyBytes = 8 << 20
)

// ErrNotHTTP is wrapped by the errors of answers that are not HTTP/1.1.
var ErrNotHTTP = errors.New("sim: the answer is not HTTP/1.1")

// notHTTP says what is wrong. Its text never quotes the answer.
func notHTTP(reason string) error { return fmt.Errorf("%w: %s", ErrNotHTTP, reason) }

// A response is one HTTP/1.1 answer (RFC 9112), parsed while it arrives.
//
// It is stricter than it must be: where net/http would guess, it reports
// [ErrNotHTTP]. What both read, they read alike; FuzzResponse checks it.
type response struct {
	status      int
	close       bool   // the connection ends with this answer
	retryAfter  []byte // the fields' values, valid until the next reset
	contentType []byte
	body        []byte // valid until the next reset

	stage     responseStage
	buf       []byte // what has arrived and is not parsed yet, then the body
	length    int64  // left of the body or of the chunk; -1: until the connection ends
	head      []byte // the head, which the fields' values point into
	bodyBytes []byte
}

type responseStage uint8

const (
	inHead responseStage = iota
	inBody               // of known length
	inChunkSize
	inChunk
	inChunkEnd
	inTrailer
	untilClose
	complete
)

// reset forgets the answer and keeps the memory.
func (r *response) reset() {
	*r = response{buf: r.buf[:0], head: r.head[:0], bodyBytes: r.bodyBytes[:0]}
}

// feed takes bytes from the connection and reports whether the answer is
// complete. Bytes behind its end are an error, since nothing was asked for yet.
// It does not retain p.
func (r *response) feed(p []byte) (done bool, err error) {
	// The usual answer arrives at once, and needs no copy of its head.
	in := p
	if len(r.buf) > 0 {
		r.buf = append(r.buf, p...)
		in = r.buf
	}
	rest, err := r.parse(in)
	if err != nil {
		return false, err
	}
	if r.stage == complete {
		if len(rest) > 0 {
			return false, notHTTP("more than one answer to one request")
		}
		return true, nil
	}
	r.buf = append(r.buf[:0], rest...)
	if len(r.buf) > maxHeadBytes {
		return false, notHTTP("a head or line of more than 64 KiB")
	}
	return false, nil
}

// end tells that the connection has ended, and reports whether that completes
// the answer.
func (r *response) end() bool {
	if r.stage == untilClose {
		r.finish()
		return true
	}
	return false
}

func (r *response) finish() {
	r.stage = complete
	r.body = r.bodyBytes
}

// parse parses as much of in as has arrived whole and returns the rest.
func (r *response) parse(in []byte) (rest []byte, err error) {
	for {
		switch r.stage {
		case inHead:
			n := headEnd(in)
			if n < 0 {
				return in, nil
			}
			if n > maxHeadBytes {
				return in, notHTTP("a head of more than 64 KiB")
			}
			// A copy, since in ends with this call.
			r.head = append(r.head[:0], in[:n]...)
			in = in[n:]
			if err := r.parseHead(); err != nil {
				return in, err
			}
		case inBody, inChunk:
			n := min(int64(len(in)), r.length)
			if err := r.take(in[:n]); err != nil {
				return in, err
			}
			in = in[n:]
			if r.length -= n; r.length > 0 {
				return in, nil
			}
			if r.stage == inBody {
				r.finish()
			} else {
				r.stage = inChunkEnd
			}
		case inChunkSize, inChunkEnd, inTrailer:
			i := bytes.IndexByte(in, '\n')
			if i < 0 {
				return in, nil
			}
			line := in[:i]
			if len(line) == 0 || line[len(line)-1] != '\r' {
				return in, notHTTP("a line of the chunked coding without CR")
			}
			in = in[i+1:]
			if err := r.parseChunkLine(line[:len(line)-1]); err != nil {
				return in, err
			}
		case untilClose:
			return in[:0], r.take(in)
		case complete:
			return in, nil
		}
	}
}

func (r *response) take(p []byte) error {
	if len(r.bodyBytes)+len(p) > maxBodyBytes {
		return notHTTP("a body of more than 8 MiB")
	}
	r.bodyBytes = append(r.bodyBytes, p...)
	return nil
}

// headEnd returns the length of the head, its empty line included, or less than
// 0 when it has not arrived whole.
func headEnd(in []byte) int {
	i := bytes.Index(in, []byte("\r\n\r\n"))
	if i < 0 {
		return -1
	}
	return i + 4
}

// parseHead parses the head and decides on the framing of the body (RFC 9112,
// section 6.3).
func (r *response) parseHead() error {
	head := r.head
	// HTTP/1.1 200 OK
	const least = len("HTTP/1.1 200")
	if len(head) < least+2 || !bytes.HasPrefix(head, []byte("HTTP/1.")) || (head[7] != '0' && head[7] != '1') || head[8] != ' ' {
		return notHTTP("no status line")
	}
	r.close = head[7] == '0'
	r.status = 0
	for _, c := range head[9:12] {
		if c < '0' || c > '9' {
			return notHTTP("no status code")
		}
		r.status = r.status*10 + int(c-'0')
	}
	if head[12] != ' ' && head[12] != '\r' || r.status < 100 {
		return notHTTP("no status code")
	}
	eol := bytes.Index(head, []byte("\r\n"))
	if bytes.IndexByte(head[:eol], '\n') >= 0 || bytes.IndexByte(head[:eol], '\r') >= 0 {
		return notHTTP("a line break in the status line")
	}
	head = head[eol+2:]

	var f framing
	f.length = -1
	for len(head) > 2 { // the empty line
		eol := bytes.IndexByte(head, '\n')
		if eol < 1 || head[eol-1] != '\r' {
			return notHTTP("a field line without CR")
		}
		if err := r.parseField(head[:eol-1], &f); err != nil {
			return err
		}
		head = head[eol+1:]
	}
	r.close = r.close && !f.keepAlive || f.close
	switch {
	case r.status == 101:
		return notHTTP("a change of protocol")
	case r.status < 200: // an interim answer: the real one follows
		r.stage = inHead
		*r = response{buf: r.buf, head: r.head, bodyBytes: r.bodyBytes}
	case r.status == 204 || r.status == 304:
		r.finish()
	case f.chunked:
		r.stage = inChunkSize
	case f.length >= 0:
		r.length = f.length
		r.stage = inBody
		if f.length > maxBodyBytes {
			return notHTTP("a body of more than 8 MiB")
		}
	default:
		r.close = true
		r.stage = untilClose
	}
	return nil
}

// A framing is what the fields of a head say about the body's length.
type framing struct {
	length           int64 // -1: not given
	chunked          bool
	close, keepAlive bool
}

// parseField parses one line of the head.
func (r *response) parseField(line []byte, f *framing) error {
	colon := bytes.IndexByte(line, ':')
	if colon < 1 {
		return notHTTP("a field line without a name")
	}
	for _, c := range line[:colon] {
		if !isToken(c) {
			return notHTTP("a field name that is no token")
		}
	}
	name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return notHTTP("a control character in a field value")
		}
	}
	switch {
	case equalFold(name, "content-length"):
		n, ok := decimal(value)
		if !ok || f.length >= 0 && f.length != n || f.chunked {
			return notHTTP("a content length that is not certain")
		}
		f.length = n
	case equalFold(name, "transfer-encoding"):
		if !equalFold(value, "chunked") || f.chunked || f.length >= 0 || r.head[7] == '0' {
			return notHTTP("a transfer coding other than chunked")
		}
		f.chunked = true
	case equalFold(name, "connection"):
		for len(value) > 0 {
			option, rest, _ := bytes.Cut(value, []byte(","))
			option = bytes.Trim(option, " \t")
			f.close = f.close || equalFold(option, "close")
			f.keepAlive = f.keepAlive || equalFold(option, "keep-alive")
			value = rest
		}
	case equalFold(name, "content-type"):
		if r.contentType == nil {
			r.contentType = value
		}
	case equalFold(name, "retry-after"):
		if r.retryAfter == nil {
			r.retryAfter = value
		}
	}
	return nil
}

// parseChunkLine parses a line of the chunked coding (RFC 9112, section 7.1).
func (r *response) parseChunkLine(line []byte) error {
	switch r.stage {
	case inChunkEnd:
		if len(line) > 0 {
			return notHTTP("a chunk that is longer than announced")
		}
		r.stage = inChunkSize
	case inTrailer:
		switch {
		case len(line) == 0:
			r.finish()
		case bytes.IndexByte(line, ':') < 1:
			return notHTTP("a trailer line without a name")
		}
	case inChunkSize:
		size, ext, _ := bytes.Cut(line, []byte(";"))
		if len(ext) > 256 {
			return notHTTP("a long chunk extension")
		}
		n, ok := hexadecimal(bytes.TrimRight(size, " \t"))
		switch {
		case !ok:
			return notHTTP("a chunk without a size")
		case n == 0:
			r.stage = inTrailer
		default:
			r.length = n
			r.stage = inChunk
		}
	}
	return nil
}

// decimal returns the number that text spells in at most 18 digits.
func decimal(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 18 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// hexadecimal returns the number that text spells in at most 15 digits.
func hexadecimal(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 15 {
		return 0, false
	}
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		n = n<<4 | int64(c)
	}
	return n, true
}

// equalFold reports whether text is lower in any case. lower is in lower case,
// and is made of letters and hyphens.
func equalFold(text []byte, lower string) bool {
	if len(text) != len(lower) {
		return false
	}
	for i, c := range text {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// isToken reports whether c may stand in a field name (RFC 9110, section 5.6.2).
func isToken(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
