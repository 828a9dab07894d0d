// Package pebblestore is the embedded store: it implements the contract of package
// storage with Pebble, CockroachDB's log-structured merge tree, in one directory and one
// process.
//
// Its parts are the packages below it. Package layout has the keys and values,
// package memory the table of devices and the windows. Package seal writes windows to segments, package
// purge removes readings and proves that bytes are gone, and package assign stores assignments. ARCHITECTURE.md lists
// the others.
//
// A [Store] is an engine, which has the tree, the settler of groups, the committer and the views of readers, and what
// uses it: segments, which seals windows and merges small segments, reader, removal, subjects, and changeLog, which
// finds what has changed.
//
// # How a group is stored
//
//  1. [Store.Append] settles the group's readings in order, using a table of all
//     devices in memory. A reading with a time after its device's newest time is new
//     and needs no look-up. Any other is looked up: in the group, in the windows, and in
//     the segment that would have it.
//  2. What the group adds is written to one Pebble batch, which is one record of the
//     write-ahead log: after a crash it exists as a whole or not at all. All readings are in
//     one value, the group.
//  3. The batch is committed with one sync. Then the outcomes are final.
//  4. The readings are added to the active window, which is in memory. Readers get a
//     snapshot taken after the sync, together with the windows.
//
// A full window is sealed in the background: its readings are written to segments of up to
// 1,024 readings of one device, and its groups are deleted. See seal.go. [Store.Tidy] merges
// small segments while few readings arrive. So a reading is not inserted into a tree or compacted by itself, and takes
// a few bytes.
//
// # Invariants
//
// The invariants of stored data hold after every batch, and [Check] verifies them.
// TestMetamorphic and the suite's random checks test them.
//
//   - Record. Each device with readings, in segments or in groups, has one device record,
//     and no other device has one.
//   - Latest. The newest time and the latest value of each sign are in the record or in the
//     windows; the later one counts. Latest, Devices and Open read no segments.
//   - Segments. The segments of a device do not overlap. The key of each has the time of its
//     last reading. The record has the time of the last segment, and the sizes of the last
//     ones, as far as they are small.
//   - Place. Of rows of the same device and time in several places, that of the first place
//     counts: the active window, the frozen one, the segments. A row of a window has everything
//     that the row of a segment has.
//   - Groups. Each reading in a window is in a group with a number from the window's first to
//     its last. A group is deleted only after the segments with its readings were synced and
//     read back.
//   - Dictionary. The gateway of each row is in the dictionary. A number is given once.
//   - Count. The number of readings in segments is stored.
//   - Durable. Readers see synced data only: they use the last view that was published, and it
//     is published after the sync. TestReadersWaitForSync checks it during a sync.
//   - Replayed. What Open finds in the log is on stable storage when Open returns,
//     even if the process that wrote it did not sync it: Pebble's replay writes it
//     to tables and syncs them. So a duplicate may be acknowledged without a write.
//     TestDuplicateOfUnsynced checks it with two crashes.
//   - One record. At most one record of the log is not synced. What follows a damaged record
//     is a sign of damage, and not of a crash: see package wal.
//   - One writer. Only Append adds to the table of devices, and only with mu held. Segments
//     are changed only with sealing held: by the sealer, Tidy, Erase and Expire. Readers access
//     neither.
//
// # Memory
//
// The active and the frozen window have Options.WindowRows readings each, 48 bytes a reading
// and 300 bytes a device, at most 96 bytes times WindowRows, exceeded by one group. While the
// frozen one is sealed, Append waits so that the active one does not fill faster.
//
// # Damage
//
// A torn end of the newest log or of the manifest, which a crash leaves, is dropped. All
// other damage is reported with storage.ErrCorrupt and the file's name: by Open, before
// it changes anything, if the list of files or the journals show it; by Open and by readers
// if they read damaged bytes; by Check completely. [Store.Scrub] reports damage in the
// tables of an open store. A reading that must be compared with damaged data is
// Unreadable; other readings are stored. Expire and Erase remove readings beside damage, as
// package purge describes. An error of the operating system, such as a read
// from a failing disk or too many open files, is not damage, and is returned unchanged.
//
// The list, CHECKSUMS, names the files that must exist; see package datadir.
// Pebble mistakes most damage in its log and its manifest for a torn end, so Open reads both
// itself; package wal describes how it distinguishes the two.
//
// In a store that was closed, and in a backup, Open finds every file that is missing or
// additional, every changed length, and every changed byte outside tables. Check also finds
// changed bytes in tables. In a store that was not closed, Open finds every missing or
// truncated log and table, and every flipped bit in a record of a journal. Neither finds
//
//   - a truncated newest log, or one that is unreadable from some offset on, in a store
//     that was not closed: a crash leaves that, too. Its first record is always checked;
//   - damage of more than one bit in the last record of such a log, for the same reason;
//   - a table replaced by another valid one with the same name and length, whose keys fit
//     the manifest;
//   - a missing or older ERASING in a store that was not closed: the list of an open store
//     does not have it;
//   - changes of bytes that are not read: after the last record of a log, in OPTIONS and manifests
//     of an earlier start, in tables that no manifest lists, in logs that were already written
//     to tables;
//   - changes of several files, if CHECKSUMS and LISTED are among them, or if all come from
//     one older copy.
//
// TestDamage, TestEveryByte and their exhaustive forms check this.
//
// # Files
//
// The directory holds Pebble's files and these of our own. PULSEGATE holds the version of
// the formats, 1, as text. It is written last when a store is created and read first
// when one is opened, so that a directory of another kind or of a later version is
// rejected before Pebble, which upgrades every store that it opens, touches it. CHECKSUMS
// lists the files that must exist, and LISTED marks that there is such a list. LOCK is
// locked while the store is open, and so is the directory itself if the system supports
// it; see package datadir. ERASING exists while a device is being erased, and the directory
// checkpoint during a backup; see packages purge and backup. SCRUB holds the progress of the
// scrub.
//
// # Not here
//
// No group commit: callers pass groups. No encryption, no replication.
package pebblestore
