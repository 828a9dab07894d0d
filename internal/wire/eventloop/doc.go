// Package eventloop serves many TCP connections from few goroutines: each loop
// waits for all of its connections at once, and hands what they send to a
// [Handler]. It runs on Linux, on epoll.
//
// # Promise
//
//   - A descriptor is closed exactly once, by the loop that owns it, or given
//     away exactly once.
//   - What a handler sends on a connection goes out in the order of its calls,
//     whole or followed by the end of the connection.
//   - A connection that waits holds less than 1 KiB, and what crypto/tls holds if it has TLS.
//     Only unfinished messages and
//     unsent answers hold buffers, no larger than twice what they hold, and all
//     of them count against one bound ([Memory]). What was read of a connection
//     that is moved counts until the other server has read it.
//   - The number of connections is bounded. When it is reached, or descriptors
//     run out, new connections wait in the kernel's queue, and the others are
//     served.
//   - Connections that are idle, slow, or do not read what is sent are closed
//     in time.
//
// # How a loop turns
//
//	wait (epoll) ──> read each ready connection once ──> Handler.Receive, each
//	     ^                                                    │
//	     └── expire what is due <── Handler.Round, once <─────┘
//
// All that is read in one turn stands before [Handler.Round], which is where a
// handler starts work that is cheaper for many messages than for one. When that
// work has ended elsewhere, [Loop.Wake] brings the loop to [Handler.Woken], which
// sends the answers. In between the loop goes on turning, or rests for a moment
// ([Loop.Rest]), so that the next turn finds more to read.
//
// Sockets are registered once, edge-triggered, for both directions: a connection
// whose answers are owed is not read, and level-triggering would cost two system
// calls to say so each time. The price is that a loop must remember what it has
// not read yet; [Conn] states how.
//
// # Moving
//
// A handler that does not understand a connection moves it ([Conn.Move]): with
// everything read from it so far, it becomes a net.Conn that [Server.Accept]
// returns, for a server of another kind.
//
// # TLS
//
// A listener whose connections have TLS hands them over when their handshake is over. From
// then on the loop drives crypto/tls, as session_linux.go explains: the handler sees
// plaintext. Such a connection is moved with its TLS.
//
// # Not here
//
// No protocol. No TLS handshakes: package listen has them. No goroutine for a connection, and nothing in a handler
// may block.
package eventloop
