package pgstore

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A gap is when what a primary lacks was acknowledged. The zero gap is that of a primary that lacks
// nothing, or only an erasure.
type gap struct{ fromMs, toMs int64 }

// lacks returns the gap of a primary in which a slot has these numbers, that were set at these times. A transaction
// that was acknowledged before another one was sent was committed before it: so the primary has everything from before
// the latest of the times.
func (m *marks) lacks(numbers, atMs *[slots]int64) gap {
	m.mu.Lock()
	defer m.mu.Unlock()
	lacks, fromMs := false, m.firstMs
	for slot, at := range atMs {
		lacks = lacks || m.acked[slot] > numbers[slot]
		if m.clock.backMs < at && at <= m.lastMs { // a later one has its time from the clock of the database
			fromMs = max(fromMs, at)
		}
	}
	if !lacks {
		return gap{}
	}
	return gap{fromMs, m.lastMs}
}

// measure returns the gap of the primary of a connection.
func (s recall) measure(ctx context.Context, conn *pgconn.PgConn) (gap, error) {
	var numbers, atMs [slots]int64
	result := conn.ExecParams(ctx, s.sql.marked, [][]byte{strconv.AppendInt(nil, s.marks.server, 10)}, nil,
		nil, nil).Read()
	if state := sqlState(result.Err); result.Err != nil && state != noTable && state != noSchema {
		return gap{}, hide(result.Err)
	}
	for _, row := range result.Rows {
		slot, err := strconv.Atoi(string(row[0]))
		if err == nil && 0 <= slot && slot < slots {
			numbers[slot], err = strconv.ParseInt(string(row[1]), 10, 64)
			atMs[slot], _ = strconv.ParseInt(string(row[2]), 10, 64) // a bigint, too
		}
		if err != nil {
			return gap{}, err
		}
	}
	return s.marks.lacks(&numbers, &atMs), nil
}

// noteForgot notes that the primary of a connection has forgotten.
func (s recall) noteForgot(ctx context.Context, conn *pgconn.PgConn) {
	g, err := s.measure(ctx, conn)
	s.counters.forgot.Add(1)
	if err == nil {
		s.missing.Store(&g)
	}
	if s.forgetting.Swap(true) {
		return
	}
	log := s.opt.Log
	switch {
	case err != nil:
		log = log.With("times_unknown", err)
	case g == gap{}:
		log = log.With("missing", "an erasure or the removal of old readings")
	default:
		log = log.With("acknowledged_from", time.UnixMilli(g.fromMs).UTC(), "acknowledged_to", time.UnixMilli(g.toMs).UTC())
	}
	log.Error("the database lacks what was acknowledged; it is neither written to nor read from")
}
