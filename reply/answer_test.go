package reply_test

import (
	"bytes"
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
	cached := reply.New(200, "text/plain", []byte("hello"), reply.CacheControl("public, max-age=60"))

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
			"not cacheable: the condition is ignored", stored, get("If-None-Match", "*"), 200, body,
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
			"JSON", reply.JSON(201, map[string]int{"n": 1}), request("POST"), 201, `{"n":1}`,
			[]string{"Content-Type", "application/json", "Content-Length", "7", "X-Content-Type-Options", "nosniff"},
		},
		{
			"options",
			reply.New(405, "text/plain", []byte("no"), reply.Allow("GET", "HEAD"), reply.NoStore(),
				reply.RetryAfter(1500*time.Millisecond), reply.Vary("Origin"), reply.Header("link", "</x>"), reply.Header("Link", "</y>")),
			get(), 405, "no",
			[]string{
				"Content-Type", "text/plain", "Content-Length", "2", "X-Content-Type-Options", "nosniff", "Allow", "GET, HEAD",
				"Cache-Control", "no-store", "Retry-After", "2", "Vary", "Origin", "Link", "</y>",
			},
		},
		{
			"cacheable", cached, get(), 200, "hello",
			[]string{
				"Content-Type", "text/plain", "Content-Length", "5", "X-Content-Type-Options", "nosniff",
				"Cache-Control", "public, max-age=60", "Etag", cached.ETag(),
			},
		},
		{
			"not modified", cached, get("If-None-Match", `"x", W/`+cached.ETag()), 304, "",
			[]string{"Cache-Control", "public, max-age=60", "Etag", cached.ETag()},
		},
		{
			"not modified, HEAD", cached, request("HEAD", "If-None-Match", "*"), 304, "",
			[]string{"Cache-Control", "public, max-age=60", "Etag", cached.ETag()},
		},
		{
			"conditions of a POST are the handler's", cached, request("POST", "If-None-Match", "*"), 200, "hello",
			[]string{
				"Content-Type", "text/plain", "Content-Length", "5", "X-Content-Type-Options", "nosniff",
				"Cache-Control", "public, max-age=60", "Etag", cached.ETag(),
			},
		},
		{
			"modified", cached, get("If-None-Match", `"x"`, "If-None-Match", `"y"`), 200, "hello",
			[]string{
				"Content-Type", "text/plain", "Content-Length", "5", "X-Content-Type-Options", "nosniff",
				"Cache-Control", "public, max-age=60", "Etag", cached.ETag(),
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

// An answer of status 200 with a Cache-Control has a tag, unless it says
// no-store, in whatever case and place.
func TestETagOnlyWhereCacheable(t *testing.T) {
	for _, tt := range []struct {
		status       int
		cacheControl string
		want         bool
	}{
		{200, "", false},
		{200, "no-cache", true},
		{200, "private, max-age=5", true},
		{200, "no-store", false},
		{200, "max-age=0,No-Store ,private", false},
		{404, "max-age=5", false},
		{206, "max-age=5", false},
	} {
		var opts []reply.Option
		if tt.cacheControl != "" {
			opts = append(opts, reply.CacheControl(tt.cacheControl))
		}
		tag := reply.New(tt.status, "text/plain", []byte("x"), opts...).ETag()
		if got := tag != ""; got != tt.want {
			t.Errorf("%d, %q: tag %q, want one: %v", tt.status, tt.cacheControl, tag, tt.want)
		}
	}
}

// Bodies that differ have tags that differ, and so have the codings of one body.
func TestETagsAreStrong(t *testing.T) {
	cache := reply.CacheControl("no-cache")
	a := reply.New(200, "text/plain", []byte("one"), cache, reply.Encoded("zstd", []byte("on")))
	b := reply.New(200, "text/plain", []byte("two"), cache)
	same := reply.New(200, "text/plain", []byte("one"), cache)
	encoded := serve(a, get("Accept-Encoding", "zstd, identity;q=0")).Header.Get("Etag")
	if a.ETag() == b.ETag() || a.ETag() == encoded {
		t.Errorf("tags of different bytes are equal: %s %s %s", a.ETag(), b.ETag(), encoded)
	}
	if a.ETag() != same.ETag() {
		t.Errorf("tags of equal bytes differ: %s %s", a.ETag(), same.ETag())
	}
	// A client that holds the encoded form asks with that form's tag.
	if got := serve(a, get("Accept-Encoding", "zstd, identity;q=0", "If-None-Match", encoded)).StatusCode; got != 304 {
		t.Errorf("status with the variant's tag = %d, want 304", got)
	}
	if got := serve(a, get("If-None-Match", encoded)).StatusCode; got != 200 {
		t.Errorf("status with another variant's tag = %d, want 200", got)
	}
}

func TestVariants(t *testing.T) {
	plain := []byte(strings.Repeat("pulse ", 500))
	frame := []byte("a zstd frame made elsewhere")
	a := reply.New(200, "text/plain", plain, reply.Gzip(), reply.Zstd(frame), reply.CacheControl("no-cache"))

	res := serve(a, get("Accept-Encoding", "gzip"))
	if got := res.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("coding = %q, want gzip", got)
	}
	z, err := gzip.NewReader(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("unzipped to %d bytes (%v), want the %d of the body", len(got), err, len(plain))
	}

	res = serve(a, get("Accept-Encoding", "gzip, zstd"))
	if got, _ := io.ReadAll(res.Body); !bytes.Equal(got, frame) {
		t.Errorf("body = %q, want the smallest, %q", got, frame)
	}
	wantHeader(t, res.Header, "Content-Type", "text/plain", "Content-Length", "27", "Content-Encoding", "zstd",
		"Vary", "Accept-Encoding", "X-Content-Type-Options", "nosniff", "Cache-Control", "no-cache", "Etag", res.Header.Get("Etag"))

	tag := res.Header.Get("Etag")
	res = serve(a, get("Accept-Encoding", "zstd", "If-None-Match", tag))
	if res.StatusCode != 304 {
		t.Errorf("status = %d, want 304", res.StatusCode)
	}
	wantHeader(t, res.Header, "Vary", "Accept-Encoding", "Cache-Control", "no-cache", "Etag", tag)

	// A variant that is not smaller is left out, and nothing varies.
	short := reply.New(200, "text/plain", []byte("x"), reply.Gzip(), reply.Zstd([]byte("y")))
	res = serve(short, get("Accept-Encoding", "gzip, zstd"))
	wantHeader(t, res.Header, "Content-Type", "text/plain", "Content-Length", "1", "X-Content-Type-Options", "nosniff")
}

// What a handler had said of another body does not stay; what other layers said
// of the response does.
func TestStaleFields(t *testing.T) {
	a := reply.New(503, "text/plain", []byte("later"))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Content-Encoding", "Content-Range", "Content-Length", "Etag", "Last-Modified", "Transfer-Encoding"} {
			w.Header().Set(name, "stale")
		}
		w.Header().Set("X-Request-Id", "7")
		a.ServeHTTP(w, r)
	})
	wantHeader(t, serve(h, get()).Header,
		"Content-Type", "text/plain", "Content-Length", "5", "X-Content-Type-Options", "nosniff", "X-Request-Id", "7")

	cached := reply.New(200, "text/plain", []byte("x"), reply.NoStore(), reply.CacheControl("no-cache"))
	h = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "9")
		w.Header().Set("Content-Type", "image/png")
		cached.ServeHTTP(w, r)
	}
	wantHeader(t, serve(h, get("If-None-Match", "*")).Header, "Cache-Control", "no-cache", "Etag", cached.ETag())
}

