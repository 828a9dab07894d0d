// Package pgstore is the store for more than one machine: it implements the contract of package
// storage in a PostgreSQL database that any number of nodes share.
//
// # How a group is stored
//
//  1. [Store.Append] looks up the group's devices in a table in memory. New ones are first
//     registered in the database, in a transaction of their own.
//  2. The group is divided into lanes by a hash of the device, so that each device's readings
//     stay in their order. Each lane has its own connection.
//  3. A lane's readings are sorted by device and time, so that nodes do not deadlock, and sent
//     in one statement, which inserts what is new and completes what is stored. Further
//     readings of the same device and time follow in further statements of the same
//     transaction. All of it is one round trip. Readings that are later than all that the node knows
//     of their device are expected to be new. The longest run of them goes into a plain INSERT, and what is
//     sorted before and after it into statements of their own. If another node has stored one of
//     them, nothing was written, and the lane sends all of them in the other statement.
//  4. The statement returns the readings that it has stored or completed. For others the lane
//     reads the records after the commit, and compares: duplicate or conflict. Values never
//     change, so the later snapshot gives the same verdict. A record that is gone by then was
//     erased, and its readings are settled again.
//  5. Units, and other readings of their devices, have a lane of their own. It reads the records
//     first and drops the units that do not fit. It writes the others in one transaction, compares
//     their records, which are locked then, again before the commit, and begins anew if another
//     node has changed one. The new devices of a unit that is rejected stay registered.
//
// # Parts
//
// A [Store] is a database, which holds connections, statements and the state of health, and what
// uses it: writer (groups, with the registry of devices), reader, subjects, remover, partitions, which
// writer and remover share, sealer, and mover. Only database knows whether the store is closed.
//
// # Invariants
//
//   - Duplicates wait too. A reading that changes nothing locks its record's row, which writes
//     to the write-ahead log, so that the commit waits until the standbys have the record. ON
//     CONFLICT DO NOTHING would not wait: after a canceled commit, or a restart of the primary, a
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
//   - In one place. A reading is in readings or in a segment. A reading from before the horizon is settled in a transaction that has turned
//     the segment that may have it into rows again, with a lock that the sealer waits for. TestConformanceSealed checks it.
//   - All partitions. The last transaction of a removal has a connection that is newer than all partitions. Connections for reading are checked
//     every second: see database.sees. TestPartitionAttached checks it.
//   - Closed partitions. A partition that is locked or detached holds up no readings of others: a transaction waits
//     for a second, then looks which one it is, and is sent without the readings of that one. Look-ups name the
//     partition that they read. TestClosedPartition checks it.
//   - Primary only. Every connection is to a server that accepts writes; replicas may show
//     commits in another order.
//
// # Schema
//
// The tables are in a schema of their own, "pulsegate" unless told otherwise; schema.go has
// their definitions. readings is partitioned by time. An absent value is NULL. The first five signs
// have columns, in hundredths; those above 327.67 are stored as negative numbers: add 65,536. All
// others are in one array, which is NULL in readings without them.
//
// The table signs has the definitions of a user's own signs. A node reads it at the start, and again
// when it reads a value of a sign that it does not know: then another node has defined that sign.
//
// The table erasing has the erasures that are not finished. The table marks has the numbers of each node's last transactions, changes what every node remembers, and losses what none could put back.
//
// The table state holds the version of the schema, which releases before segments read in the view meta. Open creates it under an advisory
// lock, upgrades versions 2 to 7 while nodes use it, and refuses other versions. The table unfinished_move exists while a store that is moved to the
// schema is incomplete: see [Move].
//
// # Not here
//
// No replication, no failover, no backup: these are PostgreSQL's. No sharding: the schema has a
// function, bucket, that divides the devices for it.
package pgstore
