package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// A repairer puts back what a database has forgotten. docs/adr/0026-repair.md has the decisions.
type repairer struct {
	*database
	writer  *writer
	remover *remover

	unknown *Loss // when later runs of the memory's directory may have acknowledged what it lacks; nil means that it is of the last run
}

// A RepairError means that the store puts back what the database has forgotten, and acknowledges nothing yet.
type RepairError struct {
	UntilUnixMs int64 // what was acknowledged until then is there again; 0 means the repair has just begun
}

func (e *RepairError) Error() string { return "pgstore: repairing the database: " + e.Public() }

// Public returns how far the repair is.
func (e *RepairError) Public() string {
	if e.UntilUnixMs == 0 {
		return "repair of the database has begun"
	}
	return fmt.Sprintf("repair of the database: what was acknowledged until %s is there", showTime(e.UntilUnixMs))
}

// repairAfter is the number of probes, one a second, after which a database is repaired if no host has everything.
const repairAfter = 3

// run repairs the database, and reports whether it could. Nothing is acknowledged meanwhile, so every entry of the memory is complete.
func (s *repairer) run(ctx context.Context) (repaired bool) {
	s.repairing.Store(&RepairError{})
	defer s.repairing.Store(nil)
	taken, ok := s.marks.takeAll(ctx)
	if !ok {
		return false
	}
	defer s.marks.releaseAll(taken)
	s.marks.beginEpoch()
	switch err := s.repair(ctx, false, pgconn.ValidateConnectTargetSessionAttrsReadWrite); {
	case err == nil:
		s.forgetting.Store(false)
		s.missing.Store(nil)
		return true
	case ctx.Err() == nil:
		s.opt.Log.Error("the database is not repaired yet; the repair begins again", "error", hide(err))
	}
	return false
}

// repair makes an attempt of a repair, of the first host that validate accepts. begins is set if it begins a run.
func (s *repairer) repair(ctx context.Context, begins bool, validate pgconn.ValidateConnectFunc) error {
	began := time.Now()
	config := s.write.Config().ConnConfig
	config.ValidateConnect = validate
	dialing, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(dialing, config)
	if err != nil {
		return err
	}
	socket := conn.PgConn().Conn()
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer func() {
		stop()
		_ = socket.Close() // first: Close would wait for a server that does not answer
		_ = conn.Close(context.Background())
	}()
	r := &repair{repairer: s, conn: conn, begins: begins}
	for _, step := range []func() error{r.prepare, r.look, r.announce, r.repeatChanges, r.learn, r.reportGone, r.send, r.finish} {
		if err := step(); err != nil {
			return err
		}
	}
	if r.needed {
		s.counters.repairs.Add(1)
		s.opt.Log.Warn("the database is repaired", "took", time.Since(began))
	}
	return nil
}

// numbers are the numbers of the last transactions of slots.
type numbers map[history.Slot]int64

// exceed reports whether a number of n is higher than in other.
func (n numbers) exceed(other numbers) bool {
	for k, number := range n {
		if number > other[k] {
			return true
		}
	}
	return false
}

// A repair is one attempt of a repair. Each of its transactions compares the database with what the one before has left.
type repair struct {
	*repairer
	conn *pgx.Conn

	begins bool // it begins a run
	needed bool // the database lacks something

	have       numbers                           // the marks of this server, and of earlier runs
	ends       map[storage.AssignmentKey][]int64 // of assignments, as far as they were put back
	generation int64
	change     int64 // id of one that is there; 0 means none is known
}

// errPrimaryChanged means that the repair must begin again.
var errPrimaryChanged = errors.New("pgstore: the primary was replaced, or a transaction that was given up has ended")

