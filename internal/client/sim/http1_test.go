package sim_test

import (
	"errors"
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
		{"a single reading's",
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n{\"status\":\"stored\"}",
			sim.Parsed{Status: 200, Body: `{"status":"stored"}`, ContentType: "application/json", Complete: true}},
		{"chunked, with an extension and a trailer",
			"HTTP/1.1 207 Multi-Status\r\ntransfer-ENCODING: Chunked\r\n\r\n4;a=b\r\nwiki\r\nA\r\n0123456789\r\n0\r\n" +
				"X: y\r\n\r\n",
			sim.Parsed{Status: 207, Body: "wiki0123456789", Complete: true}},
		{"no body", "HTTP/1.1 204 No Content\r\n\r\n", sim.Parsed{Status: 204, Complete: true}},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nabc", sim.Parsed{Status: 200, Body: "abc", Close: true, Complete: true}},
		{"closed", "HTTP/1.1 503 x\r\nConnection: foo, close\r\nRetry-After: \t7 \r\nContent-Length: 1\r\n\r\na",
			sim.Parsed{Status: 503, Body: "a", Close: true, RetryAfter: "7", Complete: true}},
		{"after an interim answer",
			"HTTP/1.1 100 Continue\r\nRetry-After: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
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
		"two answers": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n" +
			"Content-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			// Byte by byte, the second answer arrives only after the first is complete.
			if got, err := sim.ParseResponse([]byte(in), 1<<20); !errors.Is(err, sim.ErrProtocol) {
				t.Errorf("got %+v, %v, want ErrProtocol", got, err)
			}
			// The two answers of 9 MiB come in larger pieces, which is faster.
			if got, err := sim.ParseResponse([]byte(in), 1+len(in)>>16); !errors.Is(err, sim.ErrProtocol) {
				t.Errorf("byte by byte: got %+v, %v, want ErrProtocol", got, err)
			}
		})
	}
}
