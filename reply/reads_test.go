package reply_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/pulsegate/pulsegate/reply"
)

// The tests of this file hold what the package comment says of net/http. They
// fail when a later Go reads headers at another time, before anything relies on
// it.

// protocols runs f against a server of net/http for each protocol. server starts
// one with the given handler and returns a client of it.
func protocols(t *testing.T, f func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string))) {
	for _, major := range []int{1, 2} {
		t.Run(map[int]string{1: "HTTP/1", 2: "HTTP/2"}[major], func(t *testing.T) {
			f(t, func(h http.HandlerFunc) (*http.Client, string) {
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.ProtoMajor != major {
						t.Errorf("request came by %s", r.Proto)
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

// fetch returns the response with its body read, so that trailers are there.
func fetch(t *testing.T, c *http.Client, url string) *http.Response {
	t.Helper()
	res, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res
}

// WriteHeader copies the slices: what is written into them afterwards is not
// sent.
func TestServerReadsSlicesAtWriteHeader(t *testing.T) {
	protocols(t, func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string)) {
		c, url := server(func(w http.ResponseWriter, r *http.Request) {
			b := []string{"at WriteHeader"}
			w.Header()["X"] = b
			w.WriteHeader(200)
			b[0] = "too late"
			w.Header()["Y"] = b
			io.WriteString(w, "body")
			b[0] = "much too late"
			http.NewResponseController(w).Flush()
			b[0] = "later still"
		})
		res := fetch(t, c, url)
		if got := res.Header.Get("X"); got != "at WriteHeader" {
			t.Errorf("X = %q, want what it was at WriteHeader", got)
		}
		if got := res.Header.Get("Y"); got != "" {
			t.Errorf("Y = %q, want none: it came after WriteHeader", got)
		}
	})
}

// A handler that writes nothing has its slices read after it has returned.
func TestServerReadsSlicesAfterReturn(t *testing.T) {
	protocols(t, func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string)) {
		c, url := server(func(w http.ResponseWriter, r *http.Request) {
			b := []string{"while it ran"}
			inner := func() { w.Header()["X"] = b }
			inner()
			b[0] = "after it returned"
		})
		if got := fetch(t, c, url).Header.Get("X"); got != "after it returned" {
			t.Errorf("X = %q, want what it was after the inner handler had returned", got)
		}
	})
}

// The bytes of a value are read later than its slice. The test breaks the rule
// that strings do not change, which is what a pool of bytes would do.
func TestServerReadsBytesAfterWriteHeader(t *testing.T) {
	protocols(t, func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string)) {
		c, url := server(func(w http.ResponseWriter, r *http.Request) {
			text := []byte("before")
			// text outlives the response, since the header refers to it, and is not
			// written while the server reads: that happens after the return.
			w.Header()["X"] = []string{unsafe.String(&text[0], len(text))}
			w.WriteHeader(200)
			io.WriteString(w, "body")
			copy(text, "after.")
		})
		if got := fetch(t, c, url).Header.Get("X"); got != "after." {
			t.Errorf("X = %q, want the bytes that were written after WriteHeader", got)
		}
	})
}

// Trailers are read from the live map after the handler has returned.
func TestServerReadsTrailersAfterReturn(t *testing.T) {
	protocols(t, func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string)) {
		c, url := server(func(w http.ResponseWriter, r *http.Request) {
			b := []string{"at WriteHeader"}
			w.Header()[http.TrailerPrefix+"X"] = b
			w.WriteHeader(200)
			io.WriteString(w, "body")
			http.NewResponseController(w).Flush()
			b[0] = "at the end"
		})
		if got := fetch(t, c, url).Trailer.Get("X"); got != "at the end" {
			t.Errorf("trailer X = %q, want what it was at the end", got)
		}
	})
}

// An informational header is sent from the live map, which stays.
func TestServerSendsInformationalHeader(t *testing.T) {
	var early, final string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := []string{"early"}
		w.Header()["X"] = b
		w.WriteHeader(http.StatusEarlyHints)
		b[0] = "final"
	}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	r := textproto.NewReader(bufio.NewReader(conn))
	for _, want := range []*string{&early, &final} {
		if _, err := r.ReadLine(); err != nil {
			t.Fatal(err)
		}
		h, err := r.ReadMIMEHeader()
		if err != nil {
			t.Fatal(err)
		}
		*want = h.Get("X")
	}
	if early != "early" || final != "final" {
		t.Errorf("X = %q, then %q, want early, then final", early, final)
	}
}

