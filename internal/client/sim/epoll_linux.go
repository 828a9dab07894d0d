package sim

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// An epollTransport is the transport for plain TCP on Linux. A request costs it
// two system calls, write and read, beside its share of one epoll_wait: sockets
// are registered once, level-triggered, for reading.
type epollTransport struct {
	addrs  []unix.Sockaddr
	v6     []bool
	turn   int // which address is next
	epoll  int
	socks  []socket
	raw    [eventsAtOnce]unix.EpollEvent
	events []event
	failed []event // of open, told by the next wait
}

type socket struct {
	fd         int   // -1: closed
	generation int32 // tells events of an earlier socket of the same number
	connecting bool
	wantsWrite bool
}

// spareFiles is how many open files a run needs beside its connections.
const spareFiles = 64

// newPlainTransport returns the transport for n plain connections.
func newPlainTransport(t *Target, n int) (transport, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && uint64(n)+spareFiles > limit.Cur {
		return nil, fmt.Errorf("%w: %d connections need more open files than the limit of %d (ulimit -n)", ErrConfig, n, limit.Cur)
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	e := &epollTransport{epoll: epoll, socks: make([]socket, n)}
	for i := range e.socks {
		e.socks[i].fd = -1
	}
	for _, a := range t.addrs {
		e.addrs = append(e.addrs, sockaddr(a))
		e.v6 = append(e.v6, a.Addr().Is6())
	}
	return e, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func (e *epollTransport) open(id int32) {
	e.shut(id)
	if err := e.connect(id); err != nil {
		e.shut(id)
		e.failed = append(e.failed, event{id, lost})
		e.turn++ // perhaps another of the target's addresses answers
	}
}

func (e *epollTransport) connect(id int32) error {
	i := e.turn % len(e.addrs)
	family := unix.AF_INET
	if e.v6[i] {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s := &e.socks[id]
	s.fd, s.connecting, s.wantsWrite = fd, true, true
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	if err := unix.Connect(fd, e.addrs[i]); err != nil && err != unix.EINPROGRESS {
		return err
	}
	return e.register(id, unix.EPOLL_CTL_ADD)
}

// register tells epoll what the socket waits for.
func (e *epollTransport) register(id int32, op int) error {
	s := &e.socks[id]
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: id, Pad: s.generation}
	if s.wantsWrite {
		ev.Events |= unix.EPOLLOUT
	}
	return unix.EpollCtl(e.epoll, op, s.fd, &ev)
}

func (e *epollTransport) write(id int32, p []byte) (int, error) {
	s := &e.socks[id]
	n, err := unix.Write(s.fd, p)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		n = 0
	case err != nil:
		return 0, err
	}
	if n < len(p) && !s.wantsWrite {
		s.wantsWrite = true
		return n, e.register(id, unix.EPOLL_CTL_MOD)
	}
	return n, nil
}

func (e *epollTransport) read(id int32, p []byte) (int, error) {
	n, err := unix.Read(e.socks[id].fd, p)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (e *epollTransport) shut(id int32) {
	s := &e.socks[id]
	if s.fd >= 0 {
		unix.Close(s.fd) // takes it out of epoll, too
		s.fd = -1
	}
	s.generation++
}

func (e *epollTransport) wait(d time.Duration) ([]event, error) {
	e.events = append(e.events[:0], e.failed...)
	if len(e.failed) > 0 {
		e.failed, d = e.failed[:0], 0
	}
	n, err := e.poll(max(d, 0))
	if err != nil {
		return nil, err
	}
	for _, raw := range e.raw[:n] {
		id := raw.Fd
		s := &e.socks[id]
		if s.fd < 0 || s.generation != raw.Pad {
			continue
		}
		if s.connecting {
			e.events = append(e.events, event{id, e.finish(id)})
			continue
		}
		if raw.Events&unix.EPOLLOUT != 0 {
			s.wantsWrite = false
			if err := e.register(id, unix.EPOLL_CTL_MOD); err != nil {
				return nil, fmt.Errorf("change epoll: %w", err)
			}
			e.events = append(e.events, event{id, writable})
		}
		if raw.Events&^unix.EPOLLOUT != 0 {
			e.events = append(e.events, event{id, readable})
		}
	}
	return e.events, nil
}

// poll waits for raw events. epoll_wait counts in ms, which is too coarse for
// the schedule of an open loop: less than 2 ms are waited in ppoll.
func (e *epollTransport) poll(d time.Duration) (int, error) {
	ms := 0
	switch {
	case d >= 2*time.Millisecond:
		ms = int(d / time.Millisecond)
	case d > 0:
		spec := unix.NsecToTimespec(int64(d))
		fds := [1]unix.PollFd{{Fd: int32(e.epoll), Events: unix.POLLIN}}
		if n, err := unix.Ppoll(fds[:], &spec, nil); n == 0 || err != nil {
			if err != nil && err != unix.EINTR {
				return 0, fmt.Errorf("wait in ppoll: %w", err)
			}
			return 0, nil
		}
	}
	n, err := unix.EpollWait(e.epoll, e.raw[:], ms)
	if err == unix.EINTR {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("wait in epoll: %w", err)
	}
	return n, nil
}

// finish tells how connecting went.
func (e *epollTransport) finish(id int32) eventKind {
	s := &e.socks[id]
	code, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code == 0 {
		s.connecting, s.wantsWrite = false, false
		if e.register(id, unix.EPOLL_CTL_MOD) == nil {
			return opened
		}
	}
	e.shut(id)
	e.turn++
	return lost
}

func (e *epollTransport) close() error {
	for id := range e.socks {
		e.shut(int32(id))
	}
	return unix.Close(e.epoll)
}
