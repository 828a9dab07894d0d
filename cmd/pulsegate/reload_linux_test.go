package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// SIGHUP while the store is still opened does not end the server, and is answered
// when it serves.
//
// Seen to fail when SIGHUP is caught after the store is opened.
func TestHangupWhileOpening(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	// The syncs with which a store is made do not return, until strace lets go of the
	// server; a seccomp filter would outlive it.
	line := append(slices.DeleteFunc(strace(t, filepath.Join(dir, "trace"), "fdatasync,fsync:delay_enter=600s"), func(arg string) bool { return arg == "--seccomp-bpf" }),
		program(t), "serve", "--addr=127.0.0.1:0", "--admin-addr=", "--data="+filepath.Join(dir, "data"), "--min-free-bytes=-1")
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // its state tells
	}()
	defer func() { _ = cmd.Process.Kill(); <-exited }() // it has ended, if the test went well
	said := func() string {
		text, err := os.ReadFile(stderr.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	await := func(what string) {
		t.Helper()
		polltest.Until(t, fmt.Sprintf("the server says %q", what), func() bool {
			select {
			case <-exited:
				t.Fatalf("the server ended with %v before it said %q:\n%s", cmd.ProcessState, what, said())
			default:
			}
			return strings.Contains(said(), what)
		})
	}
	await("msg=resources")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(said(), "listening ") {
		t.Fatal("the store was opened too soon for this test")
	}
	if tracer := procStatus(t, cmd.Process.Pid, "TracerPid"); tracer == 0 {
		t.Fatal("nobody traces the server")
	} else if err := syscall.Kill(tracer, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await("listening ")
	await("msg=reloaded")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-exited
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, said())
	}
}
