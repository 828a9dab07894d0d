package pgstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxSpanMs bounds the time from the first reading of a segment to the last, and maxSegment their number.
const (
	maxSpanMs  = 8 * 24 * 60 * 60 * 1000
	maxSegment = 2000
)

// segmentColumns are the columns of a row s of segments that decodeSegment decodes.
const segmentColumns = "s.first_ms, s.last_ms, s.n, s.gateway, s.utc_offset, s.shared, s.delay_ms, s.back, s.delays, s.sys, s.dia, s.spo2, s.hr, s.rhr"

var segmentSizes = []int{8, 8, 4, nullText, nullInt16, 1, 8, text, text, nullText, nullText, nullText, nullText, nullText}

// A segment is a decoded row of segments: readings of one device in the order of their times.
type segment struct {
	firstMs, lastMs int64
	n               int
	same            storage.Record // what they have in common
	delayMs         int64
	back, delays    []byte // valid until the next row is read, as values is
	values          [len(columns)][]byte
}

// decodeSegment decodes the values of segmentColumns in the binary format. The readings share the gateway of the ones before, if it is
// the same.
func decodeSegment(v [][]byte, before *vitals.Name) (s segment, err error) {
	if err := checkSizes(v, segmentSizes); err != nil {
		return s, err
	}
	s = segment{firstMs: decodeInt64(v[0]), lastMs: decodeInt64(v[1]), n: int(binary.BigEndian.Uint32(v[2])), delayMs: decodeInt64(v[6]), back: v[7], delays: v[8]}
	s.same.Shared = v[5][0] != 0
	if s.same.Gateway, err = decodeGateway(v[3], before); err != nil {
		return s, err
	}
	if v[4] != nil {
		if s.same.UTCOffset, err = makeOffset(decodeInt16(v[4])); err != nil {
			return s, err
		}
	}
	whole := s.n > 0 && len(s.back) == 4*s.n && len(s.delays) == 4*s.n
	for sg := range columns {
		s.values[sg] = v[9+sg]
		whole = whole && (v[9+sg] == nil || len(v[9+sg]) == 2*s.n)
	}
	if !whole || s.timeMs(0) != s.firstMs || s.timeMs(s.n-1) != s.lastMs {
		return s, fmt.Errorf("%w: a segment", storage.ErrCorrupt)
	}
	return s, nil
}

func (s *segment) timeMs(i int) int64 { return s.lastMs - int64(binary.BigEndian.Uint32(s.back[4*i:])) }

// record sets r to a reading.
func (s *segment) record(i int, r *storage.Record) {
	*r = s.same
	r.TimeUnixMs = s.timeMs(i)
	r.ReceivedUnixMs = r.TimeUnixMs + s.delayMs + int64(binary.BigEndian.Uint32(s.delays[4*i:]))
	for sg, all := range s.values {
		if all != nil {
			r.Values.Set(vitals.Sign(sg), vitals.Value(binary.BigEndian.Uint16(all[2*i:])))
		}
	}
}

// between returns which readings have times from one to another, exclusive: those from an index to another, exclusive.
func (s *segment) between(fromMs, toMs int64) (from, to int) {
	after := func(ms int64) int {
		return sort.Search(s.n, func(i int) bool { return s.timeMs(i) >= ms })
	}
	return after(fromMs), after(toMs)
}

// keep copies what is valid until the next row only.
func (s *segment) keep() {
	s.back, s.delays = bytes.Clone(s.back), bytes.Clone(s.delays)
	for i, all := range s.values {
		s.values[i] = bytes.Clone(all)
	}
}

// segments are rows of the table that are to be inserted, column by column.
type segments struct {
	devices         []string
	lastMs, firstMs []int64
	n               []int32
	gateways        []*string
	offsets         []*int16
	shared          []bool
	had             []int16
	delayMs         []int64
	back, delays    [][]byte
	values          [len(columns)][][]byte
}

// add adds a segment with the readings of rows, which have everything in common but their times and values. There are at most maxSegment,
// and fits has accepted each.
func (s *segments) add(device string, rows []dueRow) {
	first, last := &rows[0], &rows[len(rows)-1]
	delayMs := int64(math.MaxInt64)
	for i := range rows {
		delayMs = min(delayMs, rows[i].delayMs())
	}
	s.devices = append(s.devices, device)
	s.lastMs, s.firstMs = append(s.lastMs, last.TimeUnixMs), append(s.firstMs, first.TimeUnixMs)
	s.n = append(s.n, int32(len(rows)))
	var gateway *string
	if first.Gateway != nil {
		name := first.Gateway.String()
		gateway = &name
	}
	s.gateways = append(s.gateways, gateway)
	var offset *int16
	if minutes, ok := first.UTCOffset.Minutes(); ok {
		m := int16(minutes)
		offset = &m
	}
	s.offsets = append(s.offsets, offset)
	s.shared, s.had, s.delayMs = append(s.shared, first.Shared), append(s.had, first.had), append(s.delayMs, delayMs)
	back, delays := make([]byte, 0, 4*len(rows)), make([]byte, 0, 4*len(rows))
	for i := range rows {
		back = binary.BigEndian.AppendUint32(back, uint32(last.TimeUnixMs-rows[i].TimeUnixMs))
		delays = binary.BigEndian.AppendUint32(delays, uint32(rows[i].delayMs()-delayMs))
	}
	s.back, s.delays = append(s.back, back), append(s.delays, delays)
	for sg := range columns {
		var all []byte
		if first.Values.Has(vitals.Sign(sg)) {
			all = make([]byte, 0, 2*len(rows))
			for i := range rows {
				v, _ := rows[i].Values.Get(vitals.Sign(sg))
				all = binary.BigEndian.AppendUint16(all, uint16(v))
			}
		}
		s.values[sg] = append(s.values[sg], all)
	}
}

