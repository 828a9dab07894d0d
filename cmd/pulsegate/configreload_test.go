package main_test

import (
	"fmt"
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
	try(t, os.WriteFile(path, nil, 0o600))
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
		try(t, os.WriteFile(path, []byte(text), 0o600))
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
	try(t, os.Remove(path))
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
	for _, tt := range []struct {
		method, body, want string
		fields             []string
	}{
		{"GET", "", "200 info", nil},
		{"PUT", "debug\n", "200 debug", nil},
		{"GET", "", "200 debug", nil},
		{"PUT", "loud", "422 send debug, info, warn or error", nil},
		{"PUT", strings.Repeat("x", 100), "422 send debug, info, warn or error", nil},
		{"PUT", "error", "403 ", []string{"Origin", "http://elsewhere.example"}},
		{"PUT", "error", "403 ", []string{"Host", "elsewhere.example"}},
		{"PUT", "warn", "200 warn", []string{"Host", "localhost:1"}},
		{"POST", "error", "405 GET and PUT are allowed", nil},
		{"GET", "", "200 warn", []string{"Host", "[::1]:6060"}},
	} {
		resp, text := fetch(t, tt.method, "http://"+p.admin+"/loglevel", tt.body, tt.fields...)
		if got := fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(text)); got != tt.want && !(tt.want == "403 " && strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s %q with %q: got %s, want %s", tt.method, tt.body, tt.fields, got, tt.want)
		}
	}
	if got := status("http://" + p.admin + "/metrics"); got != 200 {
		t.Errorf("/metrics: %d", got)
	}
	p.awaitLine(`level=INFO msg="log level set" level=DEBUG`, 1)
}
