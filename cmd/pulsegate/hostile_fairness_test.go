package main_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// from returns a client that connects from a loopback address, with a new connection for each
// request.
func from(t *testing.T, addr string, roots *x509.CertPool) *http.Client {
	t.Helper()
	if runtime.GOOS != "linux" {
		addr = "127.0.0.1" // other systems have one loopback address
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	client := &http.Client{Timeout: polltest.Patience, Transport: &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots},
	}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// store sends a reading and returns the status of the answer, or 0 without one.
func store(client *http.Client, url string, n int) int {
	resp, err := client.Post(url+"/v1/readings", "", strings.NewReader(fmt.Sprintf(`{"device":"fair","time":%d,"spo2_pct":97}`, 1_700_000_000_000+int64(n))))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // only the status matters
	return resp.StatusCode
}

// One address opens ten times as many connections as allowed, sends one request on each and keeps
// them open. Another address is served at once, and new connections of the same address as soon
// as idle ones have been evicted, long before their idle timeout.
//
// Seen to fail without shares, when the other address is refused, and when idle connections of the
// full lane are not evicted: the same address is rejected for the idle timeout.
func TestFairConnections(t *testing.T) {
	for lane, p := range lanes(t, "--max-conns=20", "--idle-timeout=1h") {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			p.in(t)
			p.awaitStatus("/readyz", http.StatusOK)
			for range 200 {
				conn := connect(t, p.addr)
				_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n") // some are closed at once
			}
			n := 0
			if got := store(from(t, "127.0.0.2", nil), p.url(""), n); got != 200 && runtime.GOOS == "linux" {
				t.Errorf("another address: %d, want 200", got)
			}
			same := from(t, "127.0.0.1", nil)
			p.await("an idle connection gives way", func() bool {
				n++
				return store(same, p.url(""), n) == 200
			})
		})
	}
}

// One address opens ten times as many MQTT connections as allowed, and keeps them. Another address connects and
// publishes at once, and the first one can connect again when it has closed what it kept.
//
// Seen to fail without shares.
func TestFairMQTT(t *testing.T) {
	t.Parallel()
	const hello, published = "\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c", "\x20\x02\x00\x00\x40\x02\x00\x07"
	publication := "\x00\x0epulsegate/fair\x00\x07" + `{"time":1700000000000,"spo2_pct":97}`
	publication = "\x32" + string([]byte{byte(len(publication))}) + publication
	for lane, p := range lanes(t, "--max-conns=20", "--mqtt-addr=127.0.0.1:0") {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			p.in(t)
			p.awaitStatus("/readyz", http.StatusOK)
			publish := func(from string) string {
				conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: polltest.Patience}).Dial("tcp", p.mqtt)
				if err != nil {
					return err.Error()
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(polltest.Patience))
				_, _ = io.WriteString(conn, hello+publication) // it may be refused
				got := make([]byte, len(published))
				n, _ := io.ReadFull(conn, got)
				return string(got[:n])
			}
			var kept []net.Conn
			for range 200 {
				conn := connect(t, p.mqtt)
				_, _ = io.WriteString(conn, hello) // some are refused
				kept = append(kept, conn)
			}
			if got := publish("127.0.0.2"); got != published && runtime.GOOS == "linux" {
				t.Errorf("another address is answered %x, want CONNACK and PUBACK", got)
			}
			for _, conn := range kept {
				_ = conn.Close()
			}
			p.await("the first address can connect again", func() bool { return publish("127.0.0.1") == published })
		})
	}
}

// Peers that stall in their handshakes take no connections from others, and are closed after the
// timeout.
//
// Seen to fail when a connection is counted before its handshake.
func TestFairHandshakes(t *testing.T) {
	t.Parallel()
	p, cfg := startTLS(t, "--max-conns=20")
	stalled := make([]net.Conn, 300)
	for i := range stalled {
		stalled[i] = connect(t, p.addr)
		_, _ = io.WriteString(stalled[i], "\x16\x03\x01") // some are closed at once
	}
	url := strings.Replace("https://"+p.addr, "127.0.0.1", "localhost", 1)
	if got := store(from(t, "127.0.0.2", cfg.RootCAs), url, 0); got != 200 && runtime.GOOS == "linux" {
		t.Errorf("another address: %d, want 200", got)
	}
	n := 0
	p.await("the stalled handshakes have ended", func() bool {
		n++
		return store(from(t, "127.0.0.1", cfg.RootCAs), url, n) == 200
	})
	for i, conn := range stalled {
		if _, err := io.ReadAll(conn); err != nil && errors.Is(err, net.ErrClosed) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if got := exchange(t, p.addr, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"); got != "400 end" {
		t.Errorf("HTTP in the clear: %s, want 400 end", got)
	}
}

// Compressed bodies that expand to whole batches and then stall lose their memory within seconds,
// and until then use none of the share of others.
//
// Seen to fail without shares, when the other address is rejected, and without the minimum pace,
// when they last for the read timeout, which is longer than the test waits.
func TestFairBodies(t *testing.T) {
	t.Parallel()
	for lane, p := range lanes(t, "--read-timeout=10m") {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			p.in(t)
			p.awaitStatus("/readyz", http.StatusOK)
			packed := zipped(strings.Repeat(" ", 30<<20))
			head := "POST /v1/readings HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 1000000\r\n\r\n"
			var stalled []net.Conn
			for range 24 {
				conn := connect(t, p.addr)
				go io.WriteString(conn, head+packed[:len(packed)-8]) // some are rejected before
				stalled = append(stalled, conn)
			}
			batch := "[" + strings.Repeat(`{"device":"fair","time":1700000000000,"spo2_pct":97},`, 2000) + `{"device":"fair","time":1700000000001,"spo2_pct":97}]`
			other := from(t, "127.0.0.2", nil)
			for range 10 {
				resp, err := other.Post(p.url("/v1/readings"), "", strings.NewReader(batch))
				try(t, err)
				resp.Body.Close()
				if resp.StatusCode != 200 && runtime.GOOS == "linux" {
					t.Errorf("a batch of another address: %d, want 200", resp.StatusCode)
				}
				time.Sleep(20 * time.Millisecond) // so that some come after all have expanded
			}
			for _, conn := range stalled {
				if got := outcome(conn); got != "408 end" && got != "503 end" && got != "503 408 end" && got != "end" {
					t.Errorf("a body that stalls is answered %s, want 408 end or 503 end", got)
				}
			}
		})
	}
}
