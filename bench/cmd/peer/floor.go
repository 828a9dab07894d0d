package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	maxEvents     = 256
	readBytes     = 4 << 10
	stopPollMilli = 100 // maximum delay until the end of ctx is detected
)

// serveFloor does the minimum that a server in one process can do for a request: wait,
// one read, one write. Its cost is the kernel's share, with which the other servers are
// compared.
//
// It treats each read as one request, which is correct for a load generator that writes
// a request at once and waits for the answer.
func serveFloor(ctx context.Context, l net.Listener, _ config) error {
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		return fmt.Errorf("use listener: %w", err)
	}
	defer file.Close()
	listener := int(file.Fd())
	if err := unix.SetNonblock(listener, true); err != nil {
		return fmt.Errorf("set non-blocking: %w", err)
	}
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("create epoll: %w", err)
	}
	defer unix.Close(poll)
	if err := watch(poll, listener); err != nil {
		return err
	}
	buf := make([]byte, readBytes)
	return serveEvents(ctx, poll, func(fd int) error {
		if fd == listener {
			return accept(poll, listener)
		}
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if n > 0 {
			_, err = unix.Write(fd, floorAnswer)
		}
		if n <= 0 || err != nil {
			unix.Close(fd)
		}
		return nil
	})
}

// floorAnswer is the answer of the floors. It is not modified.
var floorAnswer = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
	len(fixedAnswer), fixedAnswer)

// serveEvents calls ready for each event of poll until ctx is done.
func serveEvents(ctx context.Context, poll int, ready func(fd int) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	events := make([]unix.EpollEvent, maxEvents)
	for ctx.Err() == nil {
		n, err := unix.EpollWait(poll, events, stopPollMilli)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait: %w", err)
		}
		for i := range max(n, 0) {
			if err := ready(int(events[i].Fd)); err != nil {
				return err
			}
		}
	}
	return nil
}

// accept accepts one connection. Further pending ones are accepted in the next rounds.
func accept(poll, listener int) error {
	fd, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ECONNABORTED) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("set TCP_NODELAY: %w", err)
	}
	return watch(poll, fd)
}

func watch(poll, fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch descriptor: %w", err)
	}
	return nil
}