// Vary is joined with what other layers have put there, and their slice is left
// alone.
func TestVaryIsJoined(t *testing.T) {
	a := reply.New(200, "text/plain", []byte("aaaa"), reply.Encoded("br", []byte("b")), reply.Vary("Origin"))
	for _, tt := range []struct {
		before, want []string
	}{
		{nil, []string{"Origin, Accept-Encoding"}},
		{[]string{"Cookie"}, []string{"Cookie", "Origin", "Accept-Encoding"}},
		{[]string{"cookie , origin"}, []string{"cookie , origin", "Accept-Encoding"}},
		{[]string{"Accept-Encoding", "Origin"}, []string{"Accept-Encoding", "Origin"}},
		{[]string{"*"}, []string{"*"}},
	} {
		rec := httptest.NewRecorder()
		shared := append(make([]string, 0, 8), tt.before...)
		if tt.before != nil {
			rec.Header()["Vary"] = shared
		}
		a.ServeHTTP(rec, get())
		if got := strings.Join(rec.Header()["Vary"], "|"); got != strings.Join(tt.want, "|") {
			t.Errorf("before %q: Vary = %q, want %q", tt.before, got, tt.want)
		}
		for _, s := range shared[len(shared):cap(shared)] {
			if s != "" {
				t.Errorf("before %q: wrote %q into the other layer's slice", tt.before, s)
			}
		}
	}
}

