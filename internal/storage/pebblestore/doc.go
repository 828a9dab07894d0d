// Package pebblestore is the embedded store: package storage's contract on Pebble,
// CockroachDB's log-structured merge tree, in one directory and one process.
//
// # The way of a group
//
//  1. [Store.Append] settles the group's readings in order against a table of all
//     devices in memory. A reading newer than its device's newest is new without
//     a look-up. Any other is looked up: among the group's own readings first,
//     then in the tree.
//  2. What the group adds becomes one Pebble batch, which is one record of the
//     write-ahead log: after a crash it is there whole or not at all.
//  3. The batch is committed with one sync. The outcomes are final when it returns.
//  4. Readers are moved on to a snapshot taken after the sync.
//
// # Invariants
//
// The first four are about what is stored, hold after every batch, and are verified
// by [Check]. TestRecordInvariants and the suite's random checks exercise them.
//
//   - Record. Each device that has a reading has one device record, and no other
//     device has one.
//   - Anchor. A record's newest time N is the time of a reading of its device.
//   - Latest. The latest value of each sign is found in the record and in the
//     readings with a time above N, its tail; where both have one, the later counts.
//     That is all that Latest, Devices and Open read.
//   - Tail. Fewer than 64 readings have a time above N; none, while the closed key is
//     there. Close writes that key, and Open deletes it with a sync of its own before
//     it takes readings.
//   - Durable. What a reader sees was synced before it was shown: readers use the
//     last snapshot that Append published, and Append publishes after the sync.
//     TestReadersWaitForSync holds a sync up and looks.
//   - Replayed. What Open finds in the log is on stable storage when Open returns,
//     even if the process that wrote it never synced it: Pebble's replay writes it
//     to tables and syncs those. So a duplicate may be acknowledged without a
//     write. TestDuplicateOfUnsynced crashes twice to see it.
//   - One writer. The table, and everything that settling uses, belongs to Append.
//     Readers never touch it.
//
// # Why a device record at all
//
// Reading the last key of each device would give its newest time, but not the
// latest value of a sign that comes once an hour: that may lie thousands of
// readings back. Rewriting a record with every reading would double the writes.
// A record every 64 readings costs little, and the tail makes up for the rest.
//
// # Damage
//
// What a crash tore off the end of the log or of the manifest is dropped. Damage in
// front of that end, and in tables, is refused by the file's name with
// storage.ErrCorrupt: by Open where it reads, by readers, and by Check in full. Pebble
// alone takes most damage of its log and of its manifest for a torn end, so that
// Open reads both itself first; journal.go says how the two are told apart.
//
// Of a store that was closed, and of a backup, Check finds every byte that was
// changed, in every file, and names the file. Of a store that was not closed it finds
// every bit; what it cannot tell from what a crash leaves is
//
//   - wider damage of the last record of the log or of the manifest,
//   - the place behind the last record of a log, where anything may stand,
//   - files that the next start removes: the OPTIONS of an earlier start, and tables
//     that no manifest lists.
//
// TestEveryByte and TestEveryByteExhaustive hold this.
//
// # Files
//
// The directory holds Pebble's files and some of ours. PULSEGATE tells the version of
// the formats below in text. It is written last when a store is created and read
// first when one is opened, so that a directory of another kind or of a later version
// is refused before Pebble touches it: Pebble upgrades whatever it opens. CHECKSUMS
// lists the files that cannot change for the time being; checksums.go says more.
// ERASING is there while a device is being erased, and the directory checkpoint while
// a backup is made; intent.go and backup.go say more.
//
// # Keys
//
// Device names hold no byte below 0x2D, so that the kinds of keys cannot meet,
// and a name's end, 0x00, sorts before every byte of a longer name.
//
//	reading   device name | 0x00 | time, 8 bytes
//	record    0x01 | device name
//	closed    0x00 | "closed", with the value 0x01
//
// Times are Unix milliseconds as big-endian unsigned integers. They are never
// negative, so that the order of keys is the order of times.
//
// # Reading
//
//	byte         meaning
//	0            version, 1
//	1            presence: bit s is set when sign s is there; bits 5 to 7 are 0
//	2 to 2n+1    the n values that are there, in the order of signs, 2 bytes each,
//	             in hundredths of the sign's unit
//	then 8       time of receipt, Unix ms, two's complement
//	the rest     gateway's name, 0 to 64 bytes
//
// # Device record
//
//	byte         meaning
//	0            version, 1
//	1 to 8       newest time N
//	9            presence: bit s is set when the device has sent sign s
//	then 10 n    for each of the n signs, in their order: time of its latest value,
//	             8 bytes, and the value, 2 bytes
//
// All integers are big-endian. A value is canonical: bytes that encoding would not
// produce are refused as corrupt. TestGolden holds both formats in place.
//
// # Not here
//
// No group commit: callers bring groups. No encryption, no replication.
package pebblestore
