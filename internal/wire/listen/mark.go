package listen

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"
)

// A mark is what the context of a request holds about its connection.
type mark struct {
	guest   bool
	watched *watched     // nil means its input is not watched
	socket  syscall.Conn // nil means unknown
}

type markKey struct{}

// Mark is for http.Server.ConnContext. It looks through connections that wrap others and
// have a method NetConn, as those of crypto/tls do.
//
// A connection is a guest if it has a method Guest that returns true.
func Mark(ctx context.Context, c net.Conn) context.Context {
	var m mark
	for c != nil {
		switch c := c.(type) {
		case *watched:
			m.watched = c
		case *watchedTLS:
			m.watched = c.watched
		}
		if g, ok := c.(interface{ Guest() bool }); ok {
			m.guest = g.Guest()
		}
		if socket, ok := c.(syscall.Conn); ok {
			m.socket = socket
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	return context.WithValue(ctx, markKey{}, &m)
}

// IsGuest reports whether the connection of a request is a guest's.
func IsGuest(ctx context.Context) bool {
	m, ok := ctx.Value(markKey{}).(*mark)
	return ok && m.guest
}

// EndDead makes the kernel end the connection of a request if its peer has acknowledged no data,
// or taken none, for this long. Otherwise a connection to a peer that has vanished remains for a
// quarter of an hour while little is written to it: the kernel buffers it, so that no deadline
// passes. It returns an error that wraps errors.ErrUnsupported if that is not possible.
func EndDead(ctx context.Context, after time.Duration) error {
	m, ok := ctx.Value(markKey{}).(*mark)
	if !ok || m.socket == nil {
		return errors.ErrUnsupported
	}
	socket, err := m.socket.SyscallConn()
	if err != nil {
		return err
	}
	return endDead(socket, after)
}

// Last reports whether the answer to r must be the last one on its connection: because it
// is a guest's, or because r may have both a Content-Length and a Transfer-Encoding.
//
// If the connection is not watched, it is unknown whether a chunked request also had a
// Content-Length, or an HTTP/1.0 request a Transfer-Encoding, which net/http ignores. Either
// one closes the connection. HTTP/2 has a framing of its own.
func Last(r *http.Request) bool {
	m, ok := r.Context().Value(markKey{}).(*mark)
	switch {
	case ok && m.guest:
		return true
	case ok && m.watched != nil && !m.watched.isMixed():
		return false
	}
	// If r has only a Content-Length, the Transfer-Encoding belongs to another request:
	// net/http reads ahead.
	return r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0)
}
