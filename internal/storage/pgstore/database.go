package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// A database is what the parts of a store share: connections, statements, counters, and whether the
// database accepts writes.
type database struct {
	opt     Options
	sql     *statements
	lockKey int64
	signs   *vitals.Signs

	marks *marks

	horizon horizon
	memory  *history.History // nil means there is none, and no repair
	saving  sync.Mutex       // held while the memory gets changes

	write, read *pgxpool.Pool
	counters    counters

	certificates atomic.Pointer[Certificates] // of the last connection

	created atomic.Bool // the tables exist
	unsafe  sync.Once   // logs that fsync is off

	uncompressed sync.Once // logs that the sealer may not compress

	forgetting atomic.Bool         // the last primary that was found had forgotten
	missing    atomic.Pointer[gap] // of that primary

	repairing atomic.Pointer[RepairError] // nil means no repair runs

	copied atomic.Bool // another process uses the memory's directory, or a copy of it

	lost atomic.Pointer[Loss] // not confirmed, as of the last probe; nil means nothing

	// unswept is set if the rows of some devices without readings may have stayed: before the first
	// Expire of a process, and after one with an error or an unknown outcome.
	unswept atomic.Bool

	// calls is held by each call for reading, and by Close.
	calls  sync.RWMutex
	closed atomic.Bool

	state    atomic.Pointer[error] // why it is not ready; nil means it is
	stateLog struct {
		sync.Mutex
		cause string // last one
		at    time.Time
	}
}

// enter begins a call. If it returns nil, the caller must call s.calls.RUnlock.
func (s *database) enter() error {
	s.calls.RLock()
	if s.closed.Load() {
		s.calls.RUnlock()
		return storage.ErrClosed
	}
	return nil
}

// Ready returns nil if the database accepted what was last sent to it, and otherwise why not. It
// does not block.
func (s *database) Ready() error {
	if s.closed.Load() {
		return storage.ErrClosed
	}
	if r := s.repairing.Load(); r != nil {
		return r
	}
	if s.copied.Load() {
		return ErrCopied
	}
	if err := s.state.Load(); err != nil {
		return *err
	}
	return nil
}

// setState notes whether the database can be reached.
func (s *database) setState(err error) {
	if err == nil {
		if s.state.Load() != nil {
			s.state.Store(nil)
		}
		if s.forgetting.Load() && s.forgetting.Swap(false) {
			s.missing.Store(nil)
			s.opt.Log.Info("the database has what was acknowledged")
		}
		return
	}
	first := s.state.Swap(&err) == nil // the caller of Ready logs that one
	text := err.Error()
	cause := text[strings.LastIndex(text, ": ")+1:]
	l := &s.stateLog
	l.Lock()
	defer l.Unlock()
	if first {
		l.cause = cause
	} else if cause != l.cause && time.Since(l.at) > stateLogEvery {
		l.cause, l.at = cause, time.Now()
		s.opt.Log.Warn("the database is not ready for another reason", "error", err)
	}
}

// stateLogEvery bounds how often another reason is logged why the database is not ready.
const stateLogEvery = 10 * time.Second

// probe notes whether the database can be reached, and how it is replicated.
func (s *database) probe(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var devices, quorum, generation, sealedMs, passedMs int64
	var lostFrom, lostTo *int64
	var standbys bool
	// Without the role pg_monitor, the state of standbys is NULL.
	err = s.read.QueryRow(ctx,
		s.sql.of(`SELECT devices, (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
		current_setting('synchronous_standby_names') <> '', generation, sealed_ms, passed_ms,
		(SELECT min(from_ms) FROM SCHEMA.losses WHERE confirmed_ms IS NULL), (SELECT max(to_ms) FROM SCHEMA.losses WHERE confirmed_ms IS NULL)
		FROM SCHEMA.state`)).Scan(&devices, &quorum, &standbys, &generation, &sealedMs, &passedMs, &lostFrom, &lostTo)
	if err == nil && generation > s.marks.learned() {
		err = changelog{s}.learn(ctx, s.read)
	}
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			if !errors.Is(err, ErrForgot) {
				err = fmt.Errorf("PostgreSQL does not answer: %w", err)
			}
			s.setState(hide(err))
		}
		return err
	}
	s.horizon.note(sealedMs)
	s.counters.passedMs.Store(passedMs)
	s.counters.devices.Store(devices)
	s.counters.quorum.Store(quorum)
	var lost *Loss
	if lostFrom != nil && lostTo != nil {
		lost = &Loss{*lostFrom, *lostTo}
	}
	s.lost.Store(lost)
	if standbys || s.opt.Single {
		s.setState(nil)
	} else {
		s.setState(ErrNotReplicated)
	}
	var timeline int64
	// The name of a file of the log begins with the timeline in hexadecimal. Asked apart: a
	// database that only resembles PostgreSQL may have no such files.
	if s.read.QueryRow(ctx, `SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint`).
		Scan(&timeline) == nil {
		s.counters.timeline.Store(timeline)
	}
	return nil
}

// DeviceCount returns the number of devices that all nodes have registered, as of the last second.
func (s *database) DeviceCount() int64 { return s.counters.devices.Load() }
