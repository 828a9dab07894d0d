package docs_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// root is the root of the repository.
const root = "../.."

// program is the path of pulsegate, which TestMain builds.
var program string

// scratch is a directory for programs that are built once for all tests. TestMain creates and removes it.
var scratch string

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // the schemas that TestDescription compiles are short-lived
	registerTexts()
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "pulsegate-docs-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(scratch)
		if program = os.Getenv("BUILT_PULSEGATE"); program == "" { // make test sets it
			program = filepath.Join(scratch, "pulsegate")
			if err := build(root, program, "./cmd/pulsegate"); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return m.Run()
	}())
}

// build builds a program in Go.
func build(dir, program, source string, flags ...string) error {
	cmd := exec.Command("go", append(append([]string{"build", "-ldflags=-w", "-o", program}, flags...), source)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// A server is a running pulsegate serve.
type server struct {
	url, admin string
	mqtt, mllp string // addresses of the listeners of MQTT and MLLP, if args name them
	cmd        *exec.Cmd
	exited     chan struct{} // closed when the process has ended
}

var listening = regexp.MustCompile(`listening addr=(\S+) listener=(public|admin|mqtt|mllp)`)

// serve starts a server with an empty data directory. It is killed at the end of the test.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	args = append([]string{"serve", "--addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0", "--data=" + t.TempDir(),
		"--min-free-bytes=1"}, args...)
	s := &server{cmd: exec.Command(program, args...), exited: make(chan struct{})}
	stderr, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	try(t, err)
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // the process may have ended
		<-s.exited
	})
	listeners := make(chan []string, 4)
	want := 2
	for _, more := range []string{"--mqtt-addr=", "--mllp-addr="} {
		if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, more) }) {
			want++
		}
	}
	var mu sync.Mutex
	var log strings.Builder
	go func() {
		defer close(s.exited)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			mu.Lock()
			log.WriteString(lines.Text() + "\n")
			mu.Unlock()
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				listeners <- m
			}
		}
		_ = s.cmd.Wait() // nobody reads the exit code
	}()
	deadline := time.After(time.Minute)
	for range want {
		select {
		case m := <-listeners:
			switch m[2] {
			case "public":
				s.url = "http://" + m[1]
			case "mqtt":
				s.mqtt = m[1]
			case "mllp":
				s.mllp = m[1]
			default:
				s.admin = "http://" + m[1]
			}
		case <-s.exited:
			t.Fatalf("the server has ended:\n%s", log.String())
		case <-deadline:
			mu.Lock()
			defer mu.Unlock()
			t.Fatalf("the server does not listen:\n%s", log.String())
		}
	}
	return s
}

// tokens makes token files, and creates tokens.
type tokens struct {
	dir string
}

// flags returns the flags of a server that uses the tokens.
func (k tokens) flags() []string {
	return []string{"--tokens=" + filepath.Join(k.dir, "tokens"), "--audit=" + filepath.Join(k.dir, "audit")}
}

// create creates a token.
func (k tokens) create(t testing.TB, gateway string, flags ...string) string {
	t.Helper()
	args := append([]string{"token", "create", "--file=" + filepath.Join(k.dir, "tokens"),
		"--audit=" + filepath.Join(k.dir, "audit"), "--gateway=" + gateway}, flags...)
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		t.Fatalf("token create: %v", err)
	}
	return regexp.MustCompile(`pgt_\S+`).FindString(string(out))
}

// try ends the test if one of errs is not nil.
func try(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
