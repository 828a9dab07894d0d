package main_test

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// A server in a control group of 128 MiB is sent twice as much at once, in the first parts of
// batches of the largest size that it accepts. It rejects with 503 and Retry-After what exceeds
// the bounds that it chose, survives, and still stores single readings. Then it is loaded with
// batches.
//
// Seen to fail with the mutant unbounded-bodies: the kernel kills the server.
func TestMemoryLimit(t *testing.T) {
	onBothLanes(t, func(t *testing.T, lane lane) {
		t.Parallel()
		const limitBytes = 128 << 20
		group := newCgroup(t, limitBytes)
		b := newHarness(t, lane)
		line := b.serveCommand("--trusted-proxies=127.0.0.0/8", "--log-level=debug") // one address may use all the memory
		b.server = launch(b, 1, group.command(line[0], line[1:]...))
		took := resources(t, b.server)
		// The example of docs/lifecycle.md.
		for name, want := range map[string]string{
			"limit_from": "cgroup", "limit_bytes": strconv.Itoa(limitBytes), "cache_bytes": "17336456",
			"max_body_bytes": "17336456", "max_batch_bytes": "812646", "max_queued": "12697", "max_devices": "54176",
			"max_conns": "2116",
		} {
			if took[name] != want {
				t.Errorf("%s: the server took %s, want %s", name, took[name], want)
			}
		}
		bodyBytes, batchBytes := number(t, took["max_body_bytes"]), number(t, took["max_batch_bytes"])
		batches, sentBytes := 2*limitBytes/batchBytes, batchBytes*6/10

		refused := make(chan string, batches)
		head := fmt.Sprintf("POST /v1/readings HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n[", batchBytes)
		part := strings.Repeat(" ", sentBytes)
		var conns []net.Conn
		for range batches {
			conn, err := net.Dial("tcp", b.addr)
			try(t, err)
			defer conn.Close()
			conns = append(conns, conn)
			go func() { _, _ = io.WriteString(conn, head+part) }() // the answer may come before everything is sent
			go func() {
				answer := make([]byte, 4096)
				if n, _ := conn.Read(answer); n > 0 { // otherwise the body has its memory until it is closed
					refused <- string(answer[:n])
				}
			}()
		}
		for n := range batches - bodyBytes/sentBytes {
			select {
			case answer := <-refused:
				if !strings.HasPrefix(answer, "HTTP/1.1 503 ") || !strings.Contains(answer, "Retry-After: ") {
					t.Fatalf("a batch that does not fit is answered %q, want 503 and Retry-After", answer)
				}
			case <-b.server.exited:
				t.Fatalf("the server has ended, %v, in a control group in which the kernel has ended %d processes",
					b.server.cmd.ProcessState, group.kills())
			case <-time.After(polltest.Patience):
				t.Fatalf("of %d batches of %d bytes %d are refused, with memory for %d bytes", batches, batchBytes, n, bodyBytes)
			}
		}
		b.mustPost(reading(1), `200 {"status":"stored"}`)
		if got := status(b.server.url("/livez")); got != 200 {
			t.Errorf("livez: got %d, want 200", got)
		}
		for _, conn := range conns {
			conn.Close()
		}
		b.load("--users=40", "--batch=500", "--posts=2").wait()
		b.verify()
		if n := group.kills(); n > 0 {
			t.Errorf("the kernel has ended processes %d times for want of memory", n)
		}
		b.term()
		b.check()
	})
}

// number parses a number from the log of a server.
func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	try(t, err)
	return n
}