// prepare creates or upgrades the schema, which an earlier state may lack.
func (r *repair) prepare() error {
	ctx, cancel := context.WithTimeout(context.Background(), r.opt.Timeout)
	defer cancel()
	err := r.configure(ctx, r.conn)
	if err == nil {
		err = r.createSchema(ctx, r.conn)
	}
	if err != nil {
		return err
	}
	if r.begins {
		if err := r.start(ctx); err != nil {
			return err
		}
	}
	r.writer.partitions.known.Clear()
	if err := pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, r.sql.of("LOCK TABLE SCHEMA.signs IN SHARE ROW EXCLUSIVE MODE")); err != nil {
			return err
		}
		if err := r.readSigns(ctx, tx); err != nil {
			return err
		}
		if len(r.opt.Signs) > 0 {
			if err := r.signs.Define(r.opt.Signs); err != nil {
				return err
			}
		}
		return r.writeSigns(ctx, tx, true)
	}); err != nil {
		return fmt.Errorf("write signs: %w", err)
	}
	return r.database.prepare(ctx, r.conn)
}

// look reads what the database has.
func (r *repair) look() error {
	return r.step(func(pgx.Tx) error { return nil })
}

// announce logs that the repair begins, if it is needed.
func (r *repair) announce() error {
	r.needed = !r.begins
	for k, number := range r.memory.Past().Last {
		r.needed = r.needed || r.have[k] < number
	}
	if r.needed {
		r.opt.Log.Warn("the repair of the database begins")
	}
	return nil
}

// step runs a transaction, if the primary has what the step before left, and no server has repaired it in our name since.
func (r *repair) step(do func(pgx.Tx) error) error {
	c := r.conn.PgConn()
	overdue := time.AfterFunc(r.opt.Timeout, func() { _ = c.Conn().Close() })
	defer overdue.Stop()
	delete(c.CustomData(), warning)
	// No context: see the package comment.
	err := pgx.BeginFunc(context.Background(), r.conn, func(tx pgx.Tx) error {
		if err := r.compare(tx); err != nil {
			return err
		}
		return do(tx)
	})
	if _, warned := c.CustomData()[warning]; warned && err == nil {
		return errWarning
	}
	return err
}

// compare returns errPrimaryChanged unless the database has the marks that the step before left.
func (r *repair) compare(tx pgx.Tx) error {
	ctx := context.Background()
	var generation int64
	var standbys, known bool
	if err := tx.QueryRow(ctx, r.sql.of(`SELECT generation, current_setting('synchronous_standby_names') <> '',
		$1::bigint = 0 OR EXISTS (SELECT FROM SCHEMA.changes WHERE id = $1) FROM SCHEMA.state`), r.change).Scan(&generation, &standbys, &known); err != nil {
		return err
	}
	if !standbys && !r.opt.Single {
		return ErrNotReplicated
	}
	servers := []int64{r.marks.server}
	for k := range r.memory.Past().Last {
		servers = append(servers, k.Server)
	}
	have, err := r.sql.queryMarks(tx, "WHERE server = ANY($1)", servers)
	if err != nil {
		return err
	}
	if r.have != nil && (!known || generation < r.generation || !maps.Equal(have, r.have)) {
		return errPrimaryChanged
	}
	r.have, r.generation = have, generation
	return nil
}

// raise sets marks. What they vouch for is in the same transaction, or committed. What follows them was not acknowledged before atMs.
func (r *repair) raise(tx pgx.Tx, to numbers, atMs int64) error {
	var servers, all []int64
	var slots []int16
	for k, number := range to {
		servers, slots, all = append(servers, k.Server), append(slots, k.Slot), append(all, number)
	}
	_, err := tx.Exec(context.Background(), r.sql.of(`INSERT INTO SCHEMA.marks AS k (server, slot, number, at_ms)
		SELECT server, slot, number, $4 FROM unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS u(server, slot, number)
		ON CONFLICT (server, slot) DO UPDATE SET number = greatest(k.number, excluded.number), at_ms = excluded.at_ms`), servers, slots, all, atMs)
	return err
}

// raised notes that raise was committed.
func (r *repair) raised(to numbers) {
	for k, number := range to {
		r.have[k] = max(r.have[k], number)
	}
}

// repeatChanges makes the changes again that the database lacks, in their order.
func (r *repair) repeatChanges() error {
	var ids []int64
	if err := r.step(func(tx pgx.Tx) error {
		rows, err := tx.Query(context.Background(), r.sql.of("SELECT id FROM SCHEMA.changes"))
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	}); err != nil {
		return err
	}
	for _, c := range (changelog{r.database}).all() {
		if slices.Contains(ids, c.id) {
			continue
		}
		if err := r.repeat(&c); err != nil {
			return fmt.Errorf("repeat a change: %w", err)
		}
	}
	return nil
}

