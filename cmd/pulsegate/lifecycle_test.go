package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// A manager is a service manager that only records.
type manager struct {
	t    *testing.T
	path string

	mu       sync.Mutex
	messages []string // one per message; guarded by mu
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{t: t, path: filepath.Join(t.TempDir(), "notify")}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	try(t, err)
	var reader sync.WaitGroup
	reader.Go(func() {
		for text := make([]byte, 4096); ; {
			n, err := conn.Read(text)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.messages = append(m.messages, string(text[:n]))
			m.mu.Unlock()
		}
	})
	t.Cleanup(func() { conn.Close(); reader.Wait() })
	return m
}

// all returns the messages so far.
func (m *manager) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.messages...)
}

// count returns how many messages contain text.
func (m *manager) count(text string) (n int) {
	for _, message := range m.all() {
		if strings.Contains(message, text) {
			n++
		}
	}
	return n
}

// await waits until n messages contain text.
func (m *manager) await(text string, n int) {
	m.t.Helper()
	if !polltest.Within(polltest.Patience, func() bool { return m.count(text) >= n }) {
		m.t.Fatalf("%d messages with %q, want %d; all messages: %q", m.count(text), text, n, m.all())
	}
}

// catchUp waits until all messages that were sent before have arrived.
func (m *manager) catchUp() {
	m.t.Helper()
	conn, err := net.Dial("unixgram", m.path)
	try(m.t, err)
	defer conn.Close()
	const mark = "MARK=1"
	n := m.count(mark)
	_, err = io.WriteString(conn, mark)
	try(m.t, err)
	m.await(mark, n+1)
}

// managed returns the command of a server that m starts.
func (m *manager) managed(bin string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(bin,
		append([]string{"serve", "--addr=127.0.0.1:0", "--admin-addr=", "--min-free-bytes=-1", anyTime,
			"--data=" + filepath.Join(m.t.TempDir(), "data")}, args...)...)
	cmd.Env = append(append(os.Environ(), "NOTIFY_SOCKET="+m.path), env...)
	return cmd
}

// A service manager is notified when the store is opened, when the server is ready, at each
// watchdog interval, and when the server stops.
//
// Seen to fail when READY is sent before the store is opened, and when drain sends nothing.
func TestNotify(t *testing.T) {
	m := newManager(t)
	p := launch(t, 1, m.managed(program(t), []string{"WATCHDOG_USEC=200000"}, "--drain-timeout=7s", "--drain-delay=10ms"))
	m.await("WATCHDOG=1", 4)
	m.await("STATUS=ready, serving on "+p.addr, 1)
	p.stopCleanly()
	m.await("STOPPING=1", 1)
	var order []string
	for _, message := range m.all() {
		if message != "WATCHDOG=1" && !strings.HasPrefix(message, "STATUS=ready") {
			order = append(order, message)
		}
	}
	// 67,010,000 µs are the delay, the timeout, and a minute to close the store.
	want := []string{"EXTEND_TIMEOUT_USEC=30000000\nSTATUS=opening ", "READY=1\nSTATUS=serving on " + p.addr,
		"STOPPING=1\nEXTEND_TIMEOUT_USEC=67010000\nSTATUS=draining"}
	for i, w := range want {
		if len(order) != len(want) || !strings.HasPrefix(order[i], w) {
			t.Fatalf("got messages %q, want the prefixes %q", order, want)
		}
	}
}

// The watchdog is not notified when the event loop or the committer of a server hangs, and is
// notified while the server waits for its disk.
//
// Seen to fail when pulse checks neither, and when it mistakes a stalled disk for a committer
// that hangs.
func TestWatchdog(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	bin, err := altered()
	try(t, err)
	for _, tt := range []struct {
		hang string
		want string // in the log, or "" if the server counts as alive
	}{
		{"loop", `hangs="event loop"`},
		{"committer", "hangs=committer"},
		{"disk", ""},
	} {
		t.Run(tt.hang, func(t *testing.T) {
			t.Parallel()
			m := newManager(t)
			const timeout = 400 * time.Millisecond
			p := launch(t, 1,
				m.managed(bin, []string{"ALTERED=" + tt.hang, fmt.Sprintf("WATCHDOG_USEC=%d", timeout.Microseconds())}))
			m.await("WATCHDOG=1", 4)
			// The answers never arrive.
			var client sync.WaitGroup
			post := func() {
				resp, err := http.Post(p.url("/v1/readings"), "application/json",
					strings.NewReader(`{"device":"d","time":1000,"spo2_pct":97}`))
				if err == nil {
					resp.Body.Close()
					t.Errorf("answered with %s", resp.Status)
				}
			}
			client.Go(post)
			if tt.hang == "committer" { // it hangs after the first reading is stored, and the second one waits for it
				p.awaitStatus("/v1/devices/d", http.StatusOK)
				client.Go(post)
			}
			if tt.want == "" {
				m.await("WATCHDOG=1", m.count("WATCHDOG=1")+10)
			} else {
				p.awaitLine(tt.want, 1)
				// A server that was only slow may have logged the line before it hangs.
				silent := func() bool {
					m.catchUp()
					n := m.count("WATCHDOG=1")
					time.Sleep(timeout) // a healthy server sends two meanwhile
					m.catchUp()
					return m.count("WATCHDOG=1") == n
				}
				if !polltest.Within(polltest.Patience, silent) {
					t.Errorf("watchdog messages are sent after %q", tt.want)
				}
			}
			p.kill()
			client.Wait()
		})
	}
}

