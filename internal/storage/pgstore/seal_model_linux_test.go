package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A failer is what testing.T and rapid.T share.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A sealWorld has the stores of some servers on one database. Each of them seals.
type sealWorld struct {
	schema  string
	conn    *pgx.Conn
	stores  []*pgstore.Store
	minutes atomic.Int64 // from modelMs to the last horizon
}

// openSealWorld opens stores on a new schema. Their smallest segments differ, and one of them drops partitions that
// were emptied.
func openSealWorld(t failer, server *pgtest.Server, servers int) *sealWorld {
	t.Helper()
	o := options(server)
	w := &sealWorld{schema: o.Schema}
	for i := range servers {
		o.SealAtLeast = []int{1, 5, 2}[i%3]
		o.SealAfter, o.SealEvery = []time.Duration{0, time.Hour, 0}[i%3], 8*time.Hour
		s, err := pgstore.Open(context.Background(), o)
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		w.stores = append(w.stores, s)
	}
	conn, err := pgx.Connect(context.Background(), server.DSN())
	if err == nil {
		w.conn = conn
		_, err = conn.Exec(context.Background(), "SET jit = off") // compiling a query takes longer than it runs
	}
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return w
}

func (w *sealWorld) close() {
	for _, s := range w.stores {
		_ = s.Close()
	}
	_, _ = w.conn.Exec(context.Background(), "DROP SCHEMA "+w.schema+" CASCADE")
	_ = w.conn.Close(context.Background())
}

func (w *sealWorld) some(r *rand.Rand) *pgstore.Store { return w.stores[r.IntN(len(w.stores))] }

// sql replaces SCHEMA.
func (w *sealWorld) sql(text string) string { return strings.ReplaceAll(text, "SCHEMA", w.schema) }

const (
	minuteMs = 60_000
	dayMs    = 24 * 60 * minuteMs

	// modelMs is two hours before a partition begins.
	modelMs = 681*30*dayMs - 120*minuteMs
)

var (
	modelDevices  = modelNames("a", "a-1", "b")
	modelGateways = modelNames("g1", "g2")
)

func modelNames(all ...string) (names []vitals.Name) {
	for _, text := range all {
		name, err := vitals.ParseName(text)
		if err != nil {
			panic(err)
		}
		names = append(names, name)
	}
	return names
}

// randomTime returns a time: mostly of a minute of some hours around the beginning of a partition.
func randomTime(r *rand.Rand) int64 {
	switch r.IntN(60) {
	case 0:
		return math.MaxInt64 - 1 - r.Int64N(3)
	case 1, 2, 3:
		return r.Int64N(3)
	case 4, 5, 6:
		return modelMs + r.Int64N(60)*dayMs - 30*dayMs + r.Int64N(2)
	default:
		return modelMs + r.Int64N(300)*minuteMs + []int64{0, 0, 0, 0, 1, 500}[r.IntN(6)]
	}
}

// randomEntry returns a reading. Most readings of a device and a time agree.
func randomEntry(r *rand.Rand, device vitals.Name, timeUnixMs int64) *storage.Entry {
	e := &storage.Entry{Reading: &vitals.Reading{Device: device, TimeUnixMs: timeUnixMs},
		ReceivedUnixMs: modelMs + r.Int64N(3)}
	if timeUnixMs < modelMs+dayMs && r.IntN(3) > 0 {
		e.ReceivedUnixMs = timeUnixMs + []int64{-700, 0, 1, 900, 30 * dayMs}[r.IntN(5)]
	}
	signs := []uint32{1<<vitals.HeartRate | 1<<vitals.SpO2}
	if r.IntN(4) == 0 {
		signs = []uint32{1 << vitals.HeartRate, 1 << vitals.SpO2, 1 << vitals.RestingHeartRate,
			1<<vitals.Systolic | 1<<vitals.Diastolic, 1<<vitals.HeartRate | 1<<vitals.BodyWeight, 1 << vitals.PulseRate}
	}
	odd := vitals.Value(0)
	if r.IntN(8) == 0 {
		odd = 1
	}
	for sg := range vitals.InOrder(signs[r.IntN(len(signs))]) {
		v := []vitals.Value{0, 1, -7, math.MaxInt16 + 1, math.MaxUint16}[(timeUnixMs/minuteMs+int64(sg))%5]
		if timeUnixMs%7 == 3 {
			v = []vitals.Value{vitals.MinValue, vitals.MaxValue - 1}[timeUnixMs%2]
		}
		e.Reading.Values.Set(sg, v^odd)
	}
	if r.IntN(3) == 0 {
		e.Reading.Gateway = modelGateways[r.IntN(2)]
	}
	if r.IntN(6) == 0 {
		e.Reading.UTCOffset = vitals.MakeUTCOffset([]int{0, -210, 840}[r.IntN(3)])
	}
	return e
}

