package main_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// The tests of hostile clients share the functions below. They use separate server processes, one
// with both lanes and one without the fast lane, so that they measure the memory of the server and
// not that of its clients.

// lanes runs a test against a server with both lanes and against one without the fast lane, as parallel subtests: they
// begin when the calling test returns, each once its server is ready.
func lanes(t *testing.T, args []string, test func(t *testing.T, p *process)) {
	t.Helper()
	for _, lane := range []string{"on", "off"} {
		p := start(t, program(t), filepath.Join(t.TempDir(), "data"), slices.Concat(args, []string{"--fast-lane=" + lane})...)
		t.Run("fast lane "+lane, func(t *testing.T) {
			t.Parallel()
			p.in(t)
			p.awaitStatus("/readyz", http.StatusOK)
			test(t, p)
		})
	}
}

// eachLane runs a test against both servers, with bounds that are low enough to be reached. A good
// client is served all the while, and the server uses no more memory than the bounds allow.
func eachLane(t *testing.T, test func(t *testing.T, p *process), args ...string) {
	t.Helper()
	args = append([]string{
		"GOMEMLIMIT=512MiB", "--read-timeout=3s", "--insecure",
	}, args...)
	lanes(t, args, func(t *testing.T, p *process) {
		b := startBystander(t, p)
		test(t, p)
		b.finish()
		checkMemory(t, p)
		p.stopCleanly()
	})
}

// maxRSSBytes bounds the memory of a server with the bounds of eachLane: 32 MiB when idle, twice
// what bodies take of 85 MiB because the garbage collector lets the heap double, and some more for
// connections and zstd windows. The tests use up to 82 MiB.
const maxRSSBytes = 128 << 20

// checkMemory reports a server that has used too much memory.
func checkMemory(t *testing.T, p *process) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return // unknown on this system
	}
	peak := p.peakMemory()
	t.Logf("peak of the resident memory: %d MiB", peak>>20)
	if peak > maxRSSBytes {
		t.Errorf("the server used %d MiB, want at most %d", peak>>20, maxRSSBytes>>20)
	}
}

// peakMemory returns the peak resident memory of the server in bytes, on Linux.
func (p *process) peakMemory() int {
	p.t.Helper()
	return numberIn(p.t, fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid), "VmHWM:") << 10
}

// A bystander is a good client: it repeatedly stores a reading, reads it back and checks readyz.
type bystander struct {
	t    *testing.T
	stop context.CancelFunc
	wg   sync.WaitGroup
	n    int // readings stored and read back
}

// startBystander starts a bystander.
func startBystander(t *testing.T, p *process) *bystander {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	b := &bystander{t: t, stop: cancel}
	client := &http.Client{Transport: &http.Transport{}, Timeout: polltest.Patience}
	p.awaitStatus("/readyz", http.StatusOK)
	b.wg.Go(func() {
		defer client.CloseIdleConnections()
		for ; ctx.Err() == nil; b.n++ {
			reading := fmt.Sprintf(`{"device":"bystander","time":%d,"spo2_pct":97}`, 1000*b.n)
			for _, one := range []struct{ method, path, body, want string }{
				{http.MethodPost, "/v1/readings", reading, `{"status":"stored"}`},
				{http.MethodGet, fmt.Sprintf("/v1/devices/bystander/readings?from=%d&format=csv", 1000*b.n), "", "bystander"},
				{http.MethodGet, "/readyz", "", "ready"},
			} {
				got, err := askOnce(client, one.method, p.url(one.path), one.body)
				if err != nil {
					// The server may have closed the connection, which was idle for too long.
					got, err = askOnce(client, one.method, p.url(one.path), one.body)
					got = strings.Replace(got, "duplicate", "stored", 1)
				}
				if err != nil || !strings.Contains(got, one.want) {
					t.Errorf("a bystander's %s %s after %d readings: %q, %v", one.method, one.path, b.n, got, err)
					return
				}
			}
			time.Sleep(50 * time.Millisecond) // a well-behaved client does not saturate the server, nor the machine
		}
	})
	return b
}

// askOnce sends one request and returns the answer's body.
func askOnce(client *http.Client, method, url, body string) (string, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return strings.TrimSuffix(string(text), "\n"), err
}

// exchange sends a stream of bytes and returns the status of each answer until the server closes
// the connection, followed by "end", or by "open" if the server does not close it.
func exchange(t testing.TB, addr, stream string) string {
	t.Helper()
	conn := connect(t, addr)
	defer conn.Close()
	go io.WriteString(conn, stream) // the server may close the connection first
	return outcome(conn)
}

// connect opens a connection with a deadline.
func connect(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	try(t, err)
	t.Cleanup(func() { conn.Close() })
	try(t, conn.SetDeadline(time.Now().Add(polltest.Patience)))
	return conn.(*net.TCPConn)
}

// outcome returns the result of exchange.
func outcome(conn net.Conn) string {
	var seen []string
	in := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(in, nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return strings.Join(append(seen, "open"), " ")
		}
		if err != nil {
			return strings.Join(append(seen, "end"), " ")
		}
		seen = append(seen, fmt.Sprint(resp.StatusCode))
		if resp.StatusCode >= 200 {
			_, _ = io.Copy(io.Discard, resp.Body) // a truncated answer shows in the next one
		}
	}
}

// devices returns the names of the devices of a server, separated by spaces, without the
// bystander's.
func devices(t testing.TB, p *process) string {
	t.Helper()
	page, err := askOnce(http.DefaultClient, http.MethodGet, p.url("/v1/devices?limit=1000"), "")
	try(t, err)
	return namesIn(page)
}

// namesIn returns the names of the devices of a page.
func namesIn(page string) string {
	var names []string
	for _, part := range strings.Split(page, `"device":"`)[1:] {
		if name, _, _ := strings.Cut(part, `"`); name != "bystander" {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// finish ends a bystander, which must have been served.
func (b *bystander) finish() {
	b.t.Helper()
	b.stop()
	b.wg.Wait()
	if b.n == 0 {
		b.t.Error("the bystander was not served")
	}
}
