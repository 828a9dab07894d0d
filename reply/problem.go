package reply

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// ProblemType is the media type of problem documents in JSON.
const ProblemType = "application/problem+json"

// maxPooledProblemBytes bounds the size of pooled buffers. The buffer of a larger
// document is left to the garbage collector.
const maxPooledProblemBytes = 16 << 10

// A Problem defines one kind of problem (RFC 9457). Type, title and status are the same
// for every occurrence and prepared once. It is safe for concurrent use.
type Problem struct {
	typ, title string
	start      []byte // {"type":…,"title":…,"status":…
	head       *Head
	opts       []Option

	buffers sync.Pool // of *problemBuffer
}

type problemBuffer struct{ b []byte }

// NewProblem defines a problem. typ is a stable URI by which clients distinguish
// problems; if it is empty, the type is "about:blank", which says no more than the
// status. title is the same in each occurrence; if it is empty, the title is the status
// text. Unless an option sets it, the answers have Cache-Control: no-store. NewProblem
// panics like [NewHead].
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
	start = strconv.AppendInt(start, int64(status), 10)
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

// Head returns the header of p's occurrences, for a caller that formats their documents
// with [AppendProblem] into its own buffer.
func (p *Problem) Head() *Head { return p.head }

// Answer prepares a constant occurrence. opts are applied after the problem's own
// options.
func (p *Problem) Answer(detail string, members []Member, opts ...Option) *Answer {
	body := AppendProblem(nil, p, detail, members...)
	return New(p.head.status, ProblemType, body, append(p.opts[:len(p.opts):len(p.opts)], opts...)...)
}

// Write sends an occurrence. See [AppendProblem] for detail and members. In steady
// state it does not allocate.
func (p *Problem) Write(w http.ResponseWriter, r *http.Request, detail string, members ...Member) {
	buf := p.get()
	buf.b = AppendProblem(buf.b[:0], p, detail, members...)
	if p.head.Write(w, r, buf.b) == nil {
		p.put(buf)
	}
}

// WriteRetryAfter is like Write, with a Retry-After of d, rounded up to seconds.
func (p *Problem) WriteRetryAfter(w http.ResponseWriter, r *http.Request, d time.Duration, detail string,
	members ...Member) {
	buf := p.get()
	buf.b = AppendProblem(buf.b[:0], p, detail, members...)
	if p.head.WriteRetryAfter(w, r, d, buf.b) == nil {
		p.put(buf)
	}
}

func (p *Problem) get() *problemBuffer {
	if buf, ok := p.buffers.Get().(*problemBuffer); ok {
		return buf
	}
	return &problemBuffer{b: make([]byte, 0, 512)}
}

// put returns a buffer to the pool. Do not call it after a Write that returned an
// error, because the buffer may still be read.
func (p *Problem) put(buf *problemBuffer) {
	if cap(buf.b) <= maxPooledProblemBytes {
		p.buffers.Put(buf)
	}
}

// AppendProblem appends the document of one occurrence of p, and a newline. detail explains this
// occurrence to a person and is omitted if empty; members are additional data for
// programs. Problems are logged, so neither may contain anything that must not appear
// in logs.
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
	return append(dst, "}\n"...)
}

// A Member is an extension member of a problem, or its "instance". Its name must be
// unique and must not be another standard one.
type Member struct{ name, value string }

// String returns a member with a string value, such as String("field", "spo2_pct").
func String(name, value string) Member { return Member{name, value} }
