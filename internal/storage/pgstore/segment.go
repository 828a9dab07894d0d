package pgstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
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

// segmentSizes are those of the columns of segments that decodeSegment decodes, without signs.
var segmentSizes = []int{8, 8, 4, 4, nullText, nullInt16, 1, 8, text, text, nullInt64, nullText}

// A segment is a decoded row of segments: readings of one device in the order of their times.
type segment struct {
	firstMs, lastMs int64
	n               int
	same            storage.Record // what they have in common
	delayMs         int64
	back, delays    numbers32
	completedMs     int64     // the shortest
	completed       numbers32 // empty if none was completed
	values          []signNumbers
}

// A signNumbers has the values of a sign.
type signNumbers struct {
	sign vitals.Sign
	numbers32
}

// decodeSegment decodes the columns of readStatements.segment, which name some signs, in the binary format. The segment
// refers to v. The readings share the gateway of the ones before, if it is the same.
func decodeSegment(v [][]byte, signs uint32, before *vitals.Name) (s segment, err error) {
	fixed := min(len(segmentSizes), len(v))
	if err := checkSizes(v[:fixed], segmentSizes); err != nil {
		return s, err
	}
	s = segment{firstMs: decodeInt64(v[0]), lastMs: decodeInt64(v[1]), n: int(binary.BigEndian.Uint32(v[2])),
		delayMs: decodeInt64(v[7])}
	present := binary.BigEndian.Uint32(v[3])
	if present&^signs != 0 {
		return s, errUnknownSign
	}
	s.same.Shared = v[6][0] != 0
	if s.same.Gateway, err = decodeGateway(v[4], before); err != nil {
		return s, err
	}
	if v[5] != nil {
		if s.same.UTCOffset, err = makeOffset(decodeInt16(v[5])); err != nil {
			return s, err
		}
	}
	whole := s.n > 0 && s.back.decode(v[8], s.n) && s.delays.decode(v[9], s.n) && (v[10] == nil) == (v[11] == nil)
	if whole && v[10] != nil {
		s.completedMs, whole = decodeInt64(v[10]), s.completed.decode(v[11], s.n)
	}
	for i, sg := range inBits(signs) {
		if whole = whole && fixed+i < len(v) && (v[fixed+i] != nil) == (present&(1<<sg) != 0); !whole {
			break
		}
		if v[fixed+i] != nil {
			values := signNumbers{sign: sg}
			whole = values.decode(v[fixed+i], s.n)
			s.values = append(s.values, values)
		}
	}
	if !whole || present == 0 || s.timeMs(0) != s.firstMs || s.timeMs(s.n-1) != s.lastMs {
		return s, fmt.Errorf("%w: a segment", storage.ErrCorrupt)
	}
	return s, nil
}

// A numbers32 is a column of segments, as number_at of the schema reads it: a number for each reading.
type numbers32 struct {
	width          int
	divisor, least int64
	above          []byte
}

// numbersHead is the length of what comes before the numbers.
const numbersHead = 9

// encodeNumbers encodes numbers, of 32 bits.
func encodeNumbers(all []int64) []byte {
	least, most := slices.Min(all), slices.Max(all)
	divisor := int64(0)
	for _, x := range all {
		for a := x - least; a != 0; {
			divisor, a = a, divisor%a
		}
	}
	divisor = max(divisor, 1)
	width := 4
	switch above := (most - least) / divisor; {
	case above < 1<<8:
		width = 1
	case above < 1<<16:
		width = 2
	}
	b := make([]byte, 0, numbersHead+width*len(all))
	b = append(b, byte(width))
	b = binary.BigEndian.AppendUint32(b, uint32(divisor))
	b = binary.BigEndian.AppendUint32(b, uint32(least-math.MinInt32))
	for _, x := range all {
		var number [4]byte
		binary.BigEndian.PutUint32(number[:], uint32((x-least)/divisor))
		b = append(b, number[4-width:]...)
	}
	return b
}

// decode decodes n numbers, and reports whether b has them. It keeps b.
func (c *numbers32) decode(b []byte, n int) bool {
	if len(b) < numbersHead {
		return false
	}
	*c = numbers32{int(b[0]), int64(binary.BigEndian.Uint32(b[1:])), int64(binary.BigEndian.Uint32(b[5:])) + math.MinInt32,
		b[numbersHead:]}
	return (c.width == 1 || c.width == 2 || c.width == 4) && len(c.above) == c.width*n
}

