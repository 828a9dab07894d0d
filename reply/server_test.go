package reply_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/reply"
)

// protocols calls f for each HTTP version. server starts a net/http server with the
// given handler and returns a client for it.
func protocols(t *testing.T, f func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string))) {
	for _, major := range []int{1, 2} {
		t.Run(map[int]string{1: "HTTP/1", 2: "HTTP/2"}[major], func(t *testing.T) {
			f(t, func(h http.HandlerFunc) (*http.Client, string) {
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.ProtoMajor != major {
						t.Errorf("request used %s", r.Proto)
					}
					h(w, r)
				}))
				srv.EnableHTTP2 = major == 2
				if major == 2 {
					srv.StartTLS()
				} else {
					srv.Start()
				}
				t.Cleanup(srv.Close)
				return srv.Client(), srv.URL
			})
		})
	}
}

// For the race detector: one answer is served concurrently while other layers add to
// its header.
func TestAnswerConcurrent(t *testing.T) {
	a := reply.New(200, "text/plain", []byte(strings.Repeat("x", 500)), reply.Header("Link", "</x>"))
	protocols(t, func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string)) {
		c, url := server(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Vary", "Cookie")
			a.ServeHTTP(w, r)
			w.Header().Add("Link", "too late")
			w.Header().Set("Content-Type", "too late")
		})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 30 {
					res, err := c.Get(url)
					if err != nil {
						t.Error(err)
						return
					}
					body, err := io.ReadAll(res.Body)
					res.Body.Close()
					if err != nil || len(body) != 500 {
						t.Errorf("%d bytes (%v), want 500", len(body), err)
						return
					}
					for name, want := range map[string]string{"Vary": "Cookie", "Link": "</x>", "Content-Type": "text/plain"} {
						if got := strings.Join(res.Header[name], "|"); got != want {
							t.Errorf("%s = %q, want %q", name, got, want)
							return
						}
					}
				}
			})
		}
		wg.Wait()
	})
}
