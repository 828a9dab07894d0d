package reply_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

// What this package serves in steady state allocates nothing. The writer is one
// that allocates nothing itself.
func TestNoAllocations(t *testing.T) {
	d := newDiscard()
	plain := reply.JSON(200, map[string]string{"status": "stored"})
	lean := reply.New(200, "application/json", []byte(`{}`), reply.NoStore(), reply.Lean())
	cached := reply.New(200, "text/plain", make([]byte, 500), reply.Gzip(), reply.Zstd([]byte("z")),
		reply.CacheControl("max-age=5"), reply.Vary("Origin"))
	busy := reply.New(503, "text/plain", []byte("later"))
	head := reply.NewHead(200, "application/json")
	problem := reply.NewProblem(422, "https://pulsegate.example/problems/invalid", "Invalid reading")
	intern := reply.NewInterner(16, 64)
	pool := reply.Trusting(d)
	clock := reply.NewClock(func() time.Time { return time.Unix(1e9, 0) })

	getPlain, getZipped := get(), get("Accept-Encoding", "br;q=0.1, gzip;q=0.9, zstd;q=0.2, *;q=0")
	headPlain, unchanged := request("HEAD"), get("If-None-Match", `"a", W/"b", `+cached.ETag())
	body := make([]byte, reply.SmallInts-1)
	location := []byte("/v1/devices/ppg-000123")
	buf := make([]byte, 0, 8<<10)
	message := reply.HTTP1{
		Date: []byte("Sun, 06 Nov 1994 08:49:37 GMT"), Connection: "close", RetryAfter: time.Second,
		AcceptEncoding: []byte("gzip;q=0.5, *;q=0"), IfNoneMatch: []byte(`"a", "b"`),
	}
	field, n := "spo2_pct", int64(41)

	for what, f := range map[string]func(){
		"Answer":               func() { plain.ServeHTTP(d, getPlain) },
		"Answer, HEAD":         func() { plain.ServeHTTP(d, headPlain) },
		"Answer, lean":         func() { lean.ServeHTTP(d, getPlain) },
		"Answer, negotiated":   func() { cached.ServeHTTP(d, getZipped) },
		"Answer, 304":          func() { cached.ServeHTTP(d, unchanged) },
		"Answer, stale fields": func() { d.header["Etag"] = nil; plain.ServeHTTP(d, getPlain) },
		"Answer.WriteRetry":    func() { busy.WriteRetryAfter(d, getPlain, time.Minute) },
		"Answer.AppendHTTP1":   func() { buf = cached.AppendHTTP1(buf[:0], message) },
		"Head.Write":           func() { head.Write(d, getPlain, body) },
		"Head.WriteRetry":      func() { head.WriteRetryAfter(d, getPlain, time.Hour, body) },
		"Head.Begin":           func() { head.Begin(d) },
		"Head.AppendHTTP1":     func() { buf = head.AppendHTTP1(buf[:0], message, body) },
		"Problem.Write":        func() { problem.Write(d, getPlain, "above 100 %", reply.String("field", field), reply.Int("index", n)) },
		"Problem.WriteRetry":   func() { problem.WriteRetryAfter(d, getPlain, time.Second, "busy", reply.Int("index", n)) },
		"Problem.AppendHTTP1":  func() { buf = problem.AppendHTTP1(buf[:0], message, "d", reply.RawJSON("e", location[:0])) },
		"AppendProblem":        func() { buf = reply.AppendProblem(buf[:0], problem, "d\n\xff", reply.String("field", field)) },
		"IntValue":             func() { d.header["Content-Length"] = reply.IntValue(int(n)) },
		"Interner.Value":       func() { d.header["Location"] = intern.Value("/v1/devices/ppg-000123") },
		"Interner.ValueBytes":  func() { d.header["Location"] = intern.ValueBytes(location) },
		"Clock.Date":           func() { d.header["Date"] = clock.Date() },
		"Clock.AppendDate":     func() { buf = clock.AppendDate(buf[:0]) },
		"Pool.WriteHeader": func() {
			pool.WriteHeader(d, 201, reply.Field{Key: "Location", Value: field}, reply.Field{Key: "X", Value: field})
		},
		"AppendInt":        func() { buf = reply.AppendInt(buf[:0], n*1e9) },
		"AppendToken":      func() { buf, _ = reply.AppendToken(buf[:0], `a "token"`) },
		"AppendETag":       func() { buf, _ = reply.AppendETag(buf[:0], "v1", true) },
		"MatchETag":        func() { reply.MatchETag(unchanged.Header["If-None-Match"], cached.ETag()) },
		"AppendJSONString": func() { buf = reply.AppendJSONString(buf[:0], "a\"\xff\u2028") },
	} {
		clear(d.header)
		wantNoAllocs(t, what, f)
	}
}

// In a real response of net/http, too, the package adds nothing to what the
// server allocates for itself: its copy of the header.
func TestNoAllocationsInServer(t *testing.T) {
	a := reply.New(200, "text/plain", []byte("x"))
	intern := reply.NewInterner(16, 64)
	protocols(t, func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string)) {
		var got float64
		c, url := server(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			got = testing.AllocsPerRun(100, func() {
				h["Content-Length"] = reply.IntValue(1)
				h["Location"] = intern.Value("/v1/devices/ppg-000123")
			})
			clear(h)
			a.ServeHTTP(w, r)
		})
		fetch(t, c, url)
		if got != 0 {
			t.Errorf("%v allocations to set two values, want 0", got)
		}
	})
}
