package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// Seal seals what was measured before a time.
func Seal(s *Store, beforeUnixMs int64) (int64, error) {
	return sealer{s.database, s.writer.partitions}.seal(context.Background(), beforeUnixMs)
}

// FinishErasures finishes the erasures that are left when the store is ready, as [Store.FinishErasures] does.
func FinishErasures(s *Store, record func(storage.Erasure) error) error {
	for deadline := time.Now().Add(polltest.Patience); s.Ready() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return s.Ready()
		}
	}
	l := leftovers{remover: s.remover, record: record}
	return l.finish(context.Background())
}

// Cancelable returns the networks over which pgx would ask PostgreSQL to cancel the statements of the pools.
func Cancelable(s *Store) (all []string, err error) {
	for _, pool := range []*pgxpool.Pool{s.write, s.read} {
		err = errors.Join(err, pool.AcquireFunc(context.Background(), func(conn *pgxpool.Conn) error {
			if network := conn.Conn().PgConn().Conn().RemoteAddr().Network(); network != uncancelable {
				all = append(all, network)
			}
			return nil
		}))
	}
	return all, err
}

// Learned returns the generation up to which a store knows the changes.
func Learned(s *Store) int64 { return s.marks.learned() }

// ErrPublished is the error of Seal if its deletes are published.
var ErrPublished = errPublished

// LockKey returns the key of an advisory lock.
func LockKey(what, schema string) int64 { return lockKey(what, schema) }

// CreatePartition creates a partition of readings.
func CreatePartition(s *Store, conn *pgx.Conn, partition int64) error {
	return s.writer.partitions.create(conn, partition)
}

// CreateWithin sets the time that PostgreSQL may take to create a partition: on a slow machine, readings would be
// stored in the default partition where a test needs one of their own.
func CreateWithin(s *Store, timeout string) { s.writer.partitions.createWithin = timeout }

// LockOf returns the key of the advisory lock of those who create partitions.
func LockOf(s *Store) int64 { return s.lockKey }

// ExpectAgain makes stores that are opened from now on expect readings to be new at once after a collision, so that
// tests do that often.
func ExpectAgain() { settlesFor = 0 }

// SettleFor makes a store expect no reading to be new for d after a collision.
func SettleFor(s *Store, d time.Duration) {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	s.registry.settlesFor = d
}

// Mark sets the mark of a transaction of a store by a clock.
func Mark(s *Store, now time.Time) error {
	return s.decide(context.Background(), "mark", func(tx pgx.Tx) error {
		args := s.marks.args(mark{number: 1})
		args[3], args[4], args[5], args[6] = now.UnixMilli(), []int64{}, 0, 0 // whatever the database has forgotten
		_, err := tx.Exec(context.Background(), s.sql.generation, args...)
		return err
	})
}

// Refuse sends the mark of a transaction of a server that has acknowledged number, and knows the changes up to a
// generation.
func Refuse(s *Store, number, learned int64) error {
	return s.decide(context.Background(), "mark", func(tx pgx.Tx) error {
		args := s.marks.args(mark{number: number})
		args[4], args[8] = []int64{number}, learned
		_, err := tx.Exec(context.Background(), s.sql.generation, args...)
		return err
	})
}

// Tidy removes marks and changes that are old by a clock and by the one of the database.
func Tidy(s *Store, now time.Time) error {
	ctx := context.Background()
	return s.decide(ctx, "tidy", func(tx pgx.Tx) error {
		return errors.Join(s.marks.tidy(ctx, tx, s.sql, now), s.tidy(tx, now))
	})
}

// CheckEvery is how often a connection in use is checked.
const CheckEvery = checkEvery

// Backends returns the processes of the next connections for reading and for writing.
func Backends(s *Store) (pids [2]uint32, err error) {
	for i, pool := range []*pgxpool.Pool{s.read, s.write} {
		if err := pool.AcquireFunc(context.Background(), func(conn *pgxpool.Conn) error {
			pids[i] = conn.Conn().PgConn().PID()
			return nil
		}); err != nil {
			return pids, err
		}
	}
	return pids, nil
}

// Reconnect makes a store replace its connections.
func Reconnect(s *Store) {
	s.read.Reset()
	s.write.Reset()
}

// TryClosed makes a store try partitions that could not be written at once, if now is set.
func TryClosed(s *Store, now bool) {
	s.writer.partitions.mu.Lock()
	defer s.writer.partitions.mu.Unlock()
	if now {
		clear(s.writer.partitions.shut)
	}
}

// Owe sends a batch of a repair that has left out readings of a partition, and returns the number of partitions that
// are owed.
func Owe(s *Store, partition int64) (owed int, err error) {
	err = s.write.AcquireFunc(context.Background(), func(conn *pgxpool.Conn) error {
		r := &repair{repairer: s.repairer, conn: conn.Conn()}
		return r.tryBatch(&batch{owed: map[int64]Loss{partition: {FromUnixMs: 1, ToUnixMs: 2}},
			to: numbers{history.Slot{Server: 1}: 1}})
	})
	return len(s.repairer.debts), err
}

// Proofs returns how often a store has proven what it has read.
func Proofs(s *Store) int64 {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	return s.feed.proofs.number
}

// TidyEvents removes old events.
func TidyEvents(s *Store) error { return s.events().tidy(context.Background()) }

// MostRows is the largest number of rows in a part of a pass.
const MostRows = mostRows

// DeviceLock returns the key of the advisory lock of a device's assignments.
func DeviceLock(s *Store, device vitals.Name) int64 { return s.subjects.deviceLock(&device) }
