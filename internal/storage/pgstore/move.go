package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// A Move is the part that a database has in moving a store.
//
// Nodes and a move exclude each other. Each connection of a node holds a shared advisory lock,
// and a move holds the same lock exclusively. So no statement of a node runs during a move, even
// if connections break. A node that has just lost all of its connections does not prevent a move,
// but is refused until it ends.
type Move uint8

// The moves. The zero Move is that of a node.
const (
	// MoveFrom reads the store, which must exist.
	MoveFrom Move = 1 + iota

	// MoveTo writes to the store. It accepts any number of devices, and devices with any
	// name. Between [Store.Begin] and [Store.Publish], nodes are refused even if no process has
	// the store open.
	MoveTo
)

// errMoving is the error of a node during a move.
var errMoving = fmt.Errorf("%w: 'pulsegate migrate' moves this store", storage.ErrLocked)

// unfinishedTable exists while a move to the schema is unfinished.
const unfinishedTable = "unfinished_move"

// A mover excludes nodes from a store that is moved.
type mover struct {
	*database
	alone *pgx.Conn // holds the lock; nil if the store is not moved
}

// lockAlone locks out nodes and other moves, on a connection of its own. If that breaks, the lock
// is gone: see Alone.
func (s *mover) lockAlone(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, s.write.Config().ConnConfig)
	if err != nil {
		return err
	}
	s.alone = conn
	if _, err := conn.Exec(ctx, "SET idle_session_timeout = 0"); err != nil { // it is not configured as others are
		return hide(err)
	}
	// PostgreSQL notices a moment later that a process has closed its connections. Waiting for the
	// lock would keep nodes from connecting.
	for deadline := time.Now().Add(time.Second); ; {
		var locked bool
		err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", lockKey("nodes", s.opt.Schema)).Scan(&locked)
		switch {
		case err != nil:
			return hide(err)
		case locked:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%w: a server or another move uses schema %s", storage.ErrLocked, s.opt.Schema)
		}
		select {
		case <-time.After(10 * firstPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unlock releases the lock, so that a node that starts next is not refused.
func (s *mover) unlock() {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	_, _ = s.alone.Exec(ctx, "SELECT pg_advisory_unlock($1)", lockKey("nodes", s.opt.Schema))
	_ = s.alone.Close(ctx)
}

// Alone returns nil if, since Open, no node and no other move has had access to the store. It is
// for stores that are moved, and must not be called concurrently.
func (s *mover) Alone(ctx context.Context) error {
	if err := s.alone.Ping(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("the lock on the database was lost: %w", hide(err))
	}
	return nil
}

// Begin marks the store as incomplete, until [Store.Publish]. Nodes refuse it.
func (s *mover) Begin() error {
	return s.define("begin", func(tx pgx.Tx) error {
		return run(tx, s.sql.of("CREATE TABLE IF NOT EXISTS SCHEMA."+unfinishedTable+" ()"))
	})
}

// Publish marks the store as complete, and closes it. What was moved has no events, so consumers of changes begin
// again.
func (s *Store) Publish() error {
	if err := s.define("publish", func(tx pgx.Tx) error {
		if err := run(tx, s.sql.of("DROP TABLE IF EXISTS SCHEMA."+unfinishedTable)); err != nil {
			return err
		}
		return s.events().addGap(tx)
	}); err != nil {
		return err
	}
	return s.Close()
}

// define calls do in a transaction.
func (s *mover) define(what string, do func(pgx.Tx) error) error {
	err := s.enter()
	if err == nil {
		defer s.calls.RUnlock()
		err = s.try().run(func(conn *pgx.Conn) error {
			return pgx.BeginFunc(context.Background(), conn, do)
		})
	}
	if err != nil {
		return fmt.Errorf("%s move: %w", what, err)
	}
	return nil
}
