package main_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"golang.org/x/sys/unix"
)

// smallPipe returns a pipe with a buffer of one page.
func smallPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// A pipedServer is a server whose standard error is a small pipe.
type pipedServer struct {
	t             *testing.T
	cmd           *exec.Cmd
	public, admin string // addresses
	pipe          *os.File
	stderr        *bufio.Reader // of pipe
}

// startPiped starts a server and reads its standard error until it is ready.
func startPiped(t *testing.T, args ...string) *pipedServer {
	t.Helper()
	r, w := smallPipe(t)
	s := &pipedServer{t: t, pipe: r, stderr: bufio.NewReader(r)}
	s.cmd = exec.Command(program(t), append([]string{"serve", "--addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0",
		"--data=" + filepath.Join(t.TempDir(), "data"), "--min-free-bytes=-1", anyTime}, args...)...)
	s.cmd.Stderr = w
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() }) // it has exited, if the test passed
	w.Close()
	timer := time.AfterFunc(polltest.Patience, func() { _ = s.cmd.Process.Kill() }) // ends the reading
	defer timer.Stop()
	for line := ""; !serving.MatchString(line); {
		var err error
		if line, err = s.stderr.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if m := listening.FindStringSubmatch(line); m != nil {
			if m[2] == "admin" {
				s.admin = m[1]
			} else {
				s.public = m[1]
			}
		}
	}
	return s
}

// store stores this many readings.
func (s *pipedServer) store(readings int) {
	s.t.Helper()
	if got := pipeline(s.t, s.public, readings, goodReading); got[200] != readings {
		s.t.Fatalf("statuses %v, want %d times 200", got, readings)
	}
}

// stop sends SIGTERM and checks that the server exits cleanly.
func (s *pipedServer) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	timer := time.AfterFunc(polltest.Patience, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the server ended with %v", err)
	}
}

// metric returns a value of /metrics.
func (s *pipedServer) metric(name string) string {
	s.t.Helper()
	resp, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	s.t.Fatalf("no %s in\n%s", name, text)
	return ""
}

const (
	writtenLines = `pulsegate_log_lines_total`
	blockedLines = `pulsegate_log_suppressed_lines_total{reason="blocked"}`
)

// A server whose standard error is no longer read still stores readings, and exits on SIGTERM.
//
// Seen to fail when the logger writes to standard error directly.
func TestFullPipe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		reads bool // the reader resumes
	}{{"reader comes back", true}, {"reader stays away", false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startPiped(t, "--access-log=all", "--access-log-budget=100000")
			s.store(3000) // their lines fill the pipe and the queue
			if s.metric(blockedLines) == "0" {
				t.Fatal("no line was dropped: the pipe is not full")
			}
			if !tt.reads {
				s.stop()
				return
			}
			before := s.metric(writtenLines)
			var text strings.Builder
			read := make(chan error, 1)
			go func() {
				_, err := s.stderr.WriteTo(&text)
				read <- err
			}()
			polltest.Until(t, "the queue has space", func() bool {
				s.store(1)
				return s.metric(writtenLines) != before
			})
			dropped := s.metric(blockedLines)
			s.stop()
			if err := <-read; err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"dropped=" + dropped + " like=request\n", "msg=stopped "} {
				if !strings.Contains(text.String(), want) {
					t.Errorf("no %q in the log; its end: %s", want, text.String()[max(0, text.Len()-1000):])
				}
			}
		})
	}
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
	s := startPiped(t, "--access-log=all")
	s.pipe.Close()
	s.store(500)
	if s.metric(blockedLines) == "0" {
		t.Error("no line was lost: the pipe is not broken")
	}
	s.stop()
}
