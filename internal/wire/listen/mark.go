package listen

import (
	"context"
	"net"
	"net/http"
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
		switch c := c.(type) {
		case *watched:
			m.watched = c
		case *watchedTLS:
			m.watched = c.watched
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

// Last reports whether the answer to r must be the last one on its connection:
// because it is a guest's, or because its length may have been spoken of in two ways.
//
// Where nobody has seen the bytes, it is not known whether a chunked body
// had a Content-Length beside it, or a request of HTTP/1.0 a Transfer-Encoding, which
// net/http passes over. There each of the two counts as if. HTTP/2 has a framing of
// its own.
func Last(r *http.Request) bool {
	m, ok := r.Context().Value(markKey{}).(*mark)
	switch {
	case ok && m.guest:
		return true
	case ok && m.watched != nil && !m.watched.isMixed():
		return false
	}
	// Of a request that has a Content-Length alone, the other name is another's: net/http
	// reads ahead.
	return r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0)
}