// repeat makes a change again. A repeated erasure removes what was received before it, by the clocks of servers. What was received after it,
// or at the same time, may have been acknowledged after it. Old readings are left to retention, which removes them again.
func (r *repair) repeat(c *change) error {
	erases := c.kind == erasedDevice || c.kind == erasedAssignment
	for more := erases; more; {
		if err := r.step(func(tx pgx.Tx) error {
			if _, err := r.sql.removeSegments(tx, c.device.String(), c.fromMs, c.toMs, c.atMs-clockSkewMs); err != nil {
				return err
			}
			tag, err := tx.Exec(context.Background(), r.sql.of(`DELETE FROM SCHEMA.readings WHERE device = $1 AND time_ms = ANY(ARRAY(
				SELECT time_ms FROM SCHEMA.readings WHERE device = $1 AND time_ms >= $3 AND time_ms <= $4 AND received_ms <= $5 ORDER BY time_ms LIMIT $2)) AND received_ms <= $5`),
				c.device.String(), chunkReadings, c.fromMs, c.toMs, c.atMs-clockSkewMs)
			more = tag.RowsAffected() == chunkReadings
			return err
		}); err != nil {
			return err
		}
	}
	var lost *Loss
	err := r.step(func(tx pgx.Tx) (err error) {
		lost = nil
		if err = r.sql.meetSealer(tx); err != nil {
			return err
		}
		if err = r.sql.lock(tx, "SCHEMA.readings IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return err
		}
		var repeated bool // by another server
		if err = tx.QueryRow(context.Background(), r.sql.of("SELECT EXISTS (SELECT FROM SCHEMA.changes WHERE id = $1)"), c.id).Scan(&repeated); err != nil || repeated {
			return err
		}
		if erases {
			if lost, err = r.eraseAgain(tx, c); err != nil {
				return err
			}
		}
		if lost != nil {
			err = r.insertLoss(tx, *lost)
		}
		if err == nil {
			err = (changelog{r.database}).insertChange(tx, *c)
		}
		return err
	})
	if err != nil {
		return err
	}
	r.noteLoss(lost)
	return r.look() // the generation is higher now
}

// eraseAgain removes what an erasure has removed, and returns a loss if some of it may have been acknowledged after the erasure.
func (r *repair) eraseAgain(tx pgx.Tx, c *change) (*Loss, error) {
	ctx, device, untilMs := context.Background(), c.device.String(), c.atMs+clockSkewMs
	// This server may know that the primary is in a state from before the erasure, whatever the clocks were.
	if c.before != nil {
		marks, err := r.sql.queryMarks(tx, "")
		if err != nil {
			return nil, err
		}
		if !marks.exceed(c.before) {
			untilMs = math.MaxInt64
		}
	}
	if err := r.sql.unsealRange(tx, device, c.fromMs, c.toMs); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, r.sql.of("DELETE FROM SCHEMA.readings WHERE device = $1 AND time_ms >= $2 AND time_ms <= $3 AND received_ms <= $4 RETURNING time_ms, received_ms"),
		device, c.fromMs, c.toMs, untilMs)
	if err != nil {
		return nil, err
	}
	doubtful := map[int64]int64{} // times of receipt, by time
	var timeMs, receivedMs int64
	if _, err := pgx.ForEachRow(rows, []any{&timeMs, &receivedMs}, func() error {
		if receivedMs > c.atMs-clockSkewMs {
			doubtful[timeMs] = receivedMs
		}
		return nil
	}); err != nil {
		return nil, err
	}
	sql := "DELETE FROM SCHEMA.assignments WHERE device = $1"
	args := []any{device}
	if c.kind == erasedAssignment {
		sql, args = sql+" AND from_ms = $2", append(args, c.fromMs)
	}
	if _, err = tx.Exec(ctx, r.sql.of(sql), args...); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, r.sql.of("SELECT FROM SCHEMA.state FOR UPDATE")); err != nil {
		return nil, err
	}
	if _, err := r.remover.deleteEmpty(tx, []string{device}); err != nil {
		return nil, err
	}
	if len(doubtful) == 0 || untilMs == math.MaxInt64 {
		return nil, nil
	}
	// It may also know that it has acknowledged the readings before.
	before, after := map[int64]bool{}, map[int64]bool{} // times of readings that this server has acknowledged then
	for e, err := range r.memory.All() {
		if err != nil {
			return nil, err
		}
		for i := range e.Readings {
			reading := &e.Readings[i]
			if reading.Device != c.device {
				continue
			}
			if removed, perhaps := c.removes(e, reading.ReceivedUnixMs); removed && !perhaps {
				before[reading.TimeUnixMs] = true
			} else {
				after[reading.TimeUnixMs] = true
			}
		}
	}
	var lost *Loss
	for timeMs, receivedMs := range doubtful {
		if !before[timeMs] || after[timeMs] {
			lost = lost.extend(receivedMs, time.Now().UnixMilli())
		}
	}
	return lost, nil
}

