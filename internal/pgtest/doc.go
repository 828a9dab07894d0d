// Package pgtest starts PostgreSQL servers for tests.
//
// # Promise
//
// Each [Server] has a temporary directory of its own, listens on a loopback port and on a
// Unix socket in that directory, and ends with its test, even if that is killed. So does a
// [Cluster], three machines with Patroni in namespaces of their own.
//
// # Not here
//
// No schema and no client: tests bring their own.
package pgtest