// randomGroup returns a group: readings here and there, many in a row, or both.
func randomGroup(r *rand.Rand) (group []*storage.Entry) {
	kind := r.IntN(4)
	if kind != 0 {
		for range 1 + r.IntN(10) {
			group = append(group, randomEntry(r, modelDevices[r.IntN(len(modelDevices))], randomTime(r)))
		}
	}
	if kind < 2 {
		first, step := randomEntry(r, modelDevices[r.IntN(len(modelDevices))], modelMs), int64(minuteMs)
		if r.IntN(4) == 0 {
			step = 1 + r.Int64N(dayMs)
		}
		at := modelMs + r.Int64N(200)*minuteMs
		for i := range 10 + r.Int64N(120) {
			e := randomEntry(r, first.Reading.Device, at+i*step)
			e.Reading.Gateway, e.Reading.UTCOffset = first.Reading.Gateway, first.Reading.UTCOffset
			group = append(group, e)
		}
	}
	if r.IntN(3) == 0 {
		for rest := group; len(rest) > 0; {
			n := min(1+r.IntN(4), len(rest))
			rest[0].Unit = int32(n)
			rest = rest[n:]
		}
	}
	return group
}

// nextHorizon returns a time before which readings are sealed. It mostly rises slowly, so that servers often know an
// earlier one.
func (w *sealWorld) nextHorizon(r *rand.Rand) int64 {
	switch r.IntN(40) {
	case 0:
		return time.Now().UnixMilli()
	case 1, 2, 3:
		return 2
	}
	return modelMs + w.minutes.Add(r.Int64N(20))*minuteMs + r.Int64N(2)
}

