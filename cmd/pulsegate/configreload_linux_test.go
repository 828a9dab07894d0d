package main_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A SIGHUP that arrives while the settings are read does not end the server, and is followed by a reload.
//
// Seen to fail when SIGHUP is caught only once the settings are known.
func TestHangupAtStart(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		unable(t, "strace is needed: %v", err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "pulsegate.toml")
	try(t, os.WriteFile(path, nil, 0o600))
	cmd := serveCommand(context.Background(), program(t), filepath.Join(dir, "data"), "--config="+path)
	line := append([]string{"strace", "-D", "-f", "-qq", "-e", "signal=none", "-o", filepath.Join(dir, "trace"),
		"-P", path,
		"-e", "trace=openat", "-e", "inject=openat:signal=SIGHUP:when=1"}, cmd.Args...)
	traced := exec.Command(line[0], line[1:]...)
	traced.Dir = cmd.Dir
	p := launch(t, 1, traced)
	p.awaitLine(`msg="log settings reloaded"`, 1)
	p.stopCleanly()
}
