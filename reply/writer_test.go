package reply_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/pulsegate/pulsegate/reply"
)

// A discard is a ResponseWriter that allocates nothing.
type discard struct {
	header http.Header
	status int
	n      int // bytes of body
}

func newDiscard() *discard { return &discard{header: make(http.Header)} }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { d.n += len(p); return len(p), nil }

// get returns a GET with the given fields: name, value, name, value.
func get(fields ...string) *http.Request {
	return request(http.MethodGet, fields...)
}

func request(method string, fields ...string) *http.Request {
	r := httptest.NewRequest(method, "/", nil)
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return r
}

// serve returns the response of h to r.
func serve(h http.Handler, r *http.Request) *http.Response {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result()
}

// wantHeader fails unless the header has exactly these fields: name, value, name,
// value.
func wantHeader(t *testing.T, got http.Header, want ...string) {
	t.Helper()
	wanted := make(http.Header)
	for i := 0; i+1 < len(want); i += 2 {
		wanted.Add(want[i], want[i+1])
	}
	for name, values := range wanted {
		if g := got.Values(name); len(g) != len(values) || g[0] != values[0] {
			t.Errorf("%s = %q, want %q", name, g, values)
		}
	}
	for name, values := range got {
		if wanted[name] == nil {
			t.Errorf("%s = %q, want none", name, values)
		}
	}
}

// wantPanic fails unless f panics.
func wantPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}

// wantNoAllocs fails if f allocates in steady state.
func wantNoAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	f()
	if got := testing.AllocsPerRun(200, f); got != 0 {
		t.Errorf("%s: %v allocations, want 0", what, got)
	}
}

var _ http.Handler = (*reply.Answer)(nil)
