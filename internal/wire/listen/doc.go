// Package listen stands between the connections of a listener and an http.Server: it
// bounds how many there are, and notices which of them must not go on.
//
// # Promise
//
//   - No more connections of a [Bounded] listener are open than [Limits.MaxConns] and
//     [Limits.MaxGuests] together. Further ones wait in the kernel's queue.
//   - Those beyond MaxConns are guests: their server is told ([IsGuest]), so that it
//     can refuse what it has no room for. Whoever comes when there are too many learns
//     so, and whoever only asks for the server's health gets an answer.
//   - [Last] tells the server to close a connection behind its answer: that of a guest,
//     and one whose requests have spoken of their length in two ways ([Watch]), or
//     may have where nobody could see it.
//
// # Not here
//
// No answers, and no choice of whom to close. The event loop of the fast lane has
// bounds of its own.
package listen
