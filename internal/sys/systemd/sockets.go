package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// FirstSocket is the first descriptor passed by a service manager, SD_LISTEN_FDS_START
// in sd_listen_fds(3).
const FirstSocket = 3

// maxSockets bounds the value of LISTEN_FDS.
const maxSockets = 64

// A Socket is a listener opened by the service manager.
type Socket struct {
	Name     string // FileDescriptorName= of the socket unit, by default the unit's name
	Listener net.Listener
}

// Sockets returns the sockets passed to the process with the given id, in the order of
// their descriptors, which start at first. It closes the descriptors; the listeners
// have duplicates.
//
// If there is an error, for example a descriptor that is not a listening stream socket,
// it returns no sockets.
func Sockets(getenv func(string) string, pid, first int) (_ []Socket, err error) {
	if getenv("LISTEN_PID") != strconv.Itoa(pid) || getenv("LISTEN_FDS") == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || n < 0 || n > maxSockets {
		return nil, fmt.Errorf("LISTEN_FDS %q is not a number from 0 to %d", getenv("LISTEN_FDS"), maxSockets)
	}
	names := strings.Split(getenv("LISTEN_FDNAMES"), ":")
	if len(names) != n {
		names = make([]string, n) // LISTEN_FDNAMES is optional
	}
	var sockets []Socket
	var errs []error
	for i, name := range names {
		file := os.NewFile(uintptr(first+i), name)
		l, err := net.FileListener(file)
		if err == nil && !listens(file.Fd()) {
			err = errors.Join(errors.New("it is not listening"), l.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("use socket %d %q of the service manager: %w", i, name, err))
		} else {
			sockets = append(sockets, Socket{name, l})
		}
		errs = append(errs, file.Close())
	}
	if err := errors.Join(errs...); err != nil {
		for _, s := range sockets {
			err = errors.Join(err, s.Listener.Close())
		}
		return nil, err
	}
	return sockets, nil
}