// insert inserts the rows.
func (s *segments) insert(ctx context.Context, tx pgx.Tx, q *statements) error {
	args := []any{s.devices, s.lastMs, s.firstMs, s.n, s.gateways, s.offsets, s.shared, s.had, s.delayMs, s.back, s.delays}
	for sg := range columns {
		args = append(args, s.values[sg])
	}
	_, err := tx.Exec(ctx, q.of(`INSERT INTO SCHEMA.segments (device, last_ms, first_ms, n, gateway, utc_offset, shared, had, delay_ms, back, delays, sys, dia, spo2, hr, rhr)
		SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::integer[], $5::text[], $6::smallint[], $7::boolean[], $8::smallint[], $9::bigint[],
			$10::bytea[], $11::bytea[], $12::bytea[], $13::bytea[], $14::bytea[], $15::bytea[], $16::bytea[])`), args...)
	return err
}

// unsealing returns the statement that turns segments s into rows again. which ends its DELETE FROM SCHEMA.segments AS s. The
// transaction has called meetSealer, in a statement before. The segments are locked in their order first: nodes that lock them in different orders
// deadlock. TestLockOrderSealed checks it.
func unsealing(which string) string {
	flat := []string{"s.back || ''::bytea AS back", "s.delays || ''::bytea AS delays"} // read once each
	var values []string
	for _, c := range columns {
		flat = append(flat, strings.ReplaceAll("s.COL || ''::bytea AS COL", "COL", c))
		values = append(values, strings.ReplaceAll("((SCHEMA.uint16_at(g.COL, i) # 32768) - 32768)::smallint", "COL", c))
	}
	held := "SELECT FROM SCHEMA.segments AS s " + strings.Replace(which, "USING", "CROSS JOIN", 1) + " ORDER BY s.device, s.last_ms FOR UPDATE OF s"
	return `WITH held AS (` + held + `), gone AS (DELETE FROM SCHEMA.segments AS s ` + which + ` AND (SELECT count(*) FROM held) > 0
	RETURNING s.device, s.last_ms, s.n, s.gateway, s.utc_offset, s.shared, s.had, s.delay_ms, ` + strings.Join(flat, ", ") + `)
INSERT INTO SCHEMA.readings (device, time_ms, received_ms, ` + strings.Join(columns[:], ", ") + `, utc_offset, had, shared, gateway)
SELECT g.device, g.last_ms - SCHEMA.uint31_at(g.back, i), g.last_ms - SCHEMA.uint31_at(g.back, i) + g.delay_ms + SCHEMA.uint31_at(g.delays, i), ` +
		strings.Join(values, ", ") + `, g.utc_offset, g.had, g.shared, g.gateway FROM gone AS g CROSS JOIN LATERAL generate_series(0, g.n - 1) AS i`
}

// meetSealer makes the transaction wait for the sealer, and the sealer for it. It must be called before the transaction reads or changes
// segments, and rows before state.sealed_ms.
func (q *statements) meetSealer(tx pgx.Tx) error {
	_, err := tx.Exec(context.Background(), fmt.Sprintf("SELECT pg_advisory_xact_lock_shared(%d)", lockKey("seal", q.schema)))
	return err
}

// unsealRange turns the segments of a device with readings from one time to another, inclusive, into rows again. Before that,
// it does the same with the last segment of each sign before them: readers find latest values in rows.
func (q *statements) unsealRange(tx pgx.Tx, device string, fromMs, toMs int64) error {
	if err := q.meetSealer(tx); err != nil {
		return err
	}
	_, err := tx.Exec(context.Background(), q.of(unsealing(`WHERE s.device = $1 AND (s.first_ms <= $3 AND s.last_ms >= $2
		OR s.last_ms IN (`+each("(SELECT max(last_ms) FROM SCHEMA.segments WHERE device = $1 AND last_ms < $2 AND COL IS NOT NULL)", ", ")+`))`)), device, fromMs, toMs)
	return err
}

// removeSegments removes the segments of a device whose readings are all from one time to another, inclusive, and were all received until
// a time, and returns the number of those. The other readings between these times are rows afterwards.
func (q *statements) removeSegments(tx pgx.Tx, device string, fromMs, toMs, receivedMs int64) (readings int64, err error) {
	if err := q.meetSealer(tx); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(context.Background(), q.of(`WITH gone AS (DELETE FROM SCHEMA.segments AS s WHERE device = $1 AND first_ms >= $2 AND last_ms <= $3
			AND (last_ms + delay_ms <= $4 - 2147483648 OR last_ms + delay_ms + (SELECT max(SCHEMA.uint31_at(b.delays, i))
				FROM (SELECT s.delays || ''::bytea AS delays OFFSET 0) AS b CROSS JOIN generate_series(0, s.n - 1) AS i) <= $4) RETURNING n)
		SELECT coalesce(sum(n), 0) FROM gone`), device, fromMs, toMs, receivedMs).Scan(&readings); err != nil {
		return 0, err
	}
	return readings, q.unsealRange(tx, device, fromMs, toMs)
}
