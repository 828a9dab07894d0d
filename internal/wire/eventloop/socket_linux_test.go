package eventloop_test

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
)

// socketPair returns two connected non-blocking sockets.
func socketPair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	try(t, err)
	t.Cleanup(func() {
		for _, fd := range fds {
			_ = unix.Close(fd) // a test may have closed it
		}
	})
	return fds[0], fds[1]
}

// The system calls access only the bytes of their slice: none before it, and none between
// its length and its capacity. (Seen to fail in both calls with cap(b) instead of len(b),
// and with a pointer to the second byte.)
func TestSocketBounds(t *testing.T) {
	a, b := socketPair(t)
	out := []byte("..abcdefgh..")
	for from := range out {
		for to := from + 1; to <= len(out); to++ {
			if n, err := eventloop.Send(a, out[from:to]); n != to-from || err != nil {
				t.Fatalf("sent %d, %v; want %d", n, err, to-from)
			}
			// The last byte is left for a receive of its own.
			for _, want := range [][]byte{out[from : to-1], out[to-1 : to]} {
				if len(want) == 0 {
					continue
				}
				in, all := bytes.Repeat([]byte{'-'}, 32), bytes.Repeat([]byte{'-'}, 32)
				copy(all[5:], want)
				if n, err := eventloop.Recv(b, in[5:5+len(want)]); n != len(want) || err != nil || !bytes.Equal(in, all) {
					t.Fatalf("received %d, %v: %q, want %q", n, err, in, all)
				}
			}
			if n, err := eventloop.Recv(b, make([]byte, 1)); !errors.Is(err, unix.EAGAIN) {
				t.Fatalf("received %d more, %v, want EAGAIN", n, err)
			}
		}
	}
}

// A buffer on a growing stack does not move while the kernel writes to it.
func TestSocketStack(t *testing.T) {
	a, b := socketPair(t)
	var deep func(depth int) byte
	deep = func(depth int) byte {
		var buf [64]byte
		buf[0] = byte(depth)
		if _, err := eventloop.Send(a, buf[:1]); err != nil {
			t.Error(err)
		}
		if n, err := eventloop.Recv(b, buf[1:]); n != 1 || err != nil || buf[1] != byte(depth) {
			t.Errorf("at depth %d: %d bytes, %v, %d", depth, n, err, buf[1])
		}
		if depth > 0 {
			return buf[1] + deep(depth-1)
		}
		return buf[1]
	}
	done := make(chan struct{})
	go func() { // on a new, small stack
		defer close(done)
		deep(5000)
	}()
	<-done
}

// An empty buffer panics, because it has no first byte to point to.
func TestSocketEmpty(t *testing.T) {
	a, _ := socketPair(t)
	for name, call := range map[string]func(int, []byte) (int, error){"send": eventloop.Send, "receive": eventloop.Recv} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s with an empty buffer did not panic", name)
				}
			}()
			_, _ = call(a, nil)
		}()
	}
}

// After the peer has closed, Send returns EPIPE and Recv reports the end.
func TestSocketPeerGone(t *testing.T) {
	a, b := socketPair(t)
	try(t, unix.Close(b))
	if _, err := eventloop.Send(a, []byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("send to a closed peer: %v, want EPIPE", err)
	}
	if n, err := eventloop.Recv(a, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("received %d, %v, want the end", n, err)
	}
}

// Send to a full socket returns EAGAIN at once.
func TestSocketFull(t *testing.T) {
	a, _ := socketPair(t)
	piece, sent := make([]byte, 64<<10), 0
	for {
		n, err := eventloop.Send(a, piece)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		try(t, err)
		if sent += n; sent > 1<<30 {
			t.Fatal("the socket is never full")
		}
	}
}