// violations is a query for what must not be in a database, whatever was called.
const violations = `
WITH sealed AS MATERIALIZED (SELECT s.device, s.last_ms AS of_ms, i, s.last_ms - SCHEMA.number_at(s.back, i) AS time_ms
		FROM SCHEMA.segments AS s CROSS JOIN LATERAL generate_series(0, s.n - 1) AS i),
	place AS MATERIALIZED (SELECT device, time_ms, NULL::bigint AS of_ms FROM SCHEMA.readings UNION ALL SELECT device, time_ms, of_ms FROM sealed)
SELECT format('%s has %s readings at %s', device, count(*), time_ms) FROM place GROUP BY device, time_ms HAVING count(*) > 1
UNION ALL SELECT format('a segment of %s until %s has other lengths than %s readings', device, last_ms, n) FROM SCHEMA.segments
	WHERE n <= 0 OR signs = 0 OR length(back) <> 9 + get_byte(back, 0) * n OR length(delays) <> 9 + get_byte(delays, 0) * n OR EACH(length(COL) <> 9 + get_byte(COL, 0) * n)
		OR EACH((COL IS NOT NULL) <> (signs & BIT <> 0))
UNION ALL SELECT format('a segment of %s is from %s to %s, and has readings from %s to %s', s.device, s.first_ms, s.last_ms, min(r.time_ms), max(r.time_ms))
	FROM SCHEMA.segments AS s JOIN sealed AS r ON r.device = s.device AND r.of_ms = s.last_ms GROUP BY s.device, s.first_ms, s.last_ms HAVING min(r.time_ms) <> s.first_ms OR max(r.time_ms) <> s.last_ms
UNION ALL SELECT format('the readings of a segment of %s until %s are not in order', device, of_ms)
	FROM (SELECT device, of_ms, time_ms < lag(time_ms) OVER (PARTITION BY device, of_ms ORDER BY i) AS wrong FROM sealed) AS o WHERE wrong
UNION ALL SELECT format('%s has readings and is not registered', device) FROM (SELECT DISTINCT device FROM place) AS p WHERE NOT EXISTS (SELECT FROM SCHEMA.devices AS d WHERE d.device = p.device)
UNION ALL SELECT format('%s devices are counted, and there are %s', m.devices, n) FROM SCHEMA.state AS m, (SELECT count(*) AS n FROM SCHEMA.devices) AS d WHERE m.devices <> n
UNION ALL SELECT format('a segment of %s until %s is not before the horizon', device, last_ms) FROM SCHEMA.segments WHERE last_ms >= (SELECT sealed_ms FROM SCHEMA.state)
UNION ALL SELECT format('a segment of %s until %s is too long', device, last_ms) FROM SCHEMA.segments WHERE last_ms - first_ms >= 691200000 OR last_ms / 2592000000 <> first_ms / 2592000000
UNION ALL SELECT format('the signs of a segment of %s until %s are not registered', s.device, s.last_ms) FROM SCHEMA.segments AS s JOIN SCHEMA.devices AS d USING (device)
	WHERE EACH(s.COL IS NOT NULL AND d.signs & BIT = 0)
UNION ALL SELECT format('the latest value of %s of a sign is in a segment until %s', device, last_ms) FROM SCHEMA.segments AS s
	WHERE EACH(s.COL IS NOT NULL AND s.last_ms > coalesce((SELECT max(time_ms) FROM SCHEMA.readings AS r WHERE r.device = s.device AND r.COL IS NOT NULL), -1))`

// each replaces EACH(…) in violations.
func eachSign(sql string) string {
	parts := strings.Split(sql, "EACH(")
	for i, part := range parts[1:] {
		depth, end := 1, 0
		for ; depth > 0; end++ {
			switch part[end] {
			case '(':
				depth++
			case ')':
				depth--
			}
		}
		var all []string
		for sg := range vitals.Sign(vitals.NumBuiltIn) {
			all = append(all, strings.NewReplacer("COL", sg.String(), "BIT", fmt.Sprint(1<<sg)).Replace(part[:end-1]))
		}
		parts[1+i] = "(" + strings.Join(all, " OR ") + ")" + part[end:]
	}
	return strings.Join(parts, "")
}

// violations returns what a connection finds in one snapshot that must not be there.
func (w *sealWorld) violations(conn *pgx.Conn) ([]string, error) {
	// compiling a query takes longer than it runs
	if _, err := conn.Exec(context.Background(), "SET jit = off"); err != nil {
		return nil, err
	}
	rows, err := conn.Query(context.Background(), w.sql(eachSign(violations)))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// mustHold fails if the database has what it must not have.
func (w *sealWorld) mustHold(t failer) {
	t.Helper()
	all, err := w.violations(w.conn)
	if err != nil {
		t.Fatalf("query: %v", err)
	}
	if len(all) > 0 {
		t.Fatalf("%d violations:\n%s", len(all), strings.Join(all[:min(len(all), 10)], "\n"))
	}
}

// viewed returns what a query finds in the view, as text.
func (w *sealWorld) viewed(t failer, from string, args ...any) (all []string) {
	t.Helper()
	var signs []string
	for sg := range vitals.Sign(vitals.NumBuiltIn) {
		signs = append(signs, fmt.Sprintf("%d || '=' || (%v * 1%s)::integer", sg, sg,
			strings.Repeat("0", vitals.BuiltIn(sg).Decimals)))
	}
	rows, err := w.conn.Query(context.Background(),
		w.sql(`SELECT concat_ws(' ', device, time_ms, received_ms, coalesce(gateway, '-'), coalesce(utc_offset_minutes::text, '-'),
		`+strings.Join(signs, ", ")+`)
		FROM `+from+` ORDER BY device, time_ms`), args...)
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		t.Fatalf("view: %v", err)
	}
	return all
}

