package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A view reads for a consumer. It implements [storage.ChangeReader]. It begins its transaction when it needs it.
type view struct {
	f        *feed
	ctx      context.Context
	cancel   context.CancelFunc
	from, to *storage.Position

	conn   *pgxpool.Conn
	tx     pgx.Tx // nil before begin
	proven proofs

	fromSeen, toSeen snapshot
	expired          []expiredBefore

	steps []delta // what recent has between the positions; nil if it has not
}

func (f *feed) view(ctx context.Context, from, to *storage.Position) *view {
	v := &view{f: f, from: from, to: to}
	v.ctx, v.cancel = context.WithTimeout(ctx, f.opt.Timeout)
	return v
}

// begin begins the transaction, which sees the proofs of the positions.
func (v *view) begin() (err error) {
	if v.tx != nil {
		return nil
	}
	if v.conn, err = v.f.read.Acquire(v.ctx); err != nil {
		return &acquireError{err}
	}
	if v.tx, err = v.conn.BeginTx(v.ctx, pgx.TxOptions{BeginQuery: v.f.sql.begin}); err != nil {
		return err
	}
	c := v.conn.Conn()
	if err = v.f.known(v.ctx, v.tx, c.PgConn(), v.from, v.to); errors.Is(err, errUnseen) {
		_ = c.Close(v.ctx)
	}
	return err
}

// reach is begin, again and again while the connection breaks: it was broken, or the primary is another server now.
// Connections on which a position is not known may be to an earlier primary, so a new one is asked, too.
func (v *view) reach() error {
	unknown := false
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := v.begin()
		again := errors.Is(err, storage.ErrUnknownPosition)
		if err == nil || again && unknown || v.ctx.Err() != nil || fateOf(err) == rejected {
			return err
		}
		if unknown = again; unknown && v.renews() {
			v.f.read.Reset()
		} else if unknown { // the others are as new
			_ = v.conn.Conn().Close(v.ctx)
		}
		v.end()
		select {
		case <-time.After(pause):
		case <-v.ctx.Done():
			return err
		}
	}
}

// renewEvery bounds how often an unknown position replaces all connections for reading: a consumer may send it again
// and again.
const renewEvery = time.Second

// renews reports whether the connections for reading are to be replaced now.
func (v *view) renews() bool {
	f := v.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.reset) < renewEvery {
		return false
	}
	f.reset = time.Now()
	return true
}

// prove ends the transaction, and proves what it has read.
func (v *view) prove() (err error) {
	if err = v.tx.Commit(v.ctx); err != nil {
		return err
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		v.proven, err = v.f.prove(v.ctx, v.conn)
		if sqlState(err) != lockNotAvailable { // others prove at the same time, and wait for the standbys
			return err
		}
		select {
		case <-time.After(pause):
		case <-v.ctx.Done():
			return err
		}
	}
}

// end ends what is left of the transaction.
func (v *view) end() {
	if v.tx != nil {
		_ = v.tx.Rollback(v.ctx)
	}
	if v.conn != nil {
		v.conn.Release()
	}
	v.tx, v.conn = nil, nil
}

func (v *view) close() {
	v.end()
	v.cancel()
}

// ReadChanges implements [storage.Changes].
func (f *feed) ReadChanges(ctx context.Context, from, to *storage.Position, do func(storage.ChangeReader) error) error {
	if err := f.enter(); err != nil {
		return fmt.Errorf("read changes: %w", err)
	}
	defer f.calls.RUnlock()
	err := f.readChanges(ctx, from, to, do, true)
	if err != nil && !errors.Is(err, storage.ErrUnknownPosition) {
		err = fmt.Errorf("read changes: %w", hide(err))
	}
	return err
}

// readChanges is ReadChanges for who has entered. If prove is not set, it does not prove what was read.
func (f *feed) readChanges(ctx context.Context, from, to *storage.Position, do func(storage.ChangeReader) error,
	prove bool) (err error) {
	v := f.view(ctx, from, to)
	defer v.close()
	for _, p := range []struct {
		at   *storage.Position
		seen *snapshot
	}{{from, &v.fromSeen}, {to, &v.toSeen}} {
		if !p.at.IsZero() {
			if *p.seen, err = decodeSnapshot(p.at.Snapshot); err != nil {
				return err
			}
		}
	}
	f.mu.Lock()
	h := &f.head.position
	proven := func(p *storage.Position) bool { return p.Event == h.Event && p.Mark == h.Mark && p.Group <= h.Group }
	if prove && proven(from) && proven(to) {
		v.steps, _ = f.recent.between(from, to)
	}
	f.mu.Unlock()
	if v.steps == nil {
		if err := v.reach(); err != nil {
			return err
		}
	}
	if err = do(v); err != nil || v.tx == nil || !prove {
		return err
	}
	if err = v.prove(); err != nil {
		return err
	}
	for _, p := range []*storage.Position{from, to} {
		if !p.IsZero() {
			p.Mark, p.Group = uint64(v.proven.id), uint64(v.proven.number)
		}
	}
	return nil
}

