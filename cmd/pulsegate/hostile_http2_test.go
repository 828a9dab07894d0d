package main_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// An HTTP/2 client that sends requests and then reads nothing is closed in time, as with
// HTTP/1.1. Otherwise it would keep its connection indefinitely.
//
// Seen to fail without WriteByteTimeout.
func TestSlowClientsThatNeverReadHTTP2(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p, cfg := startTLS(t, "--read-timeout=1s")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg.Clone(), DisableKeepAlives: true},
		Timeout: polltest.Patience}
	for from := 0; from < 20_000; from += 1000 { // each arrives within the timeout, also at a busy machine
		var lines strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&lines, "{\"device\":\"read\",\"time\":%d,\"spo2_pct\":97}\n", from+i)
		}
		got, err := askOnce(client, http.MethodPost, "https://"+p.addr+"/v1/readings", lines.String())
		if err != nil || !strings.Contains(got, `"stored":1000`) {
			t.Fatalf("1,000 readings: %s, %v", got, err)
		}
	}
	stalling := &stallingConn{TCPConn: connect(t, p.addr), gone: make(chan struct{})}
	try(t, stalling.SetReadBuffer(4<<10))
	transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return stalling, nil }}
	client = &http.Client{Transport: transport, Timeout: polltest.Patience}
	if resp, err := client.Get("https://" + p.addr + "/livez"); err != nil || resp.ProtoMajor != 2 {
		t.Fatalf("livez: %v, %v; want an HTTP/2 response", resp, err)
	}
	open := sockets(t, p)
	stalling.stopped.Store(true)
	client.Timeout = 3 * time.Second // the answers never arrive
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := askOnce(client, http.MethodGet, "https://"+p.addr+"/v1/devices/read/readings?format=ndjson",
				""); err == nil {
				t.Error("a client that does not read has read it all")
			}
		})
	}
	wg.Wait()
	p.await("the connection is closed", func() bool { return sockets(t, p) < open })
	p.stopCleanly()
}

// A stallingConn can stop reading.
type stallingConn struct {
	*net.TCPConn
	stopped atomic.Bool
	once    sync.Once
	gone    chan struct{} // closed by Close
}

func (c *stallingConn) Read(p []byte) (int, error) {
	if c.stopped.Load() {
		<-c.gone
		return 0, io.EOF
	}
	return c.TCPConn.Read(p)
}

// Close keeps the connection open, so that the server must close it.
func (c *stallingConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return nil
}