// asViewed returns a record as viewed does.
func asViewed(device vitals.Name, r storage.Record) string {
	gateway, offset := "-", "-"
	if r.Gateway != nil {
		gateway = r.Gateway.String()
	}
	if minutes, ok := r.UTCOffset.Minutes(); ok {
		offset = fmt.Sprint(minutes)
	}
	text := fmt.Sprintf("%s %d %d %s %s", device, r.TimeUnixMs, r.ReceivedUnixMs, gateway, offset)
	for sg := range vitals.InOrder(r.Values.Present()) {
		v, _ := r.Values.Get(sg)
		text += fmt.Sprintf(" %d=%d", sg, v)
	}
	return text
}

// scanned returns the records of a range in pages, and fails if they are not in order.
func scanned(t failer, s storage.Store, r storage.Range, page int) (all []storage.Record) {
	t.Helper()
	dst := make([]storage.Record, page)
	for {
		n, err := s.Scan(context.Background(), r, dst)
		if err != nil {
			t.Fatalf("Scan: %v", err)
		}
		all = append(all, dst[:n]...)
		if n < page {
			return all
		}
		if r.Descending {
			r.ToUnixMs = dst[n-1].TimeUnixMs
		} else {
			r.FromUnixMs = dst[n-1].TimeUnixMs + 1
		}
	}
}

func mustEqual(t failer, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("%s: %d of %d, and number %d is missing: %s", what, len(got), len(want), i, want[i])
		case i >= len(want) || got[i] != want[i]:
			t.Fatalf("%s: number %d is %s, want %s", what, i, got[i], append(want, "none")[i])
		}
	}
}

// asText returns records as text, with all their fields.
func asText(device vitals.Name, all []storage.Record) (text []string) {
	for _, r := range all {
		text = append(text, fmt.Sprintf("%s shared %v", asViewed(device, r), r.Shared))
	}
	return text
}

// mustMatch compares what the stores and the view return with a model.
func (w *sealWorld) mustMatch(t failer, r *rand.Rand, model storage.Store) {
	t.Helper()
	w.mustHold(t)
	ctx := context.Background()
	devices, got := make([]storage.Device, 10), make([]storage.Device, 10)
	n, err := model.Devices(ctx, vitals.Name{}, devices)
	if err != nil {
		t.Fatalf("Devices of the model: %v", err)
	}
	m, err := w.some(r).Devices(ctx, vitals.Name{}, got)
	if err != nil || !slices.Equal(got[:m], devices[:n]) {
		t.Fatalf("Devices returned %+v, %v, want %+v", got[:m], err, devices[:n])
	}
	var all, between []string
	fromMs, toMs := randomTime(r), randomTime(r)
	for _, d := range devices[:n] {
		if latest, err := w.some(r).Latest(ctx, d.Name); err != nil || latest != d {
			t.Fatalf("Latest(%s) returned %+v, %v, want %+v", d.Name, latest, err, d)
		}
		span := storage.Range{Device: d.Name, ToUnixMs: math.MaxInt64, Descending: r.IntN(2) == 0}
		want := scanned(t, model, span, 1000)
		mustEqual(t, "all of "+d.Name.String(), asText(d.Name, scanned(t, w.some(r), span, 2+len(want)/(1+r.IntN(9)))),
			asText(d.Name, want))
		if span.Descending {
			slices.Reverse(want)
		}
		for _, rec := range want {
			text := asViewed(d.Name, rec)
			all = append(all, text)
			if rec.TimeUnixMs >= fromMs && rec.TimeUnixMs < toMs {
				between = append(between, text)
			}
		}
		span = storage.Range{Device: d.Name, FromUnixMs: fromMs, ToUnixMs: toMs, Descending: r.IntN(2) == 0}
		page := make([]storage.Record, 1+r.IntN(30))
		n, err := w.some(r).Scan(ctx, span, page)
		if err != nil {
			t.Fatalf("Scan: %v", err)
		}
		part := make([]storage.Record, len(page))
		m, _ := model.Scan(ctx, span, part) // the other calls of the model have succeeded
		mustEqual(t, "a page of "+d.Name.String(), asText(d.Name, page[:n]), asText(d.Name, part[:m]))
	}
	mustEqual(t, "all_readings", w.viewed(t, "SCHEMA.all_readings"), all)
	mustEqual(t, "readings_between", w.viewed(t, "SCHEMA.readings_between($1, $2)", fromMs, toMs), between)
	if count, err := w.some(r).CountReadings(ctx); err != nil || count != int64(len(all)) {
		t.Fatalf("CountReadings returned %d, %v, want %d", count, err, len(all))
	}
}

