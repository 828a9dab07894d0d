// Package porttest gives tests addresses that they know before they listen on them, or
// on which they listen more than once.
//
// # Promise
//
// Nobody else is given the port of an [Addr] until the test ends, while the test listens
// on it and closes the listener as often as it likes. A connection to it is refused in
// between.
//
// # Not here
//
// A test that listens once listens on port 0.
package porttest
