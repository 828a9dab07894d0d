// Package verify reads the files of an open store again, so that damage is found while there are still
// backups that do not have it.
//
// # Promise
//
// A [Scrubber] verifies every block of every table, the manifest, and the files that do not change,
// once in each period, at a bounded rate. It reports damage. After an error of the
// operating system, which is not damage, it reads the file again. Progress and findings survive restarts.
//
// # Not here
//
// Keys, values and logs are not verified: pebblestore.Check does that, in a store that is not in use.
package verify
