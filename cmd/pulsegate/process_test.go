package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// skipIfShort skips a test in a short run. Such a test takes about a minute and needs neither
// root nor devices. make test includes it.
func skipIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in a short run")
	}
}

// unable ends a test that needs something the machine lacks. The test fails in CI and is skipped
// elsewhere.
func unable(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// program builds pulsegate, once for all tests, and returns its path.
func program(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.path = os.Getenv("BUILT_PULSEGATE"); built.path == "" { // make test sets it
			built.path, built.err = buildInto(built.dir, nil)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// built is the result of program. TestMain creates its directory.
var built struct {
	dir  string
	once sync.Once
	path string
	err  error
}

// buildInto builds pulsegate into dir. replaced maps the paths of source files to the texts that
// are compiled in their place.
func buildInto(dir string, replaced map[string]string) (string, error) {
	bin := filepath.Join(dir, "pulsegate")
	args := []string{"build", "-ldflags=-w", "-o", bin} // halves the time to link; no debugger needs it
	if len(replaced) > 0 {
		overlay := struct{ Replace map[string]string }{map[string]string{}}
		for file, text := range replaced {
			instead := filepath.Join(dir, fmt.Sprintf("replaced%d.go", len(overlay.Replace)))
			if err := os.WriteFile(instead, []byte(text), 0o600); err != nil {
				return "", err
			}
			overlay.Replace[file] = instead
		}
		list, err := json.Marshal(overlay)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(bin+".overlay", list, 0o600); err != nil {
			return "", err
		}
		args = append(args, "-overlay", bin+".overlay")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
}

// TestMain creates the directory that the program is built into.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		err := ownNamespaces()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		_ = os.Unsetenv("GOGC") // make test sets it; servers have the default, as those of users
		if built.dir, err = os.MkdirTemp("", "pulsegate-test-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(built.dir)
		http.DefaultClient.Timeout = polltest.Patience // a server that never answers fails its test
		return m.Run()
	}())
}

// A process is a running pulsegate serve.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	pipe   io.Closer     // of its standard error
	addr   string        // of the public listener
	admin  string        // of the admin listener, or "" if there is none
	mqtt   string        // of the MQTT listener, or "" if there is none
	mllp   string        // of the MLLP listener, or "" if there is none
	lines  string        // of the listener of lines, or "" if there is none
	exited chan struct{} // closed when the process has exited and its output was read

	mu  sync.Mutex
	err strings.Builder // standard error so far, guarded by mu
}

// listening matches the line of a listener, in both formats of the log.
var listening = regexp.MustCompile(
	`listening(?: addr=|","addr":")([^\s"]+)(?: listener=|","listener":")(public|admin|mqtt|mllp|lines)`)

// serving matches the last line of a start, in both formats of the log.
var serving = regexp.MustCompile(`msg=ready url=|"msg":"ready","url":`)

// start starts a server on dir and waits until it is ready. The server's working directory is the
// parent of dir. It has an admin listener only if args name one, and accepts any time since 1970,
// because many tests use small numbers. It is killed when the test ends.
func start(t testing.TB, bin, dir string, args ...string) *process {
	t.Helper()
	listeners := 1
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--admin-addr") }) {
		listeners = 2
	}
	cmd := serveCommand(context.Background(), bin, dir, args...)
	for _, flag := range []string{"--mqtt-addr", "--mllp-addr", "--lines-addr"} {
		if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag) }) {
			listeners++
		}
	}
	return launch(t, listeners, cmd)
}

// serveCommand returns the command of start. The first of args may be a variable, such as GOMEMLIMIT=1GiB, from which
// the bounds follow that have no flag. The process is killed when ctx ends.
func serveCommand(ctx context.Context, bin, dir string, args ...string) *exec.Cmd {
	var env []string // nil means the environment of the test
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		env, args = append(os.Environ(), args[0]), args[1:]
	}
	cmd := exec.CommandContext(ctx, bin,
		append([]string{"serve", "--addr=127.0.0.1:0", "--admin-addr=", "--data=" + dir, "--min-free-bytes=-1", anyTime},
			args...)...)
	cmd.Dir, cmd.Env = filepath.Dir(dir), env
	return cmd
}

// anyTime makes a server accept any time since 1970.
const anyTime = "--oldest=1970-01-01T00:00:00Z"

// launch runs a command that serves with this many listeners, and waits until it is ready.
func launch(t testing.TB, listeners int, cmd *exec.Cmd) *process {
	t.Helper()
	p, err := tryLaunch(t, listeners, cmd)
	try(t, err)
	return p
}

