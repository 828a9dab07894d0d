package deploy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain creates the directory into which the program is built, unless the process is
// the container runtime.
func TestMain(m *testing.M) {
	if runContainer() {
		return // runContainer does not return
	}
	os.Exit(func() int {
		var err error
		if built.dir, err = os.MkdirTemp("", "pulsegate-deploy-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(built.dir)
		return m.Run()
	}())
}

// built is the program built by the Dockerfile's commands.
var built struct {
	dir  string
	once sync.Once
	err  error
}

// program returns the path of pulsegate. It is built once for all tests, with the
// commands of the Dockerfile, from the files not excluded by .dockerignore.
func program(t testing.TB) string {
	t.Helper()
	built.once.Do(func() { built.err = buildImage(built.dir) })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "out", "pulsegate")
}

// root is the root of the repository.
const root = "../.."

// missing skips a test that needs something outside the repository. In CI it fails the
// test.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// tool returns the path of a program that .ci/setup installs in bin/tools.
func tool(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin/tools", name))
	try(t, err)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if path, err = exec.LookPath(name); err != nil {
		missing(t, "%s is missing: .ci/setup fetches it", name)
	}
	return path
}

// A server is a running pulsegate serve.
type server struct {
	public, admin string // URLs
	cmd           *exec.Cmd
	exited        chan struct{} // closed when the process has ended

	mu     sync.Mutex
	stderr strings.Builder // guarded by mu
}

// listening matches the line of a listener, in both formats of the log.
var listening = regexp.MustCompile(`listening(?: addr=|","addr":")([^\s"]+)(?: listener=|","listener":")(public|admin)`)

// start starts cmd, which runs pulsegate serve, by calling begin, and waits for both
// listeners. The process is killed at the end of the test.
func start(t testing.TB, cmd *exec.Cmd, begin func() error) *server {
	t.Helper()
	s := &server{cmd: cmd, exited: make(chan struct{})}
	stderr, err := cmd.StderrPipe()
	try(t, err)
	try(t, begin())
	listeners := make(chan []string, 2)
	go func() {
		defer close(s.exited)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			s.mu.Lock()
			s.stderr.WriteString(lines.Text() + "\n")
			s.mu.Unlock()
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				listeners <- m
			}
		}
		_ = cmd.Wait() // see ProcessState
	}()
	t.Cleanup(s.kill)
	deadline := time.After(time.Minute)
	for range 2 {
		select {
		case m := <-listeners:
			if m[2] == "public" {
				s.public = "http://" + m[1]
			} else {
				s.admin = "http://" + m[1]
			}
		case <-s.exited:
			t.Fatalf("the server has ended:\n%s", s.log())
		case <-deadline:
			t.Fatalf("the server does not listen:\n%s", s.log())
		}
	}
	return s
}

// serve starts a server on the loopback address with an empty data directory.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	args = append([]string{"serve", "--addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0", "--data=" + t.TempDir()}, args...)
	cmd := exec.Command(program(t), args...)
	return start(t, cmd, cmd.Start)
}

func (s *server) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.String()
}

// kill kills the process with SIGKILL.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // the process may have ended
	<-s.exited
}

// term sends SIGTERM and returns the exit code.
func (s *server) term(t testing.TB) int {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	select {
	case <-s.exited:
	case <-time.After(time.Minute):
		t.Fatalf("still running a minute after SIGTERM:\n%s", s.log())
	}
	return s.cmd.ProcessState.ExitCode()
}

// awaitReady waits until a server is ready.
func awaitReady(t testing.TB, client *http.Client, url string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		status, body := get(t, client, url+"/readyz")
		if status == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not become ready: %d %s", status, body)
		}
	}
}

// get returns the status and the body of an answer.
func get(t testing.TB, client *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := client.Get(url)
	try(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	try(t, err)
	return resp.StatusCode, string(body)
}

// run runs a command and returns its output and exit code.
func run(t testing.TB, cmd *exec.Cmd) (output string, code int) {
	t.Helper()
	return runWith(t, cmd, cmd.Start)
}

// runWith is like run but starts the command by calling begin.
func runWith(t testing.TB, cmd *exec.Cmd, begin func() error) (output string, code int) {
	t.Helper()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	try(t, begin())
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// try ends the test if one of errs is not nil.
func try(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
