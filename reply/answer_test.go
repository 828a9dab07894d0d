package reply_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

func TestAnswer(t *testing.T) {
	const body = `{"status":"stored"}`
	stored := reply.New(200, "application/json", []byte(body))

	for _, tt := range []struct {
		name   string
		answer *reply.Answer
		req    *http.Request
		status int
		body   string
		header []string
	}{
		{
			"plain", stored, get(), 200, body,
			[]string{"Content-Type", "application/json", "Content-Length", "19", "X-Content-Type-Options", "nosniff"},
		},
		{
			"no body for HEAD", stored, request("HEAD"), 200, "",
			[]string{"Content-Type", "application/json", "Content-Length", "19", "X-Content-Type-Options", "nosniff"},
		},
		{
			"no conditions", stored, get("If-None-Match", "*"), 200, body,
			[]string{"Content-Type", "application/json", "Content-Length", "19", "X-Content-Type-Options", "nosniff"},
		},
		{
			"no content", reply.New(204, "", nil), get(), 204, "",
			[]string{"X-Content-Type-Options", "nosniff"},
		},
		{
			"empty", reply.New(202, "", nil), get(), 202, "",
			[]string{"X-Content-Type-Options", "nosniff", "Content-Length", "0"},
		},
		{
			"JSON", reply.JSON(201, map[string]int{"n": 1}), request("POST"), 201, `{"n":1}` + "\n",
			[]string{"Content-Type", "application/json", "Content-Length", "8", "X-Content-Type-Options", "nosniff"},
		},
		{
			"options",
			reply.New(405, "text/plain", []byte("no"), reply.Allow("GET", "HEAD"), reply.NoStore(),
				reply.Header("link", "</x>"), reply.Header("Link", "</y>")),
			get(), 405, "no",
			[]string{
				"Content-Type", "text/plain", "Content-Length", "2", "X-Content-Type-Options", "nosniff", "Allow", "GET, HEAD",
				"Cache-Control", "no-store", "Link", "</y>",
			},
		},
		{
			"lean", reply.New(200, "text/plain", []byte("ok"), reply.Lean()), get(), 200, "ok",
			[]string{"Content-Type", "text/plain"},
		},
		{
			"lean, HEAD", reply.New(200, "text/plain", []byte("ok"), reply.Lean()), request("HEAD"), 200, "",
			[]string{"Content-Type", "text/plain", "Content-Length", "2"},
		},
		{
			"lean, no body", reply.New(503, "", nil, reply.Lean()), get(), 503, "",
			nil,
		},
		{
			"lean, but longer than net/http's buffer",
			reply.New(200, "text/plain", []byte(strings.Repeat("x", 2049)), reply.Lean()), get(), 200, strings.Repeat("x", 2049),
			[]string{"Content-Type", "text/plain", "Content-Length", "2049"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := serve(tt.answer, tt.req)
			if got.StatusCode != tt.status {
				t.Errorf("status = %d, want %d", got.StatusCode, tt.status)
			}
			if b, _ := io.ReadAll(got.Body); string(b) != tt.body {
				t.Errorf("body = %q, want %q", b, tt.body)
			}
			wantHeader(t, got.Header, tt.header...)
		})
	}
}

// Fields that a handler set for another body are removed; fields that other layers set
// for the response are kept, among them the encoding of a middleware that compresses.
func TestStaleFields(t *testing.T) {
	a := reply.New(503, "text/plain", []byte("later"))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Content-Range", "Content-Length", "Etag", "Last-Modified"} {
			w.Header().Set(name, "stale")
		}
		w.Header().Set("X-Request-Id", "7")
		w.Header().Set("Content-Encoding", "br")
		a.ServeHTTP(w, r)
	})
	wantHeader(t, serve(h, get()).Header, "Content-Type", "text/plain", "Content-Length", "5",
		"X-Content-Type-Options", "nosniff", "X-Request-Id", "7", "Content-Encoding", "br")
}

// A compressed is a ResponseWriter of a middleware that compresses what is written, as
// gorilla/handlers.CompressHandler does: it sets the encoding before it calls the handler.
type compressed struct {
	http.ResponseWriter
	body io.Writer
}

func (c compressed) WriteHeader(status int) {
	c.Header().Del("Content-Length")
	c.ResponseWriter.WriteHeader(status)
}