func (c *numbers32) at(i int) int64 {
	var above int64
	switch b := c.above[i*c.width:]; c.width {
	case 1:
		above = int64(b[0])
	case 2:
		above = int64(binary.BigEndian.Uint16(b))
	default:
		above = int64(binary.BigEndian.Uint32(b))
	}
	return c.least + c.divisor*above
}

func (s *segment) timeMs(i int) int64 { return s.lastMs - s.back.at(i) }

// record sets r to a reading.
func (s *segment) record(i int, r *storage.Record) {
	*r = s.same
	r.TimeUnixMs = s.timeMs(i)
	r.ReceivedUnixMs = r.TimeUnixMs + s.delayMs + s.delays.at(i)
	if s.completed.above != nil {
		if ms := s.completedMs + s.completed.at(i); ms > 0 {
			r.ChangedUnixMs = r.ReceivedUnixMs + ms
		}
	}
	for k := range s.values {
		r.Values.Set(s.values[k].sign, vitals.Value(s.values[k].at(i)))
	}
}

// between returns which readings have times from one to another, exclusive: those from an index to another, exclusive.
func (s *segment) between(fromMs, toMs int64) (from, to int) {
	after := func(ms int64) int {
		return sort.Search(s.n, func(i int) bool { return s.timeMs(i) >= ms })
	}
	return after(fromMs), after(toMs)
}

// completedMs returns how long after its receipt a record was completed, 0 if it was not.
func completedMs(r *storage.Record) int64 { return max(r.ChangedUnixMs-r.ReceivedUnixMs, 0) }

// keep copies what is valid until the next row only.
func (s *segment) keep() {
	s.back.above, s.delays.above, s.completed.above = bytes.Clone(s.back.above), bytes.Clone(s.delays.above),
		bytes.Clone(s.completed.above)
	for i := range s.values {
		s.values[i].above = bytes.Clone(s.values[i].above)
	}
}

// segments are rows of the table that are to be inserted, column by column.
type segments struct {
	devices                  []string
	lastMs, firstMs, changed []int64
	delayMs                  []int64
	completedMs              []*int64
	n, signs                 []int32
	offsets                  []*int16
	shared                   []bool
	gateways                 []*string
	back, delays, completed  [][]byte
	values                   [vitals.MaxSigns][][]byte // of the signs that any has, as many as there are segments
}

// add adds a segment with the readings of rows, which have everything in common but their times and values. There are
// at most maxSegment, and fits has accepted each.
func (s *segments) add(device string, rows []dueRow) {
	first, last := &rows[0], &rows[len(rows)-1]
	delayMs, changed := int64(math.MaxInt64), int64(0)
	shortestMs, longestMs := int64(math.MaxInt64), int64(0)
	for i := range rows {
		delayMs, changed = min(delayMs, rows[i].delayMs()), max(changed, rows[i].changed)
		ms := completedMs(&rows[i].Record)
		shortestMs, longestMs = min(shortestMs, ms), max(longestMs, ms)
	}
	s.devices = append(s.devices, device)
	s.lastMs, s.firstMs, s.changed = append(s.lastMs, last.TimeUnixMs), append(s.firstMs, first.TimeUnixMs),
		append(s.changed, changed)
	signs := first.Values.Present()
	s.n, s.signs = append(s.n, int32(len(rows))), append(s.signs, int32(signs))
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
	s.shared, s.delayMs = append(s.shared, first.Shared), append(s.delayMs, delayMs)
	numbers := make([]int64, len(rows))
	encode := func(number func(*dueRow) int64) []byte {
		for i := range rows {
			numbers[i] = number(&rows[i])
		}
		return encodeNumbers(numbers)
	}
	s.back = append(s.back, encode(func(r *dueRow) int64 { return last.TimeUnixMs - r.TimeUnixMs }))
	s.delays = append(s.delays, encode(func(r *dueRow) int64 { return r.delayMs() - delayMs }))
	if longestMs > 0 {
		s.completedMs = append(s.completedMs, &shortestMs)
		s.completed = append(s.completed, encode(func(r *dueRow) int64 { return completedMs(&r.Record) - shortestMs }))
	} else {
		s.completedMs, s.completed = append(s.completedMs, nil), append(s.completed, nil)
	}
	for _, sg := range inBits(signs) {
		values := append(s.values[sg], make([][]byte, len(s.n)-1-len(s.values[sg]))...)
		s.values[sg] = append(values, encode(func(r *dueRow) int64 { v, _ := r.Values.Get(sg); return int64(v) }))
	}
}