// learn reads the changes of this history.
func (r *repair) learn() error {
	var all []change
	var generation, nowMs int64
	if err := r.step(func(tx pgx.Tx) (err error) {
		all, generation, nowMs, err = changelog{r.database}.queryChanges(context.Background(), tx, 0, 0)
		return err
	}); err != nil {
		return err
	}
	learned := r.marks.learn(all, generation, nowMs)
	r.change = r.marks.last().id
	keeper{r.database}.keepChanges()
	// One that another server has repeated says nothing about this database.
	if slices.ContainsFunc(learned, func(c change) bool { return c.kind == acceptedRestore && c.learned == c.since }) {
		r.opt.Log.Warn("a restore of the database was accepted: what this server remembers beyond it is given up")
		r.memory.Forget()
	}
	return nil
}

// batchReadings is the number of readings of which a transaction of a repair consists, about.
const batchReadings = 2000

// A batch is some entries that are sent in one transaction.
type batch struct {
	readings    []*storage.Entry
	assignments []*history.Entry
	lost        *Loss
	to          numbers
	untilMs     int64
}

// send sends the entries that the database lacks, in their order.
func (r *repair) send() error {
	removed := changelog{r.database}.removals()
	r.ends = map[storage.AssignmentKey][]int64{}
	b := batch{to: numbers{}}
	for e, err := range r.memory.All() {
		if err != nil {
			return err
		}
		if e.Number <= r.have[e.Slot] {
			continue
		}
		b.add(e, removed)
		if len(b.readings)+len(b.assignments) < batchReadings {
			continue
		}
		if err := r.sendBatch(&b); err != nil {
			return err
		}
		b = batch{to: numbers{}}
	}
	return r.sendBatch(&b)
}

// add adds an entry without what was removed.
func (b *batch) add(e *history.Entry, all removals) {
	b.to[e.Slot], b.untilMs = e.Number, e.UnixMs
	for i := range e.Readings {
		reading := &e.Readings[i]
		switch removed, doubtful := all.reading(e, reading); {
		case doubtful:
			b.lost = b.lost.extend(e.UnixMs, e.UnixMs)
		case !removed:
			b.readings = append(b.readings, &storage.Entry{Reading: &reading.Reading, ReceivedUnixMs: reading.ReceivedUnixMs})
		}
	}
	if e.Assignments == nil {
		return
	}
	switch removed, doubtful := all.assignment(e); {
	case doubtful:
		b.lost = b.lost.extend(e.UnixMs, e.UnixMs)
	case !removed:
		b.assignments = append(b.assignments, e)
	}
}

