package eventloop_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
)

// eachSecurity runs a test without and with TLS.
func eachSecurity(t *testing.T, cfg eventloop.Config, test func(t *testing.T, s *eventloop.Server, c net.Conn)) {
	t.Run("plain", func(t *testing.T) {
		s, _ := start(t, cfg)
		test(t, s, dial(t, s.Addr().String()))
	})
	t.Run("TLS", func(t *testing.T) {
		s, _ := startTLS(t, cfg)
		test(t, s, dialTLS(t, s, nil))
	})
}

// A client that sends for ever and reads nothing is not read for ever.
func TestEndlessInput(t *testing.T) {
	cfg := eventloop.Config{WriteTimeout: 50 * time.Millisecond, Memory: newBounded(64 << 20)}
	eachSecurity(t, cfg, func(t *testing.T, _ *eventloop.Server, c net.Conn) {
		lines, err := []byte(strings.Repeat(strings.Repeat("x", 1023)+"\n", 64)), error(nil)
		for err == nil {
			_, err = c.Write(lines)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection stays open")
		}
	})
}

// A connection that is moved after a failed write has no output: the client would take it for the rest of an answer.
func TestMovedWithoutOutput(t *testing.T) {
	answer := strings.Repeat("x", 16<<20)
	cfg := eventloop.Config{WriteTimeout: 50 * time.Millisecond, Memory: newBounded(64 << 20)}
	cfg.Handler = func(loop *eventloop.Loop) eventloop.Handler {
		return &echo{loop: loop, info: func(string) string { return answer }}
	}
	eachSecurity(t, cfg, func(t *testing.T, s *eventloop.Server, c net.Conn) {
		write(t, c, "?\nmove\n")
		moved, err := s.Accept()
		try(t, err)
		defer moved.Close()
		go io.Copy(io.Discard, c)
		try(t, moved.SetDeadline(time.Now().Add(time.Minute)))
		if _, err := io.WriteString(moved, "moved\n"); err == nil {
			t.Error("the other server can write")
		}
	})
}
