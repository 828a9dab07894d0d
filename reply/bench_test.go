package reply_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

// bucket is the trick that this package replaces: one slice for all responses.
// It is a data race as soon as two are written at a time.
var bucket = [3][]string{{""}, {""}, {""}}

// BenchmarkHeaders sets three header fields. In set=fixed the texts are known at
// start; in set=dynamic one is a length that differs per response.
func BenchmarkHeaders(b *testing.B) {
	contentType, noStore, nosniff := reply.Value("application/json"), reply.Value("no-store"), reply.Value("nosniff")
	lengths := make([]string, 256)
	for i := range lengths {
		lengths[i] = strconv.Itoa(i)
	}
	for _, bb := range []struct {
		name string
		set  func(h http.Header, i int)
	}{
		{"impl=set/set=fixed", func(h http.Header, _ int) {
			h.Set("Content-Type", "application/json")
			h.Set("Cache-Control", "no-store")
			h.Set("X-Content-Type-Options", "nosniff")
		}},
		{"impl=bucket/set=fixed", func(h http.Header, _ int) {
			bucket[0][0], bucket[1][0], bucket[2][0] = "application/json", "no-store", "nosniff"
			h["Content-Type"] = bucket[0]
			h["Cache-Control"] = bucket[1]
			h["X-Content-Type-Options"] = bucket[2]
		}},
		{"impl=reply/set=fixed", func(h http.Header, _ int) {
			h["Content-Type"] = contentType
			h["Cache-Control"] = noStore
			h["X-Content-Type-Options"] = nosniff
		}},
		{"impl=set/set=dynamic", func(h http.Header, i int) {
			h.Set("Content-Type", "application/json")
			h.Set("Cache-Control", "no-store")
			h.Set("Content-Length", strconv.Itoa(i&0xff))
		}},
		{"impl=bucket/set=dynamic", func(h http.Header, i int) {
			bucket[0][0], bucket[1][0], bucket[2][0] = "application/json", "no-store", lengths[i&0xff]
			h["Content-Type"] = bucket[0]
			h["Cache-Control"] = bucket[1]
			h["Content-Length"] = bucket[2]
		}},
		{"impl=reply/set=dynamic", func(h http.Header, i int) {
			h["Content-Type"] = contentType
			h["Cache-Control"] = noStore
			h["Content-Length"] = reply.IntValue(i & 0xff)
		}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			h := make(http.Header)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				bb.set(h, i)
				i++
			}
			if len(h) != 3 {
				b.Fatalf("%d fields", len(h))
			}
		})
	}
}

// BenchmarkDynamic sets one field whose text is not a small integer.
func BenchmarkDynamic(b *testing.B) {
	d := newDiscard()
	intern := reply.NewInterner(256, 64)
	pool := reply.Trusting(d)
	locations := make([]string, 32)
	for i := range locations {
		locations[i] = "/v1/devices/ppg-0000" + strconv.Itoa(i)
	}
	for _, bb := range []struct {
		name string
		set  func(location string)
	}{
		{"impl=set", func(s string) { d.header.Set("Location", s); d.WriteHeader(201) }},
		{"impl=bucket", func(s string) { bucket[0][0] = s; d.header["Location"] = bucket[0]; d.WriteHeader(201) }},
		{"impl=interner", func(s string) { d.header["Location"] = intern.Value(s); d.WriteHeader(201) }},
		{"impl=pool", func(s string) { pool.WriteHeader(d, 201, reply.Field{Key: "Location", Value: s}) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			clear(d.header)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				bb.set(locations[i&31])
				i++
			}
		})
	}
}

// BenchmarkAnswer serves a small document.
func BenchmarkAnswer(b *testing.B) {
	type status struct {
		Status string `json:"status"`
	}
	body := []byte(`{"status":"stored"}`)
	cached := reply.New(200, "application/json", make([]byte, 500), reply.Gzip(), reply.Zstd([]byte("z")), reply.CacheControl("no-cache"))
	browser := get("Accept-Encoding", "gzip, deflate, br, zstd")
	unchanged := get("If-None-Match", cached.ETag())
	plain := reply.New(200, "application/json", body)
	for _, bb := range []struct {
		name string
		h    http.Handler
		r    *http.Request
	}{
		{"impl=marshal", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(status{"stored"})
		}), get()},
		{"impl=bytes", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write(body)
		}), get()},
		{"impl=reply", plain, get()},
		{"impl=reply-lean", reply.New(200, "application/json", body, reply.Lean()), get()},
		{"impl=reply-negotiated", cached, browser},
		{"impl=reply-304", cached, unchanged},
	} {
		b.Run(bb.name, func(b *testing.B) {
			d := newDiscard()
			b.ReportAllocs()
			for b.Loop() {
				bb.h.ServeHTTP(d, bb.r)
			}
			if d.n == 0 && d.status != http.StatusNotModified {
				b.Fatal("nothing was written")
			}
		})
	}
	b.Run("impl=reply-http1", func(b *testing.B) {
		buf := make([]byte, 0, 4096)
		b.ReportAllocs()
		for b.Loop() {
			buf = plain.AppendHTTP1(buf[:0], reply.HTTP1{})
		}
	})
}

// BenchmarkProblem refuses a reading with the field and the reason.
func BenchmarkProblem(b *testing.B) {
	type document struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
		Field  string `json:"field"`
		Index  int    `json:"index"`
	}
	const typ, title, detail, field = "https://pulsegate.example/problems/invalid", "Invalid reading", "above the highest value that is accepted", "spo2_pct"
	p := reply.NewProblem(422, typ, title)
	r := get()
	for _, bb := range []struct {
		name  string
		write func(w http.ResponseWriter, index int)
	}{
		{"impl=marshal", func(w http.ResponseWriter, index int) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(422)
			json.NewEncoder(w).Encode(document{typ, title, 422, detail, field, index})
		}},
		{"impl=reply", func(w http.ResponseWriter, index int) {
			p.Write(w, r, detail, reply.String("field", field), reply.Int("index", int64(index)))
		}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			d := newDiscard()
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				bb.write(d, i&0x3ff)
				i++
			}
			if d.status != 422 || d.n == 0 {
				b.Fatalf("status %d, %d bytes", d.status, d.n)
			}
		})
	}
}

// BenchmarkAppend writes the texts that responses are full of.
func BenchmarkAppend(b *testing.B) {
	buf := make([]byte, 0, 64)
	at := time.Unix(784111777, 0)
	clock := reply.NewClock(func() time.Time { return at })
	for _, bb := range []struct {
		name string
		f    func(i int)
	}{
		{"impl=strconv/what=int", func(i int) { buf = strconv.AppendInt(buf[:0], int64(i&0xfff), 10) }},
		{"impl=reply/what=int", func(i int) { buf = reply.AppendInt(buf[:0], int64(i&0xfff)) }},
		{"impl=time/what=date", func(i int) { buf = at.UTC().AppendFormat(buf[:0], http.TimeFormat) }},
		{"impl=reply/what=date", func(i int) { buf = reply.AppendHTTPDate(buf[:0], at) }},
		{"impl=clock/what=date", func(i int) { buf = clock.AppendDate(buf[:0]) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				bb.f(i)
				i++
			}
			if len(buf) == 0 {
				b.Fatal("nothing was written")
			}
		})
	}
}