// TestRandomSealed makes random calls of three servers, each of which seals, and compares the results with a model.
// make exhaustive plays more.
//
// Its mutants are seal-without-verify and settle-late-beside-segments.
func TestRandomSealed(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	rapid.Check(t, func(rt *rapid.T) {
		w := openSealWorld(rt, server, 3)
		defer w.close()
		model := storetest.NewMemory()
		var r *rand.Rand // of one step
		step := func(do func(rt *rapid.T)) func(*rapid.T) {
			return func(rt *rapid.T) {
				r = rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "step"), 0))
				do(rt)
			}
		}
		sealSome := step(func(rt *rapid.T) {
			if _, err := pgstore.Seal(w.some(r), w.nextHorizon(r)); err != nil {
				rt.Fatalf("Seal: %v", err)
			}
		})
		appendSome := step(func(rt *rapid.T) { appendBoth(rt, w.some(r), model, randomGroup(r)) })
		rt.Repeat(map[string]func(*rapid.T){
			"append":   appendSome,
			"append+":  appendSome,
			"append++": appendSome,
			"seal":     sealSome,
			"seal+":    sealSome,
			// Another server sends again, and completes, what was sealed at this moment.
			"seal and append": step(func(rt *rapid.T) {
				d := modelDevices[r.IntN(3)]
				first := modelMs + w.minutes.Load()*minuteMs
				horizon := modelMs + w.minutes.Add(10)*minuteMs
				all := scanned(rt, model, storage.Range{Device: d, FromUnixMs: first, ToUnixMs: horizon}, 1000)
				if len(all) == 0 {
					return
				}
				var group []*storage.Entry
				for range 1 + r.IntN(3) {
					group = append(group, randomEntry(r, d, all[r.IntN(len(all))].TimeUnixMs))
				}
				at := r.IntN(3)
				if _, err := pgstore.Seal(w.stores[at], horizon); err != nil {
					rt.Fatalf("Seal: %v", err)
				}
				appendBoth(rt, w.stores[(at+1)%3], model, group)
			}),
			"assign": step(func(rt *rapid.T) { assignBoth(rt, r, w, model) }),
			"erase assignment": step(func(rt *rapid.T) {
				device := modelDevices[r.IntN(3)]
				all, _ := model.DeviceAssignments(context.Background(), device) // the model is open
				if len(all) == 0 {
					all = append(all, assignBoth(rt, r, w, model))
				}
				a := all[r.IntN(len(all))]
				got, err := w.some(r).EraseAssignment(a)
				want, wantErr := model.EraseAssignment(a)
				if errors.Is(wantErr, storage.ErrNotAssigned) && errors.Is(err, storage.ErrNotAssigned) {
					return
				}
				if err != nil || wantErr != nil || got != want {
					rt.Fatalf("EraseAssignment returned %+v, %v, want %+v, %v", got, err, want, wantErr)
				}
			}),
			"erase": step(func(rt *rapid.T) {
				if r.IntN(4) > 0 {
					return
				}
				device := modelDevices[r.IntN(3)]
				got, err := w.some(r).Erase(device)
				want, wantErr := model.Erase(device)
				if errors.Is(wantErr, storage.ErrNotFound) && (err == nil || errors.Is(err, storage.ErrNotFound)) {
					return // it may be registered
				}
				if err != nil || wantErr != nil || got != want {
					rt.Fatalf("Erase returned %+v, %v, want %+v, %v", got, err, want, wantErr)
				}
			}),
			"expire": step(func(rt *rapid.T) { expireBoth(rt, r, w, model) }),
			"": func(rt *rapid.T) {
				if r != nil {
					w.mustMatch(rt, r, model)
				}
			},
		})
	})
}

