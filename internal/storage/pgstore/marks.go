package pgstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
)

// ErrForgot means that a primary lacks something that this server has acknowledged: another history was
// promoted, or an earlier state was restored.
var ErrForgot = errors.New(
	"the database lacks what was acknowledged: a standby without it was promoted, an old primary was started again, or " +
		"an earlier state was restored")

// slots is the number of transactions with a mark that a server runs at once.
const slots = writers

// A mark is the number of an attempt of a transaction. Numbers of a slot rise, and no two attempts have the same one.
type mark struct {
	slot   int
	number int64
	atMs   int64 // when it was issued
}

// marks has the high-water marks of this server. The table of marks has a row for each slot: the number of
// the slot's last transaction. A primary whose row is lower than what was acknowledged, or missing, has
// forgotten.
//
// A slot has one transaction at a time, so its acknowledged ones were committed in the order of their
// numbers, and a row vouches for all before it.
type marks struct {
	server int64 // identity of this process
	free   chan int

	mu         sync.Mutex // guards the following fields
	issued     [slots]int64
	acked      [slots]int64
	generation int64 // the highest that a committed transaction has read

	clock           clock
	firstMs, lastMs int64 // the earliest and the latest time at which a transaction was acknowledged

	changes  []change // that this server knows, in the order of their generations
	repeated []change // erasures that were learned after a repair has repeated them; see repairer.recheck
	upTo     int64    // generation before which it knows all
	epoch    int64    // number of repairs, each of which begins another history
}

// A clock notes if it was set back.
type clock struct {
	now      func() time.Time
	latestMs int64 // of all times that were read
	backMs   int64 // until when times are ambiguous, because it was set back
}

// read returns the time.
func (c *clock) read() int64 {
	nowMs := c.now().UnixMilli()
	if nowMs < c.latestMs {
		c.backMs = c.latestMs
	}
	c.latestMs = max(c.latestMs, nowMs)
	return nowMs
}

func newMarks() *marks {
	m := &marks{server: rand.Int64(), free: make(chan int, slots), clock: clock{now: time.Now}}
	for slot := range slots {
		m.free <- slot
	}
	return m
}

// take returns the mark of a transaction, which has no number before attempt. The caller must call release.
func (m *marks) take(t *try) (mark, error) {
	if t.s.copied.Load() {
		return mark{}, t.fail(ErrCopied)
	}
	timer := time.NewTimer(time.Until(t.deadline))
	defer timer.Stop()
	select {
	case slot := <-m.free:
		return mark{slot: slot}, nil
	case <-timer.C:
		if r := t.s.repairing.Load(); r != nil {
			return mark{}, t.fail(r)
		}
		return mark{}, t.fail(errUnreached)
	}
}

// attempt returns the mark of the next attempt. If an earlier one reaches the database late, it must not vouch for this
// one: what that has stored may have been erased, and stored again by this one.
func (m *marks) attempt(k mark) mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.issued[k.slot]++
	return mark{k.slot, m.issued[k.slot], m.clock.read()}
}

func (m *marks) release(k mark) { m.free <- k.slot }

// acknowledge notes that a transaction was committed, and the generation that it has read.
func (m *marks) acknowledge(k mark, generation int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acked[k.slot] = k.number
	nowMs := m.clock.read()
	if m.firstMs == 0 || nowMs < m.firstMs {
		m.firstMs = nowMs
	}
	m.lastMs = max(m.lastMs, nowMs)
	m.generation = max(m.generation, generation)
}

// takeAll takes all slots, and waits for the transactions that have them. It reports false, and takes none, if ctx
// ends.
func (m *marks) takeAll(ctx context.Context) (taken []int, ok bool) {
	for range slots {
		select {
		case slot := <-m.free:
			taken = append(taken, slot)
		case <-ctx.Done():
			m.releaseAll(taken)
			return nil, false
		}
	}
	return taken, true
}

func (m *marks) releaseAll(taken []int) {
	for _, slot := range taken {
		m.free <- slot
	}
}

// beginEpoch begins another history. The caller has all slots.
func (m *marks) beginEpoch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
}

// currentEpoch returns the number of this history. It does not change while the caller has a slot.
func (m *marks) currentEpoch() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epoch
}

// raise notes that the database has a generation, which all transactions from now on read.
func (m *marks) raise(generation int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation = max(m.generation, generation)
}

// known returns what a primary must have: numbers, a generation, and the id of a change, which is 0 if there is none.
func (m *marks) known() (acked [slots]int64, generation, change int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acked, m.generation, m.lastLocked().ID
}

// marksKeptFor is how long the marks of a server stay after its last transaction, at least. The last ones stay in any
// case, whatever the clocks were: a server whose marks are gone takes the database for forgetful.
const (
	marksKeptFor = 365 * 24 * time.Hour
	marksKept    = 1000
)

// earlierMs is the earlier of a server's clock, parameter $1, and the database's: either may be ahead.
const earlierMs = "least($1::bigint, (extract(epoch FROM now()) * 1000)::bigint)"

// tidy removes the marks of servers that have not written for long. It does not wait for standbys.
func (m *marks) tidy(ctx context.Context, conn beginner, q *statements, now time.Time) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = off")
		if err == nil {
			_, err = tx.Exec(ctx, q.of("DELETE FROM SCHEMA.marks WHERE at_ms < "+earlierMs+` - $2
				AND at_ms < (SELECT at_ms FROM SCHEMA.marks ORDER BY at_ms DESC OFFSET $3 LIMIT 1)`), now.UnixMilli(),
				marksKeptFor.Milliseconds(), marksKept-1)
		}
		return err
	})
}