// sendBatch stores a batch and sets its marks in one transaction.
func (r *repair) sendBatch(b *batch) error {
	if len(b.to) == 0 {
		return nil
	}
	w := r.writer.work(b.readings)
	defer r.writer.release(w)
	if err := r.writer.partitions.ensure(r.conn, w); err != nil {
		return err
	}
	var repaired, contradicted int64
	if err := r.step(func(tx pgx.Tx) error {
		repaired, contradicted = 0, 0
		if err := r.store(tx, w); err != nil {
			return err
		}
		for _, e := range b.readings {
			switch e.Outcome {
			case storage.Conflict:
				contradicted++
			case storage.Stored, storage.Completed:
				repaired++
			}
		}
		for _, e := range b.assignments {
			ok, err := r.assign(tx, e)
			if err != nil {
				return err
			}
			if !ok {
				contradicted++
			}
		}
		if b.lost != nil {
			if err := r.insertLoss(tx, *b.lost); err != nil {
				return err
			}
		}
		return r.raise(tx, b.to, b.untilMs)
	}); err != nil {
		return err
	}
	r.raised(b.to)
	r.noteLoss(b.lost)
	r.counters.repaired.Add(repaired)
	r.counters.contradicted.Add(contradicted)
	if contradicted > 0 {
		r.opt.Log.Error("the database contradicts what was acknowledged, and keeps what it has", "readings", contradicted,
			"acknowledged_until", time.UnixMilli(b.untilMs).UTC())
	}
	r.repairing.Store(&RepairError{UntilUnixMs: b.untilMs})
	return nil
}

// store settles the readings of w, through the statement that has stored them, and registers their devices. What is there stays.
func (r *repair) store(tx pgx.Tx, w *work) error {
	conn := r.conn.PgConn()
	var wanted []registration
	at := map[vitals.Name]int{}
	for i := range w.items {
		reading := w.items[i].e.Reading
		k, ok := at[reading.Device]
		if !ok {
			k = len(wanted)
			at[reading.Device], wanted = k, append(wanted, registration{device: reading.Device})
		}
		wanted[k].signs |= reading.Values.Present()
	}
	for w.pending() {
		if err := w.send(r.conn, w.fill(), false); err != nil {
			return err
		}
		if slices.ContainsFunc(w.chains, w.mustFind) {
			if err := w.find(conn, w.mustFind); err != nil {
				return err
			}
			w.beginComparing()
		}
		w.conclude(&try{})
	}
	if len(wanted) == 0 {
		return nil
	}
	return r.writer.register(tx, wanted, false)
}

// assign makes an assignment again, or sets its end. It reports false if the database has another one, which stays. Another server may have
// ended what this one has made, and made what this one has ended: whichever repairs first, an end that was set wins over none, and over one that
// this server knows to be earlier.
func (r *repair) assign(tx pgx.Tx, e *history.Entry) (ok bool, err error) {
	a := &e.Assignments[0]
	all, err := r.remover.subjects.lockAssignments(tx, &a.Device)
	if err != nil {
		return false, err
	}
	find := func(a *storage.Assignment) int {
		return slices.IndexFunc(all, func(b storage.Assignment) bool { return b.FromUnixMs == a.FromUnixMs && b.Subject == a.Subject })
	}
	setEnd := func(a *storage.Assignment) error {
		_, err := tx.Exec(context.Background(), r.sql.of("UPDATE SCHEMA.assignments SET to_ms = $3 WHERE device = $1 AND from_ms = $2"), a.Device.String(), a.FromUnixMs, a.ToUnixMs)
		return err
	}
	for _, other := range e.Assignments[1:] {
		if i := find(&other); i >= 0 && all[i].ToUnixMs == storage.OpenEnd && other.ToUnixMs != storage.OpenEnd {
			if err := setEnd(&other); err != nil {
				return false, err
			}
			all[i].ToUnixMs = other.ToUnixMs
		}
	}
	earlier := append(r.ends[a.Key()], e.PreviousToMs)
	r.ends[a.Key()] = append(earlier, a.ToUnixMs)
	i := find(a)
	switch {
	case i < 0:
		if _, err := a.Admit(all); err != nil {
			return false, nil // another one overlaps it
		}
		_, err = tx.Exec(context.Background(), r.sql.of("INSERT INTO SCHEMA.assignments (device, from_ms, to_ms, subject) VALUES ($1, $2, $3, $4)"),
			a.Device.String(), a.FromUnixMs, a.ToUnixMs, string(a.Subject))
		return err == nil, err
	case all[i].ToUnixMs == a.ToUnixMs:
		return true, nil
	case all[i].ToUnixMs == storage.OpenEnd || slices.Contains(earlier, all[i].ToUnixMs):
		if a.AdmitEnd(all) != nil {
			return false, nil
		}
		err = setEnd(a)
		return err == nil, err
	}
	return a.ToUnixMs == storage.OpenEnd, nil // it was ended since
}

