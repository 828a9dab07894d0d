package eventloop_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/certtest"
)

// TestCryptoTLS checks what session_linux.go assumes about crypto/tls. The documentation
// of crypto/tls does not promise it; net/http depends on the first part too
// (abortPendingRead).
func TestCryptoTLS(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		t.Run("a read that times out loses nothing", func(t *testing.T) {
			server, client, wire := pair(t, version)
			if _, err := client.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			var got []byte
			b := make([]byte, 100)
			for i := range wire.toServer.Len() {
				n, err := server.Read(b)
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("after %d bytes of a record: %d bytes, %v", i, n, err)
				}
				got = append(got, b[:n]...)
				wire.mayRead = 1 // more
			}
			n, err := server.Read(b)
			if got = append(got, b[:n]...); string(got) != "hello" || err != nil {
				t.Errorf("read %q, %v; want hello", got, err)
			}
		})
		t.Run("writes after an error fail", func(t *testing.T) {
			server, _, wire := pair(t, version)
			wire.writeErr = os.ErrDeadlineExceeded
			if _, err := server.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			wire.writeErr = nil
			if _, err := server.Write([]byte("x")); err == nil {
				t.Error("crypto/tls writes after an error: session.Write may now fail")
			}
		})
		t.Run("CloseWrite writes once", func(t *testing.T) {
			server, _, wire := pair(t, version)
			for range 2 {
				try(t, server.CloseWrite())
			}
			if wire.writes != 1 {
				t.Errorf("%d writes, want 1", wire.writes)
			}
		})
	})
}

// A wire carries what a client sends to a server, up to mayRead bytes. It counts the
// server's writes after the handshake and drops them.
type wire struct {
	net.Conn // used during the handshake only
	over     bool

	toServer bytes.Buffer
	mayRead  int
	writeErr error
	writes   int
}

func (w *wire) Read(p []byte) (int, error) {
	if !w.over {
		return w.Conn.Read(p)
	}
	if w.mayRead == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := w.toServer.Read(p[:min(len(p), w.mayRead)])
	w.mayRead -= n
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	if !w.over {
		return w.Conn.Write(p)
	}
	w.writes++
	return len(p), w.writeErr
}

func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// A sink is the client's side of a wire.
type sink struct {
	net.Conn
	w *wire
}

func (s sink) Write(p []byte) (int, error) {
	if !s.w.over {
		return s.Conn.Write(p)
	}
	return s.w.toServer.Write(p)
}

// pair returns both sides of a connection after its handshake.
func pair(t *testing.T, version uint16) (server, client *tls.Conn, w *wire) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	w = &wire{Conn: near}
	server = tls.Server(w, certificate())
	client = tls.Client(sink{far, w}, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
	ended := make(chan error)
	go func() {
		err := client.Handshake()
		if err == nil && version == tls.VersionTLS13 {
			_, err = io.ReadFull(client, make([]byte, 1)) // with the session tickets before it
		}
		ended <- err
	}()
	try(t, server.Handshake())
	if version == tls.VersionTLS13 {
		if _, err := server.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	try(t, <-ended)
	w.over = true
	return server, client, w
}

// eachVersion runs a test for every version of TLS.
func eachVersion(t *testing.T, test func(t *testing.T, version uint16)) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) { test(t, version) })
	}
}

// certificate returns the configuration of a TLS server for tests.
func certificate() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{certtest.New("ca").Server(1).TLS()},
		NextProtos:   []string{"h2", "http/1.1"}, ClientAuth: tls.RequestClientCert,
	}
}
