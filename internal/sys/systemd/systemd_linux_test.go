package systemd_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/sys/systemd"
	"golang.org/x/sys/unix"
)

// env returns an environment of name=value pairs.
func env(pairs ...string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if n, value, _ := strings.Cut(pair, "="); n == name {
				return value
			}
		}
		return ""
	}
}

// manager listens like a service manager.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	try(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func read(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	try(t, conn.SetReadDeadline(time.Now().Add(polltest.Patience)))
	text := make([]byte, 4096)
	n, err := conn.Read(text)
	try(t, err)
	return string(text[:n])
}

func TestSend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	for _, name := range []string{path, "@pulsegate-test-" + strconv.Itoa(os.Getpid())} {
		conn := manager(t, name)
		n, err := systemd.NewNotifier(env("NOTIFY_SOCKET=" + name))
		try(t, err)
		try(t, n.Send(systemd.Ready, systemd.Status("two\nlines"), systemd.Extend(90*time.Second)))
		const want = "READY=1\nSTATUS=two lines\nEXTEND_TIMEOUT_USEC=90000000"
		if got := read(t, conn); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// Without a manager nothing is sent. A missing manager is an error.
func TestNoManager(t *testing.T) {
	n, err := systemd.NewNotifier(env())
	if n != nil || err != nil {
		t.Errorf("got %v, %v; want nil, nil", n, err)
	}
	if err := n.Send(systemd.Ready); err != nil {
		t.Error(err)
	}
	n, err = systemd.NewNotifier(env("NOTIFY_SOCKET=" + filepath.Join(t.TempDir(), "gone")))
	try(t, err)
	if err := n.Send(systemd.Ready); err == nil {
		t.Error("Send returned nil although no manager listens")
	}
	if _, err := systemd.NewNotifier(env("NOTIFY_SOCKET=vsock:2:1234")); err == nil {
		t.Error("a socket of another family was accepted")
	}
}

// If the manager does not read, Send fails and does not block indefinitely.
func TestManagerStuck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager(t, path)
	n, err := systemd.NewNotifier(env("NOTIFY_SOCKET=" + path))
	try(t, err)
	// The queue of a datagram socket is net.unix.max_dgram_qlen long.
	for range 1 << 16 {
		if err := n.Send(systemd.Watchdog); err != nil {
			return
		}
	}
	t.Error("Send never fails although the manager does not read")
}

