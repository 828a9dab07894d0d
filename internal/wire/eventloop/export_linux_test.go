package eventloop

import "golang.org/x/sys/unix"

// Send is send.
func Send(fd int, b []byte) (int, error) { return asError(send(fd, b)) }

// Recv is recv.
func Recv(fd int, b []byte) (int, error) { return asError(recv(fd, b)) }

func asError(n int, err unix.Errno) (int, error) {
	if err != 0 {
		return n, err
	}
	return n, nil
}
