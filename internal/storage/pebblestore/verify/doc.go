// Package verify reads the files and the content of a store again, so that damage is found while there are
// still backups that do not have it.
//
// # Promise
//
// A [Scrubber] verifies every block of every table, the manifest, and the files that do not change,
// once in each period, at a bounded rate. It reports damage. After an error of the
// operating system, which is not damage, it reads the file again. Progress and findings survive restarts.
//
// A [Checker] verifies a store that is not in use: every block of every table, every key and every value, and that each
// device's record agrees with its readings.
//
// # Not here
//
// Logs and the list of files are verified by package datadir, and groups by pebblestore when it opens a store.
// pebblestore.Check does all of it.
package verify
