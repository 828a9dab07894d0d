package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"golang.org/x/sys/unix"
)

// smallPipe returns a pipe with a buffer of one page.
func smallPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	try(t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
	if _, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// A command that fails exits even if nobody reads its standard error.
//
// Seen to fail when the wait for the reader is not bounded.
func TestFailsIntoFullPipe(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	_, w := smallPipe(t)
	if _, err := w.Write(make([]byte, os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t), "check", "nowhere")
	cmd.Stderr = w
	timer := time.AfterFunc(polltest.Patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Run() // ProcessState has the result
	if got := cmd.ProcessState.ExitCode(); got != 1 {
		t.Errorf("%v, want exit code 1", cmd.ProcessState)
	}
}

// A server survives the exit of the process that reads its standard error.
//
// Seen to fail when SIGPIPE is not ignored.
func TestBrokenPipe(t *testing.T) {
	p := start(t, program(t), filepath.Join(t.TempDir(), "data"), "--admin-addr=127.0.0.1:0", "--access-log=all")
	try(t, p.pipe.Close())
	if got := pipeline(t, p.addr, 500, goodReading); got[200] != 500 {
		t.Fatalf("statuses %v, want 500 times 200", got)
	}
	if metric(t, p, `pulsegate_log_suppressed_lines_total{reason="blocked"}`) == 0 {
		t.Error("no line was lost: the pipe is not broken")
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
