package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How changes are read
//
// readings.changed and segments.changed are numbers of transactions. A position has a snapshot, and the number of
// the last event that the snapshot sees. A pass delivers the events between its positions, and then the readings with
// numbers that the second snapshot sees and the first one does not: see snapshot.since. What is stored during a pass
// is left to the next one. A copy, whose first position is zero, delivers all readings, whatever their numbers: they
// may be those of another database, from which they were copied.
//
// A database may have forgotten what a consumer has: see docs/adr/0022-forgetting.md. So a position also names a
// proof: a row that was committed, and replicated, on the connection on which the position was read, after that. A
// database that has this row, or a later state of it, has everything that the position or the page before it was read
// from. Each transaction that reads for a consumer first looks for the rows of both positions, in its one snapshot, and
// a proof follows it, on the same connection, which the positions name from then on. An old primary that nobody has
// stopped lacks later proofs, and cannot commit new ones. A row that was copied to another database has another xmin
// than it says.
//
// A repair puts back, and erases again, with later transactions what may have been delivered before. It adds a gap to
// the events, before which no position is known. So does an accepted restore.

// A feed reads changes for consumers. It implements [storage.Changes] together with the rest of the store.
//
// Consumers that have caught up wait for one poll, which decodes what is new once for all: what it has read stays in
// recent until something but readings changes.
type feed struct {
	*database
	reader   *reader
	subjects *subjects

	turn chan struct{} // holds one while somebody looks for what is new
	wake chan struct{} // holds one if run may be needed

	mu     sync.Mutex // guards the following fields
	proofs proofs
	head   head
	later  chan struct{} // closed when head changes
	asked  time.Time     // when somebody may have begun to wait
	looks  uint64        // number of looks that have begun
	looked uint64        // the last one that has succeeded
	recent recent
	key    []byte    // of cursors
	reset  time.Time // when the connections for reading were replaced last

	added atomic.Bool // a look has found something, and the indexes by transaction were not summarized since
}

// proofs has the row of this server that proves what the database has.
type proofs struct {
	id     int64 // 0: none yet
	number int64 // the highest that was committed
}

// A head is where this server has seen the changes end.
type head struct {
	position storage.Position
	seen     snapshot // of the latest look; nothing has changed between position and it
	text     string   // of seen
	gap      int64    // number of the last gap
	first    int64    // number of the first event
	expired  []expiredBefore
}

// An expiredBefore is what an expiry is about: readings from before a time that no transaction has changed after the
// expiry's.
type expiredBefore struct{ beforeUnixMs, transaction, atUnixMs int64 }

func newFeed(r *reader, s *subjects) *feed {
	return &feed{
		database: r.database, reader: r, subjects: s,
		turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), later: make(chan struct{}),
	}
}

// Times of the poll.
const (
	pollEvery      = 20 * time.Millisecond
	pollAfterError = time.Second
	pollFor        = time.Minute // after somebody has asked; then all who wait are woken once
	summarizeEvery = time.Second
)

// run polls while anybody may wait.
func (f *feed) run(ctx context.Context) {
	defer f.notify() // who waits finds the store closed
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f.mu.Lock()
		idle := time.Since(f.asked) > pollFor
		f.mu.Unlock()
		if idle {
			f.notify()
			select {
			case <-ctx.Done():
				return
			case <-f.wake:
			}
		}
		pause := pollEvery
		if err := f.look(ctx, false); err != nil {
			pause = pollAfterError
		}
		tick.Reset(pause)
	}
}

// notify wakes all who wait.
func (f *feed) notify() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.later)
	f.later = make(chan struct{})
}

// summarize summarizes the indexes by transaction every second in which a look has found something.
func (f *feed) summarize(ctx context.Context) {
	tick := time.NewTicker(summarizeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !f.added.Swap(false) {
			continue
		}
		if err := f.summarizeAll(ctx); err != nil && ctx.Err() == nil {
			f.added.Store(true)
			f.opt.Log.Debug("an index by transaction is not summarized", "error", hide(err))
		}
	}
}

