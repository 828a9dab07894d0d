package reply_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

// wantAnswer fails unless the response has the given status, content type and body. It
// ignores white space around the body, which an encoder may add.
func wantAnswer(b *testing.B, got *http.Response, status int, contentType, body string) {
	b.Helper()
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		b.Fatal(err)
	}
	if got.StatusCode != status || got.Header.Get("Content-Type") != contentType ||
		strings.TrimSpace(string(text)) != body {
		b.Fatalf("got %d %v %q, want %d, type %q, %q", got.StatusCode, got.Header, text, status, contentType, body)
	}
}

// BenchmarkAnswer serves a small document.
func BenchmarkAnswer(b *testing.B) {
	type status struct {
		Status string `json:"status"`
	}
	const text, typ = `{"status":"stored"}`, "application/json"
	body := []byte(text)
	plain := reply.New(200, "application/json", body)
	for _, bb := range []struct {
		name string
		h    http.Handler
	}{
		{"impl=marshal", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(status{"stored"})
		})},
		{"impl=bytes", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write(body)
		})},
		{"impl=reply", plain},
		{"impl=reply-lean", reply.New(200, "application/json", body, reply.Lean())},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := get()
			wantAnswer(b, serve(bb.h, r), 200, typ, text)
			d := newDiscard()
			b.ReportAllocs()
			for b.Loop() {
				bb.h.ServeHTTP(d, r)
			}
		})
	}
	b.Run("impl=reply-http1", func(b *testing.B) {
		buf := make([]byte, 0, 4096)
		b.ReportAllocs()
		for b.Loop() {
			buf = plain.AppendHTTP1(buf[:0], reply.HTTP1{})
		}
		got, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(buf)), get())
		if err != nil {
			b.Fatal(err)
		}
		wantAnswer(b, got, 200, typ, text)
	})
}

// BenchmarkProblem sends a problem with a field and a reason.
func BenchmarkProblem(b *testing.B) {
	type document struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Field  string `json:"field"`
		Reason string `json:"reason"`
	}
	const typ, title = "https://pulsegate.example/problems/invalid", "Invalid reading"
	const field, reason = "spo2_pct", "outside the accepted range"
	const want = `{"type":"` + typ + `","title":"` + title + `","status":422,"field":"` + field + `","reason":"` +
		reason + `"}`
	p := reply.NewProblem(422, typ, title)
	r := get()
	for _, bb := range []struct {
		name  string
		write http.HandlerFunc
	}{
		{"impl=marshal", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(422)
			json.NewEncoder(w).Encode(document{typ, title, 422, field, reason})
		}},
		{"impl=reply", func(w http.ResponseWriter, r *http.Request) {
			p.Write(w, r, "", reply.String("field", field), reply.String("reason", reason))
		}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			wantAnswer(b, serve(bb.write, r), 422, "application/problem+json", want)
			d := newDiscard()
			b.ReportAllocs()
			for b.Loop() {
				bb.write(d, r)
			}
		})
	}
}

// BenchmarkDate formats the Date of a response.
func BenchmarkDate(b *testing.B) {
	buf := make([]byte, 0, 64)
	at := time.Unix(784111777, 0)
	clock := reply.NewClock(func() time.Time { return at })
	for name, f := range map[string]func(){
		"impl=time":  func() { buf = at.UTC().AppendFormat(buf[:0], http.TimeFormat) },
		"impl=clock": func() { buf = clock.AppendDate(buf[:0]) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
