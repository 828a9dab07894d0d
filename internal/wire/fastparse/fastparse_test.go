package fastparse_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
)

const line = "POST /v1/readings HTTP/1.1\r\n"

// usual returns a typical client's request with a body of n bytes.
func usual(n int) string {
	return line + "Host: example.org:8080\r\nUser-Agent: gateway/1.0 (x; y)\r\nContent-Length: " + fmt.Sprint(n) +
		"\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n" + strings.Repeat("b", n)
}

// check compares the result of Recognise for b with net/http and with its documentation.
func check(t *testing.T, b []byte) fastparse.Verdict {
	t.Helper()
	r, verdict := fastparse.Recognise(b)
	switch verdict {
	case fastparse.More:
		if r.Need <= len(b) {
			t.Errorf("%q: needs %d bytes of %d", b, r.Need, len(b))
		}
	case fastparse.Other:
		if r != (fastparse.Request{}) {
			t.Errorf("%q: verdict other with request %+v", b, r)
		}
	case fastparse.Accept:
		agree(t, b, r)
	default:
		t.Errorf("%q: verdict %d", b, verdict)
	}
	return verdict
}

// agree reports where net/http reads an accepted request differently.
func agree(t *testing.T, b []byte, r fastparse.Request) {
	t.Helper()
	in := bufio.NewReaderSize(bytes.NewReader(b), len(b)+16)
	req, err := http.ReadRequest(in)
	if err != nil {
		t.Errorf("%q: accepted, but net/http returns %v", b, err)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		t.Errorf("%q: accepted, but net/http returns %v for the body", b, err)
	}
	rest, _ := io.ReadAll(in)
	switch {
	case req.Method != "POST", req.RequestURI != "/v1/readings", req.Proto != "HTTP/1.1":
		t.Errorf("%q: net/http reads %s %s %s", b, req.Method, req.RequestURI, req.Proto)
	case req.Host == "" || len(req.TransferEncoding) != 0 || len(req.Trailer) != 0:
		t.Errorf("%q: net/http reads host %q, transfer encoding %q, trailer %v", b, req.Host,
			req.TransferEncoding, req.Trailer)
	case req.ContentLength != int64(len(body)) || !bytes.Equal(body, r.Body.Of(b)):
		t.Errorf("%q: net/http reads a body %q of %d bytes, want %q", b, body, req.ContentLength, r.Body.Of(b))
	case !bytes.Equal(rest, b[r.Body.End:]):
		t.Errorf("%q: net/http leaves %q, want %q", b, rest, b[r.Body.End:])
	case req.Close != r.Close:
		t.Errorf("%q: net/http closes: %v, want %v", b, req.Close, r.Close)
	case req.Header.Get("Traceparent") != string(r.Traceparent.Of(b)):
		t.Errorf("%q: net/http reads traceparent %q, want %q", b, req.Header.Get("Traceparent"), r.Traceparent.Of(b))
	case req.Header.Get("Authorization") != string(r.Authorization.Of(b)):
		t.Errorf("%q: net/http reads authorization %q, want %q", b, req.Header.Get("Authorization"), r.Authorization.Of(b))
	}
	for name, values := range req.Header {
		switch name {
		case "Content-Length", "Content-Type", "User-Agent", "Accept", "Accept-Encoding", "Connection", "Authorization",
			"Traceparent", "Tracestate":
		default:
			t.Errorf("%q: accepted with a field %q", b, name)
		}
		if len(values) != 1 {
			t.Errorf("%q: accepted with %d fields %q", b, len(values), name)
		}
	}
}

