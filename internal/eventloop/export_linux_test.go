package eventloop

import "golang.org/x/sys/unix"

// SendNow is sendNow.
func SendNow(fd int, b []byte) (int, error) { return asError(sendNow(fd, b)) }

// ReceiveNow is receiveNow.
func ReceiveNow(fd int, b []byte) (int, error) { return asError(receiveNow(fd, b)) }

func asError(n int, err unix.Errno) (int, error) {
	if err != 0 {
		return n, err
	}
	return n, nil
}
