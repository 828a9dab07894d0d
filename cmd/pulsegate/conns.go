package main

import (
	"net"
	"sync"
)

// A boundedListener leaves connections in the kernel's queue while as many as may
// be are open.
type boundedListener struct {
	net.Listener
	room   chan struct{}
	closed chan struct{}
	close  sync.Once
}

func newBoundedListener(l net.Listener, maxConns int) *boundedListener {
	return &boundedListener{Listener: l, room: make(chan struct{}, maxConns), closed: make(chan struct{})}
}

// Accept waits until there is room, and then for a connection.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &boundedConn{Conn: conn, listener: l}, nil
}

// Close ends Accept.
func (l *boundedListener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// A boundedConn gives its room back when it is closed.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	close    sync.Once
}

func (c *boundedConn) Close() error {
	c.close.Do(func() { <-c.listener.room })
	return c.Conn.Close()
}

// CloseWrite ends the own stream. net/http asks for it before it closes a
// connection that may hold unread bytes.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}
