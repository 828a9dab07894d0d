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
// What a crash tore off the end of the newest log or of the manifest is dropped. All other
// damage is refused with storage.ErrCorrupt and the file's name: by Open, before it changes
// anything, as far as the list of files and the journals show it; by Open and by readers
// where they read; by Check in full. [Store.Scrub] reports damage of the tables of an open
// store. A reading that must be compared with what is damaged is Unreadable, and the store
// takes the others. What the operating system refuses, such as a read of a failing disk or
// one file too many, is no damage, and is returned as it is.
//
// The list, CHECKSUMS, says which files must be there; checksums.go and verify.go say how it
// is kept and compared. Pebble alone takes most damage of its log and of its manifest for a
// torn end, so that Open reads both itself; journal.go says how the two are told apart.
//
// Of a store that was closed, and of a backup, Open finds every file that is missing or put
// back, every length that has changed, and every byte that has, but for those inside of
// tables. Check finds these, too. Of a store that was not closed, Open finds every log and
// every table that is missing or cut short, and every bit that was turned in a record of a
// journal. What neither finds is
//
//   - that the newest log of a store that was not closed ends too early, or that nothing can
//     be read from some place in it on: a crash leaves that, too. Its first record is there;
//   - wider damage of the last record of such a log, for the same reason;
//   - a table in the place of another one, if it is sound, has the name and the length, and
//     fits the keys that the manifest has for it;
//   - that ERASING is missing, of a store that was not closed, or is an earlier one: it is not
//     in the list of an open store;
//   - what nothing reads: the place after the last record of a log, OPTIONS of an earlier
//     start, tables that no manifest lists, logs that were written to tables before;
//   - more than one file that was changed, if CHECKSUMS and LISTED are among those, or if all
//     are of one older copy.
//
// TestDamage, TestEveryByte and their exhaustive forms hold this.
//
// # Files
//
// The directory holds Pebble's files and some of ours. PULSEGATE holds the version of
// the formats below in text. It is written last when a store is created and read
// first when one is opened, so that a directory of another kind or of a later version
// is refused before Pebble touches it: Pebble upgrades whatever it opens. CHECKSUMS
// lists the files that must be there, and LISTED says that there is such a list. LOCK is
// locked while the store is open, and so is the directory itself where the system can do
// that; anchor.go says why. ERASING is there while a device is being erased, and the
// directory checkpoint while a backup is made; intent.go and backup.go say more.
// SCRUB says how far the scrub has come.
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
//	0            version: 1; 2 when others than the gateway have brought signs
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