// tryLaunch is launch for a server that may exit before it listens, which is the error.
func tryLaunch(t testing.TB, listeners int, cmd *exec.Cmd) (*process, error) {
	t.Helper()
	endWithTest(cmd)
	p := &process{t: t, cmd: cmd, exited: make(chan struct{})}
	stderr, err := p.cmd.StderrPipe()
	try(t, err)
	p.pipe = stderr
	try(t, p.cmd.Start())
	lines := make(chan []string, 5) // one per listener, and nil at the end
	go func() {
		defer close(p.exited)
		in := bufio.NewScanner(stderr)
		for in.Scan() {
			p.mu.Lock()
			p.err.WriteString(in.Text() + "\n")
			p.mu.Unlock()
			if m := listening.FindStringSubmatch(in.Text()); m != nil || serving.MatchString(in.Text()) {
				lines <- m
			}
		}
		_ = p.cmd.Wait() // ProcessState has the result
	}()
	t.Cleanup(p.kill)
	deadline := time.After(polltest.Patience)
	for range listeners + 1 {
		select {
		case m := <-lines:
			switch {
			case m == nil:
			case m[2] == "admin":
				p.admin = m[1]
			case m[2] == "mqtt":
				p.mqtt = m[1]
			case m[2] == "mllp":
				p.mllp = m[1]
			case m[2] == "lines":
				p.lines = m[1]
			default:
				p.addr = m[1]
			}
		case <-p.exited:
			return nil, fmt.Errorf("pulsegate serve ended, %v:\n%s", p.cmd.ProcessState, p.stderr())
		case <-deadline:
			t.Fatalf("pulsegate serve does not listen:\n%s", p.stderr())
		}
	}
	return p, nil
}

// in makes p's methods report failures to t, in whose goroutine they are called,
// instead of to the test that started p, until t ends.
func (p *process) in(t testing.TB) {
	starter := p.t
	p.t = t
	t.Cleanup(func() { p.t = starter })
}

func (p *process) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err.String()
}

func (p *process) url(path string) string { return "http://" + p.addr + path }

// signal sends a signal.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %v: %v", s, err)
	}
}

// kill ends the process with SIGKILL and waits for its end.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	if !p.exitsWithin(polltest.Patience) {
		p.t.Errorf("still running after SIGKILL:\n%s", p.stderr())
	}
}

// stop sends SIGTERM and returns the exit code.
func (p *process) stop() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.ended()
}

// stopCleanly sends SIGTERM and checks that the server exits cleanly, and that nothing has panicked.
func (p *process) stopCleanly() {
	p.t.Helper()
	if code := p.stop(); code != 0 || strings.Contains(p.stderr(), "panic") {
		p.t.Errorf("exit code %d after SIGTERM, want 0 and no panic:\n%s", code, p.stderr())
	}
}

// ended waits until the process has exited and returns its exit code, or -1 after a signal.
func (p *process) ended() int {
	p.t.Helper()
	if !p.exitsWithin(polltest.Patience) {
		p.t.Fatalf("the server is still running:\n%s", p.stderr())
	}
	return p.cmd.ProcessState.ExitCode()
}

// exitsWithin waits until the process has exited, for d at most, and reports whether it has.
func (p *process) exitsWithin(d time.Duration) bool {
	select {
	case <-p.exited:
		return true
	case <-time.After(d):
	}
	select { // both may have been ready
	case <-p.exited:
		return true
	default:
		return false
	}
}

// await waits until a condition holds. If it never holds, the test fails with the output of the
// server.
func (p *process) await(what string, holds func() bool) {
	p.t.Helper()
	if !polltest.Within(polltest.Patience, holds) {
		p.t.Fatalf("not within %v: %s; the log of the server:\n%s", polltest.Patience, what, p.stderr())
	}
}

// awaitStatus waits until a page is answered with a status, or 0 for no answer.
func (p *process) awaitStatus(path string, want int) {
	p.t.Helper()
	p.await(fmt.Sprintf("%s is answered %d", path, want), func() bool { return status(p.url(path)) == want })
}

// awaitLine waits until the server has written a text this many times.
func (p *process) awaitLine(text string, times int) {
	p.t.Helper()
	p.await(fmt.Sprintf("it writes %q %d times", text, times),
		func() bool { return strings.Count(p.stderr(), text) >= times })
}

// fetch sends a request with header fields, each a name and a value, and returns the answer, whose
// body is read.
func fetch(t testing.TB, method, url, body string, fields ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	try(t, err)
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	try(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	try(t, err)
	return resp, string(text)
}

// metric returns a metric of the admin listener; name includes its labels.
func metric(t testing.TB, p *process, name string) int {
	t.Helper()
	_, page := fetch(t, http.MethodGet, "http://"+p.admin+"/metrics", "")
	_, rest, found := strings.Cut(page, "\n"+name+" ")
	if !found {
		t.Fatalf("/metrics does not show %s", name)
	}
	text, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseFloat(text, 64) // large numbers have an exponent
	if err != nil || v != math.Trunc(v) {
		t.Fatalf("%s is %s, %v", name, text, err)
	}
	return int(v)
}

// output runs a command to its end.
func output(t testing.TB, bin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*polltest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	endWithTest(cmd)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = io.Writer(&out), io.Writer(&errs)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

var try = polltest.Try