// assignBoth assigns a device to a subject, mostly from a time on, so that its latest values are among those that go
// with the assignment.
func assignBoth(t failer, r *rand.Rand, w *sealWorld, model *storetest.Memory) storage.Assignment {
	t.Helper()
	a := storage.Assignment{Device: modelDevices[r.IntN(3)], Subject: storage.Subject([]string{"P", "Q"}[r.IntN(2)]),
		FromUnixMs: randomTime(r), ToUnixMs: math.MaxInt64}
	if r.IntN(3) == 0 {
		a.ToUnixMs = randomTime(r)
	}
	if err, want := w.some(r).Assign(context.Background(), a),
		model.Assign(context.Background(), a); (err == nil) != (want == nil) {
		t.Fatalf("Assign returned %v, want %v", err, want)
	}
	return a
}

// appendBoth appends a group to a store and to the model.
func appendBoth(t failer, s *pgstore.Store, model *storetest.Memory, group []*storage.Entry) {
	t.Helper()
	var same []*storage.Entry
	for _, e := range group {
		c := *e
		same = append(same, &c)
	}
	if err := model.Append(same); err != nil {
		t.Fatalf("Append to the model: %v", err)
	}
	if err := s.Append(group); err != nil {
		t.Fatalf("Append: %v", err)
	}
	for i, e := range group {
		if want := same[i]; e.Outcome != want.Outcome || e.Outcome == storage.Conflict && e.Sign != want.Sign {
			t.Fatalf("reading %d, %s, got outcome %s, sign %d, want %s, %d", i,
				asViewed(e.Reading.Device, storage.Record{TimeUnixMs: e.Reading.TimeUnixMs, Values: e.Reading.Values}),
				storetest.OutcomeName(e.Outcome), e.Sign, storetest.OutcomeName(want.Outcome), want.Sign)
		}
	}
}

// expireBoth removes old readings with one server or with two at once, in few or in many steps.
func expireBoth(t failer, r *rand.Rand, w *sealWorld, model *storetest.Memory) {
	t.Helper()
	beforeMs, atMost, at := randomTime(r), int64(1)<<40, 1
	if beforeMs > modelMs+10*dayMs {
		beforeMs = modelMs + 100*minuteMs
	}
	switch r.IntN(3) {
	case 0:
		atMost = 1 + r.Int64N(40)
	case 1:
		at = 2
	}
	count := func() (n int64) {
		n, err := w.some(r).CountReadings(context.Background())
		if err != nil {
			t.Fatalf("CountReadings: %v", err)
		}
		return n
	}
	want, err := model.Expire(context.Background(), beforeMs, math.MaxInt64)
	if err != nil {
		t.Fatalf("Expire of the model: %v", err)
	}
	var removed int64
	for more := true; more; {
		before := count()
		all, errs := make([]storage.Expiry, at), make([]error, at)
		var calls sync.WaitGroup
		for i := range at {
			s := w.stores[i]
			calls.Go(func() { all[i], errs[i] = s.Expire(context.Background(), beforeMs, atMost) })
		}
		calls.Wait()
		more = false
		var sum int64
		for i, x := range all {
			if errs[i] != nil || x.Readings > atMost {
				t.Fatalf("Expire(%d, %d) returned %+v, %v", beforeMs, atMost, x, errs[i])
			}
			more = more || x.More
			sum += x.Readings
		}
		if after := count(); before-after != sum {
			t.Fatalf("Expire(%d, %d) returned %d, and there are %d readings less", beforeMs, atMost, sum, before-after)
		}
		removed += sum
		w.mustHold(t)
	}
	if removed != want.Readings {
		t.Fatalf("Expire removed %d readings, want %d", removed, want.Readings)
	}
}
