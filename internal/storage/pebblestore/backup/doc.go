// Package backup sends the files of a store as an archive, and makes a store or a backup from one.
//
// # Promise
//
//   - A copy has exactly the files of its source, with the same bytes. Otherwise the caller's check fails.
//   - A destination holds a complete copy or is as it was, whatever interrupts the copying. If an
//     interrupted copy has left files beside it, the error of the next attempt names them.
//
// # Not here
//
// How a checkpoint ends after a complete group: pebblestore.Store.Backup.
// What makes a copy valid: pebblestore.Check.
package backup