// summarizeAll makes the indexes by transaction cover the pages that were added: PostgreSQL reads all others. The
// newest indexes come first. A vacuum of a table may hold one up for long, so each has a transaction, and waits only
// briefly.
func (f *feed) summarizeAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	rows, err := f.read.Query(ctx, f.sql.of(`SELECT x.indexrelid FROM pg_index AS x
		JOIN pg_class AS c ON c.oid = x.indexrelid JOIN pg_am AS m ON m.oid = c.relam
		WHERE m.amname = 'brin' AND c.relkind = 'i' AND (x.indrelid = 'SCHEMA.segments'::regclass
			OR x.indrelid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'SCHEMA.readings'::regclass))
		ORDER BY x.indexrelid DESC`))
	if err != nil {
		return err
	}
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	for _, index := range indexes {
		if ctx.Err() != nil {
			break
		}
		err = errors.Join(err, pgx.BeginTxFunc(ctx, f.read, pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
			func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '100ms'")
				if err == nil {
					_, err = tx.Exec(ctx, "SELECT brin_summarize_new_values($1::oid::regclass)", index)
				}
				return err
			}))
	}
	return err
}

// Position implements [storage.Changes].
func (f *feed) Position(ctx context.Context) (storage.Position, <-chan struct{}, error) {
	f.mu.Lock()
	later := f.later // before the look
	f.asked = time.Now()
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
	if err := f.enter(); err != nil {
		return storage.Position{}, later, fmt.Errorf("read position: %w", err)
	}
	defer f.calls.RUnlock()
	h, err := f.current(ctx)
	if err != nil {
		return storage.Position{}, later, fmt.Errorf("read position: %w", err)
	}
	return h.position, later, nil
}

// current returns the head after a look that has begun after the call and proves it. All who call at the same time
// share one. The caller has entered.
func (f *feed) current(ctx context.Context) (head, error) {
	for range 3 {
		if err := f.look(ctx, true); err != nil {
			return head{}, err
		}
		f.mu.Lock()
		h := f.head
		f.mu.Unlock()
		if h.position.Snapshot != "" {
			return h, nil
		}
	}
	return head{}, errForgotten
}

// errForgotten means that prove has found again and again that the database lacks what was proven.
var errForgotten = errors.New("the database lacks what was read from it")

