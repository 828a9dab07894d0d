package listen

import (
	"context"
	"net"
)

// A mark is what the context of a connection's requests remembers of it.
type mark struct {
	guest   bool
	watched *watched // nil: nobody has seen its bytes
}

type markKey struct{}

// Mark is the ConnContext of an http.Server. It looks through connections that wrap
// others and have a method NetConn, as those of package crypto/tls do.
//
// A connection is a guest if it has a method Guest that returns true.
func Mark(ctx context.Context, c net.Conn) context.Context {
	var m mark
	for c != nil {
		if w, ok := c.(*watched); ok {
			m.watched = w
		}
		if g, ok := c.(interface{ Guest() bool }); ok {
			m.guest = g.Guest()
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	return context.WithValue(ctx, markKey{}, &m)
}

// IsGuest reports whether a request came on a guest's connection.
func IsGuest(ctx context.Context) bool {
	m, ok := ctx.Value(markKey{}).(*mark)
	return ok && m.guest
}

// Last reports whether the answer to a request must be the last one on its
// connection.
func Last(ctx context.Context) bool {
	m, ok := ctx.Value(markKey{}).(*mark)
	return ok && (m.guest || m.watched != nil && m.watched.isMixed())
}
