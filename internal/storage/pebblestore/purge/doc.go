// Package purge removes readings from the embedded store, and proves that the bytes of an erased device are
// in none of its files.
//
// # Promise
//
// When [Remover.Erase] returns nil, readers see nothing of what was erased, and no file of the store holds a
// byte of it. Readings that are acknowledged after the removal stay. An erasure that has begun is finished
// after any crash or error, by another call or by the next start: nothing that was removed comes back, and
// nothing is recorded as erased before its bytes are gone.
//
// When [Remover.Expire] returns nil, readers see no expired reading, except those that arrived during the call. Their
// bytes stay until compactions reach them.
//
// Names of gateways that no reading names any more are removed with the last reading.
//
// # Not here
//
// Locks, windows, views of readers, and closing and opening the tree: package pebblestore, by [Tree]. Blocks
// that the file system has freed, and earlier backups.
package purge
