package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Store is an open database. It implements [storage.Store] and [storage.Remover]. All methods,
// Append included, may be called concurrently.
type Store struct {
	opt     Options
	sql     *statements
	lockKey int64

	write, read *pgxpool.Pool
	alone       *pgx.Conn // holds the lock of a store that is moved; nil: there is none
	registry    registry
	partitions  sync.Map // the numbers of the partitions that this node knows
	counters    counters
	works       sync.Pool // of *work

	migrated atomic.Bool // the tables exist

	// unswept is set if the rows of some devices without readings may have stayed: before the first
	// Expire of a process, and after one with an error or an unknown outcome.
	unswept atomic.Bool
	unsafe  sync.Once // logs that fsync is off

	// calls is held by each call for reading, and by Close.
	calls  sync.RWMutex
	closed atomic.Bool

	state   atomic.Pointer[error] // why it is not ready; nil: it is
	stop    context.CancelFunc    // ends watch
	watched sync.WaitGroup
}

var (
	_ storage.Store   = (*Store)(nil)
	_ storage.Remover = (*Store)(nil)
)

// Open connects to the database, and creates or migrates its schema. The error wraps
// storage.ErrFormat if the schema is of a later version, and is [ErrNotReplicated] if the server
// has no synchronous standbys and opt does not permit that.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt = opt.withDefaults()
	s := &Store{opt: opt, sql: newStatements(opt.Schema), lockKey: lockKey("schema", opt.Schema)}
	s.registry.known = map[vitals.Name]*known{}
	s.unswept.Store(true)
	s.works.New = func() any { return &work{} }
	write, read, err := opt.pools(s)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if s.write, err = pgxpool.NewWithConfig(ctx, write); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if s.read, err = pgxpool.NewWithConfig(ctx, read); err != nil {
		s.write.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := s.open(ctx); err != nil {
		s.closeConns()
		return nil, fmt.Errorf("open database: %w", err)
	}
	s.probe(ctx) // from now on the store has a connection, and so the lock of its nodes
	ctx, s.stop = context.WithCancel(context.Background())
	s.watched.Go(func() { s.watch(ctx) })
	return s, nil
}

// open migrates the schema and reads what the registry needs.
func (s *Store) open(ctx context.Context) error {
	if s.opt.Move != 0 {
		if err := s.lockAlone(ctx); err != nil {
			return err
		}
	}
	conn, err := s.write.Acquire(ctx)
	if err != nil {
		return err
	}
	err = s.migrate(ctx, conn.Conn())
	if err == nil {
		err = conn.QueryRow(ctx, s.sql.of("SELECT generation FROM SCHEMA.meta")).Scan(&s.registry.generation)
	}
	// This connection has no prepared statements.
	_ = conn.Hijack().Close(ctx)
	s.migrated.Store(err == nil)
	return hide(err)
}

// enter begins a call. If it returns nil, the caller must call s.calls.RUnlock.
func (s *Store) enter() error {
	s.calls.RLock()
	if s.closed.Load() {
		s.calls.RUnlock()
		return storage.ErrClosed
	}
	return nil
}

// Ready returns nil if the database accepted what was last sent to it, and otherwise why not. It
// does not block.
func (s *Store) Ready() error {
	if s.closed.Load() {
		return storage.ErrClosed
	}
	if err := s.state.Load(); err != nil {
		return *err
	}
	return nil
}

// setState notes whether the database can be reached.
func (s *Store) setState(err error) {
	if err == nil {
		if s.state.Load() != nil {
			s.state.Store(nil)
		}
		return
	}
	s.state.Store(&err)
}

// watchEvery is the interval at which watch asks the database.
const watchEvery = time.Second

// watch notes regularly whether the database can be reached, and how it is replicated.
func (s *Store) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.probe(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (s *Store) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var devices, quorum int64
	var standbys bool
	// Without the role pg_monitor, the state of standbys is NULL.
	err := s.read.QueryRow(ctx, s.sql.of(`SELECT devices, (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
		current_setting('synchronous_standby_names') <> '' FROM SCHEMA.meta`)).Scan(&devices, &quorum, &standbys)
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.setState(fmt.Errorf("PostgreSQL does not answer: %w", hide(err)))
		}
		return
	}
	s.counters.devices.Store(devices)
	s.counters.quorum.Store(quorum)
	if standbys || s.opt.Single {
		s.setState(nil)
	} else {
		s.setState(ErrNotReplicated)
	}
	var timeline int64
	// The name of a file of the log begins with the timeline in hexadecimal. Asked apart: a
	// database that only resembles PostgreSQL may have no such files.
	if s.read.QueryRow(ctx, `SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint`).Scan(&timeline) == nil {
		s.counters.timeline.Store(timeline)
	}
}

// DeviceCount returns the number of devices that all nodes have registered, as of the last second.
func (s *Store) DeviceCount() int64 { return s.counters.devices.Load() }

// Close implements [storage.Store].
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return fmt.Errorf("close store: %w", storage.ErrClosed)
	}
	s.stop()
	s.calls.Lock() // waits for calls
	defer s.calls.Unlock()
	s.watched.Wait()
	s.closeConns()
	return nil
}

func (s *Store) closeConns() {
	s.write.Close()
	s.read.Close()
	if s.alone != nil {
		s.unlock()
	}
}
