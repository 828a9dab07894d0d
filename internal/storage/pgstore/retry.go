package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// A try is a transaction that is sent until its outcome is known.
type try struct {
	s        *database
	deadline time.Time

	// unknown means that an attempt may have been committed. It stays set over several
	// transactions of one call, which then have been written in part.
	unknown bool

	// rolledBack means that an attempt was rolled back.
	rolledBack bool

	// written means that an earlier transaction of the call was committed.
	written bool
}

func (s *database) try() *try { return &try{s: s, deadline: time.Now().Add(s.opt.Timeout)} }

// Pauses between attempts.
const (
	firstPause = 5 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// run calls do with a connection, again and again, until the outcome of its transaction is known
// or the deadline has passed. do must do the same each time.
func (t *try) run(do func(*pgx.Conn) error) error {
	pause := firstPause
	var last error // of the attempt before
	for {
		err := t.once(do)
		if err == nil {
			t.s.setState(nil)
			return nil
		}
		f := fateOf(err)
		t.s.counters.retry(sqlState(err))
		if f == unknown && !t.unknown {
			t.unknown = true
			t.s.counters.unknown.Add(1)
		}
		if err = hide(err); last != nil && f == unreachable && errors.Is(err, context.DeadlineExceeded) {
			err = last // says more than that the deadline has passed
		}
		last = err
		left := time.Until(t.deadline)
		if f == rejected || left <= 0 {
			return t.fail(err)
		}
		t.rolledBack = t.rolledBack || f == rolledBack
		// A part of the pause is random, so that nodes do not meet again.
		time.Sleep(min(pause/2+rand.N(pause), left))
		pause = min(2*pause, maxPause)
	}
}

// runOpen is run for a transaction that writes to partitions. It returns the error of one that cannot be written,
// unless an earlier attempt, which may have written to it, has an unknown outcome.
func (t *try) runOpen(do func(*pgx.Conn) error) (closed *closedError, err error) {
	err = t.run(func(conn *pgx.Conn) error {
		err := do(conn)
		var ok bool
		if closed, ok = errors.AsType[*closedError](err); ok && !t.unknown {
			return nil // the outcome is known
		}
		return err
	})
	return closed, err
}

// errUnreached is returned in place of an error of a context: those mean to callers that the
// server is being stopped.
var errUnreached = errors.New("PostgreSQL was not reached before the deadline")

// fail returns the error of a call that gives up because of err.
func (t *try) fail(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = errUnreached
	}
	t.s.setState(err)
	if t.unknown {
		t.s.counters.unresolved.Add(1)
	}
	if t.unknown || t.written {
		return fmt.Errorf("outcome unknown: %w", err)
	}
	return fmt.Errorf("%w: %w", storage.ErrNotWritten, diskLow(err))
}

// once calls do with a connection. Nothing but do's own timer ends the call: when the deadline
// has passed, the socket is closed.
func (t *try) once(do func(*pgx.Conn) error) error {
	ctx, cancel := context.WithDeadline(context.Background(), t.deadline)
	conn, err := t.s.write.Acquire(ctx)
	cancel()
	if err != nil {
		return &acquireError{err}
	}
	defer conn.Release()
	c := conn.Conn().PgConn()
	socket := c.Conn()
	overdue := time.AfterFunc(time.Until(t.deadline), func() { _ = socket.Close() })
	defer overdue.Stop()
	delete(c.CustomData(), warning)
	err = do(conn.Conn())
	if _, warned := c.CustomData()[warning]; warned && (err == nil || fateOf(err) == unknown) {
		err = errors.Join(errWarning, err)
	}
	state := sqlState(err)
	if state == forgotten {
		ctx, cancel := context.WithDeadline(context.Background(), t.deadline)
		recall{t.s}.noteForgot(ctx, c)
		cancel()
		err = errors.Join(ErrForgot, err)
		t.s.write.Reset()
		t.s.read.Reset()
	}
	if err != nil && (fateOf(err) == unknown || state == readOnly || state == forgotten || state == noPartition ||
		errors.Is(err, errUnseen)) {
		// The socket first: Close would wait for a server that does not answer.
		_ = socket.Close()
		_ = conn.Conn().Close(context.Background())
	}
	return err
}
