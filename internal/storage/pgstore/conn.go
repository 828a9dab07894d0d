package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// ErrNotReplicated means that the server has no synchronous standbys.
var ErrNotReplicated = errors.New(
	"synchronous_standby_names is empty: one server's disk would hold the only copy of what is acknowledged; " +
		"configure standbys, or use --postgres-single if one machine or replicated storage is meant")

// errPooler means that the process at the other end is not the one that the connection was promised: PgBouncer makes up
// the numbers that cancel requests name. Transactions of one connection may reach several processes then, and settings,
// locks and prepared statements do not follow.
var errPooler = errors.New(
	"a connection pooler such as PgBouncer is between the server and PostgreSQL; connect directly")

// settings are set on each connection, whatever the server, database or role say. A backend checks
// whether its client is still there, so that a transaction that was given up leaves the queue of the
// lock that it waits for. It does not check during a commit. A transaction whose server is frozen, and would hold its
// locks for ever, is ended later than a server that runs closes its connection: TestFrozen checks it.
const settings = `SET synchronous_commit = on;
SET client_min_messages = notice;
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = '20s';
SET idle_session_timeout = 0;
SET client_connection_check_interval = '1s';
SET default_transaction_isolation = 'read committed';
SET default_transaction_read_only = off;
SET default_transaction_deferrable = off;
SET bytea_output = hex;
SET jit = off`

// connectedToRead configures and checks a new connection for reading. Its statements that are sent at once, without
// BEGIN, are a transaction, which has one snapshot.
func connectedToRead(ctx context.Context, s *database, conn *pgx.Conn) error {
	if err := s.configure(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx,
		"SET default_transaction_isolation = 'repeatable read'; SET lock_timeout = '"+lockTimeout+"'"); err != nil {
		return fmt.Errorf("configure connection: %w", hide(err))
	}
	return nil
}

// configure configures and checks a new connection.
func (s *database) configure(ctx context.Context, conn *pgx.Conn) error {
	if err := conn.PgConn().Exec(ctx, settings).Close(); err != nil {
		return fmt.Errorf("configure connection: %w", hide(err))
	}
	var standbys, fsync string
	var free, unfinished bool
	var pid uint32
	var partitions int64
	// Without a prepared statement: a pooler gives connections to other clients, and the next one would find it.
	err := conn.QueryRow(ctx,
		`SELECT pg_backend_pid(), current_setting('synchronous_standby_names'), current_setting('fsync'),
		CASE WHEN $1 THEN true ELSE pg_try_advisory_lock_shared($2) END, to_regclass($3) IS NOT NULL, `+s.sql.of(attached),
		pgx.QueryExecModeExec, s.opt.Move != 0, lockKey("nodes", s.opt.Schema), s.opt.Schema+"."+unfinishedTable).Scan(&pid,
		&standbys, &fsync, &free, &unfinished, &partitions)
	conn.PgConn().CustomData()[seenPartitions] = partitions
	switch {
	case err != nil:
		return fmt.Errorf("check connection: %w", hide(err))
	case pid != conn.PgConn().PID():
		return errPooler
	case !free:
		return errMoving
	case unfinished && s.opt.Move != MoveTo:
		return fmt.Errorf("%w: a move to schema %s is unfinished; repeat 'pulsegate migrate', or drop the schema",
			storage.ErrFormat, s.opt.Schema)
	case standbys == "" && !s.opt.Single:
		return ErrNotReplicated
	case fsync != "on":
		s.unsafe.Do(func() {
			s.opt.Log.Error("PostgreSQL runs with fsync off: a loss of power loses acknowledged readings")
		})
	}
	return nil
}

// prepare prepares the statements of a connection.
func (s *database) prepare(ctx context.Context, conn *pgx.Conn) error {
	for name, sql := range s.sql.prepared {
		if _, err := conn.Prepare(ctx, name, sql); err != nil {
			return fmt.Errorf("prepare connection: %w", hide(err))
		}
	}
	return s.sql.writing.Load().prepare(ctx, conn)
}

// preparedFor is the key of a connection's custom data for the signs of the writeStatements that it has prepared last.
const preparedFor = "pulsegate signs"

// prepare prepares the statements of a connection, unless it has them.
func (w *writeStatements) prepare(ctx context.Context, conn *pgx.Conn) error {
	if conn.PgConn().CustomData()[preparedFor] == w.signs {
		return nil
	}
	for name, sql := range w.prepared {
		if _, err := conn.Prepare(ctx, name, sql); err != nil {
			return fmt.Errorf("prepare connection: %w", err)
		}
	}
	conn.PgConn().CustomData()[preparedFor] = w.signs
	return nil
}

// lockTimeout bounds the time for which a transaction waits for a lock. It is tried again, after what holds the lock
// was looked for: see partitions.create and reader.locked.
const lockTimeout = "1s"

// connectedToWrite prepares and checks a new connection for writing. It returns an error if as many
// commits as a node has connections have waited for the standbys for long: a node closes the
// connections of those that it has given up, but PostgreSQL goes on waiting, and would run out of
// connections.
func (s *database) connectedToWrite(ctx context.Context, conn *pgx.Conn) error {
	if err := s.configure(ctx, conn); err != nil || !s.created.Load() {
		return err
	}
	if err := s.prepare(ctx, conn); err != nil {
		return err
	}
	var waiting int32
	if err := conn.QueryRow(ctx, `SELECT count(*)::integer, set_config('lock_timeout', $2, false) FROM pg_stat_activity
		WHERE usename = current_user AND wait_event = 'SyncRep' AND query_start < clock_timestamp() - make_interval(secs => $1)`,
		(s.opt.Timeout/2).Seconds(), lockTimeout).Scan(&waiting, nil); err != nil {
		return fmt.Errorf("check connection: %w", hide(err))
	}
	if waiting >= writers {
		return errStandbysGone
	}
	return nil
}

var errStandbysGone = errors.New("no standby confirms what was sent before")

// A warning is the key of a connection's custom data under which noteWarning notes warnings.
const warning = "pulsegate warning"

// noteWarning notes that PostgreSQL has sent a warning: a commit may not have waited for the
// standbys.
func noteWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[warning] = n.Code
	}
}

// noCancel returns dial changed so that pgx cannot cancel what a broken connection was doing.
//
// When a connection breaks, pgx dials its peer again and asks it to cancel the statement. If that
// is a commit that waits for the standbys, PostgreSQL makes it visible without them.
func noCancel(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if network == uncancelable {
			return nil, errors.New("a commit is never canceled")
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return noCancelConn{conn}, nil
	}
}

const uncancelable = "uncancelable"

// A noCancelConn hides the address that pgx would dial for a cancel request.
type noCancelConn struct{ net.Conn }

func (noCancelConn) RemoteAddr() net.Addr { return noAddr{} }

type noAddr struct{}

func (noAddr) Network() string { return uncancelable }
func (noAddr) String() string  { return uncancelable }
