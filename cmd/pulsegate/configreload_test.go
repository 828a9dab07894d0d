package main_test

import (
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
	p := start(t, program(t), filepath.Join(dir, "data"), "--config="+path, "--log-budget=7")
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
	hangup("[serve]\naccess-log = 'all'\nlog-budget = 1\nmax-wait = '3s'\n",
		`msg="log settings reloaded" level=INFO access_log=all`, 1)
	p.awaitLine(`msg="changed settings require a restart" settings=max-wait`, 1)
	get()
	get()
	p.awaitLine("msg=request ", 2)
	hangup("[serve]\naccess-log = 'some'\n", `msg="reload failed in part" error="settings are unchanged: `, 1)
	if !strings.Contains(p.stderr(), path+`:2: serve.access-log: \"some\" is not one of off, errors, all`) {
		t.Error("the log does not report the problem")
	}
	get()
	p.awaitLine("msg=request ", 3)
	// the budget of the flag, not of the file
	hangup("[serve]\naccess-log = 'errors'\nlog-level = 'debug'\nmax-wait = '3s'\n",
		`msg="log settings reloaded" level=DEBUG access_log=errors`, 1)
	get()
	try(t, os.Remove(path))
	p.signal(syscall.SIGHUP)
	p.awaitLine("no such file", 1)
	p.stopCleanly()
	if got := strings.Count(p.stderr(), "msg=request "); got != 3 {
		t.Errorf("%d lines of the access log, want 3", got)
	}
	if got := strings.Count(p.stderr(), "require a restart"); got != 1 {
		t.Errorf("%d warnings of settings that require a restart, want 1", got)
	}
}
