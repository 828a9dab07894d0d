// Package purge reports whether files hold bytes of what was removed from the embedded store.
//
// # Promise
//
// If [TableLacks] returns nil, a table has no key in a range, and no deletion of one. If [JournalMayHold]
// returns false, a log or a manifest does not have the name of a device. Both may report too much,
// but never too little: a table that cannot be read is an error.
//
// # Not here
//
// Removing keys and rewriting tables, and which files there are: package pebblestore. Blocks that the file
// system has freed.
package purge
