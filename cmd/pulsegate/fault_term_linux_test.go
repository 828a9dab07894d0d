package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// SIGTERM while requests wait for a sync: readyz answers 503, new requests are rejected, every
// request in progress is answered, complete ones with stored, and the exit code is 0. In one round
// all requests are plain, which the fast lane serves if there is one; in another half of them are
// chunked, which net/http serves on any server.
//
// Seen to fail with the mutants close-instead-of-shutdown, skip-lane-shutdown and
// close-store-first.
func TestTermAnswers(t *testing.T) {
	onBothLanes(t, func(t *testing.T, lane lane) {
		for name, chunkedOneOf := range map[string]int{"plain": 1000, "some chunked": 2} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				testTermAnswers(t, newHarness(t, lane, "--drain-delay=300ms", "--max-wait=60s", "--admin-addr=127.0.0.1:0"),
					chunkedOneOf)
			})
		}
	})
}

// testTermAnswers sends requests, one of which in so many is chunked.
func testTermAnswers(t *testing.T, b *harness, chunkedOneOf int) {
	const whole, begun = 16, 4
	chunked := func(n int) bool { return n%chunkedOneOf == chunkedOneOf-1 }
	b.start()
	b.mustPost(`{"device":"first","time":1,"spo2_pct":97}`, `200 {"status":"stored"}`)
	_, before := b.log()
	heal := b.tamper("fdatasync:delay_enter=60s")

	type answered struct {
		n    int
		text string
	}
	answers := make(chan answered, whole)
	send := func(n int) {
		status, text, err := b.post(reading(n), chunked(n))
		answers <- answered{n, fmt.Sprintf("%d %s %v", status, text, err)}
	}
	go send(0)
	b.awaitLog(before) // the first one waits for its sync, and so will all others
	for n := 1; n < whole; n++ {
		go send(n)
	}
	var halves [begun]*halfSent
	for i := range halves {
		halves[i] = sendHalf(t, b.addr, reading(whole+i), chunked(i))
		defer halves[i].conn.Close()
	}
	b.server.await("all whole requests are queued", func() bool { return b.measure("pulsegate_queue_readings") == whole })
	b.server.signal(syscall.SIGTERM)
	b.server.await("readyz is not answered 200", func() bool { return status(b.server.url("/readyz")) != 200 })
	b.server.awaitStatus("/livez", 0) // no new client is accepted after the delay
	heal()
	for range whole {
		if got := <-answers; got.text != `200 {"status":"stored"} <nil>` {
			t.Errorf("request %d, which waited for a sync at SIGTERM, is answered %s, want 200 stored", got.n, got.text)
		}
	}
	for i, half := range halves {
		if got := half.finish(t); got != 503 {
			t.Errorf("request %d, of which the rest came while draining, is answered %d, want 503", whole+i, got)
		}
	}
	if code := b.ended(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, b.server.stderr())
	}
	b.start()
	for n := range whole {
		if got := len(b.readings(fmt.Sprintf("d%d", n))); got != 1 {
			t.Errorf("reading %d was answered as stored, and is there %d times", n, got)
		}
	}
}

// reading returns a reading of a device of its own.
func reading(n int) string { return fmt.Sprintf(`{"device":"d%d","time":1000,"spo2_pct":97}`, n) }

// A halfSent is a request whose last bytes are missing.
type halfSent struct {
	conn net.Conn
	rest string
}

// sendHalf sends the first part of a POST.
func sendHalf(t *testing.T, addr, body string, chunked bool) *halfSent {
	t.Helper()
	head, rest := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body[:10]), body[10:]
	if chunked {
		head = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s", len(body), body[:10])
		rest += "\r\n0\r\n\r\n"
	}
	conn, err := net.Dial("tcp", addr)
	try(t, err)
	_, err = io.WriteString(conn, "POST /v1/readings HTTP/1.1\r\nHost: localhost\r\n"+head)
	try(t, err)
	return &halfSent{conn, rest}
}

// finish sends the rest and returns the status of the answer, or 0 without one.
func (h *halfSent) finish(t *testing.T) int {
	t.Helper()
	try(t, h.conn.SetDeadline(time.Now().Add(polltest.Patience)))
	_, _ = io.WriteString(h.conn, h.rest) // the answer may have come first
	resp, err := http.ReadResponse(bufio.NewReader(h.conn), nil)
	if err != nil {
		t.Errorf("read the answer: %v", err)
		return 0
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), "#draining") {
		t.Errorf("the answer is %s, %v; want the problem #draining", text, err)
	}
	return resp.StatusCode
}