func TestAccepted(t *testing.T) {
	for _, tt := range []struct{ name, in string }{
		{"usual", usual(170)},
		{"least", line + "Host: x\r\nContent-Length: 1\r\n\r\nb"},
		{"no spaces", line + "Host:x\r\nContent-Length:1\r\n\r\nb"},
		{"cases", line + "HOST: x\r\ncontent-LENGTH: 1\r\n\r\nb"},
		{"address", line + "Host: [::1]:80\r\nContent-Length: 1\r\n\r\nb"},
		{"traced",
			line + "Host: x\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nTracestate: a=b\r\n" +
				"Content-Length: 1\r\n\r\nb"},
		{"stays", line + "Host: x\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nb"},
		{"closes", line + "Host: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\nb"},
		{"authorization", line + "Host: x\r\nAuthorization: Bearer abc=\r\nContent-Length: 1\r\n\r\nb"},
		{"curl", line +
			"Host: localhost:8080\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\nContent-Type: " +
			"application/x-www-form-urlencoded\r\nContent-Length: 2\r\n\r\n{}"},
		{"largest body", usual(fastparse.MaxBodyBytes)},
		{"binary body", line + "Host: x\r\nContent-Length: 4\r\n\r\n\x00\r\n\xff"},
		{"another after it", usual(3) + usual(4)},
		{"largest header", line + "Host: x\r\nContent-Length: 1\r\nAccept: " +
			strings.Repeat("a", fastparse.MaxHeaderBytes-len(line)-len("Host: x\r\nContent-Length: 1\r\nAccept: \r\n\r\n")) +
			"\r\n\r\nb"},
	} {
		if v := check(t, []byte(tt.in)); v != fastparse.Accept {
			t.Errorf("%s: verdict %v, want accept", tt.name, v)
		}
	}
}