func TestWriteRetryAfter(t *testing.T) {
	fixed := reply.New(503, "text/plain", []byte("later"), reply.RetryAfter(9*time.Second))
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
	if got := serve(fixed, get()).Header.Get("Retry-After"); got != "9" {
		t.Errorf("Retry-After without a delay = %q, want the prepared 9", got)
	}
}

// An answer does not see what happens to the bytes that it was made from.
func TestAnswerCopies(t *testing.T) {
	body, frame := []byte("body"), []byte("zip")
	a := reply.New(200, "text/plain", body, reply.Encoded("br", frame))
	body[0], frame[0] = 'X', 'X'
	if got := string(a.Body()); got != "body" {
		t.Errorf("body = %q after its source was changed", got)
	}
	if got, _ := io.ReadAll(serve(a, get("Accept-Encoding", "br")).Body); string(got) != "zip" {
		t.Errorf("variant = %q after its source was changed", got)
	}
}

func TestMistakesPanicAtStart(t *testing.T) {
	body := []byte("x")
	many := make([]reply.Option, 0, reply.MaxVariants)
	for i := range reply.MaxVariants {
		many = append(many, reply.Encoded("c"+string(rune('a'+i)), body))
	}
	for what, f := range map[string]func(){
		"informational status":    func() { reply.New(103, "", nil) },
		"status out of range":     func() { reply.New(600, "", nil) },
		"body with 204":           func() { reply.New(204, "text/plain", body) },
		"body with 304":           func() { reply.New(304, "text/plain", body) },
		"body without type":       func() { reply.New(200, "", body) },
		"value that cannot be":    func() { reply.JSON(200, make(chan int)) },
		"line break in type":      func() { reply.New(200, "text/plain\r\nX: y", body) },
		"line break in value":     func() { reply.Header("X-A", "a\nb") },
		"NUL in value":            func() { reply.Value("a\x00b") },
		"space around value":      func() { reply.CacheControl(" no-store") },
		"space in name":           func() { reply.Header("X A", "a") },
		"empty name":              func() { reply.Header("", "a") },
		"method that is no token": func() { reply.Allow("GET, HEAD") },
		"own field":               func() { reply.Header("content-length", "1") },
		"Vary that is no token":   func() { reply.Vary("a b") },
		"same coding twice":       func() { reply.New(200, "text/plain", body, reply.Zstd(body), reply.Encoded("ZSTD", body)) },
		"gzip twice":              func() { reply.New(200, "text/plain", body, reply.Encoded("gzip", body), reply.Gzip()) },
		"x-gzip as a variant":     func() { reply.Encoded("x-gzip", body) },
		"identity as a variant":   func() { reply.Encoded("identity", body) },
		"too many variants":       func() { reply.New(200, "text/plain", body, many...) },
		"Head with variants":      func() { reply.NewHead(200, "text/plain", reply.Gzip()) },
		"Head with status 100":    func() { reply.NewHead(100, "text/plain") },
		"Pool with status 100":    func() { new(reply.Pool).WriteHeader(newDiscard(), 100) },
		"huge Interner":           func() { reply.NewInterner(1<<30, 8) },
	} {
		wantPanic(t, what, f)
	}
}
