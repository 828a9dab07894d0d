package eventloop_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// child runs a server in its own process until standard input ends.
func child() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	var wg sync.WaitGroup
	var s *eventloop.Server
	ready := make(chan struct{})
	info := func(command string) string {
		<-ready
		switch command {
		case "errors":
			return fmt.Sprint(s.Stats().AcceptErrors)
		case "open":
			return fmt.Sprint(s.Stats().Open)
		case "heap":
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return fmt.Sprint(m.HeapAlloc)
		case "rss":
			debug.FreeOSMemory() // garbage of the handshakes does not count
			text, _ := os.ReadFile("/proc/self/statm")
			pages, _ := strconv.Atoi(strings.Fields(string(text))[1])
			return fmt.Sprint(pages * os.Getpagesize())
		}
		return "?"
	}
	memory := newBounded(math.MaxInt64)
	var takes func(tls.ConnectionState) bool
	conns := &share.Conns{Max: 1 << 16, MaxGuests: 1}
	if os.Getenv(childVar) == "tls" {
		takes = func(tls.ConnectionState) bool { return true }
		l = tlsListener(l, conns)
	}
	s, err = eventloop.Serve(l, eventloop.Config{
		TLS: takes, Conns: conns, Memory: memory, MaxMessage: 1 << 10, Tick: 10 * time.Millisecond,
		StartTimeout: time.Hour, IdleTimeout: time.Hour, // opening many connections takes long
		Handler: func(loop *eventloop.Loop) eventloop.Handler {
			return &echo{loop: loop, wg: &wg, info: info}
		},
	})
	if err != nil {
		panic(err)
	}
	close(ready)
	go func() {
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "moved\n")
			conn.Close()
		}
	}()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	if more, _ := strconv.Atoi(os.Getenv(childVar)); more > 0 {
		limit := syscall.Rlimit{Cur: uint64(len(files) + more), Max: uint64(len(files) + more)}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			panic(err)
		}
	}
	fmt.Println(s.Addr())
	io.Copy(io.Discard, os.Stdin)
	if err := errors.Join(s.Close(), s.Shutdown(context.Background())); err != nil {
		panic(err)
	}
}

// startChild starts a server in another process and returns its address.
func startChild(t *testing.T, more int) string {
	t.Helper()
	return startChildAs(t, map[bool]string{true: strconv.Itoa(more), false: "none"}[more > 0])
}

// startChildAs starts a child with a value of childVar.
func startChildAs(t *testing.T, value string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+value)
	stdin, err := cmd.StdinPipe()
	try(t, err)
	stdout, err := cmd.StdoutPipe()
	try(t, err)
	cmd.Stderr = os.Stderr
	try(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	timer := time.AfterFunc(polltest.Patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	try(t, err)
	return strings.TrimSpace(addr)
}

// A server that runs out of descriptors serves its open connections in both lanes, and
// accepts the others when descriptors are free again. (Seen to fail without a spare
// descriptor: connections that move are closed.)
func TestNoDescriptors(t *testing.T) {
	const room, clients = 10, 30
	addr := startChild(t, room)
	var conns []*net.TCPConn
	for range clients {
		conns = append(conns, dial(t, addr))
	}
	for _, conn := range conns {
		write(t, conn, "a\n")
	}
	if got := readLine(t, conns[0]); got != "a" {
		t.Fatalf("got %q, want a", got)
	}
	polltest.Until(t, "the server runs out of descriptors", func() bool { return ask(t, conns[0], "?errors") != "0" })
	n, err := strconv.Atoi(ask(t, conns[0], "?open")) // stays the same: there are no descriptors for more
	try(t, err)
	if n == 0 || n >= clients-room {
		t.Fatalf("%d connections are served, want some, and fewer than %d", n, clients-room)
	}
	for i, conn := range conns[1:] {
		if i+1 < n {
			if got := readLine(t, conn); got != "a" {
				t.Errorf("connection %d receives %q, want a", i+1, got)
			}
			continue
		}
		try(t, conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d: %v, want no answer from a server of %d connections", i+1, err, n)
		}
	}
	// A connection can move to the other server. Another takes its place at once.
	for i, conn := range conns[1:3] {
		if got := ask(t, conn, "move"); got != "moved" {
			t.Errorf("connection %d receives %q, want moved", i+1, got)
		}
	}
	for _, conn := range conns[:n] {
		conn.Close()
	}
	for i, conn := range conns[n : n+n] {
		try(t, conn.SetReadDeadline(time.Now().Add(polltest.Patience)))
		if _, err := io.ReadFull(conn, make([]byte, 2)); err != nil {
			t.Errorf("connection %d is not served when there is room: %v", n+i, err)
		}
	}
}

// testIdleConnections opens n connections that send one line each, and measures their
// memory: bytes of heap for each, and of resident memory for all.
func testIdleConnections(t *testing.T, n int, addr string, secure func(net.Conn) net.Conn, maxHeap, maxResident int) {
	t.Helper()
	var limit syscall.Rlimit
	try(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if needed := uint64(n + 500); limit.Max < needed {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the hard limit of descriptors is %d, and %d are needed", limit.Max, needed)
		}
		t.Skipf("the hard limit of descriptors is %d, and %d are needed", limit.Max, needed)
	}
	figure := func(conn net.Conn, command string) int {
		t.Helper()
		if err := conn.SetDeadline(time.Now().Add(polltest.Patience)); err != nil { // opening the others takes long
			t.Fatal(err)
		}
		v, err := strconv.Atoi(ask(t, conn, command))
		try(t, err)
		return v
	}
	first := secure(dial(t, addr))
	heap, rss := figure(first, "?heap"), figure(first, "?rss")
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	for i := range n {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conn = secure(conn)
		conns = append(conns, conn)
		write(t, conn, "a\n")
	}
	two := make([]byte, 2)
	for i, conn := range conns {
		try(t, conn.SetReadDeadline(time.Now().Add(polltest.Patience)))
		if _, err := io.ReadFull(conn, two); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	perConn, more := (figure(first, "?heap")-heap)/n, figure(first, "?rss")-rss
	t.Logf("%d bytes of heap for each connection, %d KiB resident for all", perConn, more>>10)
	if perConn >= maxHeap {
		t.Errorf("%d bytes for each connection, want less than %d", perConn, maxHeap)
	}
	if more >= maxResident {
		t.Errorf("%d MiB more resident, want less than %d", more>>20, maxResident>>20)
	}
}
