package eventloop

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// recv and send are recv(2) and send(2) on a non-blocking socket. They
// differ from unix.Read and unix.Write in two ways, which together save a seventh
// of their CPU time (docs/adr/0013-cheaper-fast-lane.md):
//
//   - The runtime does not see the call. It would release the goroutine's processor if
//     the call took long, but these return at once, with EAGAIN if nothing can be done.
//   - They go to the socket directly, not through the VFS.
//
// Proof that the use of unsafe is sound. The pointer is that of b's first byte, b
// is not empty, and the kernel accesses at most len(b) bytes from there (recv(2),
// send(2)), all of which belong to b. The conversion to uintptr is in the argument
// list of the call, so the compiler keeps b alive and in place until the call
// returns (rule 4 of package unsafe). The kernel does not retain the pointer.
// TestSocketBounds detects accesses outside b.

// recv reads into b, which is not empty. 0 without an error is the end of
// the stream.
func recv(fd int, b []byte) (n int, err unix.Errno) { return socketCall(unix.SYS_RECVFROM, fd, b, 0) }

// send writes as much of b, which is not empty, as the kernel accepts. A closed peer is an
// error, not a signal.
func send(fd int, b []byte) (n int, err unix.Errno) {
	return socketCall(unix.SYS_SENDTO, fd, b, unix.MSG_NOSIGNAL)
}

func socketCall(trap uintptr, fd int, b []byte, flags uintptr) (n int, err unix.Errno) {
	_ = b[0]
	r, _, err := unix.RawSyscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), flags, 0, 0)
	if err != 0 {
		return 0, err
	}
	return int(r), 0
}
