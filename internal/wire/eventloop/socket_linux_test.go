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
