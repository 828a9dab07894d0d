package sim_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/client/sim"
)

func TestResponse(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   string
		want sim.Parsed
	}{
		{"a single reading's", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n{\"status\":\"stored\"}",
			sim.Parsed{Status: 200, Body: `{"status":"stored"}`, Complete: true}},
		{"chunked, with an extension and a trailer", "HTTP/1.1 207 Multi-Status\r\ntransfer-ENCODING: Chunked\r\n\r\n4;a=b\r\nwiki\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
			sim.Parsed{Status: 207, Body: "wiki0123456789", Complete: true}},
		{"no body", "HTTP/1.1 204 No Content\r\n\r\n", sim.Parsed{Status: 204, Complete: true}},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nabc", sim.Parsed{Status: 200, Body: "abc", Close: true, Complete: true}},
		{"closed", "HTTP/1.1 503 x\r\nConnection: foo, close\r\nRetry-After: \t7 \r\nContent-Length: 1\r\n\r\na",
			sim.Parsed{Status: 503, Body: "a", Close: true, RetryAfter: "7", Complete: true}},
		{"after an interim answer", "HTTP/1.1 100 Continue\r\nRetry-After: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
			sim.Parsed{Status: 200, Body: "a", Complete: true}},
		{"cut off in the header", "HTTP/1.1 200 OK\r\nContent-Le", sim.Parsed{}},
		{"cut off in the body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", sim.Parsed{}},
		{"cut off in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", sim.Parsed{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, sizes := range [][]int{{1 << 20}, {1}, {2}, {3, 1, 50, 7}} {
				got, err := sim.ParseResponse([]byte(tt.in), sizes...)
				if err != nil || got != tt.want {
					t.Errorf("in pieces of %v: got %+v, %v\nwant %+v", sizes, got, err, tt.want)
				}
			}
		})
	}
}

func TestResponseRejects(t *testing.T) {
	head := func(fields string) string { return "HTTP/1.1 200 OK\r\n" + fields + "\r\n\r\nabc" }
	for name, in := range map[string]string{
		"another protocol":           "SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"HTTP/2":                     "HTTP/2.0 200 OK\r\n\r\n",
		"protocol switch":            "HTTP/1.1 101 Switching\r\n\r\n",
		"two lengths":                head("Content-Length: 3\r\nContent-Length: 4"),
		"length with a sign":         head("Content-Length: +3"),
		"length beyond the bound":    head("Content-Length: 8388609") + strings.Repeat("a", 9<<20),
		"a coding other than chunks": head("Transfer-Encoding: gzip, chunked"),
		"field without a colon":      head("abc"),
		"control character":          head("X: a\x00b"),
		"chunk longer than its size": head("Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n"),
		"endless header":             "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 9<<20),
		"two answers":                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			// Byte by byte, the second answer arrives only after the first is complete.
			if got, err := sim.ParseResponse([]byte(in), 1<<20); !errors.Is(err, sim.ErrNotHTTP) {
				t.Errorf("got %+v, %v, want ErrNotHTTP", got, err)
			}
			// The two answers of 9 MiB come in larger pieces, which is faster.
			if got, err := sim.ParseResponse([]byte(in), 1+len(in)>>16); !errors.Is(err, sim.ErrNotHTTP) {
				t.Errorf("byte by byte: got %+v, %v, want ErrNotHTTP", got, err)
			}
		})
	}
}

// TestResponseAllocs checks that the usual answer takes the fast path, also if a proxy or
// another server adds its name.
func TestResponseAllocs(t *testing.T) {
	for _, fields := range []string{"", "Server: nginx\r\n", "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nDate: Sun, 22 Nov 2026 12:00:00 GMT\r\n"} {
		text := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + fields + "Content-Length: 20\r\n\r\n" + stored
		if n := sim.ResponseAllocs(text); n != 0 {
			t.Errorf("%v allocations to read %q, want 0", n, text)
		}
	}
}

// FuzzResponse checks that the fast path returns the same status, body and fields as
// net/http, and that the sizes of the pieces make no difference.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 3\r\nConnection: close\r\nContent-Type: application/problem+json\r\n\r\n{}",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
	} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		got, err := sim.ParseResponse(in, len(in)+1)
		pieces, errPieces := sim.ParseResponse(in, size)
		if (err == nil) != (errPieces == nil) || err == nil && got != pieces {
			t.Errorf("at once: %+v, %v\nin pieces of %d: %+v, %v", got, err, size, pieces, errPieces)
		}
		if err != nil || !got.Complete {
			return
		}
		reader := bufio.NewReader(bytes.NewReader(in))
		resp, err := http.ReadResponse(reader, nil)
		for err == nil && resp.StatusCode < 200 {
			resp, err = http.ReadResponse(reader, nil)
		}
		if err != nil {
			t.Fatalf("net/http fails with %q: %q", err, in)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("net/http fails to read the body with %q: %q", err, in)
		}
		want := sim.Parsed{Status: resp.StatusCode, Body: string(body), Close: got.Close, Complete: true,
			RetryAfter: resp.Header.Get("Retry-After"), ContentType: resp.Header.Get("Content-Type")}
		if got.Status == http.StatusOK {
			want.ContentType = ""
		}
		if got != want {
			t.Errorf("got %+v, but net/http returns %+v for %q", got, want, in)
		}
		if resp.Close && !got.Close {
			t.Errorf("net/http closes the connection after %q, but the reader does not", in)
		}
	})
}
