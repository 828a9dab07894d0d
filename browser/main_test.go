// Package browser tests the page in Chromium as a person uses it, against the program. It
// has no code outside of tests.
package browser_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a test waits for a condition.
const patience = 2 * time.Minute

// built has the program and the browser, which all tests share.
var built struct {
	dir     string
	program string

	once    sync.Once
	browser context.Context
	close   func()
	err     error
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if built.dir, err = os.MkdirTemp("", "pulsegate-browser-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(built.dir)
		if built.program = os.Getenv("BUILT_PULSEGATE"); built.program == "" { // make test sets it
			built.program = filepath.Join(built.dir, "pulsegate")
			build := exec.Command("go", "build", "-ldflags=-w", "-o", built.program, "./cmd/pulsegate")
			build.Dir, build.Stderr = "..", os.Stderr
			if err := build.Run(); err != nil {
				fmt.Fprintln(os.Stderr, "build pulsegate:", err)
				return 1
			}
		}
		code := m.Run()
		if built.close != nil {
			built.close()
		}
		return code
	}())
}

// browsers are the programs to try. The shell of Chromium without windows takes half of the CPU time
// of the whole browser. Debian's command for it is a script that stays in between, and is not what
// would be killed.
var browsers = []string{"/usr/lib/chromium/chromium-headless-shell", "chromium"}

// chromium returns the browser. Without one, the test is skipped; in CI it fails.
func chromium(t testing.TB) context.Context {
	t.Helper()
	built.once.Do(func() {
		var path string
		for _, name := range browsers {
			if path, built.err = exec.LookPath(name); built.err == nil {
				break
			}
		}
		if built.err != nil {
			return
		}
		// Where there is no GPU, imitating one takes a tenth of the CPU time.
		opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
			chromedp.Flag("disable-gpu", true), chromedp.WindowSize(1280, 900),
			chromedp.UserDataDir(filepath.Join(built.dir, "profile")), chromedp.WSURLReadTimeout(2*patience))
		allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), opts...)
		browser, stop := chromedp.NewContext(allocator)
		built.browser, built.close = browser, func() { stop(); stopAllocator() }
		built.err = chromedp.Do(browser)
	})
	if errors.Is(built.err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		t.Skip("chromium is missing: .ci/setup installs it")
	}
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.browser
}

// A server is a running pulsegate.
type server struct {
	t     testing.TB
	dir   string
	url   string
	admin string
	token string // of a gateway and administrator; "": no tokens

	process *os.Process
}

var listening = regexp.MustCompile(`listening addr=(\S+) listener=(\S+)`)

// serve starts pulsegate with further arguments.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir()}
	cmd := exec.Command(built.program,
		append([]string{"serve", "--addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0", "--data=" + filepath.Join(s.dir, "data"),
			"--log-format=text"}, args...)...)
	endWithTest(cmd)
	stderr, err := cmd.StderrPipe()
	try(t, err)
	try(t, cmd.Start())
	s.process = cmd.Process
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // a stream of live readings may outlive the drain
	})
	var lines bytes.Buffer
	ready := make(chan bool, 1)
	go func() {
		for sc := bufio.NewScanner(stderr); sc.Scan(); {
			if m := listening.FindStringSubmatch(sc.Text()); m != nil && m[2] == "public" {
				s.url = "http://" + m[1]
			} else if m != nil {
				s.admin = "http://" + m[1]
				ready <- true
			}
			lines.Write(append(sc.Bytes(), '\n'))
		}
		close(ready)
	}()
	select {
	case ok := <-ready:
		if !ok {
			t.Fatalf("pulsegate has ended:\n%s", lines.String())
		}
	case <-time.After(patience):
		t.Fatal("pulsegate does not start")
	}
	return s
}

// withTokens starts a server with tokens, and returns the text of one that may read.
func withTokens(t testing.TB, args ...string) (s *server, file, reader string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "tokens")
	admin := newToken(t, file, "ward", "write,read,admin")
	reader = newToken(t, file, "screen", "read", args...)
	s = serve(t, "--tokens="+file, "--audit="+file+".log")
	s.token = admin
	return s, file, reader
}

