package listen

import (
	"crypto/tls"
	"net"
)

// Below returns the connection below TLS, or c.
func Below(c net.Conn) net.Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}

// TLSState returns the state of a connection's TLS, or nil.
func TLSState(c net.Conn) *tls.ConnectionState {
	if t, ok := c.(interface{ ConnectionState() tls.ConnectionState }); ok {
		state := t.ConnectionState()
		return &state
	}
	return nil
}
