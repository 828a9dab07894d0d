package reply

import (
	"net/http"
	"reflect"
	"sync"
)

const (
	// maxPooledFields is the number of fields for which a pooled set has room.
	maxPooledFields = 8

	// maxForwarders bounds a chain of wrappers, which might lead back to itself.
	maxForwarders = 8
)

// A Field is a header field whose value is made per response.
type Field struct {
	Key   string // in canonical form, such as "Location"
	Value string
}

// A Pool lends the slices for header values that differ from response to
// response. The zero Pool is ready for use, by any number of goroutines.
type Pool struct {
	sets sync.Pool // of *fieldSet
}

// A HeaderForwarder is a ResponseWriter that wraps another one and does nothing
// of its own to the header: Header returns the wrapped writer's map, and
// WriteHeader calls the wrapped writer's WriteHeader before it returns. A
// wrapper that only counts or logs may say so to be served from a [Pool].
type HeaderForwarder interface {
	http.ResponseWriter
	// ForwardsHeaderTo returns the wrapped writer.
	ForwardsHeaderTo() http.ResponseWriter
}

// A fieldSet is what one response borrows.
//
// Invariant: a set that is in the pool is reachable from no header
// (TestPoolTakesFieldsOut, TestPoolConcurrent under the race detector).
type fieldSet struct {
	values [maxPooledFields]string

	// known is a type of writer that copiesHeader has vouched for, or nil. It
	// stands here, and not in Pool, to need no lock.
	known reflect.Type
}

// WriteHeader sets fields in w's header and calls w.WriteHeader(status). Where w
// is net/http's own ResponseWriter (HTTP/1 or HTTP/2) it does not allocate: the
// server has then copied the slices, so that WriteHeader takes the fields out of
// the header again and keeps the slices for the next response. Code that looks
// at w.Header() afterwards does not find them.
//
// With every other writer (a ResponseRecorder, http.TimeoutHandler's, a
// middleware's) nobody can know how long the slices are read. The fields stay in
// the header, and their slices are left to the garbage collector. See
// [HeaderForwarder] for wrappers that can be trusted.
//
// The status must be final, not 1xx, and the keys must not name trailers. More
// than 8 fields are allowed; those beyond are allocated. The texts of the fields
// must be ordinary strings: their bytes are read for as long as the package
// comment says.
func (p *Pool) WriteHeader(w http.ResponseWriter, status int, fields ...Field) {
	if status < 200 {
		panic("reply: Pool.WriteHeader with an informational status")
	}
	set, _ := p.sets.Get().(*fieldSet)
	if set == nil {
		set = new(fieldSet)
	}
	h := w.Header()
	for i := range fields {
		if i >= maxPooledFields {
			h[fields[i].Key] = bucket(fields[i].Value)
			continue
		}
		set.values[i] = fields[i].Value
		h[fields[i].Key] = set.values[i : i+1 : i+1]
	}
	w.WriteHeader(status)
	if !set.unread(w) {
		return
	}
	n := min(len(fields), maxPooledFields)
	for i := range n {
		delete(h, fields[i].Key)
	}
	// The texts may be long, and the set may wait for long.
	clear(set.values[:n])
	p.sets.Put(set)
}

// unread reports whether w's header is not read again once w.WriteHeader has
// returned and the fields are taken out of it.
func (s *fieldSet) unread(w http.ResponseWriter) bool {
	for range maxForwarders {
		t := reflect.TypeOf(w)
		if t == s.known && t != nil {
			return true
		}
		if f, ok := w.(HeaderForwarder); ok {
			w = f.ForwardsHeaderTo()
			continue
		}
		if copiesHeader(t) {
			s.known = t
			return true
		}
		return false
	}
	return false
}

// copiesHeader reports whether t is one of net/http's own writers, which copy
// slices at WriteHeader (TestServerReadsSlicesAtWriteHeader, TestPoolTrusts). A
// writer that is not known here costs an allocation; none is trusted by mistake.
func copiesHeader(t reflect.Type) bool {
	if t == nil || t.Kind() != reflect.Pointer {
		return false
	}
	e := t.Elem()
	return e.PkgPath() == "net/http" && (e.Name() == "response" || e.Name() == "http2responseWriter")
}