// markedMs is when a mark is set: by the server's clock, parameter $4, and at most 30 days before the database's, so
// that tidy keeps the mark.
const markedMs = "greatest($4::bigint, (extract(epoch FROM now()) * 1000)::bigint - 2592000000)"

// params returns the parameters of the statement generation, in the binary format. From freshMs on, readings were not
// looked up in segments. The transaction is rolled back if something was removed that this server does not know.
func (m *marks) params(k mark, freshMs int64) [][]byte {
	acked, generation, change := m.known()
	int64 := func(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }
	var all array
	all.reset()
	for _, number := range acked {
		all.int64(number)
	}
	return [][]byte{
		int64(m.server), binary.BigEndian.AppendUint16(nil, uint16(k.slot)), int64(k.number), int64(k.atMs),
		all.bytes(pgtype.Int8OID), int64(generation), int64(change), int64(freshMs), int64(m.learned()),
	}
}

// args returns the same parameters for pgx. What removes or changes something itself is not rolled back: it is
// committed in another round trip, so it cannot come late.
func (m *marks) args(k mark) []any {
	acked, generation, change := m.known()
	return []any{m.server, int16(k.slot), k.number, k.atMs, acked[:], generation, change, int64(math.MaxInt64),
		int64(math.MaxInt64)}
}

// set sets the mark of a transaction of pgx, and returns the generation. The transaction must not be
// committed after an error.
func (m *marks) set(tx pgx.Tx, q *statements, k mark) (generation int64, err error) {
	var standbys bool
	err = tx.QueryRow(context.Background(), q.generation, m.args(k)...).Scan(&generation, &standbys, nil)
	return generation, err
}

// queryMarks returns marks of the database, and when each was set.
func (q *statements) queryMarks(ctx context.Context, from querier, which string, args ...any) (all,
	atMs numbers, err error) {
	rows, err := from.Query(ctx, q.of("SELECT server, slot, number, at_ms FROM SCHEMA.marks "+which), args...)
	if err != nil {
		return nil, nil, err
	}
	all, atMs = numbers{}, numbers{}
	var k history.Mark
	var ms int64
	_, err = pgx.ForEachRow(rows, []any{&k.Server, &k.Slot.Slot, &k.Number, &ms},
		func() error { all[k.Slot], atMs[k.Slot] = k.Number, ms; return nil })
	return all, atMs, err
}

// A recall checks whether connections are to a primary that has what was acknowledged.
type recall struct{ *database }

// validate checks a new connection: the server must accept writes, be connected directly, and remember. pgx tries the
// next host of the address otherwise.
func (s recall) validate(ctx context.Context, conn *pgconn.PgConn) error {
	if err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn); err != nil {
		return err
	}
	return s.remembers(ctx, conn)
}

// remembers returns ErrForgot if the server lacks a mark of this one.
func (s recall) remembers(ctx context.Context, conn *pgconn.PgConn) error {
	acked, generation, change := s.marks.known() // before the query
	err := s.has(ctx, conn, s.own(acked), generation, change)
	switch {
	case err == nil:
		conn.CustomData()[checkedAt] = time.Now()
	case errors.Is(err, ErrForgot):
		s.noteForgot(ctx, conn)
	}
	return err
}

// own returns the numbers of the slots of this server that have acknowledged something.
func (s recall) own(acked [slots]int64) numbers {
	all := numbers{}
	for slot, number := range acked {
		if number > 0 {
			all[history.Slot{Server: s.marks.server, Slot: int16(slot)}] = number
		}
	}
	return all
}

// has returns ErrForgot if the server lacks marks, a generation, or a change; change 0 is none.
func (s recall) has(ctx context.Context, conn *pgconn.PgConn, marks numbers, generation, change int64) error {
	if len(marks) == 0 && generation == 0 && change == 0 {
		return nil
	}
	var servers, slots, numbers []int64
	for k, number := range marks {
		servers, slots, numbers = append(servers, k.Server), append(slots, int64(k.Slot)), append(numbers, number)
	}
	array := func(all []int64) []byte {
		return []byte("{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ","), "[]") + "}")
	}
	result := conn.ExecParams(ctx,
		s.sql.of(
			`SELECT version >= $6::integer AND generation >= $4::bigint AND ($5::bigint = 0 OR EXISTS (SELECT FROM SCHEMA.changes AS c WHERE c.id = $5::bigint)) AND NOT EXISTS (
		SELECT FROM unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS a(server, slot, number) LEFT JOIN SCHEMA.marks AS k USING (server, slot)
		WHERE (k.number < a.number) IS NOT FALSE) FROM SCHEMA.state`),
		[][]byte{array(servers), array(slots), array(numbers), strconv.AppendInt(nil, generation, 10),
			strconv.AppendInt(nil, change, 10), strconv.AppendInt(nil, schemaVersion, 10)}, nil, nil, nil).Read()
	state := sqlState(result.Err)
	switch {
	case state == noTable || state == noSchema: // it is from before the table
	case result.Err != nil:
		return fmt.Errorf("check marks: %w", hide(result.Err))
	case len(result.Rows) == 1 && string(result.Rows[0][0]) == "t":
		return nil
	}
	return ErrForgot
}

// checkedAt is the key of a connection's custom data for the time of the last check.
const checkedAt = "pulsegate checked"

// checkEvery is how often a connection in use is checked: it may be to a primary that was replaced, or not see all
// partitions.
const checkEvery = time.Second

// check checks a connection of a pool before it is used.
func (s recall) check(ctx context.Context, conn *pgx.Conn) (bool, error) {
	c := conn.PgConn()
	if at, ok := c.CustomData()[checkedAt].(time.Time); ok && time.Since(at) < checkEvery {
		return true, nil
	}
	return s.remembers(ctx, c) == nil && s.sees(ctx, conn, c) == nil, nil // the pool makes another one
}
