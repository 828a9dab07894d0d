package listen_test

import (
	"errors"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// EndDead ends a connection whose peer has vanished, although writes to it succeed.
//
// Seen to fail without EndDead: the connection remains for a quarter of an hour.
func TestEndDead(t *testing.T) {
	// The thread ends with the goroutine, because it is not unlocked, and its network with it.
	done := make(chan struct{})
	var unshared error
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unshared = unix.Unshare(unix.CLONE_NEWNET); unshared == nil {
			testEndDead(t)
		}
	}()
	<-done
	switch {
	case unshared != nil && os.Getenv("CI") == "true":
		t.Fatalf("make a network: %v", unshared)
	case unshared != nil:
		t.Skipf("this needs a network of its own: %v", unshared)
	}
}

func testEndDead(t *testing.T) {
	loopback(t, true)
	near, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	l := listen.Bound(near, &share.Conns{Max: 1})
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	try(t, err)
	defer peer.Close()
	c, err := l.Accept()
	try(t, err)
	defer c.Close()
	try(t, listen.EndDead(listen.Mark(t.Context(), c), 500*time.Millisecond))
	loopback(t, false)
	if _, err := c.Write([]byte(":\n\n")); err != nil {
		t.Fatalf("a write to a peer that has vanished fails at once: %v", err)
	}
	try(t, c.SetReadDeadline(time.Now().Add(polltest.Patience)))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("the connection ends with %v, want %v", err, syscall.ETIMEDOUT)
	}
}

// loopback starts or stops the loopback interface of the thread's network.
func loopback(t *testing.T, up bool) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	try(t, err)
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	try(t, err)
	if up {
		request.SetUint16(unix.IFF_UP)
	}
	try(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request))
}
