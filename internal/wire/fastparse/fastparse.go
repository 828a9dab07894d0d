package fastparse

// Bounds of what is accepted, in bytes.
const (
	MaxHeaderBytes = 4 << 10  // request line, fields and the empty line
	MaxBodyBytes   = 64 << 10 // Content-Length
	MaxBytes       = MaxHeaderBytes + MaxBodyBytes
)

// A Verdict is the result of Recognise for the start of a byte stream.
type Verdict uint8

// The verdicts.
const (
	// More: every byte so far has the shape, but the request is not complete.
	More Verdict = iota

	// Accept: the request is complete.
	Accept

	// Other: the bytes do not have the shape. More bytes do not change this verdict.
	Other
)

// A Span is a range of the recognised bytes, from Start up to but not including End. The
// zero Span means that something is absent.
type Span struct{ Start, End int }

// Of returns the bytes of the span in b, the argument of Recognise.
func (s Span) Of(b []byte) []byte { return b[s.Start:s.End] }

// A Request holds the positions of a request's parts.
type Request struct {
	// Body is set once the header is complete, even with More.
	Body Span

	// Host is the value of that field. The caller decides whether it serves that host.
	Host Span

	// Authorization is the value of that field. The caller checks it.
	Authorization Span

	// Traceparent is the value of that field (W3C Trace Context). Recognise does not
	// validate it.
	Traceparent Span

	// Close reports whether the client wants the connection closed after the answer.
	Close bool

	// Need is, with More, a lower bound on the length of the request. Wait for
	// that many bytes before the next call.
	Need int
}

// Target is the only request target that is accepted.
const Target = "/v1/readings"

// requestLine is the only request line that is accepted.
const requestLine = "POST " + Target + " HTTP/1.1\r\n"

// Recognise reports whether b begins with a request of the shape. It reads no byte
// after that request, so b may hold pipelined requests. It does not allocate and
// retains nothing.
//
// Invariant: the verdict over a prefix of a stream is More until it becomes
// Accept or Other. It then remains, with the same Request. TestPrefixes checks it.
func Recognise(b []byte) (Request, Verdict) {
	var r Request
	if len(b) < len(requestLine) {
		if string(b) != requestLine[:len(b)] {
			return Request{}, Other
		}
		return Request{Need: len(requestLine)}, More
	}
	if string(b[:len(requestLine)]) != requestLine {
		return Request{}, Other
	}
	head := b[:min(len(b), MaxHeaderBytes)]
	var seen field
	length := 0
	for i := len(requestLine); ; {
		if i+1 < len(head) && head[i] == '\r' && head[i+1] == '\n' {
			if seen&required != required {
				return Request{}, Other
			}
			return r.withBody(i+2, length, len(b))
		}
		f, value, next, verdict := line(head, i)
		if verdict == Accept && seen&f != 0 {
			verdict = Other
		}
		if verdict == More && len(b) < MaxHeaderBytes {
			return Request{Need: len(b) + 1}, More // a field counts once the header is complete
		}
		if verdict != Accept {
			return Request{}, Other
		}
		seen |= f
		ok := true
		switch f {
		case contentLength:
			length, ok = parseLength(value.Of(head))
		case host:
			r.Host, ok = value, isHost(value.Of(head))
		case connection:
			r.Close, ok = parseConnection(value.Of(head))
		case authorization:
			r.Authorization = value
		case traceparent:
			r.Traceparent = value
		}
		if !ok {
			return Request{}, Other
		}
		i = next
	}
}

// withBody completes a request whose header has start bytes. have is the number of
// bytes received.
func (r Request) withBody(start, length, have int) (Request, Verdict) {
	r.Body = Span{start, start + length}
	if have < r.Body.End {
		r.Need = r.Body.End
		return r, More
	}
	return r, Accept
}

// SkipBlank returns how many bytes to drop before a request that follows another
// one. net/http tolerates an empty line or two after the body of a POST: it drops
// the leading CRs and LFs among the next four bytes (RFC 9112, section 2.2, allows
// it). ok is false when b is too short to decide; eof means that the stream ends
// after b.
func SkipBlank(b []byte, eof bool) (n int, ok bool) {
	for n < min(len(b), 4) && (b[n] == '\r' || b[n] == '\n') {
		n++
	}
	// net/http always waits for four bytes. That matters only if every byte
	// received so far is to be dropped.
	return n, eof || n < len(b) || n == 4 || len(b) == 0
}
