package listen

import (
	"bytes"
	"crypto/tls"
	"net"
	"sync/atomic"
)

// Watch returns l with connections that detect requests with both a Content-Length and a
// Transfer-Encoding. [Last] then reports that they must not be reused.
//
// RFC 9112, section 6.3, calls such a request a likely attempt at request smuggling, and
// section 6.1 requires closing its connection after the answer: a proxy in front of this
// server may have seen another end of the body than net/http, which uses the
// Transfer-Encoding and reads what follows as the next request. net/http removes the
// Content-Length before a handler can see it and does not close the connection (Go 1.26).
// So the input is scanned while it is read, for lines that begin with one of the two
// names. A body that contains such a line, and a client that alternates between the two,
// lose their connection after a chunked request; nothing else happens to them.
//
// The plaintext of a connection with TLS is watched. One that has negotiated HTTP/2 is
// returned unchanged: net/http needs its type, and HTTP/2 has a framing of its own. l must
// have completed the handshakes, as [TLS] does.
func Watch(l net.Listener) net.Listener { return watching{l} }

type watching struct{ net.Listener }

func (l watching) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &watched{Conn: c, line: lineStart}
	secured, ok := c.(connectionStater)
	switch {
	case !ok:
		return w, nil
	case secured.ConnectionState().NegotiatedProtocol == "h2":
		return c, nil
	}
	return &watchedTLS{w, secured}, nil
}

type connectionStater interface{ ConnectionState() tls.ConnectionState }

// A watchedTLS connection has the method by which net/http fills in Request.TLS.
type watchedTLS struct {
	*watched
	connectionStater
}

// A watched connection records which of the two names have started a line.
type watched struct {
	net.Conn
	seen atomic.Uint32 // sum of lengthSeen and encodingSeen

	// State of the current line, used by Read only.
	line    lineState
	matched int // bytes of the name
}

const (
	lengthSeen   = 1
	encodingSeen = 2
)

// A lineState is what the current line may still become.
type lineState uint8

const (
	lineStart  lineState = iota // nothing of it was read
	inLength                    // the beginning of a Content-Length
	inEncoding                  // the beginning of a Transfer-Encoding
	inOther
)

const (
	lengthName   = "content-length"
	encodingName = "transfer-encoding"
)

// Read reads and scans the input.
func (c *watched) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.isMixed() {
		c.look(p[:n])
	}
	return n, err
}

func (c *watched) isMixed() bool { return c.seen.Load() == lengthSeen|encodingSeen }

// look continues to scan the line at which the last call stopped.
func (c *watched) look(p []byte) {
	for i := 0; i < len(p); {
		switch b := lower(p[i]); {
		case c.line == inOther:
			next := bytes.IndexByte(p[i:], '\n')
			if next < 0 {
				return
			}
			i += next
			c.line = lineStart
		case p[i] == '\n':
			c.line = lineStart
		case c.line == lineStart && b == lengthName[0]:
			c.line, c.matched = inLength, 1
		case c.line == lineStart && b == encodingName[0]:
			c.line, c.matched = inEncoding, 1
		case c.line == inLength && b == lengthName[c.matched]:
			if c.matched++; c.matched == len(lengthName) {
				c.note(lengthSeen)
			}
		case c.line == inEncoding && b == encodingName[c.matched]:
			if c.matched++; c.matched == len(encodingName) {
				c.note(encodingSeen)
			}
		default:
			c.line = inOther
		}
		i++
	}
}

// note records a name; the rest of its line does not matter.
func (c *watched) note(name uint32) {
	c.seen.Or(name)
	c.line = inOther
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b | 0x20
	}
	return b
}

// NetConn returns the connection that is watched.
func (c *watched) NetConn() net.Conn { return c.Conn }

// CloseWrite half-closes the connection. net/http calls it before it closes a connection
// that may have unread input.
func (c *watched) CloseWrite() error { return CloseWrite(c.Conn) }
