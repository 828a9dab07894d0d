// Package eventloop serves many TCP connections from few goroutines: each loop
// waits for events on all of its connections and passes their input to a
// [Handler]. It requires Linux, for epoll.
//
// # Promise
//
//   - A descriptor is closed exactly once, by the loop that owns it, or moved
//     exactly once.
//   - The output of a handler on a connection is sent in the order of its calls,
//     complete or followed by the end of the connection. After a failed write, the
//     handler still gets the input that has arrived.
//   - An idle connection holds less than 1 KiB, plus what crypto/tls holds if it
//     has TLS. Only unfinished messages and unsent answers hold buffers, at most
//     twice as large as their contents, and all of these count against one bound
//     ([Memory]). The input of a moved connection counts until the other server
//     has read it.
//   - The number of connections is bounded. When the bound is reached, or
//     descriptors run out, new connections wait in the backlog while the others
//     are served.
//   - Connections that are idle, slow, or do not read their answers are closed
//     after a timeout.
//
// # How a loop turns
//
//	wait (epoll) ──> read each ready connection once ──> Handler.Receive, each
//	     ^                                                    │
//	     └── expire what is due <── Handler.Round, once <─────┘
//
// [Handler.Round] is called after all reads of a turn. A handler starts there
// what costs less for many messages together than for each alone. When that work
// has completed elsewhere, [Loop.Wake] makes the loop call [Handler.Woken], which
// sends the answers. Until then the loop continues to turn, or rests for a moment
// ([Loop.Rest]) so that the next turn reads more.
//
// Sockets are registered once, edge-triggered, for both directions. A connection
// with owed answers is not read, and with level-triggering each change of that
// would cost a system call. In return, a loop must remember which connections may
// have unread input; see [Conn].
//
// # Moving
//
// A handler moves a connection whose input it does not understand ([Conn.Move]).
// The connection becomes a net.Conn, returned by [Server.Accept] for a server of
// another kind, which first reads the input that the loop has read.
//
// # TLS
//
// A listener whose connections have TLS hands them over when their handshake is over. From
// then on the loop drives crypto/tls, as session_linux.go explains: the handler sees
// plaintext. Such a connection is moved with its TLS.
//
// # Not here
//
// No protocol. No TLS handshakes; see package listen. No goroutine per connection:
// a handler must not block.
package eventloop