// Horizons implements [storage.ChangeReader].
func (v *view) Horizons() []storage.Horizon { return nil }

// readSigns reads the signs that other servers have defined. The transaction sees the definition of each sign that a
// reading or an event has that it sees.
func (v *view) readSigns() error { return dictionary{v.f.database}.read(v.ctx, v.tx) }

// hidden reports whether a reading has expired that a transaction has changed.
func (v *view) hidden(timeUnixMs, transaction int64) bool {
	for i := range v.expired {
		if timeUnixMs < v.expired[i].beforeUnixMs && transaction < v.expired[i].transaction {
			return true
		}
	}
	return false
}

// VisitEvents implements [storage.ChangeReader].
func (v *view) VisitEvents(_ context.Context, after, last uint64, visit func(*storage.Change) bool) error {
	if v.steps != nil || after >= last { // no event is between them
		return nil
	}
	if err := v.reach(); err != nil {
		return err
	}
	const page = 256
	for n := page; n == page; {
		n = 0
		var all []storage.Change
		if err := v.f.events().each(v.ctx, v.tx, func(e *storage.Change) {
			n++
			all = append(all, *e)
		}, "WHERE number > $1 AND number <= $2 AND kind > 1 ORDER BY number LIMIT $3",
			int64(min(after, math.MaxInt64)), int64(min(last, math.MaxInt64)), page); err != nil {
			return err
		}
		for i := range all {
			e := &all[i]
			signs := e.Kind == storage.ChangeSign || e.Kind == storage.ChangeErased && e.Signs != math.MaxUint32
			if after = e.Number; signs && e.Signs&^v.f.signs.Known() != 0 {
				if err := v.readSigns(); err != nil { // another server has defined it
					return err
				}
			}
			if !visit(e) {
				return nil
			}
		}
	}
	return nil
}

// VisitAssignments implements [storage.ChangeReader].
func (v *view) VisitAssignments(_ context.Context, devices []vitals.Name, visit func(*storage.Assignment)) error {
	for i := range v.steps {
		for _, device := range devices {
			for _, a := range v.steps[i].worn[device] { // perhaps again: no event is between the steps
				visit(&a)
			}
		}
	}
	if v.steps != nil || len(devices) == 0 {
		return nil
	}
	return v.visitAssignments(devices, visit)
}

func (v *view) visitAssignments(devices []vitals.Name, visit func(*storage.Assignment)) error {
	names := make([]string, len(devices))
	for i := range devices {
		names[i] = devices[i].String()
	}
	return v.f.subjects.visitAssignments(v.ctx, v.tx, func(a *storage.Assignment) {
		if a.Subject != "" {
			visit(a)
		}
	}, assignmentsOfDevices, names)
}

// Assignments implements [storage.ChangeReader].
func (v *view) Assignments(_ context.Context, after storage.AssignmentKey, dst []storage.Assignment) (int, error) {
	if err := v.reach(); err != nil {
		return 0, err
	}
	all, err := v.f.subjects.queryAssignments(v.ctx, v.tx, assignmentsAfter,
		after.Device.String(), after.FromUnixMs, len(dst))
	return copy(dst, all), err
}

// Scan implements [storage.ChangeReader].
func (v *view) Scan(_ context.Context, r storage.Range, dst []storage.Record) (n int, err error) {
	if err := v.reach(); err != nil || len(dst) == 0 || r.FromUnixMs >= r.ToUnixMs {
		return 0, err
	}
	if v.expired == nil {
		if v.expired, err = v.f.events().expired(v.ctx, v.tx); err != nil {
			return 0, err
		}
	}
	// Numbers of transactions are not among what it reads. A server refuses what has expired, so hardly anything from
	// before the time arrives after the event.
	defer func() {
		for i := range dst[:n] {
			r := &dst[i]
			if slices.ContainsFunc(v.expired, func(x expiredBefore) bool {
				return r.TimeUnixMs < x.beforeUnixMs && max(r.ReceivedUnixMs, r.ChangedUnixMs) <= x.atUnixMs
			}) {
				r.Values = vitals.Values{}
			}
		}
	}()
	renewed := false
	for more := 1; ; more *= 4 {
		n, whole, err := v.f.reader.scanIn(v.ctx, v.tx, false, r, dst, more)
		if errors.Is(err, errUnknownSign) && !renewed {
			renewed = true
			if err = v.readSigns(); err == nil {
				continue
			}
		}
		if whole || err != nil {
			return n, err
		}
	}
}
