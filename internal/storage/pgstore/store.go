package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Store is an open database. It implements [storage.Store], [storage.Remover] and
// [storage.Subjects]. All methods, Append included, may be called concurrently.
type Store struct {
	*database
	*reader
	*subjects
	*remover
	*writer
	*mover
	*healer
	*feed

	repairer *repairer

	watching context.Context // of watch, and what else goes on until Close
	stop     context.CancelFunc
	watched  sync.WaitGroup
}

var (
	_ storage.Store    = (*Store)(nil)
	_ storage.Remover  = (*Store)(nil)
	_ storage.Subjects = (*Store)(nil)
	_ storage.Changes  = (*Store)(nil)
)

// Open connects to the database, and creates its schema if there is none. The error wraps
// storage.ErrFormat if the schema is of another version, is one of [vitals.Signs.Define] if the
// database has other definitions than opt, and is [ErrNotReplicated] if the server
// has no synchronous standbys and opt does not permit that.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt = opt.withDefaults()
	signs := vitals.NewSigns()
	db := &database{opt: opt, sql: newStatements(opt.Schema, signs), lockKey: lockKey("schema", opt.Schema), signs: signs,
		marks: newMarks()}
	db.unswept.Store(true)
	r, p := &reader{db}, &partitions{database: db, createWithin: "500ms", shut: map[int64]time.Time{}}
	s := &Store{database: db, reader: r, subjects: &subjects{r}, mover: &mover{database: db},
		healer: &healer{changelog{db}}}
	s.feed = newFeed(r, s.subjects)
	s.remover = &remover{db, s.subjects, p}
	s.writer = &writer{database: db, registry: registry{known: map[vitals.Name]*known{}, settlesFor: settlesFor},
		partitions: p, works: sync.Pool{New: func() any { return &work{} }}}
	s.repairer = &repairer{database: db, writer: s.writer, remover: s.remover, debts: map[int64]*debt{}}
	write, read, err := opt.pools(db)
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
	err = s.openMemory(ctx)
	if err == nil {
		err = s.open(ctx)
	}
	if err != nil {
		s.closeConns()
		return nil, fmt.Errorf("open database: %w", err)
	}
	s.probe(ctx) // from now on the store has a connection, and so the lock of its nodes
	ctx, s.stop = context.WithCancel(context.Background())
	s.watching = ctx
	s.watched.Go(func() { s.watch(ctx) })
	s.watched.Go(func() { s.feed.run(ctx) })
	s.watched.Go(func() { s.feed.summarize(ctx) })
	if opt.SealAfter > 0 && opt.Move == 0 {
		s.watched.Go(func() { sealer{db, p}.run(ctx) })
	}
	return s, nil
}

// watchEvery is the interval at which watch asks the database.
const watchEvery = time.Second

// tidyEvery is how often old events are removed.
const tidyEvery = 5 * time.Minute

// watch asks the database regularly, and repairs it when no host has everything for a while.
func (s *Store) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	triedColumns, tidied := time.Now(), time.Time{}
	for forgot := 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// Other hosts may take so long to refuse a connection that the probe does not reach the one that has forgotten.
		err := s.probe(ctx)
		if !errors.Is(err, ErrForgot) && (err == nil || !s.forgetting.Load()) {
			forgot = 0
		} else if forgot++; forgot >= repairAfter && s.memory != nil {
			if s.repairer.run(ctx) {
				forgot = 0
			}
			_ = s.probe(ctx)
		}
		s.repairer.recheck(ctx)
		if err == nil {
			if now := time.Now(); now.Sub(triedColumns) > columnsEvery {
				dictionary{s.database}.retry(ctx)
				triedColumns = now
			}
			if time.Since(tidied) > tidyEvery {
				_ = s.events().tidy(ctx)
				tidied = time.Now()
			}
			s.repairer.payDebts()
			s.repairer.noticeCopy(ctx)
		}
	}
}

// openMemory opens the memory. If it has a directory, it repairs what the database lacks of earlier runs.
func (s *Store) openMemory(ctx context.Context) (err error) {
	keep := history.Options{For: s.opt.Remember, MaxBytes: s.opt.RememberBytes}
	switch {
	case s.opt.Remember == 0 || s.opt.Move != 0:
	case s.opt.RememberDir == "":
		s.memory = history.New(keep)
	default:
		if s.memory, err = history.Open(ctx, keep, s.opt.RememberDir, s.opt.Log); err == nil {
			err = s.repairer.begin(ctx)
		}
	}
	return err
}

// open creates the schema and reads what the registry needs.
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
	err = s.createSchema(ctx, conn.Conn())
	if err == nil {
		err = dictionary{s.database}.open(ctx, conn.Conn())
	}
	if err == nil {
		err = conn.QueryRow(ctx, s.sql.of("SELECT generation FROM SCHEMA.state")).Scan(&s.registry.generation)
	}
	if err == nil {
		err = changelog{s.database}.learn(ctx, conn.Conn())
	}
	if err == nil && s.opt.Move != MoveFrom {
		err = s.marks.tidy(ctx, conn.Conn(), s.sql, time.Now())
	}
	if err == nil && s.opt.Move != MoveFrom {
		err = s.events().adopt(ctx, conn.Conn())
	}
	// This connection has no prepared statements.
	_ = conn.Hijack().Close(ctx)
	s.created.Store(err == nil)
	if err == nil {
		err = keeper{s.database}.keepSigns()
	}
	return hide(err)
}

// Close implements [storage.Store].
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return fmt.Errorf("close store: %w", storage.ErrClosed)
	}
	s.stop()
	s.calls.Lock() // waits for calls
	s.calls.Unlock()
	s.watched.Wait() // what is watched may begin a call, which is refused now
	s.closeConns()
	return nil
}

func (s *Store) closeConns() {
	s.write.Close()
	s.read.Close()
	if s.alone != nil {
		s.unlock()
	}
	if s.memory != nil {
		if err := s.memory.Close(); err != nil {
			s.opt.Log.Error("what is remembered may be incomplete in its directory", "error", err)
		}
	}
}