// activated returns the command of a server that inherits listeners, as a service manager passes
// them.
func activated(t *testing.T, names, dir string, listeners []net.Listener, args ...string) *exec.Cmd {
	t.Helper()
	// The shell's process becomes the server: LISTEN_PID must name it.
	cmd := exec.Command("sh",
		append([]string{"-c", `LISTEN_PID=$$ exec "$@"`, "sh", program(t), "serve", "--min-free-bytes=-1", anyTime,
			"--data=" + dir}, args...)...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("LISTEN_FDS=%d", len(listeners)), "LISTEN_FDNAMES="+names)
	for _, l := range listeners {
		f, err := l.(*net.TCPListener).File()
		try(t, err)
		t.Cleanup(func() { f.Close() })
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	return cmd
}

func listenOn(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	try(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// A server uses the sockets that it inherits instead of those of its flags. The sockets outlive it:
// a client that connects between two servers is answered by the next one.
//
// Seen to fail when the server listens on the addresses of its flags.
func TestSocketActivation(t *testing.T) {
	admin, public := listenOn(t, "127.0.0.1:0"), listenOn(t, "127.0.0.1:0")
	dir := filepath.Join(t.TempDir(), "data")
	serve := func() *process {
		p := launch(t, 2, activated(t, "admin:public", dir, []net.Listener{admin, public}, "--admin-addr="))
		if p.addr != public.Addr().String() || p.admin != admin.Addr().String() {
			t.Fatalf("listens on %s and %s, want %v and %v", p.addr, p.admin, public.Addr(), admin.Addr())
		}
		return p
	}
	const body = `{"device":"d","time":1000,"spo2_pct":97}`
	send := func() net.Conn {
		conn := connect(t, public.Addr().String())
		_, err := fmt.Fprintf(conn,
			"POST /v1/readings HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
			len(body), body)
		try(t, err)
		return conn
	}
	answer := func(conn net.Conn, want string) {
		t.Helper()
		defer conn.Close()
		if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200 ") ||
			!strings.Contains(string(got), want) {
			t.Errorf("got %q, %v; want %s", got, err, want)
		}
	}
	p := serve()
	answer(send(), "stored")
	if got := metric(t, p, "pulsegate_store_devices"); got != 1 {
		t.Errorf("the admin listener reports %d devices, want 1", got)
	}
	p.stopCleanly()
	waiting := send()
	p = serve()
	answer(waiting, "duplicate")
	p.stopCleanly()
}

// Invalid sockets are rejected, so that nothing is served on an unexpected address.
func TestSocketsRefused(t *testing.T) {
	local, other, everywhere := listenOn(t, "127.0.0.1:0"), listenOn(t, "127.0.0.1:0"), listenOn(t, "0.0.0.0:0")
	for _, tt := range []struct {
		name, names string
		sockets     []net.Listener
		want        string
	}{
		{"unknown name", "public:metrics", []net.Listener{local, other}, `named "metrics"`},
		{"two of a name", "public:public", []net.Listener{local, other}, "more than one"},
		{"reachable by others", "public", []net.Listener{everywhere}, "--insecure"},
	} {
		cmd := activated(t, tt.names, filepath.Join(t.TempDir(), "data"), tt.sockets)
		_, err := tryLaunch(t, 1, cmd)
		if err == nil {
			t.Errorf("%s: the server listens, want an error about %s", tt.name, tt.want)
		} else if code := cmd.ProcessState.ExitCode(); code != 64 || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: exit code %d, %v; want 64 and %s", tt.name, code, err, tt.want)
		}
	}
}
