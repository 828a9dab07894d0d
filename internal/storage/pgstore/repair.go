package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
)

// A repairer puts back what a database has forgotten. docs/adr/0026-repair.md has the decisions.
type repairer struct {
	*database
	writer  *writer
	remover *remover

	debts map[int64]*debt // by partition

	// marks of other runs of the memory's directory; nil before they are read, and after a repair, which may raise them
	others  numbers
	begunMs int64 // when they were read first, or the log has named one of them

	// when later runs of the memory's directory may have acknowledged what it lacks; nil means that it is of the last run
	unknown *Loss
}

// A RepairError means that the store puts back what the database has forgotten, and acknowledges nothing yet.
type RepairError struct {
	UntilUnixMs int64 // what was acknowledged until then is there again; 0 means the repair has just begun
}

func (e *RepairError) Error() string { return "repairing the database: " + e.Public() }

// Public returns how far the repair is.
func (e *RepairError) Public() string {
	if e.UntilUnixMs == 0 {
		return "repair of the database has begun"
	}
	return fmt.Sprintf("repair of the database: what was acknowledged until %s is there", showTime(e.UntilUnixMs))
}

// repairAfter is the number of probes, one a second, after which a database is repaired if no host has everything.
const repairAfter = 3

// run repairs the database, and reports whether it could. Nothing is acknowledged meanwhile, so every entry of the
// memory is complete.
func (s *repairer) run(ctx context.Context) (repaired bool) {
	s.repairing.Store(&RepairError{})
	defer s.repairing.Store(nil)
	taken, ok := s.marks.takeAll(ctx)
	if !ok {
		return false
	}
	defer s.marks.releaseAll(taken)
	s.marks.beginEpoch()
	for _, d := range s.debts {
		d.paid = false
	}
	s.others = nil
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
	if err := s.opt.renew(config); err != nil {
		return err
	}
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
	for _, step := range []func() error{r.prepare, r.look, r.announce, r.repeatChanges, r.learn, r.reportGone,
		r.send, r.finish} {
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

// A repair is one attempt of a repair. Each of its transactions compares the database with what the one before has
// left.
type repair struct {
	*repairer
	conn *pgx.Conn

	begins bool // it begins a run
	needed bool // the database lacks something

	// the marks of this server, and of earlier runs, and when they were set, as of the last step
	have, atMs numbers
	ends       map[storage.AssignmentKey][]int64 // of assignments, as far as they were put back
	generation int64
	change     int64 // id of one that is there; 0 means none is known
}

// errPrimaryChanged means that the repair must begin again.
var errPrimaryChanged = errors.New(
	"the primary was replaced, something was removed, or a transaction that was given up has ended")

// prepare creates the schema, or the columns of signs, which an earlier state may lack.
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
		if err := (dictionary{r.database}).lock(ctx, tx); err != nil {
			return err
		}
		if len(r.opt.Signs) > 0 {
			if err := r.signs.Define(r.opt.Signs); err != nil {
				return err
			}
		}
		defined, err := dictionary{r.database}.write(ctx, tx, true)
		if err == nil {
			err = dictionary{r.database}.add(ctx, tx)
		}
		if err == nil {
			err = r.events().add(tx, defined...)
		}
		return err
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

// step runs a transaction, if the primary has what the step before left, and no server has repaired it in our name
// since.
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
		$1::bigint = 0 OR EXISTS (SELECT FROM SCHEMA.changes WHERE id = $1) FROM SCHEMA.state`), r.change).Scan(&generation,
		&standbys, &known); err != nil {
		return err
	}
	if !standbys && !r.opt.Single {
		return ErrNotReplicated
	}
	servers := []int64{r.marks.server}
	for k := range r.memory.Past().Last {
		servers = append(servers, k.Server)
	}
	have, atMs, err := r.sql.queryMarks(ctx, tx, "WHERE server = ANY($1)", servers)
	if err != nil {
		return err
	}
	if r.have != nil && (!known || generation < r.generation || !maps.Equal(have, r.have)) {
		return errPrimaryChanged
	}
	r.have, r.atMs, r.generation = have, atMs, generation
	return nil
}

// raise sets marks. What they vouch for is in the same transaction, or committed. What follows them was not
// acknowledged before atMs.
func (r *repair) raise(tx pgx.Tx, to numbers, atMs int64) error {
	var servers, all []int64
	var slots []int16
	for k, number := range to {
		servers, slots, all = append(servers, k.Server), append(slots, k.Slot), append(all, number)
	}
	_, err := tx.Exec(context.Background(), r.sql.of(`INSERT INTO SCHEMA.marks AS k (server, slot, number, at_ms)
		SELECT server, slot, number, `+markedMs+` FROM unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS u(server, slot, number)
		ON CONFLICT (server, slot) DO UPDATE SET number = greatest(k.number, excluded.number), at_ms = excluded.at_ms`),
		servers, slots, all, atMs)
	return err
}

// raise notes that the marks were raised to some.
func (n numbers) raise(to numbers) {
	for k, number := range to {
		n[k] = max(n[k], number)
	}
}

// finish raises all marks and the generation, which opens the database for this server.
func (r *repair) finish() error {
	to := numbers(r.memory.Past().Last)
	acked, _, _ := r.marks.known()
	maps.Copy(to, recall{r.database}.own(acked))
	if r.begins {
		to[history.Slot{Server: r.marks.server}] = 1
	}
	var generation int64
	if err := r.step(func(tx pgx.Tx) (err error) {
		if err = r.raise(tx, to, time.Now().UnixMilli()); err == nil {
			generation, err = changelog{r.database}.nextGeneration(tx)
		}
		if err == nil && r.needed {
			err = r.events().addGap(tx)
		}
		return err
	}); err != nil {
		return err
	}
	if r.marks.raise(generation); r.begins {
		// The first mark of this run was set, which vouches for earlier runs.
		r.marks.issued[0] = 1
		r.marks.acknowledge(mark{slot: 0, number: 1}, 0)
	}
	return nil
}
