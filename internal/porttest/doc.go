// Package porttest provides addresses that a test needs to know before it listens on
// them, or on which it listens more than once.
//
// # Promise
//
// The port of an [Addr] is assigned to nothing else until the test ends, although the
// test listens on it and closes the listener as often as it likes. While nothing listens,
// connections are refused.
//
// # Not here
//
// A test that listens only once should use port 0.
package porttest
