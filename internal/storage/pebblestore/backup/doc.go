// Package backup sends the files of a store as an archive, and makes a store or a backup from one.
//
// # Promise
//
//   - A copy has exactly the files of its source, with the bytes that they had, or the check fails that
//     the caller passes.
//   - A destination holds a complete copy or is as it was, whatever interrupts the copying; what an
//     interrupted one leaves beside it is named by the next attempt.
//
// # Not here
//
// How the files of an open store are kept from changing: pebblestore.Store.Backup makes a checkpoint.
// What makes a copy valid: pebblestore.Check.
package backup