// insert inserts the rows.
func (s *segments) insert(ctx context.Context, tx pgx.Tx, q *statements) error {
	args := []any{s.devices, s.lastMs, s.firstMs, s.changed, s.delayMs, s.n, s.signs, s.offsets, s.shared, s.gateways,
		s.back, s.delays, s.completedMs, s.completed}
	var some []vitals.Sign
	params :=
		"$1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[], $7::integer[], $8::smallint[], " +
			"$9::boolean[], $10::text[], $11::bytea[], $12::bytea[], $13::bigint[], $14::bytea[]"
	for sg, values := range s.values {
		if values != nil { // unnest makes NULL of what an array lacks at its end
			some, args = append(some, vitals.Sign(sg)), append(args, values)
			params += fmt.Sprintf(", $%d::bytea[]", len(args))
		}
	}
	_, err := tx.Exec(ctx,
		q.of("INSERT INTO SCHEMA.segments (device, last_ms, first_ms, changed, delay_ms, n, signs, utc_offset, shared, "+
			"gateway, back, delays, completed_ms, completed"+q.each(some, ", NAME", "")+
			") SELECT * FROM unnest("+params+")"), args...)
	return err
}

// unsealing returns the statement that turns segments s into rows again. which ends its DELETE FROM SCHEMA.segments AS
// s. The transaction has called meetSealer, in a statement before. The segments are locked in their order first: nodes
// that lock them in different orders deadlock. TestLockOrderSealed checks it.
func unsealing(which string) string {
	held := "SELECT FROM SCHEMA.segments AS s " + strings.Replace(which, "USING", "CROSS JOIN", 1) +
		" ORDER BY s.device, s.last_ms FOR UPDATE OF s"
	return `WITH held AS (` + held + `), gone AS (DELETE FROM SCHEMA.segments AS s ` + which +
		` AND (SELECT count(*) FROM held) > 0 RETURNING s)
INSERT INTO SCHEMA.readings SELECT r.* FROM gone AS g CROSS JOIN LATERAL SCHEMA.rows_of(g.s) AS r`
}

// meetSealer makes the transaction wait for the sealer, and the sealer for it. It must be called before the transaction
// reads or changes segments, and rows before state.sealed_ms.
func (q *statements) meetSealer(tx pgx.Tx) error {
	_, err := tx.Exec(context.Background(), fmt.Sprintf("SELECT pg_advisory_xact_lock_shared(%d)",
		lockKey("seal", q.schema)))
	return err
}

// unsealRange turns the segments of a device with readings from one time to another, inclusive, into rows again. Before
// that, it does the same with the last segment of each sign before them: readers find latest values in rows.
func (q *statements) unsealRange(tx pgx.Tx, device string, fromMs, toMs int64) error {
	if err := q.meetSealer(tx); err != nil {
		return err
	}
	_, err := tx.Exec(context.Background(), q.of(unsealing(`WHERE s.device = $1 AND (s.first_ms <= $3 AND s.last_ms >= $2
		OR s.last_ms IN (SELECT (SELECT max(last_ms) FROM SCHEMA.segments WHERE device = $1 AND last_ms < $2 AND signs & (1 << number) <> 0) FROM generate_series(0, 31) AS number))`)), device, fromMs, toMs)
	return err
}

// removeSegments removes the segments of a device whose readings are all from one time to another, inclusive, and were
// all received until a time, and returns the number of those. The other readings between these times are rows
// afterwards.
func (q *statements) removeSegments(tx pgx.Tx, device string, fromMs, toMs, receivedMs int64) (readings int64,
	err error) {
	if err := q.meetSealer(tx); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(context.Background(),
		q.of(`WITH gone AS (DELETE FROM SCHEMA.segments AS s WHERE device = $1 AND first_ms >= $2 AND last_ms <= $3
			AND (last_ms + delay_ms <= $4 - 2147483648 OR last_ms + delay_ms + (SELECT max(SCHEMA.number_at(b.delays, i))
				FROM (SELECT s.delays || ''::bytea AS delays OFFSET 0) AS b CROSS JOIN generate_series(0, s.n - 1) AS i) <= $4) RETURNING n)
		SELECT coalesce(sum(n), 0) FROM gone`), device, fromMs, toMs, receivedMs).Scan(&readings); err != nil {
		return 0, err
	}
	return readings, q.unsealRange(tx, device, fromMs, toMs)
}
