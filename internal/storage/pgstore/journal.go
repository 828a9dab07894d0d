package pgstore

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A journal knows when transactions of a slot were acknowledged: to a second for the last ones, less
// precisely for earlier ones. It is bounded, and forgets none.
type journal struct {
	spans  []span // oldest first
	lastMs int64  // when the last one was acknowledged
}

// A span is some transactions that follow one another.
type span struct {
	last   int64 // number of the last one
	fromMs int64 // none was acknowledged earlier
}

const (
	maxSpans = 256
	spanMs   = 1000
)

// add notes that a transaction was acknowledged.
func (j *journal) add(number, nowMs int64) {
	j.lastMs = max(j.lastMs, nowMs)
	if n := len(j.spans); n > 0 {
		if s := &j.spans[n-1]; nowMs < s.fromMs+spanMs {
			s.last, s.fromMs = number, min(s.fromMs, nowMs) // the clock may have been set back
			return
		}
	}
	if len(j.spans) == maxSpans {
		const older = maxSpans / 2
		kept := j.spans[:0]
		for i := 0; i < older; i += 2 {
			kept = append(kept, span{j.spans[i+1].last, min(j.spans[i].fromMs, j.spans[i+1].fromMs)})
		}
		j.spans = append(kept, j.spans[older:]...)
	}
	j.spans = append(j.spans, span{number, nowMs})
}

// after returns a time before which no transaction with a higher number was acknowledged.
func (j *journal) after(number int64) (fromMs int64, ok bool) {
	for _, s := range j.spans {
		if s.last > number && (!ok || s.fromMs < fromMs) {
			fromMs, ok = s.fromMs, true
		}
	}
	return fromMs, ok
}

// A gap is when what a primary lacks was acknowledged. The zero gap is that of a primary that lacks
// nothing, or only an erasure.
type gap struct{ fromMs, toMs int64 }

// lacks returns the gap of a primary that has these numbers.
func (m *marks) lacks(numbers *[slots]int64) (g gap) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for slot, number := range numbers {
		if m.acked[slot] <= number {
			continue
		}
		if fromMs, ok := m.acknowledged[slot].after(number); ok && (g.fromMs == 0 || fromMs < g.fromMs) {
			g.fromMs = fromMs
		}
		g.toMs = max(g.toMs, m.acknowledged[slot].lastMs)
	}
	return g
}

// measure returns the gap of the primary of a connection.
func (s recall) measure(ctx context.Context, conn *pgconn.PgConn) (gap, error) {
	var numbers [slots]int64
	result := conn.ExecParams(ctx, s.sql.marked, [][]byte{strconv.AppendInt(nil, s.marks.server, 10)}, nil, nil, nil).Read()
	if state := sqlState(result.Err); result.Err != nil && state != noTable && state != noSchema {
		return gap{}, hide(result.Err)
	}
	for _, row := range result.Rows {
		slot, err := strconv.Atoi(string(row[0]))
		if err == nil && 0 <= slot && slot < slots {
			numbers[slot], err = strconv.ParseInt(string(row[1]), 10, 64)
		}
		if err != nil {
			return gap{}, err
		}
	}
	return s.marks.lacks(&numbers), nil
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
