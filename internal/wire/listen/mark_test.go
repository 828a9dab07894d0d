package listen_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/pulsegate/pulsegate/internal/wire/listen"
)

// request returns an HTTP/1.1 request whose length is unambiguous.
func request(ctx context.Context) *http.Request {
	r := &http.Request{ProtoMajor: 1, ProtoMinor: 1}
	return r.WithContext(ctx)
}

// On a connection that is not watched, a request that may have had two lengths is the
// last.
func TestLastUnseen(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	defer near.Close()
	chunked := []string{"chunked"}
	for _, tt := range []struct {
		name         string
		major, minor int
		encoding     []string
		want         bool
	}{
		{"a length, or none", 1, 1, nil, false},
		{"chunks", 1, 1, chunked, true},
		{"HTTP/1.0", 1, 0, nil, true},
		{"HTTP/2", 2, 0, nil, false},
	} {
		for _, conn := range []net.Conn{near, tls.Server(near, &tls.Config{})} {
			r := &http.Request{ProtoMajor: tt.major, ProtoMinor: tt.minor, TransferEncoding: tt.encoding}
			if got := listen.Last(r.WithContext(listen.Mark(t.Context(), conn))); got != tt.want {
				t.Errorf("%s on a %T: %v, want %v", tt.name, conn, got, tt.want)
			}
		}
	}
}

// A request is the last on its connection when fields of both names were read, however
// the reads split them.
//
// Seen to fail when only one of the names is searched for, when a name is found within a
// line, and when a name that is split between two reads is not found.
func TestWatch(t *testing.T) {
	const length, encoding = "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n"
	for _, tt := range []struct {
		name, text string
		want       bool
	}{
		{"neither", "POST / HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"a length", "POST / HTTP/1.1\r\n" + length + "\r\nabc", false},
		{"an encoding", "POST / HTTP/1.1\r\n" + encoding + "\r\n0\r\n\r\n", false},
		{"both", "POST / HTTP/1.1\r\n" + length + encoding + "\r\n", true},
		{"both, in reverse order", "POST / HTTP/1.1\r\n" + encoding + "X: y\r\n" + length + "\r\n", true},
		{"in other case", "POST / HTTP/1.1\ntRANSFER-eNCODING:x\nCONTENT-LENGTH:3\n\n", true},
		{"a space before the colon", "POST / HTTP/1.1\r\nContent-Length : 3\r\n" + encoding + "\r\n", true},
		{"in two requests", "POST / HTTP/1.1\r\n" + length + "\r\nabcPOST / HTTP/1.1\r\n" + encoding + "\r\n", true},
		{"within lines", "POST / HTTP/1.1\r\nX: Content-Length: 3\r\n Transfer-Encoding: chunked\r\n\r\n", false},
		{"beginnings", "Content-Lengt\r\nTransfer-Encodin\r\nc\nt\n" + length, false},
		{"a name that begins again", "ccontent-length: 1\nContent-Lcontent-length: 1\n" + encoding, false},
	} {
		for _, piece := range []int{len(tt.text), 1, 7} {
			if got := last(t, tt.text, piece); got != tt.want {
				t.Errorf("%s, in pieces of %d: %v, want %v", tt.name, piece, got, tt.want)
			}
		}
	}
}

// last reads a text in pieces from a watched connection and reports whether a chunked
// request is then the last.
func last(t *testing.T, text string, piece int) bool {
	t.Helper()
	near, far := net.Pipe()
	conn, err := listen.Watch(&singleListener{conn: near}).Accept()
	try(t, err)
	defer conn.Close()
	ctx := listen.Mark(t.Context(), conn)
	go func() {
		defer far.Close()
		for rest := text; rest != ""; {
			n := min(piece, len(rest))
			if _, err := io.WriteString(far, rest[:n]); err != nil {
				t.Error(err)
			}
			rest = rest[n:]
		}
	}()
	if got, err := io.ReadAll(conn); err != nil || string(got) != text {
		t.Errorf("read %q, %v; want %q", got, err, text)
	}
	if listen.Last(request(ctx)) {
		t.Error("a request with a length alone is the last")
	}
	chunked := request(ctx)
	chunked.TransferEncoding = []string{"chunked"}
	return listen.Last(chunked)
}

// A singleListener returns one connection.
type singleListener struct {
	net.Listener
	conn net.Conn
}

func (l *singleListener) Accept() (net.Conn, error) { return l.conn, nil }
