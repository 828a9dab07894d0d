package reply_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

// A message is a response in the form in which both ways of sending are compared.
type message struct {
	status int
	header http.Header
	body   string
}

func (m message) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, m.status)
	m.header.Write(&b)
	b.WriteString(m.body)
	return b.String()
}

// parse parses exactly one response from raw.
func parse(t *testing.T, raw []byte, method string) message {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(raw))
	res, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("parse %q: %v", raw, err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("read body of %q: %v", raw, err)
	}
	if rest, _ := io.ReadAll(r); len(rest) > 0 {
		t.Errorf("%d bytes after the message: %q", len(rest), rest)
	}
	if res.Close {
		res.Header.Set("Connection", "close")
	}
	return message{res.StatusCode, res.Header, string(body)}
}

// record returns the response that the handler writes to an http.ResponseWriter.
func record(h http.Handler, r *http.Request) message {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return message{rec.Code, rec.Result().Header, rec.Body.String()}
}

// TestHTTP1 compares both ways of sending for every kind of answer and request: an
// event loop and net/http must not differ.
func TestHTTP1(t *testing.T) {
	answers := map[string]*reply.Answer{
		"json":       reply.JSON(200, "x"),
		"empty":      reply.New(202, "", nil),
		"no content": reply.New(204, "", nil),
		"fields":     reply.New(503, "text/plain", []byte("later"), reply.NoStore(), reply.Allow("GET")),
	}
	for name, a := range answers {
		for _, method := range []string{"GET", "HEAD"} {
			for _, retry := range []time.Duration{0, 2500 * time.Millisecond} {
				h := http.Handler(a)
				if retry > 0 {
					h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.WriteRetryAfter(w, r, retry) })
				}
				want := record(h, httptest.NewRequest(method, "/", nil))
				raw := a.AppendHTTP1(nil, reply.HTTP1{Head: method == "HEAD", RetryAfter: retry})
				if got := parse(t, raw, method); got.String() != want.String() {
					t.Errorf("%s: %s, retry %v:\ngot\n%s\nwant\n%s", name, method, retry, got, want)
				}
			}
		}
	}
}

func TestHead(t *testing.T) {
	head := reply.NewHead(200, "application/json", reply.NoStore())
	for _, n := range []int{0, 1, 4095, 4096, 100_000} {
		body := bytes.Repeat([]byte("b"), n)
		for _, method := range []string{"GET", "HEAD"} {
			got := record(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Etag", "stale")
				if err := head.Write(w, r, body); err != nil {
					t.Error(err)
				}
			}), httptest.NewRequest(method, "/", nil))
			wantHeader(t, got.header, "Content-Type", "application/json", "Content-Length", fmt.Sprint(n),
				"Cache-Control", "no-store", "X-Content-Type-Options", "nosniff")
			want := body
			if method == "HEAD" {
				want = nil
			}
			if got.status != 200 || got.body != string(want) {
				t.Errorf("%s of %d bytes: status %d and %d bytes", method, n, got.status, len(got.body))
			}
			raw := head.AppendHTTP1(nil, reply.HTTP1{Head: method == "HEAD"}, body)
			if wire := parse(t, raw, method); wire.String() != got.String() {
				t.Errorf("%s of %d bytes as a message:\n%s\nwant\n%s", method, n, wire, got)
			}
		}
	}

	got := record(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head.Begin(w)
		io.WriteString(w, "page by page")
	}), get())
	wantHeader(t, got.header, "Content-Type", "application/json", "Cache-Control", "no-store",
		"X-Content-Type-Options", "nosniff")
	if got.body != "page by page" {
		t.Errorf("body = %q", got.body)
	}

	rec := httptest.NewRecorder()
	head.WriteRetryAfter(rec, get(), time.Minute, []byte("x"))
	if got := rec.Header().Get("Retry-After"); got != "60" {
		t.Errorf("Retry-After = %q, want 60", got)
	}
}