func newToken(t testing.TB, file, gateway, rights string, args ...string) string {
	t.Helper()
	out, err := exec.Command(built.program,
		append([]string{"token", "create", "--file=" + file, "--audit=" + file + ".log", "--gateway=" + gateway,
			"--rights=" + rights}, args...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("create a token: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// do sends a request and returns the body of its answer, which must have a status below 300.
func (s *server) do(method, address string, body io.Reader) string {
	s.t.Helper()
	r, err := http.NewRequest(method, address, body)
	try(s.t, err)
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	answer, err := http.DefaultClient.Do(r)
	try(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		s.t.Fatalf("%s %s: status %d, %v\n%s", method, address, answer.StatusCode, err, text)
	}
	return string(text)
}

// post stores readings, which are lines of JSON.
func (s *server) post(readings ...string) {
	s.t.Helper()
	answer := s.do("POST", s.url+"/v1/readings", strings.NewReader("["+strings.Join(readings, ",")+"]"))
	if want := fmt.Sprintf(`{"stored":%d,"duplicate":0}`, len(readings)); strings.TrimSpace(answer) != want {
		s.t.Fatalf("stored %s, want %s", answer, want)
	}
}

// reading returns a reading of a device, some time before now; members are JSON.
func reading(device string, ago time.Duration, members string) string {
	return fmt.Sprintf(`{"device":%q,"time":%q,%s}`, device, stamp(ago), members)
}

// stamp returns the time of a reading that was measured some time before now.
func stamp(ago time.Duration) string {
	return time.Now().Add(-ago).UTC().Format("2006-01-02T15:04:05.000Z")
}

// A tab is a page in a browser context of its own, without cookies at first. What the page
// must never do fails the test when it ends: errors on the console, exceptions, and requests
// to other origins.
type tab struct {
	t      testing.TB
	ctx    context.Context
	origin string

	mu       sync.Mutex
	problems []string // guarded by mu
	received float64  // guarded by mu; bytes, with headers
}

// open opens a tab with an address.
func open(t testing.TB, address string) *tab {
	t.Helper()
	u, err := url.Parse(address)
	try(t, err)
	p := &tab{t: t, origin: u.Scheme + "://" + u.Host}
	var cancel context.CancelFunc
	p.ctx, cancel = chromedp.NewContext(chromium(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(p.note))
	t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			t.Error(problem)
		}
	})
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	p.run(chromedp.Navigate(address))
	return p
}

func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(p.problems, text) {
			p.problems = append(p.problems, text)
		}
	}
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, p.origin+"/") {
			add("a request to %s", e.Request.URL)
		}
	case *network.EventLoadingFinished:
		p.received += e.EncodedDataLength
	case *runtime.EventConsoleAPICalled:
		add("the console has %s: %s", e.Type, e.Args[0].Description)
	case *runtime.EventExceptionThrown:
		add("exception: %s", e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		add("the console has %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	}
}

// expectProblem removes the problems that contain a text; there must be one.
func (p *tab) expectProblem(text string) {
	p.t.Helper()
	if !p.allowProblem(text) {
		p.t.Errorf("no problem with %q; there are %q", text, p.problems)
	}
}

// allowProblem removes the problems that contain a text, and reports whether there is one.
func (p *tab) allowProblem(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.problems)
	p.problems = slices.DeleteFunc(p.problems, func(s string) bool { return strings.Contains(s, text) })
	return len(p.problems) < before
}

func (p *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%v\nthe page shows:\n%s", err, p.text())
	}
}

// call sends a command of the DevTools protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	result, err := chromedp.Call(p.ctx, command, params)
	try(p.t, err)
	return result
}

// text returns what the page shows, for messages.
func (p *tab) text() string {
	ctx, cancel := context.WithTimeout(p.ctx, time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`)) // "" if the page does not answer
	return text
}

// eval returns the value of a JavaScript expression, which may be a promise.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%v\nthe page shows:\n%s", err, p.text())
	}
	return value
}

// until waits until a JavaScript expression is true.
func (p *tab) until(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void]("("+expression+")",
			chromedp.WithPollingInterval(30*time.Millisecond), chromedp.WithPollingTimeout(0)))
		if err == nil {
			return
		}
		// A document that is loaded replaces the one in which the expression is evaluated.
		if ctx.Err() != nil || !strings.Contains(err.Error(), "context") && !strings.Contains(err.Error(), "navigated") {
			p.t.Fatalf("%s: %v\nthe page shows:\n%s", expression, err, p.text())
		}
	}
}

// shows waits until the page shows a text.
func (p *tab) shows(text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("document.body?.innerText.includes(%q)", text))
}

// drawn waits until every chart has its canvas.
func (p *tab) drawn() {
	p.t.Helper()
	p.until(`document.querySelector("figure canvas") !== null && [...document.querySelectorAll("figure")].every((f) => ` +
		`f.querySelector("canvas") !== null)`)
}

// click clicks on the element of a selector.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.run(chromedp.Click(chromedp.CSS(selector)))
}

// press clicks on the button with a text.
func (p *tab) press(text string) {
	p.t.Helper()
	p.run(chromedp.Click(chromedp.Search(fmt.Sprintf(`//button[text()=%q]`, text))))
}

// enter types a text into an empty field.
func (p *tab) enter(selector, text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("document.querySelector(%q) !== null", selector))
	p.js(fmt.Sprintf(`{ const e = document.querySelector(%q); e.value = ""; e.focus(); }`, selector))
	p.key(text)
}

// key presses keys.
func (p *tab) key(keys string) {
	p.t.Helper()
	p.run(chromedp.KeyEvent(keys))
}

// js runs JavaScript statements.
func (p *tab) js(statements string) {
	p.t.Helper()
	p.run(chromedp.Evaluate[chromedp.Void](statements))
}

// goTo goes to another view.
func (p *tab) goTo(fragment string) {
	p.t.Helper()
	p.js(fmt.Sprintf("location.hash = %q", fragment))
}

// screen sets the size of the screen in CSS pixels.
func (p *tab) screen(width, height int64) {
	p.t.Helper()
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height,
		DeviceScaleFactor: 1, Mobile: width < 500})
}

// scheme selects light or dark.
func (p *tab) scheme(name string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// try ends the test if one of errs is not nil.
func try(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
