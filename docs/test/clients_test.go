package docs_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A faultyProxy forwards requests to a server, except that it answers the first ones of
// each kind with faults.
type faultyProxy struct {
	*httputil.ReverseProxy

	t       testing.TB
	mu      sync.Mutex
	faults  map[string][]int     // statuses, by method and path; guarded by mu
	again   map[string]time.Time // when the next request may come, by method and path; guarded by mu
	opened  chan bool            // receives once a stream has begun
	streams chan bool            // a stream that was cut begins again after it has received
	cut     context.CancelFunc   // guarded by mu; cuts the last stream
}

func newFaultyProxy(t *testing.T, server string, faults map[string][]int) (p *faultyProxy, address string) {
	t.Helper()
	target, err := url.Parse(server)
	try(t, err)
	p = &faultyProxy{
		ReverseProxy: &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			FlushInterval: -1,
			ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		},
		t: t, faults: faults, again: map[string]time.Time{}, opened: make(chan bool, 1), streams: make(chan bool, 1),
	}
	p.ModifyResponse = func(resp *http.Response) error {
		if resp.Request.URL.Path == "/v1/live" {
			p.opened <- true
		}
		return nil
	}
	p.streams <- true
	front := httptest.NewServer(p)
	t.Cleanup(front.Close)
	return p, front.URL
}

func (p *faultyProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Method + " " + r.URL.Path
	p.mu.Lock()
	if time.Now().Before(p.again[key]) {
		p.t.Errorf("%s was repeated before the time in Retry-After", key)
	}
	if faults := p.faults[key]; len(faults) > 0 {
		p.faults[key] = faults[1:]
		w.Header().Set("Content-Type", "application/problem+json")
		if faults[0] == http.StatusTooManyRequests || faults[0] == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
			p.again[key] = time.Now().Add(time.Second)
		}
		p.mu.Unlock()
		w.WriteHeader(faults[0])
		fmt.Fprintf(w, `{"type":"about:blank","title":"A fault","status":%d}`, faults[0])
		return
	}
	p.mu.Unlock()
	if r.URL.Path == "/v1/live" {
		<-p.streams
		ctx, cut := context.WithCancel(r.Context())
		p.mu.Lock()
		p.cut = cut
		p.mu.Unlock()
		defer cut()
		r = r.WithContext(ctx)
	}
	p.ReverseProxy.ServeHTTP(w, r)
}

// The clients of docs/clients send readings, read them page by page, and follow the live
// stream, through a proxy that provokes 429, 503 and 500, and cuts the stream.
//
// Seen to fail for a client that did not wait for Retry-After, did not follow next_cursor, and
// did not send Last-Event-ID.
func TestClients(t *testing.T) {
	folder, err := filepath.Abs(root + "/docs/clients")
	try(t, err)
	inGo := filepath.Join(t.TempDir(), "client")
	try(t, build("", inGo, filepath.Join(folder, "client.go")))
	for name, c := range map[string]struct{ command, needs []string }{
		"go":         {[]string{inGo}, nil},
		"javascript": {[]string{"node", folder + "/client.mjs"}, []string{"node", "--version"}},
		"python":     {[]string{"python3", folder + "/client.py"}, []string{"python3", "-c", "import requests"}},
		"shell":      {[]string{"sh", folder + "/client.sh"}, []string{"sh", "-c", "curl --version && jq --version"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.needs != nil {
				if out, err := exec.Command(c.needs[0], c.needs[1:]...).CombinedOutput(); err != nil {
					missing(t, "%v: %v\n%s", c.needs, err, out)
				}
			}
			testClient(t, c.command)
		})
	}
}

// missing skips a test that needs a program which .ci/setup installs. In CI it fails the test.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

func testClient(t *testing.T, command []string) {
	k := tokens{t.TempDir()}
	token := k.create(t, "bed-7", "--rights=read,write")
	s := serve(t, k.flags()...)
	proxy, address := newFaultyProxy(t, s.url, map[string][]int{
		"POST /v1/readings":              {503, 429, 500},
		"GET /v1/devices/ppg-1/readings": {503, 429},
		"GET /v1/live":                   {429, 503},
	})
	start := func(in string, args ...string) *exec.Cmd {
		cmd := exec.Command(command[0], append(append(command[1:len(command):len(command)], address), args...)...)
		cmd.Env = append(os.Environ(), "PULSEGATE_TOKEN="+token)
		cmd.Stdin, cmd.Stderr = strings.NewReader(in), t.Output()
		return cmd
	}
	run := func(in, want string, args ...string) {
		t.Helper()
		out, err := start(in, args...).Output()
		if err != nil {
			out = append(out, err.Error()+"\n"...)
		}
		if string(out) != want {
			t.Errorf("%q printed\n%swant\n%s", args, out, want)
		}
	}
	const one = `{"device":"ppg-1","time":"2026-11-21T10:00:00+02:00","heart_rate_bpm":140.5}`
	run(one, "stored\n", "send")
	run(one, "duplicate\n", "send")
	run(strings.Replace(one, "140.5", "60", 1), "conflict: heart_rate_bpm contradicts the stored value\nexit status 1\n",
		"send")
	run("["+one+`,{"device":"ppg-1","time":1795300000000,"spo2_pct":97},{"device":"ppg-1","time":1795300000000,`+
		`"spo2_pct":300}]`,
		"stored 1, duplicate 1\nrejected 2: spo2_pct outside the accepted range 2 to 100 %\n", "send")
	var many strings.Builder
	for i := range 250 { // three pages
		fmt.Fprintf(&many, `{"device":"ppg-1","time":%d,"spo2_pct":97.5}`+"\n", 1_795_200_000_000+i)
	}
	run(many.String(), "stored 250, duplicate 0\n", "send")

	export := func(query string) string {
		t.Helper()
		r, err := http.NewRequest("GET", s.url+"/v1/devices/ppg-1/readings?format=ndjson"+query, nil)
		try(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		try(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("export: %s %s %v", resp.Status, text, err)
		}
		return whole.ReplaceAllString(string(text), "$1$2")
	}
	run("", export(""), "readings", "ppg-1")
	testLive(t, proxy, start("", "live", "ppg-"), export, func(ms int64) {
		run(fmt.Sprintf(`{"device":"ppg-1","time":%d,"spo2_pct":96}`, ms), "stored\n", "send")
	})
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	for request, faults := range proxy.faults {
		if len(faults) > 0 {
			t.Errorf("%s was not repeated: the faults %v are left", request, faults)
		}
	}
}

// testLive tests a client that follows the live stream.
func testLive(t *testing.T, proxy *faultyProxy, cmd *exec.Cmd, export func(query string) string, send func(ms int64)) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a shell has children
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	try(t, err)
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	defer func() {
		kill()
		_ = cmd.Wait() // killed
	}()
	defer time.AfterFunc(patience, kill).Stop()
	lines := bufio.NewScanner(out)
	opened := func() {
		t.Helper()
		select {
		case <-proxy.opened:
		case <-time.After(patience):
			t.Fatal("the client has not opened the stream")
		}
	}
	opened()
	for ms := int64(1_795_310_000_000); ms < 1_795_310_000_003; ms++ {
		send(ms)
		if ms > 1_795_310_000_000 {
			proxy.streams <- true // the client gets the reading when it resumes the stream
			opened()
		}
		if !lines.Scan() || lines.Text()+"\n" != export(fmt.Sprint("&from=", ms)) {
			t.Fatalf("the client printed %q, %v", lines.Text(), lines.Err())
		}
		proxy.mu.Lock()
		proxy.cut()
		proxy.mu.Unlock()
	}
}
