package reply

import (
	"net/http"
	"sync"
	"time"
)

// ProblemType is the media type of problem documents in JSON.
const ProblemType = "application/problem+json"

// maxPooledProblemBytes bounds the buffers that a Problem keeps. A longer
// document is sent, and its buffer left to the garbage collector.
const maxPooledProblemBytes = 16 << 10

// A Problem is the definition of one kind of problem (RFC 9457): what its type,
// title and status say is the same for every occurrence and prepared once. It
// is safe for concurrent use.
type Problem struct {
	typ, title string
	start      []byte // {"type":…,"title":…,"status":…
	head       *Head
	opts       []Option

	buffers sync.Pool // of *problemBuffer
}

type problemBuffer struct{ b []byte }

// NewProblem defines a problem. typ is a URI that never changes, so that clients
// can tell problems apart; the empty string stands for "about:blank", which says
// no more than the status. title is the same in each occurrence, and the
// status's own text if it is empty. Unless an option says otherwise, the answers
// carry Cache-Control: no-store. NewProblem panics where [NewHead] does.
func NewProblem(status int, typ, title string, opts ...Option) *Problem {
	if typ == "" {
		typ = "about:blank"
	}
	if title == "" {
		title = http.StatusText(status)
	}
	opts = append([]Option{NoStore()}, opts...)
	start := append([]byte(nil), `{"type":`...)
	start = AppendJSONString(start, typ)
	start = append(start, `,"title":`...)
	start = AppendJSONString(start, title)
	start = append(start, `,"status":`...)
	start = AppendInt(start, int64(status))
	return &Problem{
		typ:   typ,
		title: title,
		start: start,
		head:  NewHead(status, ProblemType, opts...),
		opts:  opts,
	}
}

// Type returns the problem's type URI.
func (p *Problem) Type() string { return p.typ }

// Title returns the problem's title.
func (p *Problem) Title() string { return p.title }

// Status returns the problem's status code.
func (p *Problem) Status() int { return p.head.status }

// Head returns the header of p's occurrences, for a caller that writes their
// documents, as [AppendProblem] makes them, into memory of its own.
func (p *Problem) Head() *Head { return p.head }

// Answer prepares an occurrence that is always the same. opts come on top of the
// problem's own.
func (p *Problem) Answer(detail string, members []Member, opts ...Option) *Answer {
	body := AppendProblem(nil, p, detail, members...)
	return New(p.head.status, ProblemType, body, append(p.opts[:len(p.opts):len(p.opts)], opts...)...)
}

// Write sends an occurrence. See [AppendProblem] for detail and members. In
// steady state it allocates nothing.
func (p *Problem) Write(w http.ResponseWriter, r *http.Request, detail string, members ...Member) {
	buf := p.get()
	buf.b = AppendProblem(buf.b[:0], p, detail, members...)
	if p.head.Write(w, r, buf.b) == nil {
		p.put(buf)
	}
}

// WriteRetryAfter is Write with a Retry-After of d, rounded up to seconds.
func (p *Problem) WriteRetryAfter(w http.ResponseWriter, r *http.Request, d time.Duration, detail string, members ...Member) {
	buf := p.get()
	buf.b = AppendProblem(buf.b[:0], p, detail, members...)
	if p.head.WriteRetryAfter(w, r, d, buf.b) == nil {
		p.put(buf)
	}
}

// AppendHTTP1 appends an occurrence as an HTTP/1.1 message.
func (p *Problem) AppendHTTP1(dst []byte, m HTTP1, detail string, members ...Member) []byte {
	buf := p.get()
	buf.b = AppendProblem(buf.b[:0], p, detail, members...)
	dst = p.head.AppendHTTP1(dst, m, buf.b)
	p.put(buf)
	return dst
}

func (p *Problem) get() *problemBuffer {
	if buf, ok := p.buffers.Get().(*problemBuffer); ok {
		return buf
	}
	return &problemBuffer{b: make([]byte, 0, 512)}
}

// put takes a buffer back that nobody reads any more. After a Write that
// returned an error that is not known, and the buffer must not come here.
func (p *Problem) put(buf *problemBuffer) {
	if cap(buf.b) <= maxPooledProblemBytes {
		p.buffers.Put(buf)
	}
}

// AppendProblem appends the document of one occurrence of p. detail explains
// this occurrence to a person, and is left out if it is empty; members add to it
// for programs. Neither may hold what a log must not hold: problems are logged.
func AppendProblem(dst []byte, p *Problem, detail string, members ...Member) []byte {
	dst = append(dst, p.start...)
	if detail != "" {
		dst = append(dst, `,"detail":`...)
		dst = AppendJSONString(dst, detail)
	}
	for _, m := range members {
		dst = append(dst, ',')
		dst = AppendJSONString(dst, m.name)
		dst = append(dst, ':')
		dst = AppendJSONString(dst, m.value)
	}
	return append(dst, '}')
}

// A Member is an extension member of a problem, or its "instance". Its name must
// not be one of the other standard ones, nor come twice.
type Member struct{ name, value string }

// String is a member with a text, such as String("field", "spo2_pct").
func String(name, value string) Member { return Member{name, value} }
