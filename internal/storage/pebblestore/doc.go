// Package pebblestore is the embedded store: it implements the contract of package
// storage with Pebble, CockroachDB's log-structured merge tree, in one directory and one
// process.
//
// # How a group is stored
//
//  1. [Store.Append] settles the group's readings in order, using a table of all
//     devices in memory. A reading with a time after its device's newest time is new
//     and needs no look-up. Any other is looked up, first in the group, then in the
//     tree.
//  2. What the group adds is written to one Pebble batch, which is one record of the
//     write-ahead log: after a crash it exists as a whole or not at all.
//  3. The batch is committed with one sync. Then the outcomes are final.
//  4. Readers get a snapshot taken after the sync.
//
// # Invariants
//
// The first four concern stored data, hold after every batch, and are verified by
// [Check]. TestRecordInvariants and the suite's random checks test them.
//
//   - Record. Each device with readings has one device record, and no other device
//     has one.
//   - Anchor. A record's newest time N is the time of a reading of its device.
//   - Latest. The latest value of each sign is in the record or in its tail, the
//     readings with a time above N; the later one counts. Latest, Devices and Open
//     read nothing else.
//   - Tail. Fewer than 64 readings have a time above N, and none while the closed key
//     exists. Close writes that key, and Open deletes it, with a sync, before the
//     store accepts readings.
//   - Durable. Readers see synced data only: they use the last snapshot that Append
//     published, and Append publishes after the sync. TestReadersWaitForSync checks
//     it during a sync.
//   - Replayed. What Open finds in the log is on stable storage when Open returns,
//     even if the process that wrote it did not sync it: Pebble's replay writes it
//     to tables and syncs them. So a duplicate may be acknowledged without a write.
//     TestDuplicateOfUnsynced checks it with two crashes.
//   - One writer. Only Append uses the table of devices and the state for settling.
//     Readers never access it.
//
// # Why there are device records
//
// The last key of each device would give its newest time, but not the latest value of
// a sign that is sent once an hour: thousands of readings may follow that value.
// Rewriting a record with every reading would double the writes. Writing a record
// every 64 readings costs little, and the tail supplies what the record lacks.
//
// # Damage
//
// A torn end of the newest log or of the manifest, which a crash leaves, is dropped. All
// other damage is reported with storage.ErrCorrupt and the file's name: by Open, before
// it changes anything, if the list of files or the journals show it; by Open and by readers
// if they read damaged bytes; by Check completely. [Store.Scrub] reports damage in the
// tables of an open store. A reading that must be compared with damaged data is
// Unreadable; other readings are stored. An error of the operating system, such as a read
// from a failing disk or too many open files, is not damage, and is returned unchanged.
//
// The list, CHECKSUMS, names the files that must exist; see checksums.go and verify.go.
// Pebble alone takes most damage in its log and its manifest for a torn end, so Open reads
// both itself; journal.go describes how it distinguishes the two.
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
//   - changes of bytes that are not read: after the last record of a log, in OPTIONS of an
//     earlier start, in tables that no manifest lists, in logs that were already written
//     to tables;
//   - changes of several files, if CHECKSUMS and LISTED are among them, or if all come from
//     one older copy.
//
// TestDamage, TestEveryByte and their exhaustive forms check this.
//
// # Files
//
// The directory holds Pebble's files and these of our own. PULSEGATE holds the version of
// the formats below as text. It is written last when a store is created and read first
// when one is opened, so that a directory of another kind or of a later version is
// rejected before Pebble, which upgrades every store that it opens, touches it. CHECKSUMS
// lists the files that must exist, and LISTED marks that there is such a list. LOCK is
// locked while the store is open, and so is the directory itself if the system supports
// it; see anchor.go. ERASING exists while a device is being erased, and the directory
// checkpoint during a backup; see intent.go and backup.go. SCRUB holds the progress of the
// scrub.
//
// # Keys
//
// Device names contain no byte below 0x2D, so the kinds of keys are distinct, and a
// name's end, 0x00, sorts before every byte of a longer name.
//
//	reading   device name | 0x00 | time, 8 bytes
//	record    0x01 | device name
//	closed    0x00 | "closed", with the value 0x01
//
// Times are Unix milliseconds as big-endian unsigned integers. They are never
// negative, so keys are ordered by time.
//
// # Reading
//
//	byte         meaning
//	0            version: 1; 2 if other gateways have added signs
//	1            presence: bit s is set if sign s is present; bits 5 to 7 are 0
//	2 to 2n+1    the n present values, in the order of signs, 2 bytes each, in
//	             hundredths of the sign's unit
//	then 8       time of receipt, Unix ms, two's complement
//	the rest     gateway's name, 0 to 64 bytes
//
// # Device record
//
//	byte         meaning
//	0            version, 1
//	1 to 8       newest time N
//	9            presence: bit s is set if the device has a latest value of sign s
//	then 10 n    for each of the n signs, in their order: time of its latest value,
//	             8 bytes, and the value, 2 bytes
//
// All integers are big-endian. The encoding is canonical: bytes that the encoder would
// not produce are corrupt. TestGolden checks both formats.
//
// # Not here
//
// No group commit: callers pass groups. No encryption, no replication.
package pebblestore
