package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// certificate reads the server's certificate and key.
func (cfg *config) certificate() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cfg.cert, cfg.key)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}, nil
}

// serveTLSFloor is serveFloor over TLS: the handshake in a goroutine, and then one read
// and one write of crypto/tls for a request, on an epoll loop. Its cost is the kernel's
// share and that of crypto/tls.
func serveTLSFloor(ctx context.Context, l net.Listener, cfg config) error {
	secure, err := cfg.certificate()
	if err != nil {
		return err
	}
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("create epoll: %w", err)
	}
	defer unix.Close(poll)
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var conns sync.Map // by descriptor: *tlsFloorConn
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				if err := shakeHands(c, secure, poll, &conns); err != nil {
					c.Close()
				}
			}()
		}
	}()
	return serveEvents(ctx, poll, func(fd int) error {
		v, ok := conns.Load(int32(fd))
		if !ok {
			return nil
		}
		c := v.(*tlsFloorConn)
		if err := c.step(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			conns.Delete(int32(fd))
			unix.Close(c.fd)
		}
		return nil
	})
}

// shakeHands completes a handshake and has poll watch the connection.
func shakeHands(c net.Conn, secure *tls.Config, poll int, conns *sync.Map) error {
	below := &tlsFloorConn{Conn: c, fd: -1}
	below.tls = tls.Server(below, secure)
	if err := below.tls.Handshake(); err != nil {
		return err
	}
	file, err := c.(*net.TCPConn).File()
	if err != nil {
		return err
	}
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	c.Close()
	below.fd = fd
	below.step() // crypto/tls may have read a request with the end of the handshake
	conns.Store(int32(fd), below)
	return watch(poll, fd)
}

// step answers one read.
func (c *tlsFloorConn) step() error {
	_, err := c.tls.Read(c.buf[:])
	if err == nil {
		_, err = c.tls.Write(floorAnswer)
	}
	return err
}

// A tlsFloorConn is below a tls.Conn: a socket that blocks during the handshake, and a
// descriptor that does not after it.
type tlsFloorConn struct {
	net.Conn
	tls *tls.Conn
	fd  int
	buf [1 << 10]byte
}

func (c *tlsFloorConn) Read(p []byte) (int, error) {
	if c.fd < 0 {
		return c.Conn.Read(p)
	}
	n, err := unix.Read(c.fd, p)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, os.ErrDeadlineExceeded
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (c *tlsFloorConn) Write(p []byte) (int, error) {
	if c.fd < 0 {
		return c.Conn.Write(p)
	}
	return unix.Write(c.fd, p)
}

func (c *tlsFloorConn) SetWriteDeadline(t time.Time) error {
	if c.fd < 0 {
		return c.Conn.SetWriteDeadline(t)
	}
	return nil
}

// serveTLSHandshake completes handshakes and does nothing else: the cost of crypto/tls.
func serveTLSHandshake(ctx context.Context, l net.Listener, cfg config) error {
	secure, err := cfg.certificate()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() {
			defer c.Close()
			conn := tls.Server(c, secure)
			if conn.Handshake() == nil {
				conn.Read(make([]byte, 1)) // until the client closes
			}
		}()
	}
}
