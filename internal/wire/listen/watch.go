package listen

import (
	"bytes"
	"crypto/tls"
	"net"
	"sync/atomic"
)

// Watch returns l with connections that notice when their requests have spoken of
// their length in two ways, Content-Length and Transfer-Encoding. [Last] then says
// that they must not go on.
//
// RFC 9112, section 6.3, calls a request that has both a likely attempt at request
// smuggling, and section 6.1 wants its connection closed behind the answer: somebody
// in front of this server may have read another end of the body than net/http does,
// which goes by the Transfer-Encoding and takes what follows for the next request.
// net/http removes the Content-Length before a handler could see it, and does not
// close the connection (Go 1.26). So the bytes are looked at while they are read, for
// lines that begin with one of the two names. A body that holds such a line, and a
// client that uses both ways by turns, lose their connection after a chunked request;
// nothing else happens to them.
//
// A connection with TLS is watched above TLS. One that has chosen HTTP/2 is returned as it
// is: net/http needs its type, and HTTP/2 has a framing of its own. l must have completed
// the handshakes, as [TLS] does.
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

// A watched connection remembers which of the two names have begun a line.
type watched struct {
	net.Conn
	seen atomic.Uint32 // sum of lengthSeen and encodingSeen

	// Of the line that is being read, used by Read only.
	line    lineState
	matched int // bytes of the name
}

const (
	lengthSeen   = 1
	encodingSeen = 2
)

// A lineState tells what a line may still become.
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

// Read reads, and looks at what was read.
func (c *watched) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.isMixed() {
		c.look(p[:n])
	}
	return n, err
}

func (c *watched) isMixed() bool { return c.seen.Load() == lengthSeen|encodingSeen }

// look goes on with the line that the last call has left.
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

// note remembers a name, whose line matters no more.
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

// CloseWrite ends the own stream. net/http asks for it before it closes a
// connection that may hold unread bytes.
func (c *watched) CloseWrite() error { return closeWrite(c.Conn) }
