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
	resp, err := client.Post(url+"/v1/readings", "",
		strings.NewReader(fmt.Sprintf(`{"device":"fair","time":%d,"spo2_pct":97}`, 1_700_000_000_000+int64(n))))
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
	lanes(t, []string{"--max-conns=20", "--read-timeout=1h"}, func(t *testing.T, p *process) {
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

// One address opens ten times as many connections of MQTT or MLLP as allowed, sends a packet or a message on each and
// keeps them open. Another address is served at once, and new connections of the same address as soon as idle ones have
// been evicted.
//
// Seen to fail without shares, and for MLLP and the full lane of MQTT without eviction.
func TestFairMessages(t *testing.T) {
	const (
		hello    = "\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c"
		topic    = "\x00\x0epulsegate/fair\x00\x07"
		reading  = `{"time":1700000000000,"spo2_pct":97}`
		rejected = "\x0bMSH|^~\\&|||||||ADT^A08|1|P|2.6\r\x1c\r"
		message  = "\x0bMSH|^~\\&|||||||ORU^R01^ORU_R01|7|P|2.6\rOBR|1||||||20231114221320+0000\rOBX|1|NM|59408-5^^LN||97|%" +
			"|||||R|||||||fair\r\x1c\r"
	)
	lanes(t, []string{"--max-conns=20", "--mqtt-addr=127.0.0.1:0", "--mllp-addr=127.0.0.1:0"},
		func(t *testing.T, p *process) {
			for _, tt := range []struct {
				name, addr, first, next, want string
			}{
				{"MQTT", p.mqtt, hello, hello + "\x32" + string([]byte{byte(len(topic + reading))}) + topic + reading,
					"\x20\x02\x00\x00\x40\x02\x00\x07"},
				{"MLLP", p.mllp, rejected, message, "MSA|AA|7"},
			} {
				t.Run(tt.name, func(t *testing.T) {
					p.in(t)
					send := func(from string) string {
						conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: polltest.Patience}).
							Dial("tcp", tt.addr)
						if err != nil {
							return err.Error()
						}
						defer conn.Close()
						_ = conn.SetDeadline(time.Now().Add(polltest.Patience))
						_, _ = io.WriteString(conn, tt.next) // it may be refused
						var got []byte
						for !strings.Contains(string(got), tt.want) {
							part := make([]byte, 256)
							n, err := conn.Read(part)
							if got = append(got, part[:n]...); err != nil {
								break
							}
						}
						return string(got)
					}
					for range 200 {
						_, _ = io.WriteString(connect(t, tt.addr), tt.first) // some are refused
					}
					if got := send("127.0.0.2"); !strings.Contains(got, tt.want) && runtime.GOOS == "linux" {
						t.Errorf("another address is answered %q", got)
					}
					p.await("the first address is served again", func() bool { return strings.Contains(send("127.0.0.1"), tt.want) })
				})
			}
		})
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
	lanes(t, []string{"--read-timeout=10m"}, func(t *testing.T, p *process) {
		packed := zipped(strings.Repeat(" ", 30<<20))
		head := "POST /v1/readings HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 1000000\r\n\r\n"
		var stalled []net.Conn
		for range 24 {
			conn := connect(t, p.addr)
			go io.WriteString(conn, head+packed[:len(packed)-8]) // some are rejected before
			stalled = append(stalled, conn)
		}
		batch := "[" + strings.Repeat(`{"device":"fair","time":1700000000000,"spo2_pct":97},`, 2000) +
			`{"device":"fair","time":1700000000001,"spo2_pct":97}]`
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
