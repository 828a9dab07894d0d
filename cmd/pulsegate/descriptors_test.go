//go:build linux

package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The store gets the file descriptors that it needs, however many clients connect. With a low
// limit of open files and more connections than the limit, a server still stores readings over
// many memtables. A limit that the user sets is kept, with a warning.
//
// Seen to fail when fitConns lowers nothing: the store cannot open a table, and posts fail.
func TestFewDescriptors(t *testing.T) {
	const files = 300
	start := func(t *testing.T, args ...string) *process {
		t.Helper()
		line := append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files), program(t), "serve",
			"--addr=127.0.0.1:0", "--admin-addr=",
			"--cache-bytes=4MiB", "--min-free-bytes=-1", "--log-level=debug", "--data=" + filepath.Join(t.TempDir(), "data")},
			args...)
		return launch(t, 1, exec.Command("sh", line...))
	}
	t.Run("fitted", func(t *testing.T) {
		p := start(t)
		const want = files/2 - 64
		if got := resources(t, p); got["max_conns"] != fmt.Sprint(want) || got["files_limit"] != fmt.Sprint(files) {
			t.Errorf("max_conns=%s files_limit=%s, want %d and %d", got["max_conns"], got["files_limit"], want, files)
		}
		// One client connects before all others and posts all the while.
		client := &http.Client{Timeout: 20 * time.Second}
		defer client.CloseIdleConnections()
		for batch := range 80 {
			if batch == 1 {
				for i := range files {
					conn, err := net.Dial("tcp", p.addr)
					if err != nil {
						t.Fatalf("connection %d: %v", i, err)
					}
					defer conn.Close()
				}
			}
			var lines strings.Builder
			for i := range 900 {
				fmt.Fprintf(&lines, "{\"device\":\"ppg-%d\",\"time\":%d,\"spo2_pct\":97.5}\n", i, 1763719200000+batch*1000)
			}
			resp, err := client.Post(p.url("/v1/readings"), "application/x-ndjson", strings.NewReader(lines.String()))
			if err != nil {
				t.Fatalf("batch %d: %v", batch, err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("batch %d: %d %s, %v", batch, resp.StatusCode, text, err)
			}
		}
		if strings.Contains(p.stderr(), "too many open files") {
			t.Errorf("the store had too few files:\n%s", p.stderr())
		}
		p.stopCleanly()
	})
	t.Run("by hand", func(t *testing.T) {
		p := start(t, "--max-conns=1000")
		if got := resources(t, p)["max_conns"]; got != "1000" || !strings.Contains(p.stderr(), "level=WARN") {
			t.Errorf("max_conns=%s, want 1000 and a warning:\n%s", got, p.stderr())
		}
		p.stopCleanly()
	})
}
