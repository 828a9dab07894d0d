package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/server"
)

// An adminAddrWriter is a log writer that sends the address of the admin listener.
type adminAddrWriter chan string

var adminLine = regexp.MustCompile(`listening addr=(\S+) listener=admin`)

func (a adminAddrWriter) Write(p []byte) (int, error) {
	if m := adminLine.FindSubmatch(p); m != nil {
		a <- string(m[1])
	}
	return len(p), nil
}

// withAdmin runs a server while use uses its admin listener.
func withAdmin(t *testing.T, opt *server.Options, use func(addr string)) {
	t.Helper()
	opt.AdminAddr = "127.0.0.1:0"
	log := make(adminAddrWriter, 1)
	logs, err := server.OpenLog(log, &opt.LogOptions)
	try(t, err)
	defer logs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = server.Run(ctx, opt, logs, func(context.Context, net.Addr) error {
		defer cancel()
		use(<-log)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// ask sends a request from an address of this machine, on a connection that stays open. The
// server may have closed it before: an answer, or none, shows that.
func ask(t *testing.T, from, addr, request string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.Dial("tcp", addr)
	try(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	try(t, conn.SetDeadline(time.Now().Add(polltest.Patience)))
	_, _ = io.WriteString(conn, request)
	return conn
}

// A request to the admin listener whose body never arrives ends with its connection, even
// if no handler reads the body.
//
// Seen to fail when the admin listener has no deadline for bodies.
func TestAdminBodyTimeout(t *testing.T) {
	opt := options(t)
	opt.ReadTimeout = 300 * time.Millisecond
	withAdmin(t, opt, func(addr string) {
		for _, path := range []string{"/metrics", "/admin/erase", "/debug/pprof/cmdline"} {
			// On a busy machine the header may come too late for an answer.
			polltest.Until(t, path+" is answered", func() bool {
				conn := ask(t, "127.0.0.1", addr, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
				text, err := io.ReadAll(conn)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("%s: got %q, and the connection is still open", path, text)
				}
				return strings.HasPrefix(string(text), "HTTP/1.1 ")
			})
		}
	})
}

// A client that does not read its answers cannot occupy a connection of the admin
// listener indefinitely.
//
// Seen to fail when the admin listener has no deadline for answers.
func TestAdminAnswerTimeout(t *testing.T) {
	opt := options(t)
	opt.ReadTimeout = 300 * time.Millisecond
	withAdmin(t, opt, func(addr string) {
		for _, line := range []string{"GET /metrics", "POST /admin/backup", "GET /debug/none"} {
			conn := ask(t, "127.0.0.1", addr, "")
			request := line + " HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n"
			many := strings.Repeat(request, 1000)
			var err error
			for err == nil { // until the server stops reading and then closes
				_, err = io.WriteString(conn, many)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the connection is still open", line)
			}
		}
	})
}

// Idle connections do not keep other clients from the admin listener.
//
// Seen to fail when idle connections of the admin listener are not closed for
// new ones.
func TestAdminEvictsIdleConnections(t *testing.T) {
	opt := options(t)
	opt.ReadTimeout = time.Hour
	others := []string{"127.0.0.1"}
	if runtime.GOOS == "linux" { // where all of 127.0.0.0/8 is loopback
		others = append(others, "127.0.0.2")
	}
	withAdmin(t, opt, func(addr string) {
		const request = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
		for range 100 {
			ask(t, "127.0.0.1", addr, request)
		}
		for _, from := range others {
			polltest.Until(t, fmt.Sprintf("%s is answered", from), func() bool {
				conn := ask(t, from, addr, request)
				answer := make([]byte, len("HTTP/1.1 200"))
				_, err := io.ReadFull(conn, answer)
				return err == nil && string(answer) == "HTTP/1.1 200"
			})
		}
	})
}