// look looks for what is new. If prove is set, or there was something, a proof follows. One that proves is shared by
// all whose calls began before it.
func (f *feed) look(ctx context.Context, prove bool) (err error) {
	f.mu.Lock()
	begun := f.looks
	f.mu.Unlock()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	pause := firstPause
	for deadline := time.Now().Add(f.opt.Timeout); ; pause = min(2*pause, maxPause) {
		f.mu.Lock()
		if f.looked > begun {
			f.mu.Unlock()
			return nil
		}
		f.looks++
		number, before := f.looks, f.head
		f.mu.Unlock()
		err = f.lookOnce(ctx, &before, prove, number)
		if err == nil || !prove && !errors.Is(err, errUnseen) || ctx.Err() != nil || f.closed.Load() ||
			fateOf(err) == rejected ||
			errors.Is(err, storage.ErrCorrupt) || time.Now().After(deadline) {
			return hide(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *feed) lookOnce(ctx context.Context, before *head, prove bool, number uint64) (err error) {
	v := f.view(ctx, &storage.Position{}, &storage.Position{})
	defer v.close()
	if err := v.begin(); err != nil {
		return err
	}
	var last, clockMs int64
	h := head{}
	if err := v.tx.QueryRow(v.ctx, f.sql.of(`SELECT pg_current_snapshot()::text,
		(SELECT max(number) FROM SCHEMA.events), (SELECT min(number) FROM SCHEMA.events),
		(SELECT coalesce(max(number), 0) FROM SCHEMA.events WHERE kind = 0),
		(extract(epoch FROM clock_timestamp()) * 1000)::bigint`)).Scan(&h.text, &last, &h.first, &h.gap,
		&clockMs); err != nil {
		return err
	}
	if h.seen, err = parseSnapshot(h.text); err != nil {
		return err
	}
	known := before.position.Snapshot != ""
	same := known && int64(before.position.Event) == last
	if h.expired = before.expired; !same {
		if h.expired, err = f.events().expired(v.ctx, v.tx); err != nil {
			return err
		}
	}
	h.position = storage.Position{Event: uint64(last), Snapshot: h.seen.encode(), ChangedUnixMs: f.earliest(clockMs)}
	var found delta
	whole := true
	if known && h.text != before.text { // otherwise no transaction has ended
		v.fromSeen, v.toSeen, v.expired = before.seen, h.seen, h.expired
		if whole, err = found.read(v); err != nil {
			return err
		}
	}
	changed := !same || !whole || found.rows > 0
	if same && !changed {
		h.position.Snapshot = before.position.Snapshot
	} else if same && whole {
		if err = found.readWorn(v); err != nil {
			return err
		}
	}
	if !prove && !changed {
		return nil // the head stays what was proven: this connection may be to a primary that was replaced
	}
	if err := v.prove(); err != nil {
		return err
	}
	if known && v.proven.id != int64(before.position.Mark) { // the database has forgotten: seen is of another history
		changed, whole = true, false
		h.position.Snapshot = h.seen.encode()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	h.position.Mark, h.position.Group = uint64(v.proven.id), uint64(v.proven.number)
	f.looked = number
	if changed {
		f.added.Store(true)
		if same && whole {
			f.recent.add(found, &before.position, &h.position)
		} else {
			f.recent = recent{}
		}
		close(f.later)
		f.later = make(chan struct{})
	}
	f.head = h
	return nil
}

// earliest returns a time that no later change is before, by the database's clock: a reading may wait for
// Options.Timeout between its receipt and its commit, and clocks differ.
func (s *database) earliest(clockMs int64) int64 {
	return min(clockMs, time.Now().UnixMilli()) - clockSkewMs - s.opt.Timeout.Milliseconds()
}

// prove commits the row of this server after what conn has read, and returns it.
func (f *feed) prove(ctx context.Context, conn *pgxpool.Conn) (p proofs, err error) {
	f.mu.Lock()
	p = f.proofs
	f.mu.Unlock()
	custom := conn.Conn().PgConn().CustomData()
	delete(custom, warning)
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var standbys bool
		err := pgx.ErrNoRows
		if p.id != 0 {
			err = tx.QueryRow(ctx, f.sql.of(`UPDATE SCHEMA.proofs AS f SET number = f.number + 1, at_ms = `+databaseMs+`,
					changed = `+transaction+`
				WHERE f.id = $1 AND f.number >= $2 AND `+ownProof+`
				RETURNING f.number, current_setting('synchronous_standby_names') <> ''`), p.id, p.number).Scan(&p.number, &standbys)
		}
		if errors.Is(err, pgx.ErrNoRows) { // it is the first one, or the database lacks what this server has proven
			p = proofs{id: newID(), number: 1}
			err = tx.QueryRow(ctx, f.sql.of(`INSERT INTO SCHEMA.proofs VALUES ($1, 1, `+databaseMs+`, `+transaction+`)
				RETURNING current_setting('synchronous_standby_names') <> ''`), p.id).Scan(&standbys)
			if err == nil {
				_, err = tx.Exec(ctx, f.sql.of(`DELETE FROM SCHEMA.proofs WHERE at_ms < `+databaseMs+` - $1
					AND at_ms < (SELECT at_ms FROM SCHEMA.proofs ORDER BY at_ms DESC OFFSET $2 LIMIT 1)`),
					marksKeptFor.Milliseconds(), marksKept-1)
			}
		}
		if err == nil && !standbys && !f.opt.Single {
			err = ErrNotReplicated
		}
		return err
	})
	if _, warned := custom[warning]; warned && err == nil {
		err = errWarning
	}
	if err != nil {
		return proofs{}, fmt.Errorf("prove what was read: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.id == f.proofs.id {
		f.proofs.number = max(f.proofs.number, p.number)
	} else if p.number == 1 { // the row is new: what was seen before may have been lost
		f.proofs, f.head, f.recent = p, head{}, recent{}
	}
	return p, nil
}

// databaseMs is the time by the database's clock.
const databaseMs = "(extract(epoch FROM now()) * 1000)::bigint"

// ownProof is the condition that a row f of proofs was not copied from another database.
const ownProof = "f.xmin::text::bigint = f.changed & 4294967295"

// known returns ErrUnknownPosition unless a transaction sees the proofs and events of positions, and errUnseen if its
// connection may not see a partition that was attached before: what it misses would never be read.
func (f *feed) known(ctx context.Context, q querier, c *pgconn.PgConn, all ...*storage.Position) error {
	ids, numbers, events := []int64{}, []int64{}, []int64{}
	for _, p := range all {
		if !p.IsZero() {
			ids, numbers = append(ids, int64(p.Mark)), append(numbers, int64(p.Group))
			events = append(events, int64(p.Event))
		}
	}
	var known bool
	var partitions int64
	if err := q.QueryRow(ctx, f.sql.of(`SELECT `+attached+`, coalesce(bool_and(EXISTS (SELECT FROM SCHEMA.proofs AS f
				WHERE f.id = k.id AND f.number >= k.number AND `+ownProof+`)
			AND EXISTS (SELECT FROM SCHEMA.events WHERE number = k.event)
			AND NOT EXISTS (SELECT FROM SCHEMA.events WHERE number > k.event AND kind = 0)), true)
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS k(id, number, event)`),
		ids, numbers, events).Scan(&partitions, &known); err != nil {
		return err
	}
	switch {
	case c.CustomData()[seenPartitions] != partitions:
		f.write.Reset()
		f.read.Reset()
		return errUnseen
	case !known:
		return storage.ErrUnknownPosition
	}
	return nil
}

// CheckPosition implements [storage.Changes].
func (f *feed) CheckPosition(ctx context.Context, p storage.Position) error {
	if err := f.enter(); err != nil {
		return fmt.Errorf("check position: %w", err)
	}
	defer f.calls.RUnlock()
	f.mu.Lock()
	h := f.head
	// The last look has proven that the database has it, if it is one of this server.
	fresh := h.position.Snapshot != "" && p.Mark == h.position.Mark && p.Group <= h.position.Group &&
		max(h.first, h.gap) <= int64(p.Event) && p.Event <= h.position.Event
	f.mu.Unlock()
	if fresh {
		return nil
	}
	var err error
	if h.position.Snapshot == "" {
		h, err = f.current(ctx)
	}
	// A consumer is told that it has everything if p is the head's position. So one snapshot must have the proofs of both.
	if err == nil {
		err = f.readChanges(ctx, &p, &h.position, func(storage.ChangeReader) error { return nil }, false)
	}
	if err != nil && !errors.Is(err, storage.ErrUnknownPosition) {
		err = fmt.Errorf("check position: %w", hide(err))
	}
	return err
}

// CursorKey implements [storage.Changes].
func (f *feed) CursorKey(ctx context.Context) (key []byte, err error) {
	f.mu.Lock()
	key = f.key
	f.mu.Unlock()
	if key != nil {
		return key, ctx.Err()
	}
	err = f.reader.reading(ctx, func(ctx context.Context) error {
		return f.read.QueryRow(ctx, f.sql.of("SELECT key FROM SCHEMA.cursor_key LIMIT 1")).Scan(&key)
	})
	if err == nil && len(key) != storage.CursorKeyBytes {
		err = fmt.Errorf("%w: the key of cursors", storage.ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("read key of cursors: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key = key
	return key, nil
}

// Horizons implements [storage.Changes]. Which readings have expired is known by their transactions.
func (f *feed) Horizons() (all []storage.Horizon) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.head.expired {
		all = append(all, storage.Horizon{BeforeUnixMs: x.beforeUnixMs, AtUnixMs: math.MaxInt64})
	}
	return all
}

// PositionAt implements [storage.Changes]. It is the position of the last event that is certainly earlier: there is one
// in each hour. What changed since is among what is read from there on.
func (f *feed) PositionAt(ctx context.Context, unixMs int64) (p storage.Position, err error) {
	if err := f.enter(); err != nil {
		return p, fmt.Errorf("read position: %w", err)
	}
	defer f.calls.RUnlock()
	h, err := f.current(ctx)
	if err != nil {
		return p, fmt.Errorf("read position: %w", err)
	}
	p = h.position
	err = f.readChanges(ctx, &p, &storage.Position{}, func(r storage.ChangeReader) error {
		v := r.(*view)
		if err := v.begin(); err != nil {
			return err
		}
		var number, first int64
		var seen string
		if err := v.tx.QueryRow(ctx, f.sql.of(`WITH kept AS (SELECT * FROM SCHEMA.events
				WHERE number >= coalesce((SELECT max(number) FROM SCHEMA.events WHERE kind = 0), 0)),
			late AS (SELECT min(number) AS number FROM kept WHERE at_ms >= $1)
			SELECT number, seen, (SELECT min(number) FROM kept) FROM kept
			WHERE number <= greatest(coalesce((SELECT number FROM late) - 1, $2), (SELECT min(number) FROM kept))
			ORDER BY number DESC LIMIT 1`), f.earliest(unixMs), int64(math.MaxInt64)).Scan(&number, &seen, &first); err != nil {
			return err
		}
		at, err := parseSnapshot(seen)
		if number == first { // readings are older than it
			at, err = snapshot{next: firstTransaction}, nil
		}
		p.Event, p.Snapshot, p.ChangedUnixMs = uint64(number), at.encode(), unixMs
		return err
	}, true)
	if err != nil {
		return p, fmt.Errorf("read position: %w", hide(err))
	}
	return p, nil
}

// KeptSince implements [storage.Changes].
func (f *feed) KeptSince(ctx context.Context) (unixMs int64, err error) {
	err = f.reader.reading(ctx, func(ctx context.Context) error {
		return f.read.QueryRow(ctx, f.sql.of(`SELECT max(at_ms) FROM SCHEMA.events
			WHERE kind = 0 OR number = (SELECT min(number) FROM SCHEMA.events)`)).Scan(&unixMs)
	})
	if err != nil {
		return 0, fmt.Errorf("read events: %w", err)
	}
	return unixMs, nil
}

// Bounds of what recent keeps.
const (
	maxStepRows   = 1 << 12
	maxRecentRows = 1 << 14
	maxSteps      = 1 << 9
)

// recent has the readings that were changed between positions of this server's heads, each after the one before. No
// event is between them.
type recent struct {
	steps []delta
	rows  int
}

// A delta has what has changed between two heads.
type delta struct {
	from, to storage.Position
	runs     []changedRun
	rows     int
	worn     map[vitals.Name][]storage.Assignment
}

// A changedRun has changed readings of a device.
type changedRun struct {
	device  vitals.Name
	records []storage.Record
}

// read reads what has changed, and reports whether that is all.
func (s *delta) read(v *view) (whole bool, err error) {
	visit := func(_ uint64, device *vitals.Name, records []storage.Record) bool {
		s.rows += len(records)
		s.runs = append(s.runs, changedRun{*device, slices.Clone(records)})
		return s.rows <= maxStepRows
	}
	err = v.changed(storage.ChangedKey{}, vitals.Name{}, visit)
	return s.rows <= maxStepRows, err
}

// readWorn reads the assignments of the devices at the times of the readings.
func (s *delta) readWorn(v *view) error {
	s.worn = map[vitals.Name][]storage.Assignment{}
	timesMs := map[vitals.Name][]int64{}
	var devices []vitals.Name
	for i := range s.runs {
		device := s.runs[i].device
		if timesMs[device] == nil {
			devices = append(devices, device)
		}
		for k := range s.runs[i].records {
			timesMs[device] = append(timesMs[device], s.runs[i].records[k].TimeUnixMs)
		}
	}
	return v.visitAssignments(devices, func(a *storage.Assignment) {
		if slices.ContainsFunc(timesMs[a.Device], a.Covers) {
			s.worn[a.Device] = append(s.worn[a.Device], *a)
		}
	})
}

// add adds a step.
func (r *recent) add(s delta, from, to *storage.Position) {
	s.from, s.to = *from, *to
	if n := len(r.steps); n > 0 && !r.steps[n-1].to.Same(from) {
		*r = recent{}
	}
	r.steps = append(slices.Clone(r.steps), s) // consumers read the old ones
	for r.rows += s.rows; r.rows > maxRecentRows || len(r.steps) > maxSteps; r.steps = r.steps[1:] {
		r.rows -= r.steps[0].rows
	}
}

// between returns the steps between two positions. It reports false if they are not all there.
func (r *recent) between(from, to *storage.Position) ([]delta, bool) {
	first := slices.IndexFunc(r.steps, func(s delta) bool { return s.from.Same(from) })
	last := slices.IndexFunc(r.steps, func(s delta) bool { return s.to.Same(to) })
	if first < 0 || last < first {
		return nil, false
	}
	return r.steps[first : last+1], true
}
