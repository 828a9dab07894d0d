// Package datadir is the directory of a store: a database of Pebble with files of its own.
//
// # Promise
//
//   - Only one process has the directory open, and it accesses no file of another one, even if the directory
//     is moved or replaced. See anchor.go.
//   - A directory with other files, of a later version or of an earlier format is rejected before
//     anything in it is changed. A store is created as a whole, or not at all.
//   - A file that is missing, additional, truncated or changed is reported, as far as a crash cannot
//     explain it. The file CHECKSUMS lists what must exist; see list.go and compare.go. The list is
//     never wrong, whatever operation a crash follows: [FS], through which Pebble accesses the
//     directory, maintains it.
//   - Errors of Pebble's own goroutines reach the operator, and not only as a panic: see [FS].
//
// Tests of package pebblestore check this on whole stores: TestDamage, TestEveryFault, TestTampering,
// TestCrashWhileOpening, TestCrashEverywhere.
//
// # Not here
//
// What keys and values mean, and when a store may be opened: package pebblestore. When files are verified
// again, and how fast: package verify.
package datadir
