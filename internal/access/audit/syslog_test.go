package audit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/porttest"
)

// patience bounds every wait.
const patience = polltest.Patience

func syslog(t *testing.T, target string, onTrouble func(error)) *audit.Syslog {
	t.Helper()
	s, err := audit.NewSyslog(target, "ward 7", onTrouble)
	try(t, err)
	t.Cleanup(s.Close)
	return s
}

// Over TCP, messages use octet counting. When the server goes away, an error is
// reported; when it is back, it gets the remaining messages.
func TestSyslogTCP(t *testing.T) {
	addr := porttest.Addr(t)
	l, err := net.Listen("tcp", addr)
	try(t, err)
	troubles := make(chan error, 100)
	s := syslog(t, "tcp:"+addr, func(err error) { troubles <- err })
	next := func(in *bufio.Reader) string {
		t.Helper()
		var n int
		if _, err := fmt.Fscanf(in, "%d ", &n); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(in, b); err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	accept := func() (net.Conn, *bufio.Reader) {
		t.Helper()
		conn, err := l.Accept()
		try(t, err)
		try(t, conn.SetDeadline(time.Now().Add(patience)))
		return conn, bufio.NewReader(conn)
	}
	s.Send([]byte("first\n"))
	s.Send([]byte("second"))
	conn, in := accept()
	for _, want := range []string{"first", "second"} {
		if got := next(in); got != "<109>1 - ward-7 pulsegate - audit - "+want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	conn.Close()
	l.Close()
	polltest.Until(t, "the loss of the server is detected", func() bool {
		s.Send([]byte("gone")) // the first one may still be accepted
		return len(troubles) > 0
	})
	if err := <-troubles; err == nil {
		t.Error("reported the end too early")
	}
	l, err = net.Listen("tcp", addr)
	try(t, err)
	defer l.Close()
	s.Send([]byte("last"))
	conn, in = accept()
	defer conn.Close()
	for !strings.HasSuffix(next(in), " last") {
	}
	select {
	case err := <-troubles:
		if err != nil {
			t.Errorf("reported %v, want nil", err)
		}
	case <-time.After(patience):
		t.Error("the end was not reported")
	}
	if n := s.Lost(); n != 0 {
		t.Errorf("%d lost", n)
	}
}

// Send never waits for a server that accepts nothing: lines that do not fit into the
// queue are dropped and counted, to the last line.
func TestSyslogFull(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts no connection
	try(t, err)
	defer l.Close()
	s, err := audit.NewSyslog("tcp:"+l.Addr().String(), "", nil)
	try(t, err)
	line := []byte(strings.Repeat("x", 2000))
	const lines = 50_000 // 100 MB
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range lines {
			s.Send(line)
		}
	}()
	select {
	case <-sent:
	case <-time.After(patience):
		t.Fatal("Send blocks")
	}
	if n := s.Lost(); n < lines/2 {
		t.Errorf("%d lost of %d, want most", n, lines)
	}
	s.Close()
	// Lines that the kernel accepted count as sent.
	if n := s.Lost(); n < lines*3/4 || n > lines {
		t.Errorf("%d lost of %d at the end", n, lines)
	}
}

func TestSyslogTargets(t *testing.T) {
	for _, target := range []string{"", "unix", "unix:", "udp:", "udp:host", "udp:host:", "tcp:host", "http://host",
		"/dev/log", "tls:host:6514"} {
		if s, err := audit.NewSyslog(target, "", nil); err == nil {
			t.Errorf("%q was accepted", target)
			s.Close()
		}
	}
	for _, target := range []string{"unix:/nowhere/socket", "udp:[::1]:514", "tcp:syslog.example:601"} {
		s, err := audit.NewSyslog(target, "", nil)
		if err != nil {
			t.Error(err)
			continue
		}
		s.Close()
	}
}
