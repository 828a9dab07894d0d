// Package pgstore is the store for more than one machine: it implements the contract of package
// storage in a PostgreSQL database that any number of nodes share.
//
// # How a group is stored
//
//  1. [Store.Append] looks up the group's devices in a table in memory. New ones are first
//     registered in the database, in a transaction of their own.
//  2. The group is divided into lanes by a hash of the device, so that each device's readings
//     stay in their order. Each lane has its own connection.
//  3. Readings that are later than all that the node knows of their device are expected to be new. If all of a lane
//     are, it settles them
//     as if nothing were stored, and sends their records in a plain INSERT: one round trip. If another node has stored
//     one of them,
//     nothing was written, and the lane continues with step 4.
//  4. Otherwise the lane runs a transaction. It reads and locks the records that may exist, in the order of their keys,
//     settles the readings in Go, with the function that all stores use, and inserts what is new. Of what another node
//     has inserted since, it
//     reads the records, and settles all readings again. At last it writes the completed records.
//  5. Units, readings with claims, and other readings of their devices, have a lane of their own. It is rolled back,
//     and begins anew, if another
//     node has changed what a unit or a claim depends on after something was written. The new devices of a unit that is
//     rejected stay registered.
//
// # Parts
//
// A [Store] consists of parts, which call those below them. Only database knows whether the store is closed.
//
//	              repairer                    puts back what the database has forgotten
//	             /        \
//	        writer        remover             groups; erasures and expiry
//	       /      \      /       \
//	registry     partitions     subjects      known devices; locked and detached partitions; assignments
//	                                |    \
//	                                |     feed    what has changed, for consumers
//	                             reader       latest values, pages, devices
//
//	  changelog, keeper, recall, dictionary   removals; what to remember; what was acknowledged; signs
//	                    |
//	                database                  connections, statements, health
//
// The parts above the gap use those below it. So do the sealer, which turns old rows into segments beside all others,
// and the mover, which excludes them while a store is moved.
//
// # Invariants
//
//   - Duplicates wait too. A reading that changes nothing locks its record's row, which writes
//     to the write-ahead log, so that the commit waits until the standbys have the record. DO
//     NOTHING by itself would not wait: after a canceled commit, or a restart of the primary, a
//     duplicate would be acknowledged that only the primary has. TestDuplicatesWait checks it.
//   - No cancel. PostgreSQL answers a canceled wait for its standbys with success and a
//     warning. No context reaches a commit, only the socket is closed, which pgx must be kept
//     from following with a cancel request, and any warning makes the outcome unknown.
//     TestTraps checks it.
//   - Identical retry. A transaction with an unknown outcome is sent again, with the same
//     readings, until the deadline of Append. An error of PostgreSQL below FATAL means that the
//     transaction was rolled back. After the deadline, the error of Append wraps
//     storage.ErrNotWritten only if no attempt had an unknown outcome.
//   - Registered. Each device with readings has a row in the table of devices, whose signs
//     include those of its readings. A removal of such rows blocks all groups until it
//     has committed, and increments the generation. Each group reads the generation, and registers its devices
//     again if it has changed. TestErasedElsewhere checks it.
//   - Replicated. Each transaction reads synchronous_standby_names. If it is empty, its outcome is
//     unknown, and no new connection is accepted. TestStandbysRemoved checks it.
//   - Remembered. Each transaction with a mark, each new connection and each connection once a second
//     compares the table of marks with what this process has acknowledged. A primary that lacks any of it
//     is neither written to nor read from. TestForgettingPrimary checks it, and TestForgettingModel the decision.
//   - In one place. A reading is in readings or in a segment. A reading from before the horizon is settled in a
//     transaction that has turned
//     the segment that may have it into rows again, with a lock that the sealer waits for. TestConformanceSealed checks
//     it.
//   - Lock order. A transaction locks, in this order: the sealer's lock, the table of readings (both before it has a
//     number), its partitions, rows of erasing, segments, records by their keys, what it inserts by keys, devices by
//     their advisory locks, assignments, and the advisory lock of events. Removals do so, too. A record that another
//     node has inserted meanwhile is
//     locked late: that may be a deadlock, which PostgreSQL ends, and the next attempt expects nothing. TestLockOrder,
//     TestLockOrderTable, TestLockOrderErasing and TestRemovalsBesideGroups check it.
//   - All partitions. The last transaction of a removal has a connection that is newer than all partitions. Connections
//     for reading are checked
//     every second: see database.sees. TestPartitionAttached checks it.
//   - In one partition. A row is in the partition of its time if that is attached, and otherwise in the default one:
//     PostgreSQL compares them in each statement that writes, and the default partition refuses a row whose partition
//     is detached, which another one may have. A partition is attached only if the default one has no row for it.
//     TestDefaultPartition and TestClosedPartition check it.
//   - Emptied partitions. A server that seals drops partitions of the past while it has the table to itself, in a
//     transaction that moves the rows that are left to the default one. So a group finds all rows in both states; and a
//     read, which has one snapshot for several statements, locks the table before it takes the snapshot. TestRetired
//     checks it.
//   - Closed partitions. A partition that is locked or detached holds up no readings of others: a transaction waits
//     for a second, then looks which one it is, and is sent without the readings of that one. Then look-ups name
//     the partition that they read for a minute. TestClosedPartition checks it.
//   - Delivered. A row of readings or segments has a number of a transaction that is not below that of any of its
//     readings; a segment that
//     becomes rows again has changed. So what a snapshot does not see is found by these numbers: snapshot.since.
//     TestSince checks it.
//   - Proven. What a consumer is told was read in a transaction that has seen the proofs of the consumer's positions,
//     and a proof was committed
//     after it, on the same connection. TestChangesForgotten checks it.
//   - Events in order. Events are added under a lock that is the last one of a transaction, but for its mark, so their
//     numbers follow
//     the order of commits. TestConformance/changes checks it.
//   - Primary only. Every connection is to a server that accepts writes; replicas may show
//     commits in another order.
//
// # Schema
//
// The tables are in a schema of their own, "pulsegate" unless told otherwise; schema.go has their definitions. readings
// is partitioned by time; partitions.own says which times have a partition. It has a column for each sign, named like
// its field, in units of the sign's last decimal; an absent value is NULL. A server's statements for storing name the
// signs that it has ever stored, so they change nothing of others.
//
// The table signs has the definitions of a user's own signs. A node reads it at the start, and again when it meets a
// device or a segment with a sign that it does not know: then another node has defined that sign. A sign that is
// defined gets its columns at once, or as soon as nobody holds a lock that is in the way; until then readings with it
// are rejected for later. What names all columns, the view and the functions rows_of and cut_segments, is defined in
// the schema, together with them: a node that does not know a sign moves no reading without its value.
//
// The columns changed have the number of the transaction that wrote a reading last, of segments the greatest of its
// readings. The table events has what changes besides readings, proofs has the rows of which cursors name one, and
// cursor_key the key of cursors.
//
// The table erasing has the erasures that are not finished. The table marks has the numbers of each node's last
// transactions, changes what every node remembers, and losses what none could put back.
//
// The table state holds the version of the schema. Open creates it under an advisory lock, and refuses other versions.
// The table unfinished_move exists while a store that is moved to the schema is incomplete: see [Move].
//
// # Not here
//
// No replication, no failover, no backup: these are PostgreSQL's. No sharding: the schema has a
// function, bucket, that divides the devices for it.
package pgstore
