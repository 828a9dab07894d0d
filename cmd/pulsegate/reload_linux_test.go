package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// SIGHUP while the store is being opened does not end the server, which reloads when it serves.
//
// Seen to fail when SIGHUP is caught after the store is opened.
func TestHangupWhileOpening(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	dir := t.TempDir()
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	try(t, err)
	defer stderr.Close()
	d := newDisk(t, 256<<20)
	d.freeze() // the store can be created once it is thawed
	cmd := exec.Command(program(t), "serve", "--addr=127.0.0.1:0", "--admin-addr=", "--data="+filepath.Join(d.dir, "data"), "--min-free-bytes=-1", "--log-level=debug", anyTime)
	cmd.Stderr = stderr
	try(t, cmd.Start())
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // ProcessState has the result
	}()
	defer func() { // it has exited, if the test passed
		_ = cmd.Process.Kill()
		d.thaw()
		<-exited
	}()
	logged := func() string {
		text, err := os.ReadFile(stderr.Name())
		try(t, err)
		return string(text)
	}
	await := func(what string) {
		t.Helper()
		polltest.Until(t, fmt.Sprintf("the server logs %q", what), func() bool {
			select {
			case <-exited:
				t.Fatalf("the server ended with %v before it logged %q:\n%s", cmd.ProcessState, what, logged())
			default:
			}
			return strings.Contains(logged(), what)
		})
	}
	await("msg=resources")
	try(t, cmd.Process.Signal(syscall.SIGHUP))
	if strings.Contains(logged(), "listening ") {
		t.Fatal("the store was opened too soon for this test")
	}
	d.thaw()
	await("listening ")
	await("msg=reloaded")
	try(t, cmd.Process.Signal(syscall.SIGTERM))
	polltest.Until(t, "the server ends", func() bool {
		select {
		case <-exited:
			return true
		default:
			return false
		}
	})
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, logged())
	}
}