func (c compressed) Write(p []byte) (int, error) {
	c.Header().Del("Content-Length")
	return c.body.Write(p)
}

// Each kind of answer can be read by a client behind a middleware that compresses.
func TestCompressedByMiddleware(t *testing.T) {
	problem := reply.NewProblem(404, "", "")
	long := strings.Repeat("x", 3000) // for which a lean answer has a Content-Length
	for name, answer := range map[string]http.HandlerFunc{
		"Answer":  reply.New(200, "text/plain", []byte("text")).ServeHTTP,
		"failure": reply.New(503, "text/plain", []byte("text")).ServeHTTP,
		"lean":    reply.New(200, "text/plain", []byte("text"), reply.Lean()).ServeHTTP,
		"long":    reply.New(200, "text/plain", []byte(long), reply.Lean()).ServeHTTP,
		"Problem": func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, "text") },
		"Head": func(w http.ResponseWriter, r *http.Request) {
			_ = reply.NewHead(200, "text/plain").Write(w, r, []byte("text"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			plain := serve(answer, get())
			want, _ := io.ReadAll(plain.Body)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				body := gzip.NewWriter(w)
				defer body.Close()
				answer(compressed{w, body}, r)
			}))
			defer server.Close()
			got, err := server.Client().Get(server.URL) // the client asks for gzip, and decompresses
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close()
			body, err := io.ReadAll(got.Body)
			if err != nil || string(body) != string(want) || got.StatusCode != plain.StatusCode || !got.Uncompressed {
				t.Errorf("got %d %q, %v, decompressed: %v, want %d %q", got.StatusCode, body, err, got.Uncompressed,
					plain.StatusCode, want)
			}
		})
	}
}

func TestWriteRetryAfter(t *testing.T) {
	fixed := reply.New(503, "text/plain", []byte("later"))
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0"},
		{0, "0"},
		{1, "1"},
		{time.Second, "1"},
		{time.Second + 1, "2"},
		{4095 * time.Second, "4095"},
		{4096 * time.Second, "4096"},
	} {
		rec := httptest.NewRecorder()
		fixed.WriteRetryAfter(rec, get(), tt.d)
		if got := rec.Header().Get("Retry-After"); got != tt.want {
			t.Errorf("Retry-After for %v = %q, want %q", tt.d, got, tt.want)
		}
	}
	if got := serve(fixed, get()).Header.Get("Retry-After"); got != "" {
		t.Errorf("Retry-After of ServeHTTP = %q, want none", got)
	}
}

// An answer does not change with the bytes from which it was created.
func TestAnswerCopies(t *testing.T) {
	body := []byte("body")
	a := reply.New(200, "text/plain", body)
	body[0] = 'X'
	if got := string(a.Body()); got != "body" {
		t.Errorf("body = %q after its source was changed", got)
	}
}

func TestMistakesPanicAtStart(t *testing.T) {
	body := []byte("x")
	for what, f := range map[string]func(){
		"informational status":       func() { reply.New(103, "", nil) },
		"status out of range":        func() { reply.New(600, "", nil) },
		"body with 204":              func() { reply.New(204, "text/plain", body) },
		"body with 304":              func() { reply.New(304, "text/plain", body) },
		"body without type":          func() { reply.New(200, "", body) },
		"invalid value":              func() { reply.JSON(200, make(chan int)) },
		"line break in type":         func() { reply.New(200, "text/plain\r\nX: y", body) },
		"line break in value":        func() { reply.Header("X-A", "a\nb") },
		"NUL in value":               func() { reply.Value("a\x00b") },
		"space around value":         func() { reply.Header("Cache-Control", " no-store") },
		"space in name":              func() { reply.Header("X A", "a") },
		"empty name":                 func() { reply.Header("", "a") },
		"method that is not a token": func() { reply.Allow("GET, HEAD") },
		"own field":                  func() { reply.Header("content-length", "1") },
		"Retry-After":                func() { reply.Header("Retry-After", "1") },
		"Lean Head":                  func() { reply.NewHead(200, "text/plain", reply.Lean()) },
		"Head with status 100":       func() { reply.NewHead(100, "text/plain") },
	} {
		wantPanic(t, what, f)
	}
}
