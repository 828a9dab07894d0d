package routers_test

import (
	"net/http"
	"testing"

	"github.com/pulsegate/pulsegate/bench/routers"
)

// A sink is a ResponseWriter that records only the status.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteString(p string) (int, error) {
	return len(p), nil
}

func (s *sink) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
}

// statusOf sends one request.
func statusOf(h http.Handler, req *http.Request) int {
	w := &sink{header: http.Header{}}
	h.ServeHTTP(w, req)
	return w.status
}

// BenchmarkRoute measures one request. With req=fresh each request is as read from a
// connection; with req=reused it was served before.
func BenchmarkRoute(b *testing.B) {
	sets, err := routers.Sets()
	if err != nil {
		b.Fatal(err)
	}
	for i := range sets {
		s := &sets[i]
		for _, p := range routers.Peers() {
			var h http.Handler
			bench := func(b *testing.B, fresh bool) {
				if h == nil {
					h = p.Build(s)
				}
				if h == nil {
					b.Skip("the router does not support such routes")
				}
				benchmark(b, h, s, fresh)
			}
			b.Run("impl="+p.Name+"/set="+s.Name+"/req=fresh", func(b *testing.B) { bench(b, true) })
			b.Run("impl="+p.Name+"/set="+s.Name+"/req=reused", func(b *testing.B) { bench(b, false) })
		}
	}
}

func benchmark(b *testing.B, h http.Handler, s *routers.Set, fresh bool) {
	requests := s.NewRequests()
	for _, req := range s.NewRequests() {
		if got := statusOf(h, req); got != s.Status {
			b.Fatalf("%s %s: status %d, want %d", req.Method, req.URL.Path, got, s.Status)
		}
	}
	w := &sink{header: http.Header{}}
	served := new(http.Request)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		req := requests[i]
		if i++; i == len(requests) {
			i = 0
		}
		if fresh {
			*served = *req
			req = served
		}
		h.ServeHTTP(w, req)
	}
}

// TestPeersAnswer checks that all routers agree on all sets.
func TestPeersAnswer(t *testing.T) {
	sets, err := routers.Sets()
	if err != nil {
		t.Fatal(err)
	}
	for i := range sets {
		for _, p := range routers.Peers() {
			if testing.Short() && len(sets[i].Routes) > 1_000 {
				continue
			}
			h := p.Build(&sets[i])
			if h == nil {
				continue
			}
			for _, req := range sets[i].NewRequests() {
				if got := statusOf(h, req); got != sets[i].Status {
					t.Errorf("%s, set %s, %s %s: status %d, want %d", p.Name, sets[i].Name, req.Method, req.URL.Path, got,
						sets[i].Status)
					break
				}
			}
		}
	}
}