// TimeoutHandler hands on its handler's slices, not copies, after that handler
// has returned.
func TestTimeoutHandlerSharesSlices(t *testing.T) {
	b := []string{"v"}
	h := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X"] = b
		w.WriteHeader(200)
	}), time.Minute, "")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, get())
	if got := rec.Header()["X"]; &got[0] != &b[0] {
		t.Error("TimeoutHandler copied the slice; the package comment says that it does not")
	}
}

// A recorder copies at WriteHeader and shows the live map by Header.
func TestRecorderCopiesAtWriteHeader(t *testing.T) {
	b := []string{"v"}
	rec := httptest.NewRecorder()
	rec.Header()["X"] = b
	rec.WriteHeader(200)
	b[0] = "later"
	if got := rec.Result().Header.Get("X"); got != "v" {
		t.Errorf("Result's X = %q, want v", got)
	}
	if got := rec.Header().Get("X"); got != "later" {
		t.Errorf("Header's X = %q, want later", got)
	}
}

// The writers that a Pool trusts are the two of net/http, under a wrapper that
// forwards, too. If a new Go calls them otherwise this test fails, and Pool
// allocates.
func TestPoolTrusts(t *testing.T) {
	protocols(t, func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string)) {
		trusted := map[string]bool{}
		c, url := server(func(w http.ResponseWriter, r *http.Request) {
			trusted["server's own"] = reply.Recycles(w)
			trusted["forwarder"] = reply.Recycles(forwarder{forwarder{w}})
			trusted["wrapper"] = reply.Recycles(struct{ http.ResponseWriter }{w})
			trusted["forwarder to a wrapper"] = reply.Recycles(forwarder{struct{ http.ResponseWriter }{w}})
			http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				trusted["TimeoutHandler"] = reply.Recycles(w)
			}), time.Minute, "").ServeHTTP(httptest.NewRecorder(), r)
		})
		fetch(t, c, url)
		for what, want := range map[string]bool{
			"server's own": true, "forwarder": true, "wrapper": false, "forwarder to a wrapper": false, "TimeoutHandler": false,
		} {
			if got, ok := trusted[what]; got != want || !ok {
				t.Errorf("%s is trusted: %v, want %v", what, got, want)
			}
		}
	})
	if reply.Recycles(httptest.NewRecorder()) || reply.Recycles(nil) || reply.Recycles(newDiscard()) {
		t.Error("trusts a writer that is not net/http's")
	}
	var loop selfForwarder
	if reply.Recycles(&loop) {
		t.Error("trusts a wrapper of itself")
	}
}

// A forwarder is the wrapper that a service puts around its writer to count.
type forwarder struct{ http.ResponseWriter }

func (f forwarder) ForwardsHeaderTo() http.ResponseWriter { return f.ResponseWriter }

type selfForwarder struct{ discard }

func (f *selfForwarder) ForwardsHeaderTo() http.ResponseWriter { return f }

// A key that is not canonical would be sent twice beside Header.Set's.
func TestKeysAreCanonical(t *testing.T) {
	a := reply.New(200, "text/plain", []byte(strings.Repeat("x", 200)), reply.Gzip(), reply.CacheControl("no-cache"),
		reply.Header("www-authenticate", "Bearer"), reply.RetryAfter(1), reply.Allow("GET"))
	for _, accept := range []string{"gzip", "identity"} {
		rec := httptest.NewRecorder()
		a.ServeHTTP(rec, get("Accept-Encoding", accept))
		for name := range rec.Header() {
			if name != http.CanonicalHeaderKey(name) {
				t.Errorf("key %q is not canonical", name)
			}
		}
	}
}

// The server adds a Content-Length to a body that a lean answer leaves without,
// up to the longest one.
func TestServerAddsContentLength(t *testing.T) {
	for _, n := range []int{0, 1, 2048, 2049} {
		a := reply.New(200, "text/plain", []byte(strings.Repeat("x", n)), reply.Lean())
		protocols(t, func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string)) {
			c, url := server(a.ServeHTTP)
			for _, get := range []func(string) (*http.Response, error){c.Get, c.Head} {
				res, err := get(url)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if res.ContentLength != int64(n) || len(res.TransferEncoding) > 0 {
					t.Errorf("%s of %d bytes: length %d, encoding %q", res.Request.Method, n, res.ContentLength, res.TransferEncoding)
				}
			}
		})
	}
}
