// Package listen stands between the connections of a listener and an http.Server: it
// bounds how many there are, completes their TLS handshakes, and notices which of them
// must not go on.
//
// # Promise
//
//   - No more connections of a [Bounded] listener are open than its [share.Conns] has
//     places for them and for guests. Further ones wait in the kernel's queue.
//   - Those beyond their bound or their address' share are guests: their server is told ([IsGuest]), so that it
//     can refuse what it has no room for. Whoever comes when there are too many learns
//     so, and whoever only asks for the server's health gets an answer.
//   - A connection of a [TLS] listener takes a place when its handshake has succeeded.
//     Handshakes have slots and a deadline of their own.
//   - Connections that are idle give way to guests ([Idle]).
//   - [Last] tells the server to close a connection behind its answer: that of a guest,
//     and one whose requests have spoken of their length in two ways ([Watch]), or
//     may have where nobody could see it.
//
// # Not here
//
// No answers. The event loop of the fast lane has
// bounds of its own.
package listen
