// Package verify reads the files of an open store again, so that damage is found before the backups
// from before it are gone.
//
// # Promise
//
// A [Scrubber] verifies every block of every table, the manifest, and the files that do not change,
// once in each period, at a bounded rate. It reports damage, and not errors of the operating system,
// which it retries. Progress and findings survive restarts.
//
// # Not here
//
// Keys, values and logs are not verified: that takes a store that is not in use, see pebblestore.Check.
package verify
