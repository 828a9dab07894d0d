package main_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// SIGHUP applies the log settings of the file. An unusable file changes nothing, and a flag
// overrides the file.
func TestHangup(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pulsegate.toml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, program(t), filepath.Join(dir, "data"), "--config="+path, "--access-log-budget=7")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.stderr())
		}
	})
	get := func() { // writes a line of the access log, if it is on
		t.Helper()
		if got := status(p.url("/livez")); got != 200 {
			t.Errorf("/livez: %d", got)
		}
	}
	hangup := func(text, want string, times int) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p.signal(syscall.SIGHUP)
		p.awaitLine(want, times)
	}
	get()
	hangup("[serve]\naccess-log = 'all'\naccess-log-budget = 1\nmax-readings = 1000\n", `msg="log settings reloaded" level=INFO access_log=all`, 1)
	p.awaitLine(`msg="changed settings require a restart" settings=max-readings`, 1)
	get()
	get()
	p.awaitLine("msg=request ", 2) // the budget of the flag, not of the file
	hangup("[serve]\naccess-log = 'some'\n", `msg="reload failed in part" error="settings are unchanged: `, 1)
	if !strings.Contains(p.stderr(), path+`:2: serve.access-log: \"some\" is not one of off, errors, all`) {
		t.Error("the log does not report the problem")
	}
	get()
	p.awaitLine("msg=request ", 3)
	hangup("[serve]\naccess-log = 'errors'\nlog-level = 'debug'\nmax-readings = 1000\n", `msg="log settings reloaded" level=DEBUG access_log=errors`, 1)
	get()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.awaitLine("no such file", 1)
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := strings.Count(p.stderr(), "msg=request "); got != 3 {
		t.Errorf("%d lines of the access log, want 3", got)
	}
	if got := strings.Count(p.stderr(), "require a restart"); got != 1 {
		t.Errorf("%d warnings of settings that require a restart, want 1", got)
	}
}

// The admin listener shows and sets the log level for clients on this machine.
func TestLogLevelEndpoint(t *testing.T) {
	p := start(t, program(t), filepath.Join(t.TempDir(), "data"), "--admin-addr=127.0.0.1:0")
	ask := func(method, host, origin, body string) string {
		t.Helper()
		req, err := http.NewRequest(method, "http://"+p.admin+"/loglevel", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			req.Host = host
		}
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(text)))
	}
	for _, tt := range []struct{ method, host, origin, body, want string }{
		{"GET", "", "", "", "200 info"},
		{"PUT", "", "", "debug\n", "200 debug"},
		{"GET", "", "", "", "200 debug"},
		{"PUT", "", "", "loud", "422 send debug, info, warn or error"},
		{"PUT", "", "", strings.Repeat("x", 100), "422 send debug, info, warn or error"},
		{"PUT", "", "http://elsewhere.example", "error", "403 "},
		{"PUT", "elsewhere.example", "", "error", "403 "},
		{"PUT", "localhost:1", "", "warn", "200 warn"},
		{"POST", "", "", "error", "405 GET and PUT are allowed"},
		{"GET", "[::1]:6060", "", "", "200 warn"},
	} {
		if got := ask(tt.method, tt.host, tt.origin, tt.body); got != tt.want && !(tt.want == "403 " && strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s %q to host %q from origin %q: got %s, want %s", tt.method, tt.body, tt.host, tt.origin, got, tt.want)
		}
	}
	if got := status("http://" + p.admin + "/metrics"); got != 200 {
		t.Errorf("/metrics: %d", got)
	}
	p.awaitLine(`level=INFO msg="log level set" level=DEBUG`, 1)
}