// Recognise leaves to net/http all that two parsers might read differently, and all
// that this package does not support.
func TestOther(t *testing.T) {
	with := func(fields string) string { return line + "Host: x\r\n" + fields + "\r\n\r\nbbbbbbbb" }
	long := func(n int) string { return "Content-Length: 1\r\nAccept: " + strings.Repeat("a", n) }
	for _, tt := range []struct{ name, in string }{
		{"two lengths", with("Content-Length: 1\r\nContent-Length: 2")},
		{"one length twice", with("Content-Length: 1\r\nContent-Length: 1")},
		{"one length twice, by case", with("Content-Length: 1\r\ncontent-length: 1")},
		{"list of lengths", with("Content-Length: 1, 1")},
		{"plus", with("Content-Length: +1")},
		{"minus", with("Content-Length: -1")},
		{"hexadecimal", with("Content-Length: 0x1")},
		{"leading zero", with("Content-Length: 01")},
		{"zero", with("Content-Length: 0")},
		{"fraction", with("Content-Length: 1.0")},
		{"underscore", with("Content-Length: 1_0")},
		{"empty length", with("Content-Length: ")},
		{"length without value", with("Content-Length:")},
		{"spaces before the length", with("Content-Length:  1")},
		{"space after the length", with("Content-Length: 1 ")},
		{"tab before the length", with("Content-Length:\t1")},
		{"tab after the length", with("Content-Length: 1\t")},
		{"space in the length", with("Content-Length: 1 1")},
		{"vertical tab", with("Content-Length: \v1")},
		{"NUL after the length", with("Content-Length: 1\x00")},
		{"no length", with("Accept: */*")},
		{"length beyond the limit", with("Content-Length: 65537")},
		{"length beyond 64 bits", with("Content-Length: 18446744073709551617")},

		{"chunked", with("Transfer-Encoding: chunked")},
		{"chunked and length", with("Content-Length: 1\r\nTransfer-Encoding: chunked")},
		{"chunked before length", with("Transfer-Encoding: chunked\r\nContent-Length: 1")},
		{"chunked, by case", with("Content-Length: 1\r\ntRANSFER-eNCODING: chunked")},
		{"identity", with("Content-Length: 1\r\nTransfer-Encoding: identity")},
		{"chunked, space before the colon", with("Content-Length: 1\r\nTransfer-Encoding : chunked")},
		{"chunked, tab before the colon", with("Content-Length: 1\r\nTransfer-Encoding\t: chunked")},
		{"chunked, leading space", with("Content-Length: 1\r\n Transfer-Encoding: chunked")},
		{"chunked, leading tab", with("Content-Length: 1\r\n\tTransfer-Encoding: chunked")},
		{"chunked, underscore", with("Content-Length: 1\r\nTransfer_Encoding: chunked")},
		{"chunked, NUL", with("Content-Length: 1\r\nTransfer-Encoding\x00: chunked")},
		{"chunked after a bare LF", with("Content-Length: 1\nTransfer-Encoding: chunked")},
		{"chunked after a bare CR", with("Content-Length: 1\rTransfer-Encoding: chunked")},
		{"chunked in a value after a bare LF", with("Content-Length: 1\r\nAccept: a\nTransfer-Encoding: chunked")},
		{"chunked in a value after a bare CR", with("Content-Length: 1\r\nAccept: a\rTransfer-Encoding: chunked")},
		{"vertical tab before chunked", with("Content-Length: 1\r\nTransfer-Encoding:\vchunked")},

		{"obs-fold", with("Content-Length: 1\r\nAccept: a\r\n b")},
		{"obs-fold with a tab", with("Content-Length: 1\r\nAccept: a\r\n\tb")},
		{"obs-fold before the first field", line + " Host: x\r\nContent-Length: 1\r\n\r\nb"},
		{"space before the colon", with("Content-Length : 1")},
		{"no colon", with("Content-Length 1")},
		{"no name", with("Content-Length: 1\r\n: x")},
		{"NUL in a value", with("Content-Length: 1\r\nAccept: a\x00b")},
		{"control byte in a value", with("Content-Length: 1\r\nAccept: a\x01b")},
		{"DEL in a value", with("Content-Length: 1\r\nAccept: a\x7fb")},
		{"tab in a value", with("Content-Length: 1\r\nAccept: a\tb")},
		{"byte beyond ASCII", with("Content-Length: 1\r\nAccept: a\xe4b")},
		{"field twice", with("Content-Length: 1\r\nAccept: a\r\nAccept: b")},

		{"expect", with("Content-Length: 1\r\nExpect: 100-continue")},
		{"upgrade", with("Content-Length: 1\r\nUpgrade: h2c")},
		{"trailer", with("Content-Length: 1\r\nTrailer: x")},
		{"content encoding", with("Content-Length: 1\r\nContent-Encoding: gzip")},
		{"no content encoding", with("Content-Length: 1\r\nContent-Encoding: identity")},
		{"unknown field", with("Content-Length: 1\r\nX-Forwarded-For: x")},
		{"connection to upgrade", with("Content-Length: 1\r\nConnection: upgrade")},
		{"connection with a list", with("Content-Length: 1\r\nConnection: keep-alive, close")},
		{"connection twice", with("Content-Length: 1\r\nConnection: keep-alive\r\nConnection: close")},
		{"connection that names a field", with("Content-Length: 1\r\nConnection: content-length")},

		{"no host", line + "Content-Length: 1\r\n\r\nb"},
		{"two hosts", with("Host: x\r\nContent-Length: 1")},
		{"empty host", line + "Host: \r\nContent-Length: 1\r\n\r\nb"},
		{"host with a user", line + "Host: a@b\r\nContent-Length: 1\r\n\r\nb"},
		{"host with a path", line + "Host: a/b\r\nContent-Length: 1\r\n\r\nb"},
		{"host with a space", line + "Host: a b\r\nContent-Length: 1\r\n\r\nb"},

		{"GET", "GET /v1/readings HTTP/1.1\r\n"},
		{"lower case", "post /v1/readings HTTP/1.1\r\n"},
		{"query", "POST /v1/readings?a HTTP/1.1\r\n"},
		{"slash", "POST /v1/readings/ HTTP/1.1\r\n"},
		{"escaped", "POST /v1/re%61dings HTTP/1.1\r\n"},
		{"absolute target", "POST http://x/v1/readings HTTP/1.1\r\n"},
		{"two spaces", "POST  /v1/readings HTTP/1.1\r\n"},
		{"trailing space", "POST /v1/readings HTTP/1.1 \r\n"},
		{"HTTP/1.0", "POST /v1/readings HTTP/1.0\r\n"},
		{"HTTP/1.2", "POST /v1/readings HTTP/1.2\r\n"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{"TLS", "\x16\x03\x01\x02\x00"},
		{"bare LF", "POST /v1/readings HTTP/1.1\n"},
		{"bare CR", "POST /v1/readings HTTP/1.1\rH"},
		{"leading empty line", "\r\n" + usual(1)},
		{"bare LF at the end", line + "Host: x\r\nContent-Length: 1\r\n\nb"},
		{"bare CR at the end", line + "Host: x\r\nContent-Length: 1\r\n\rb"},
		{"header beyond the limit", with(long(fastparse.MaxHeaderBytes))},
		{"header beyond the limit by one", with(long(fastparse.MaxHeaderBytes - len(with(long(0))) + len("bbbbbbbb") + 1))},
		{"endless header", line + strings.Repeat("a", fastparse.MaxHeaderBytes)},
	} {
		if v := check(t, []byte(tt.in)); v != fastparse.Other {
			t.Errorf("%s: verdict %v, want other: %q", tt.name, v, tt.in)
		}
	}
}

// The verdict changes once over the prefixes of a stream.
func TestPrefixes(t *testing.T) {
	for _, in := range []string{
		usual(17) + usual(3),
		line + "Host: x\r\nConnection: close\r\nAuthorization: Bearer t\r\nContent-Length: 3\r\n\r\nabc",
		line + "Host: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
		line + "Host: x\r\nContent-Length: 3 \r\n\r\nabc",
		line + "Host: x\r\nAccept: " + strings.Repeat("a", fastparse.MaxHeaderBytes),
	} {
		whole, final := fastparse.Recognise([]byte(in))
		decided, need := false, 0
		for n := range len(in) + 1 {
			r, v := fastparse.Recognise([]byte(in[:n]))
			switch {
			case v == fastparse.More && decided:
				t.Fatalf("%q: verdict more after a final verdict", in[:n])
			case v == fastparse.More:
				if n > 0 && r.Need < need {
					t.Errorf("%q: needs %d bytes, but a shorter prefix needed %d", in[:n], r.Need, need)
				}
				need = r.Need
			default:
				if v == fastparse.Accept && n < need {
					t.Errorf("%q: accepted with %d bytes, although it needed %d", in[:n], n, need)
				}
				if decided = true; v != final || r != whole {
					t.Fatalf("%q: %v %+v, but the whole stream has %v %+v", in[:n], v, r, final, whole)
				}
			}
		}
	}
}

// alphabet holds the bytes that delimit the parts of a header.
const alphabet = "\r\n \t:1aA-,\x00\x80"

// words calls f with every string of at most n of the letters. The slice is valid until
// f returns.
func words(letters string, n int, f func([]byte)) {
	var word []byte
	var extend func()
	extend = func() {
		f(word)
		if len(word) == n {
			return
		}
		for i := range len(letters) {
			word = append(word, letters[i])
			extend()
			word = word[:len(word)-1]
		}
	}
	extend()
}

// Recognise agrees with net/http for every short string at each boundary between two
// parts of the header, and as each value that is parsed.
func TestAgainstNetHTTP(t *testing.T) {
	const end = "\r\n\r\nbb"
	for _, tt := range []struct {
		letters       string
		n             int
		before, after string
	}{
		{alphabet, 3, "", usual(1)},
		{alphabet, 3, "POST", " /v1/readings HTTP/1.1\r\nHost: x\r\nContent-Length: 1" + end},
		{alphabet, 3, line[:len(line)-2], "Host: x\r\nContent-Length: 1" + end},
		{alphabet, 4, line, "Host: x\r\nContent-Length: 1" + end},
		{alphabet, 3, line + "Host", "x\r\nContent-Length: 1" + end},
		{alphabet, 4, line + "Host: x", "Content-Length: 1" + end},
		{alphabet, 4, line + "Host: x\r\nContent-Length", "1" + end},
		{alphabet, 4, line + "Host: x\r\nContent-Length: 1", end},
		{alphabet, 4, line + "Host: x\r\nContent-Length: 1\r\n", "bb"},
		{alphabet, 4, line + "Host: x\r\nContent-Length: 1\r\nAccept:", end},
		{"0123 +-,._xe\t", 4, line + "Host: x\r\nContent-Length: ", end},
		{"abz09.:-_[]@/ %", 4, line + "Content-Length: 1\r\nHost: ", end},
		{"close,KEP-aliv ", 3, line + "Host: x\r\nContent-Length: 1\r\nConnection: ", end},
	} {
		accepted := 0
		var in []byte
		words(tt.letters, tt.n, func(word []byte) {
			in = append(append(append(in[:0], tt.before...), word...), tt.after...)
			if check(t, in) == fastparse.Accept {
				accepted++
			}
		})
		if accepted == 0 && !strings.HasSuffix(tt.before, "Connection: ") {
			t.Errorf("nothing is accepted after %q: the test proves little", tt.before)
		}
	}
}

// Recognise agrees with net/http when any byte of a request is changed, removed or doubled.
func TestChangedBytes(t *testing.T) {
	in := []byte(line + "Host: x\r\nConnection: close\r\nContent-Length: 12\r\n\r\nbbbbbbbbbbbbbbbb")
	for i := range in {
		changed := bytes.Clone(in)
		for c := range 256 {
			changed[i] = byte(c)
			check(t, changed)
		}
		check(t, append(bytes.Clone(in[:i]), in[i+1:]...))
		check(t, append(bytes.Clone(in[:i+1]), in[i:]...))
	}
}

// SkipBlank drops what net/http drops before a request that follows a POST. A test in
// package ingest compares it with a server.
func TestSkipBlank(t *testing.T) {
	for _, tt := range []struct {
		in  string
		eof bool
		n   int
		ok  bool
	}{
		{"", false, 0, true},
		{"P", false, 0, true},
		{"\r", false, 1, false},
		{"\r", true, 1, true},
		{"\r\n\r", false, 3, false},
		{"\r\nP", false, 2, true},
		{"\r\n\r\n", false, 4, true},
		{"\n\n\n\n\n", false, 4, true},
		{"\r\n\r\n\r\nP", false, 4, true},
		{"P\r\n", false, 0, true},
	} {
		if n, ok := fastparse.SkipBlank([]byte(tt.in), tt.eof); n != tt.n || ok != tt.ok {
			t.Errorf("%q: %d, %v; want %d, %v", tt.in, n, ok, tt.n, tt.ok)
		}
	}
}

func TestAllocations(t *testing.T) {
	in := []byte(usual(170))
	if n := testing.AllocsPerRun(100, func() { fastparse.Recognise(in) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// net/http agrees with every accepted request, also when it arrives in two pieces.
func FuzzRecognise(f *testing.F) {
	for _, in := range []string{usual(3), usual(0), usual(2) + usual(2),
		line + "Host: x\r\nContent-Length: 1\r\nAccept: a\n\r\n\r\nb",
		line + "Host: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"} {
		f.Add([]byte(in), 40)
	}
	f.Fuzz(func(t *testing.T, in []byte, split int) {
		if len(in) > 2*fastparse.MaxBytes {
			return
		}
		verdict := check(t, in)
		first := check(t, in[:min(max(split, 0), len(in))])
		if first != fastparse.More && first != verdict {
			t.Errorf("%q: verdict %v, but %v for its first %d bytes", in, verdict, first, split)
		}
	})
}

func BenchmarkRecognise(b *testing.B) {
	in := []byte(usual(170))
	b.ReportAllocs()
	for b.Loop() {
		if _, v := fastparse.Recognise(in); v != fastparse.Accept {
			b.Fatal(v)
		}
	}
}

// Every byte at every place of a value, which is scanned in pieces of 32 bytes.
func TestValueBytes(t *testing.T) {
	for place := range 70 {
		for c := range 256 {
			value := []byte(strings.Repeat("a", 72))
			value[1+place] = byte(c)
			want := fastparse.Other
			if ' ' <= c && c <= '~' {
				want = fastparse.Accept
			}
			if got := check(t, []byte(line+"Host: x\r\nContent-Length: 1\r\nAccept: "+string(value)+"\r\n\r\nb")); got != want {
				t.Errorf("byte %#x at %d: verdict %v, want %v", c, place, got, want)
			}
		}
	}
}
