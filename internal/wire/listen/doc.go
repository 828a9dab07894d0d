// Package listen stands between a listener and an http.Server: it bounds the number of
// connections, completes their TLS handshakes, and detects connections that must not be
// reused.
//
// # Promise
//
//   - No more connections of a listener of [Bound] are open than its [share.Conns] has
//     places for them and for guests. Further ones wait in the kernel's queue.
//   - Connections beyond the bound or the share of their address are guests, which their
//     server can detect ([IsGuest]): it rejects what it has no capacity for, and answers
//     health checks.
//   - A connection of a [TLS] listener takes a place after its handshake has succeeded.
//     Handshakes have slots and a timeout of their own.
//   - Idle connections are evicted for guests ([Idle]).
//   - [Last] reports that a connection must be closed after the answer: because it is a
//     guest's, or because its requests have, or may have, both a Content-Length and a
//     Transfer-Encoding ([Watch]).
//
// # Not here
//
// No answers. The event loop of the fast lane has bounds of its own.
package listen