// The timestamp of a reload uses the clock with which systemd compares it.
func TestReloading(t *testing.T) {
	text, ok := strings.CutPrefix(systemd.Reloading(), "RELOADING=1\nMONOTONIC_USEC=")
	if !ok {
		t.Fatalf("got %q", systemd.Reloading())
	}
	usec, err := strconv.ParseInt(text, 10, 64)
	try(t, err)
	var now unix.Timespec
	try(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	if late := now.Nano()/1000 - usec; late < 0 || late > (10*time.Minute).Microseconds() {
		t.Errorf("the timestamp is %d µs in the past", late)
	}
}

func TestWatchdogTimeout(t *testing.T) {
	for _, tt := range []struct {
		name    string
		env     func(string) string
		want    time.Duration
		wantErr bool
	}{
		{"none", env(), 0, false},
		{"mine", env("WATCHDOG_USEC=30000000", "WATCHDOG_PID=7"), 30 * time.Second, false},
		{"anybody's", env("WATCHDOG_USEC=1"), time.Microsecond, false},
		{"another's", env("WATCHDOG_USEC=30000000", "WATCHDOG_PID=8"), 0, false},
		{"zero", env("WATCHDOG_USEC=0"), 0, true},
		{"negative", env("WATCHDOG_USEC=-1"), 0, true},
		{"not a number", env("WATCHDOG_USEC=30s"), 0, true},
		{"overflow", env("WATCHDOG_USEC=9223372036854775807"), 0, true},
	} {
		if got, err := systemd.WatchdogTimeout(tt.env, 7); got != tt.want || (err != nil) != tt.wantErr {
			t.Errorf("%s: got %v, %v; want %v, error %v", tt.name, got, err, tt.want, tt.wantErr)
		}
	}
}

// hand duplicates the descriptors of files to first, first+1 and so on, like a service
// manager.
func hand(t *testing.T, first int, files ...interface{ File() (*os.File, error) }) {
	t.Helper()
	for i, f := range files {
		file, err := f.File()
		try(t, err)
		try(t, unix.Dup3(int(file.Fd()), first+i, 0))
		file.Close()
	}
}

// firstSocket is far above the open descriptors of a test.
const firstSocket = 500

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

func TestSockets(t *testing.T) {
	a, b := listen(t), listen(t)
	hand(t, firstSocket, a, b)
	got, err := systemd.Sockets(env("LISTEN_PID=7", "LISTEN_FDS=2", "LISTEN_FDNAMES=public:admin"), 7, firstSocket)
	try(t, err)
	for i, want := range []struct {
		name string
		l    net.Listener
	}{{"public", a}, {"admin", b}} {
		s := got[i]
		defer s.Listener.Close()
		if s.Name != want.name || s.Listener.Addr().String() != want.l.Addr().String() {
			t.Errorf("socket %d: got %s at %v, want %s at %v", i, s.Name, s.Listener.Addr(), want.name, want.l.Addr())
		}
		go func() {
			if conn, err := net.Dial("tcp", want.l.Addr().String()); err == nil {
				conn.Close()
			}
		}()
		conn, err := s.Listener.Accept()
		try(t, err)
		conn.Close()
		if _, err := unix.FcntlInt(uintptr(firstSocket+i), unix.F_GETFD, 0); err != unix.EBADF {
			t.Errorf("descriptor %d is still open: %v", firstSocket+i, err)
		}
	}
	if len(got) != 2 {
		t.Errorf("got %d sockets, want 2", len(got))
	}
}

func TestSocketsFails(t *testing.T) {
	datagram, err := net.ListenPacket("udp", "127.0.0.1:0")
	try(t, err)
	defer datagram.Close()
	l := listen(t)
	connection, err := net.Dial("tcp", l.Addr().String())
	try(t, err)
	defer connection.Close()
	for _, tt := range []struct {
		name    string
		second  interface{ File() (*os.File, error) }
		env     func(string) string
		wantErr string
	}{
		{"none", l, env(), ""},
		{"another process's", l, env("LISTEN_PID=8", "LISTEN_FDS=2"), ""},
		{"no process's", l, env("LISTEN_FDS=2"), ""},
		{"not a number", l, env("LISTEN_PID=7", "LISTEN_FDS=two"), "LISTEN_FDS"},
		{"too many", l, env("LISTEN_PID=7", "LISTEN_FDS=100000"), "LISTEN_FDS"},
		{"a datagram socket", datagram.(*net.UDPConn), env("LISTEN_PID=7", "LISTEN_FDS=2", "LISTEN_FDNAMES=public:odd"),
			`socket 1 "odd"`},
		{"a connection", connection.(*net.TCPConn), env("LISTEN_PID=7", "LISTEN_FDS=2"), "is not listening"},
	} {
		hand(t, firstSocket, l, tt.second)
		got, err := systemd.Sockets(tt.env, 7, firstSocket)
		if len(got) != 0 || (err != nil) != (tt.wantErr != "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("%s: got %v, %v; want none, error %q", tt.name, got, err, tt.wantErr)
		}
	}
}

// LISTEN_FDNAMES is optional.
func TestSocketsWithoutNames(t *testing.T) {
	hand(t, firstSocket, listen(t))
	got, err := systemd.Sockets(env("LISTEN_PID=7", "LISTEN_FDS=1"), 7, firstSocket)
	if err != nil || len(got) != 1 || got[0].Name != "" {
		t.Fatalf("got %v, %v; want one without a name", got, err)
	}
	got[0].Listener.Close()
}

var try = polltest.Try