// finish raises all marks and the generation, which opens the database for this server.
func (r *repair) finish() error {
	to := numbers(r.memory.Past().Last)
	acked, _, _ := r.marks.known()
	for slot, number := range acked {
		if number > 0 {
			to[history.Slot{Server: r.marks.server, Slot: int16(slot)}] = number
		}
	}
	if r.begins {
		to[history.Slot{Server: r.marks.server}] = 1
	}
	var generation int64
	if err := r.step(func(tx pgx.Tx) (err error) {
		if err = r.raise(tx, to, time.Now().UnixMilli()); err == nil {
			generation, err = changelog{r.database}.nextGeneration(tx)
		}
		return err
	}); err != nil {
		return err
	}
	if r.marks.raise(generation); r.begins {
		r.marks.begin()
	}
	return nil
}

// recheck reports as lost what this server took for duplicates of readings that a repeated erasure has then removed.
func (s *repairer) recheck(ctx context.Context) {
	repeated := changelog{s.database}.takeRepeated()
	if len(repeated) == 0 || s.memory == nil {
		return
	}
	taken, ok := s.marks.takeAll(ctx) // so the memory has all transactions that were committed before
	if !ok {
		return
	}
	s.marks.releaseAll(taken)
	if err := s.reportRemoved(repeated); err != nil {
		changelog{s.database}.again(repeated)
		s.opt.Log.Error("what a repeated erasure has removed is not reported yet", "error", hide(err))
	}
}

// reportRemoved reports as lost what repeated erasures have removed though it may have been acknowledged after them.
func (s *repairer) reportRemoved(repeated []change) error {
	removed := changelog{s.database}.removals()
	var devices, subjects []string
	var times, acknowledged []int64
	suspect := func(e *history.Entry, device *vitals.Name, timeMs int64, subject storage.Subject) {
		devices, subjects, times, acknowledged = append(devices, device.String()), append(subjects, string(subject)), append(times, timeMs), append(acknowledged, e.UnixMs)
	}
	for e, err := range s.memory.All() {
		if err != nil {
			return err
		}
		for i := range e.Readings {
			reading := &e.Readings[i]
			if slices.ContainsFunc(repeated, func(c change) bool {
				return c.matches(&reading.Device, reading.TimeUnixMs) && reading.ReceivedUnixMs > c.atMs-clockSkewMs
			}) {
				if gone, doubtful := removed.reading(e, reading); !gone || doubtful {
					suspect(e, &reading.Device, reading.TimeUnixMs, "")
				}
			}
		}
		if e.Assignments == nil {
			continue
		}
		if a := &e.Assignments[0]; slices.ContainsFunc(repeated, func(c change) bool { return c.matchesAssignment(a) && e.UnixMs > c.atMs-clockSkewMs }) {
			if gone, doubtful := removed.assignment(e); !gone || doubtful {
				suspect(e, &a.Device, a.FromUnixMs, a.Subject)
			}
		}
	}
	if len(devices) == 0 {
		return nil
	}
	var lost *Loss
	if err := s.try().run(func(conn *pgx.Conn) error {
		return pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			var fromMs, toMs *int64
			if err := tx.QueryRow(context.Background(), s.sql.of(`SELECT min(k.at_ms), max(k.at_ms)
				FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS k(device, subject, time_ms, at_ms)
				WHERE CASE WHEN k.subject = '' THEN NOT EXISTS (SELECT FROM SCHEMA.all_readings AS r WHERE r.device = k.device AND r.time_ms = k.time_ms
						AND r.stored_from_ms <= k.time_ms AND r.stored_to_ms >= k.time_ms)
					ELSE NOT EXISTS (SELECT FROM SCHEMA.assignments AS a WHERE a.device = k.device AND a.from_ms = k.time_ms AND a.subject = k.subject) END`),
				devices, subjects, times, acknowledged).Scan(&fromMs, &toMs); err != nil || fromMs == nil {
				return err
			}
			lost = &Loss{*fromMs, *toMs}
			return s.insertLoss(tx, *lost)
		})
	}, nil); err != nil {
		return err
	}
	s.noteLoss(lost)
	return nil
}
