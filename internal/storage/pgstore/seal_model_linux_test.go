package pgstore_test

import (
	"context"
	"errors"
	"flag"
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
	"github.com/pulsegate/pulsegate/internal/polltest"
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

// openSealWorld opens stores on a new schema. Their smallest segments differ.
func openSealWorld(t failer, server *pgtest.Server, servers int) *sealWorld {
	t.Helper()
	o := options(server)
	w := &sealWorld{schema: o.Schema}
	for i := range servers {
		o.SealAtLeast = []int{1, 5, 2}[i%3]
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
	e := &storage.Entry{Reading: &vitals.Reading{Device: device, TimeUnixMs: timeUnixMs}, ReceivedUnixMs: modelMs + r.Int64N(3)}
	if timeUnixMs < modelMs+dayMs && r.IntN(3) > 0 {
		e.ReceivedUnixMs = timeUnixMs + []int64{-700, 0, 1, 900, 30 * dayMs}[r.IntN(5)]
	}
	signs := []uint32{1<<vitals.HeartRate | 1<<vitals.SpO2}
	if r.IntN(4) == 0 {
		signs = []uint32{1 << vitals.HeartRate, 1 << vitals.SpO2, 1 << vitals.RestingHeartRate, 1<<vitals.Systolic | 1<<vitals.Diastolic, 1<<vitals.HeartRate | 1<<vitals.BodyWeight, 1 << vitals.PulseRate}
	}
	odd := vitals.Value(0)
	if r.IntN(8) == 0 {
		odd = 1
	}
	for sg := range vitals.InOrder(signs[r.IntN(len(signs))]) {
		v := []vitals.Value{0, 1, math.MaxInt16, math.MaxInt16 + 1, math.MaxUint16}[(timeUnixMs/minuteMs+int64(sg))%5]
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

// nextHorizon returns a time before which readings are sealed. It mostly rises slowly, so that servers often know an earlier one.
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
WITH sealed AS MATERIALIZED (SELECT s.device, s.last_ms AS of_ms, i, s.last_ms - SCHEMA.uint31_at(s.back, i) AS time_ms
		FROM SCHEMA.segments AS s CROSS JOIN LATERAL generate_series(0, s.n - 1) AS i),
	place AS MATERIALIZED (SELECT device, time_ms, NULL::bigint AS of_ms FROM SCHEMA.readings UNION ALL SELECT device, time_ms, of_ms FROM sealed)
SELECT format('%s has %s readings at %s', device, count(*), time_ms) FROM place GROUP BY device, time_ms HAVING count(*) > 1
UNION ALL SELECT format('a segment of %s until %s has other lengths than %s readings', device, last_ms, n) FROM SCHEMA.segments
	WHERE n <= 0 OR length(back) <> 4 * n OR length(delays) <> 4 * n OR length(sys) <> 2 * n OR length(dia) <> 2 * n OR length(spo2) <> 2 * n OR length(hr) <> 2 * n OR length(rhr) <> 2 * n
		OR coalesce(sys, dia, spo2, hr, rhr) IS NULL
UNION ALL SELECT format('a segment of %s is from %s to %s, and has readings from %s to %s', s.device, s.first_ms, s.last_ms, min(r.time_ms), max(r.time_ms))
	FROM SCHEMA.segments AS s JOIN sealed AS r ON r.device = s.device AND r.of_ms = s.last_ms GROUP BY s.device, s.first_ms, s.last_ms HAVING min(r.time_ms) <> s.first_ms OR max(r.time_ms) <> s.last_ms
UNION ALL SELECT format('the readings of a segment of %s until %s are not in order', device, of_ms)
	FROM (SELECT device, of_ms, time_ms < lag(time_ms) OVER (PARTITION BY device, of_ms ORDER BY i) AS wrong FROM sealed) AS o WHERE wrong
UNION ALL SELECT format('%s has readings and is not registered', device) FROM (SELECT DISTINCT device FROM place) AS p WHERE NOT EXISTS (SELECT FROM SCHEMA.devices AS d WHERE d.device = p.device)
UNION ALL SELECT format('%s devices are counted, and there are %s', m.devices, n) FROM SCHEMA.meta AS m, (SELECT count(*) AS n FROM SCHEMA.devices) AS d WHERE m.devices <> n
UNION ALL SELECT format('a segment of %s until %s is not before the horizon', device, last_ms) FROM SCHEMA.segments WHERE last_ms >= (SELECT sealed_ms FROM SCHEMA.meta)
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
		for sg, column := range []string{"sys", "dia", "spo2", "hr", "rhr"} {
			all = append(all, strings.NewReplacer("COL", column, "BIT", fmt.Sprint(1<<sg)).Replace(part[:end-1]))
		}
		parts[1+i] = "(" + strings.Join(all, " OR ") + ")" + part[end:]
	}
	return strings.Join(parts, "")
}

// violations returns what a connection finds in one snapshot that must not be there.
func (w *sealWorld) violations(conn *pgx.Conn) ([]string, error) {
	if _, err := conn.Exec(context.Background(), "SET jit = off"); err != nil { // compiling a query takes longer than it runs
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
	rows, err := w.conn.Query(context.Background(), w.sql(`SELECT concat_ws(' ', device, time_ms, received_ms, coalesce(gateway, '-'), coalesce(utc_offset_minutes::text, '-'),
		0 || '=' || (systolic_mmhg * 100)::integer, 1 || '=' || (diastolic_mmhg * 100)::integer, 2 || '=' || (spo2_pct * 100)::integer, 3 || '=' || (heart_rate_bpm * 100)::integer,
		4 || '=' || (resting_heart_rate_bpm * 100)::integer, (SELECT string_agg(more[i] || '=' || more[i + 1], ' ' ORDER BY i) FROM generate_series(1, cardinality(more), 2) AS i))
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
		mustEqual(t, "all of "+d.Name.String(), asText(d.Name, scanned(t, w.some(r), span, 2+len(want)/(1+r.IntN(9)))), asText(d.Name, want))
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

// TestRandomSealed makes random calls of three servers, each of which seals, and compares the results with a model. make exhaustive plays more.
//
// Its mutants are seal-without-verify and settle-late-beside-segments.
func TestRandomSealed(t *testing.T) {
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

// assignBoth assigns a device to a subject, mostly from a time on, so that its latest values are among those that go with the assignment.
func assignBoth(t failer, r *rand.Rand, w *sealWorld, model *storetest.Memory) storage.Assignment {
	t.Helper()
	a := storage.Assignment{Device: modelDevices[r.IntN(3)], Subject: storage.Subject([]string{"P", "Q"}[r.IntN(2)]), FromUnixMs: randomTime(r), ToUnixMs: math.MaxInt64}
	if r.IntN(3) == 0 {
		a.ToUnixMs = randomTime(r)
	}
	if err, want := w.some(r).Assign(context.Background(), a), model.Assign(context.Background(), a); (err == nil) != (want == nil) {
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
			t.Fatalf("reading %d, %s, got outcome %s, sign %d, want %s, %d", i, asViewed(e.Reading.Device, storage.Record{TimeUnixMs: e.Reading.TimeUnixMs, Values: e.Reading.Values}),
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

// Settings of the bouts.
var (
	sealSeed   = flag.Uint64("seal.seed", 0, "seed of the bouts of calls at once; 0 means a random one")
	sealBouts  = flag.Int("seal.bouts", 6, "number of these bouts")
	sealKiller = flag.Bool("seal.kill", true, "connections are ended in the second half of them")
)

// A key is what identifies a reading.
type modelKey struct {
	device vitals.Name
	ms     int64
}

// A flat record can be compared. The zero flat is none.
type flat struct {
	storage.Record
	gateway vitals.Name
}

func flatten(r storage.Record) flat {
	f := flat{Record: r}
	if r.Gateway != nil {
		f.gateway, f.Gateway = *r.Gateway, nil
	}
	return f
}

// settle returns a record as settling a reading leaves it.
func (f flat) settle(e *storage.Entry) (flat, storage.Outcome, vitals.Sign) {
	r := e.Reading
	if f == (flat{}) {
		return flat{storage.Record{TimeUnixMs: r.TimeUnixMs, ReceivedUnixMs: e.ReceivedUnixMs, Values: r.Values, UTCOffset: r.UTCOffset}, r.Gateway}, storage.Stored, 0
	}
	merged, sign, outcome := storage.Merge(&f.Values, &r.Values)
	if outcome != storage.Completed {
		return f, outcome, sign
	}
	f.Values, f.Shared = merged, f.Shared || f.gateway != r.Gateway
	if f.gateway.IsZero() {
		f.gateway = r.Gateway
	}
	if f.UTCOffset == 0 {
		f.UTCOffset = r.UTCOffset
	}
	return f, outcome, 0
}

// A removal is a call that removes readings of one device or of all, with times before toMs.
type removal struct {
	device       vitals.Name
	fromMs, toMs int64
	done         bool // it has returned no error
}

func (x *removal) covers(k modelKey) bool {
	return (x.device.IsZero() || x.device == k.device) && k.ms >= x.fromMs && k.ms < x.toMs
}

// A bout is calls that were made at once.
type bout struct {
	before   map[modelKey]flat
	groups   [][]*storage.Entry
	stored   []bool // Append has returned no error
	removals []removal
	killing  bool // connections were ended meanwhile, so a call may be repeated after it was carried out

	atKey map[modelKey][]sent
}

// A sent is a reading that was sent, and whether its outcome is known.
type sent struct {
	*storage.Entry
	known bool
}

// explains reports whether calls in some order give the outcomes of the readings of a key, and the record afterwards.
func (b *bout) explains(k modelKey, after flat) bool {
	entries := b.atKey[k]
	removable, must := false, false
	for i := range b.removals {
		x := &b.removals[i]
		removable = removable || x.covers(k)
		must = must || x.done && x.covers(k)
	}
	type state struct {
		have    flat
		settled uint32
		removed bool
	}
	seen := map[state]bool{}
	all := uint32(0)
	for i, e := range entries {
		if e.known && e.Outcome != 0 {
			all |= 1 << i
		}
	}
	accepted := func(o storage.Outcome) bool { return o <= storage.Duplicate }
	var search func(state) bool
	search = func(s state) bool {
		if seen[s] {
			return false
		}
		seen[s] = true
		if s.settled&all == all && s.have == after && (s.removed || !must) {
			return true
		}
		if removable && search(state{flat{}, s.settled, true}) {
			return true
		}
		for i, e := range entries {
			next, outcome, sign := s.have.settle(e.Entry)
			if !e.known || b.killing && removable && e.Outcome != 0 { // an attempt that was carried out, and then repeated
				if search(state{next, s.settled, s.removed}) {
					return true
				}
			}
			if all&^s.settled&(1<<i) == 0 {
				continue
			}
			same := outcome == e.Outcome && (outcome != storage.Conflict || sign == e.Sign)
			if b.killing {
				same = outcome == e.Outcome || accepted(outcome) && accepted(e.Outcome)
			}
			if same && search(state{next, s.settled | 1<<i, s.removed}) {
				return true
			}
		}
		return false
	}
	return search(state{have: b.before[k]})
}

// touched reports whether a call may change the record of a key.
func (b *bout) touched(k modelKey) bool {
	touched := len(b.atKey[k]) > 0
	for i := range b.removals { // no copies: remove sets done
		touched = touched || b.removals[i].covers(k)
	}
	return touched
}

// snapshot returns all records.
func (w *sealWorld) snapshot(t failer, r *rand.Rand) map[modelKey]flat {
	t.Helper()
	all := map[modelKey]flat{}
	for _, d := range modelDevices {
		for _, rec := range scanned(t, w.some(r), storage.Range{Device: d, ToUnixMs: math.MaxInt64}, 300) {
			all[modelKey{d, rec.TimeUnixMs}] = flatten(rec)
		}
	}
	return all
}

// newBout draws groups. No group has two readings of a key, so that the search is short.
func newBout(r *rand.Rand, before map[modelKey]flat, killing bool) *bout {
	b := &bout{before: before, killing: killing, atKey: map[modelKey][]sent{}}
	for range 6 {
		var group []*storage.Entry
		in := map[modelKey]bool{}
		for _, e := range randomGroup(r) {
			e.Unit = 0
			if k := (modelKey{e.Reading.Device, e.Reading.TimeUnixMs}); !in[k] {
				in[k] = true
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
		b.groups = append(b.groups, group)
	}
	b.stored = make([]bool, len(b.groups))
	for _, group := range b.groups {
		for _, e := range group {
			k := modelKey{e.Reading.Device, e.Reading.TimeUnixMs}
			b.atKey[k] = append(b.atKey[k], sent{Entry: e})
		}
	}
	switch r.IntN(3) {
	case 0:
		b.removals = append(b.removals, removal{toMs: modelMs + r.Int64N(200)*minuteMs})
		b.removals = append(b.removals, b.removals[0]) // of two servers
	case 1:
		b.removals = append(b.removals, removal{device: modelDevices[r.IntN(3)], toMs: math.MaxInt64})
		b.removals = append(b.removals, removal{device: modelDevices[r.IntN(3)], fromMs: modelMs + r.Int64N(100)*minuteMs, toMs: modelMs + (100+r.Int64N(200))*minuteMs})
	}
	return b
}

// remove makes a removal, and returns the number of removed readings.
func (x *removal) remove(s *pgstore.Store, atMost int64) (n int64, err error) {
	switch {
	case x.device.IsZero():
		for more := true; more && err == nil; {
			var got storage.Expiry
			got, err = s.Expire(context.Background(), x.toMs, atMost)
			n, more = n+got.Readings, got.More
		}
	case x.fromMs == 0:
		var got storage.Erasure
		got, err = s.Erase(x.device)
		n = got.Readings
	default:
		a := storage.Assignment{Device: x.device, Subject: "P", FromUnixMs: x.fromMs, ToUnixMs: x.toMs}
		if err = s.Assign(context.Background(), a); err == nil {
			var got storage.Erasure
			got, err = s.EraseAssignment(a)
			n = got.Readings
		}
	}
	x.done = err == nil
	return n, err
}

// play makes the calls.
func (b *bout) play(t *testing.T, r *rand.Rand, w *sealWorld, server *pgtest.Server) {
	var calls, beside sync.WaitGroup
	var ended atomic.Bool
	var removed, sealed atomic.Int64
	for i := range 3 {
		s := w.some(r)
		calls.Go(func() {
			for n := i; n < len(b.groups); n += 3 {
				err := s.Append(b.groups[n])
				b.stored[n] = err == nil
				if err != nil {
					t.Logf("Append: %v", err)
				}
			}
		})
	}
	for i := range b.removals {
		s, atMost := w.some(r), []int64{1 << 40, 1 + r.Int64N(50)}[r.IntN(2)]
		calls.Go(func() {
			n, err := b.removals[i].remove(s, atMost)
			removed.Add(n)
			if err != nil {
				t.Logf("removal: %v", err)
			}
		})
	}
	for _, s := range w.stores {
		own := rand.New(rand.NewPCG(r.Uint64(), 1))
		beside.Go(func() {
			for !ended.Load() {
				n, err := pgstore.Seal(s, w.nextHorizon(own))
				sealed.Add(n)
				if errors.Is(err, storage.ErrCorrupt) {
					t.Errorf("Seal: %v", err)
				} else if err != nil && !b.killing {
					t.Logf("Seal: %v", err)
				}
			}
		})
	}
	for range 2 {
		s, own := w.some(r), rand.New(rand.NewPCG(r.Uint64(), 2))
		beside.Go(func() {
			for !ended.Load() {
				b.read(t, own, s)
			}
		})
	}
	looking := connect(t, server)
	beside.Go(func() {
		defer looking.Close(context.Background())
		for !ended.Load() && !t.Failed() {
			if all, err := w.violations(looking); err != nil || len(butRegistered(all)) > 0 {
				t.Errorf("meanwhile: %v, %v", all, err)
			}
		}
	})
	if b.killing {
		own := rand.New(rand.NewPCG(r.Uint64(), 3))
		conn := connect(t, server)
		beside.Go(func() {
			defer conn.Close(context.Background())
			for !ended.Load() {
				time.Sleep(time.Duration(own.IntN(200)) * time.Millisecond)
				if _, err := conn.Exec(context.Background(), "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE application_name = 'pulsegate' ORDER BY state = 'idle', random() LIMIT 1) AS one"); err != nil {
					t.Errorf("end a connection: %v", err)
				}
			}
		})
	}
	calls.Wait()
	ended.Store(true)
	beside.Wait()
	added := -removed.Load()
	for n, group := range b.groups {
		for _, e := range group {
			k := modelKey{e.Reading.Device, e.Reading.TimeUnixMs}
			at := slices.IndexFunc(b.atKey[k], func(s sent) bool { return s.Entry == e })
			b.atKey[k][at].known = b.stored[n]
			if e.Outcome == storage.Stored {
				added++
			}
		}
		if !b.stored[n] && !b.killing {
			t.Errorf("Append has failed though nothing was wrong")
		}
	}
	after := w.snapshot(t, r)
	for k := range b.before {
		if _, ok := after[k]; !ok && !b.explains(k, flat{}) {
			t.Errorf("%s", b.describe(k, flat{}))
		}
	}
	for k, rec := range after {
		if !b.explains(k, rec) {
			t.Errorf("%s", b.describe(k, rec))
		}
	}
	for k := range b.atKey {
		if _, ok := after[k]; !ok && !b.explains(k, flat{}) {
			t.Errorf("%s", b.describe(k, flat{}))
		}
	}
	if got := int64(len(after) - len(b.before)); got != added && !b.killing {
		t.Errorf("there are %d readings more, and %d were acknowledged as stored, and %d as removed", got, added+removed.Load(), removed.Load())
	}
	t.Logf("%d readings, and %d were sealed meanwhile", len(after), sealed.Load())
	w.mustBeLatest(t, after)
	if slices.Contains(b.stored, false) {
		return
	}
	w.mustHold(t)
}

// butRegistered returns those violations that are not about devices that are not registered: after an erasure, a group that was being stored
// registers them before it is acknowledged.
func butRegistered(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(text string) bool { return strings.Contains(text, "registered") })
}

// describe describes what explains cannot explain.
func (b *bout) describe(k modelKey, after flat) string {
	record := func(f flat) string {
		if f == (flat{}) {
			return "nothing"
		}
		f.Gateway = &f.gateway
		return asText(k.device, []storage.Record{f.Record})[0]
	}
	text := fmt.Sprintf("no order of the calls explains the record %s, after %s:", record(after), record(b.before[k]))
	for _, e := range b.atKey[k] {
		next, _, _ := flat{}.settle(e.Entry)
		text += fmt.Sprintf("\n%s (sign %d, known: %v) of %s", storetest.OutcomeName(e.Outcome), e.Sign, e.known, record(next))
	}
	for i := range b.removals {
		if x := &b.removals[i]; x.covers(k) {
			text += fmt.Sprintf("\nremoved %q %d to %d: %v", x.device, x.fromMs, x.toMs, x.done)
		}
	}
	return text
}

// read reads a page, and checks that all records that no call touches are in it.
func (b *bout) read(t *testing.T, r *rand.Rand, s *pgstore.Store) {
	span := storage.Range{Device: modelDevices[r.IntN(3)], FromUnixMs: randomTime(r), ToUnixMs: math.MaxInt64, Descending: r.IntN(2) == 0}
	dst := make([]storage.Record, 1+r.IntN(200))
	n, err := s.Scan(context.Background(), span, dst)
	if err != nil {
		t.Logf("Scan: %v", err)
		return
	}
	if n == len(dst) {
		if span.Descending {
			span.FromUnixMs = dst[n-1].TimeUnixMs
		} else {
			span.ToUnixMs = dst[n-1].TimeUnixMs + 1
		}
	}
	got := map[int64]flat{}
	for i, rec := range dst[:n] {
		got[rec.TimeUnixMs] = flatten(rec)
		if i > 0 && (rec.TimeUnixMs > dst[i-1].TimeUnixMs) == span.Descending || rec.TimeUnixMs < span.FromUnixMs || rec.TimeUnixMs >= span.ToUnixMs {
			t.Errorf("a page has records that are not in order, or not of %+v", span)
		}
	}
	for k, want := range b.before {
		if k.device == span.Device && k.ms >= span.FromUnixMs && k.ms < span.ToUnixMs && !b.touched(k) && got[k.ms] != want {
			t.Errorf("a page of %+v has %+v at %d, want %+v", span, got[k.ms], k.ms, want)
		}
	}
}

// mustBeLatest compares the latest values with records.
func (w *sealWorld) mustBeLatest(t failer, all map[modelKey]flat) {
	t.Helper()
	for i, d := range modelDevices {
		want := storage.Device{Name: d, NewestUnixMs: -1}
		for k, rec := range all {
			if k.device != d {
				continue
			}
			want.NewestUnixMs = max(want.NewestUnixMs, k.ms)
			for sg := range vitals.InOrder(rec.Values.Present()) {
				if l := &want.Latest[sg]; !l.Known || k.ms > l.TimeUnixMs {
					v, _ := rec.Values.Get(sg)
					*l = storage.Latest{TimeUnixMs: k.ms, UTCOffset: rec.UTCOffset, Value: v, Known: true}
				}
			}
		}
		got, err := w.stores[i%len(w.stores)].Latest(context.Background(), d)
		if want.NewestUnixMs < 0 && errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil || got != want {
			t.Fatalf("Latest(%s) returned %+v, %v, want %+v", d, got, err, want)
		}
	}
}

// TestSealedAtOnce makes calls of three servers at once, while all of them seal, and looks for an order that explains what they returned and what is
// stored afterwards. In every other bout, connections are ended, and transactions of the sealers and of others fail in the middle.
func TestSealedAtOnce(t *testing.T) { playBouts(t, *sealBouts) }

// TestSealedAtOnceExhaustive (make exhaustive) plays more.
func TestSealedAtOnceExhaustive(t *testing.T) { playBouts(t, 100**sealBouts) }

// TestSealedExpireLatest removes old readings one by one while they are sealed: at any time, the latest values are in rows.
func TestSealedExpireLatest(t *testing.T) {
	server := sharedServer(t)
	w := openSealWorld(t, server, 2)
	defer w.close()
	s, end := w.stores[0], int64(sealStart+1000*minuteMs)
	if err := s.Append(mixed("bed-7", 40)); err != nil {
		t.Fatal(err)
	}
	var ended atomic.Bool
	var beside sync.WaitGroup
	beside.Go(func() {
		for !ended.Load() {
			if _, err := pgstore.Seal(s, end); err != nil {
				t.Log(err)
			}
		}
	})
	for more := true; more && !t.Failed(); {
		x, err := w.stores[1].Expire(context.Background(), end, 1)
		if err != nil {
			t.Error(err)
		}
		more = x.More
		if all, err := w.violations(w.conn); err != nil || len(all) > 0 {
			t.Errorf("%v, %v", all, err)
		}
	}
	ended.Store(true)
	beside.Wait()
}

// TestSealedEraseLatest erases the latest readings: the latest one of those that are left was in a segment.
//
// Its mutant is erase-latest-in-rows.
func TestSealedEraseLatest(t *testing.T) {
	o := options(sharedServer(t))
	o.SealAtLeast = 1
	s := open(t, o)
	for part := range int64(2) {
		var group []*storage.Entry
		for i := range int64(50) {
			group = append(group, reading("d", sealStart+(50*part+i)*minuteMs, 1))
		}
		if err := s.Append(group); err != nil {
			t.Fatal(err)
		}
		seal(t, s, sealStart+1000*minuteMs)
	}
	a := assignment("d", "P", sealStart+49*minuteMs, math.MaxInt64) // the second segment begins there
	if err := s.Assign(context.Background(), a); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EraseAssignment(a); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Latest(context.Background(), a.Device); err != nil || got.NewestUnixMs != sealStart+48*minuteMs {
		t.Errorf("Latest returned %+v, %v, want a reading of %d", got, err, int64(sealStart+48*minuteMs))
	}
}

// TestSealedOldHorizon repeats, on another server, what was sealed at this moment. That server learns of the new horizon when it fails, or
// within a second.
//
// Its mutant is trust-old-horizon.
func TestSealedOldHorizon(t *testing.T) {
	o := options(sharedServer(t))
	o.SealAtLeast = 1
	s, other := open(t, o), open(t, o)
	for round := range int64(20) {
		group := func() (all []*storage.Entry) {
			for i := range int64(10) {
				all = append(all, reading("d", sealStart+(10*round+i)*minuteMs, 1))
			}
			return all
		}
		if err := other.Append(group()); err != nil {
			t.Fatal(err)
		}
		seal(t, s, sealStart+(10*round+10)*minuteMs)
		again := group()
		if err := other.Append(again); err != nil {
			t.Fatal(err)
		}
		for i, e := range again {
			if e.Outcome != storage.Duplicate {
				t.Errorf("round %d: reading %d got outcome %s, want duplicate", round, i, storetest.OutcomeName(e.Outcome))
			}
		}
	}
}

// boutsInWorld is the number of bouts in one schema.
const boutsInWorld = 6

func playBouts(t *testing.T, bouts int) {
	server := sharedServer(t)
	seed := *sealSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	for ; bouts > 0 && !t.Failed(); bouts, seed = bouts-boutsInWorld, seed+1 {
		t.Logf("-seal.seed %d", seed)
		playWorld(t, server, rand.New(rand.NewPCG(seed, 0)), min(bouts, boutsInWorld))
	}
}

func playWorld(t *testing.T, server *pgtest.Server, r *rand.Rand, bouts int) {
	w := openSealWorld(t, server, 3)
	defer w.close()
	if _, err := w.conn.Exec(context.Background(), w.sql(`CREATE TABLE SCHEMA.chaos (p float8);
		CREATE FUNCTION SCHEMA.chaos() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF random() < (SELECT p FROM SCHEMA.chaos) THEN
				IF random() < 0.3 THEN RAISE EXCEPTION 'chaos' USING ERRCODE = '40001'; END IF;
				IF random() < 0.3 THEN PERFORM pg_sleep(0.1); END IF;
				PERFORM pg_terminate_backend(pg_backend_pid());
			END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER chaos AFTER INSERT OR UPDATE OR DELETE ON SCHEMA.segments FOR EACH STATEMENT EXECUTE FUNCTION SCHEMA.chaos();
		INSERT INTO SCHEMA.chaos VALUES (0)`)); err != nil {
		t.Fatal(err)
	}
	for n := range bouts {
		// Connections that were ended are found broken later, when outcomes would be unknown without the test knowing it.
		killing := *sealKiller && n >= bouts/2
		p := 0.0
		if killing {
			p = 0.03
		}
		if _, err := w.conn.Exec(context.Background(), w.sql("UPDATE SCHEMA.chaos SET p = $1"), p); err != nil {
			t.Fatal(err)
		}
		b := newBout(r, w.snapshot(t, r), killing)
		b.play(t, r, w, server)
		if t.Failed() {
			return
		}
	}
}

// TestSealedRewound brings earlier states of a database back in which other readings are sealed than were afterwards. Two servers repair it
// while they seal: it has all that was acknowledged, once, and nothing that was erased.
func TestSealedRewound(t *testing.T) {
	t.Parallel()
	rewind(t, 1)
}

// TestSealedRewoundExhaustive (make exhaustive) does so more often.
func TestSealedRewoundExhaustive(t *testing.T) {
	t.Parallel()
	for range 5 * *sealBouts {
		rewind(t, 3)
	}
}

func rewind(t *testing.T, times int) {
	seed := *sealSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	t.Logf("-seal.seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	primary := startReturning(t)
	primary.opt.SealAtLeast = 1
	w := &sealWorld{schema: primary.opt.Schema, stores: []*pgstore.Store{open(t, primary.opt), open(t, primary.opt)}}
	model := storetest.NewMemory()
	ctx, expired := context.Background(), false
	works := func() {
		for range 3 + r.IntN(8) {
			switch r.IntN(3) {
			case 0:
				if _, err := pgstore.Seal(w.some(r), w.nextHorizon(r)); err != nil {
					t.Fatalf("Seal: %v", err)
				}
			default:
				appendBoth(t, w.some(r), model, randomGroup(r))
			}
		}
	}
	for n := range times {
		// What is erased later is not stored again.
		erased, part := modelNames(fmt.Sprintf("erased-%d", n))[0], modelNames(fmt.Sprintf("part-%d", n))[0]
		for i := range int64(12) {
			var group []*storage.Entry
			for k := range int64(25) {
				group = append(group, randomEntry(r, erased, modelMs+(25*i+k)*minuteMs), randomEntry(r, part, modelMs+(25*i+k)*minuteMs))
			}
			if appendBoth(t, w.some(r), model, group); i%5 == 2 {
				works()
			}
		}
		earlier := primary.backup(t)
		works()
		beforeMs := int64(0)
		if r.IntN(2) == 0 {
			expired = true
			beforeMs = modelMs + r.Int64N(100)*minuteMs
			if _, err := w.some(r).Expire(ctx, beforeMs, 1<<40); err != nil {
				t.Fatalf("Expire: %v", err)
			}
			if _, err := model.Expire(ctx, beforeMs, math.MaxInt64); err != nil {
				t.Fatal(err)
			}
		}
		works()
		if r.IntN(2) == 0 {
			if _, err := w.some(r).Erase(erased); err != nil {
				t.Fatalf("Erase: %v", err)
			}
			if _, err := model.Erase(erased); err != nil {
				t.Fatal(err)
			}
		}
		a := storage.Assignment{Device: part, Subject: "P", FromUnixMs: modelMs + 100*minuteMs, ToUnixMs: modelMs + (110+r.Int64N(200))*minuteMs}
		for _, s := range []storage.Subjects{w.some(r), model} {
			if err := s.Assign(ctx, a); err != nil {
				t.Fatalf("Assign: %v", err)
			}
		}
		got, err := w.some(r).EraseAssignment(a)
		if want, wantErr := model.EraseAssignment(a); err != nil || wantErr != nil || got != want {
			t.Fatalf("EraseAssignment returned %+v, %v, want %+v, %v", got, err, want, wantErr)
		}
		works()
		for i, s := range w.stores { // each has something to put back
			appendBoth(t, s, model, []*storage.Entry{randomEntry(r, modelDevices[i], modelMs+1000*dayMs/4+int64(n))})
		}
		primary.restore(t, earlier)
		var ended atomic.Bool
		var beside sync.WaitGroup
		for _, s := range w.stores {
			own := rand.New(rand.NewPCG(r.Uint64(), 4))
			beside.Go(func() {
				for !ended.Load() {
					if _, err := pgstore.Seal(s, w.nextHorizon(own)); errors.Is(err, storage.ErrCorrupt) {
						t.Errorf("Seal: %v", err)
					}
					time.Sleep(time.Duration(own.IntN(50)) * time.Millisecond)
				}
			})
		}
		for _, s := range w.stores {
			awaitRepairs(t, s, float64(n+1))
		}
		ended.Store(true)
		beside.Wait()
		if beforeMs > 0 { // a repair leaves it to retention
			if _, err := w.some(r).Expire(ctx, beforeMs, 1<<40); err != nil {
				t.Fatalf("Expire: %v", err)
			}
			if _, err := model.Expire(ctx, beforeMs, math.MaxInt64); err != nil {
				t.Fatal(err)
			}
		}
		mustHaveValues(t, r, w, model)
		w.conn = connect(t, primary.now)
		w.mustHold(t)
		works()
		w.mustHold(t)
		_ = w.conn.Close(ctx)
		mustHaveValues(t, r, w, model)
		for _, s := range w.stores {
			mustNotLose(t, s)
			// What was stored again after retention had removed it may contradict the earlier state.
			if n := metric(t, s, "pulsegate_postgres_contradicted_total", ""); n != 0 && !expired {
				t.Errorf("%v readings were contradicted", n)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// mustHaveValues compares the values of all readings with a model. Two servers put parts of a record back in any order, so the gateway and the
// time of receipt may be those of the other part.
func mustHaveValues(t *testing.T, r *rand.Rand, w *sealWorld, model storage.Store) {
	t.Helper()
	ctx := context.Background()
	devices := make([]storage.Device, 100)
	n, err := model.Devices(ctx, vitals.Name{}, devices)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]storage.Device, 100)
	m, err := w.some(r).Devices(ctx, vitals.Name{}, got)
	if err != nil {
		t.Fatal(err)
	}
	var names, want []string
	for _, d := range got[:m] {
		names = append(names, fmt.Sprint(d.Name, " ", d.NewestUnixMs))
	}
	for _, d := range devices[:n] {
		want = append(want, fmt.Sprint(d.Name, " ", d.NewestUnixMs))
	}
	mustEqual(t, "devices", names, want)
	for _, d := range devices[:n] {
		values := func(s storage.Store) (all []string) {
			for _, rec := range scanned(t, s, storage.Range{Device: d.Name, ToUnixMs: math.MaxInt64}, 300) {
				all = append(all, asViewed(d.Name, storage.Record{TimeUnixMs: rec.TimeUnixMs, Values: rec.Values}))
			}
			return all
		}
		mustEqual(t, "values of "+d.Name.String(), values(w.some(r)), values(model))
	}
}

// TestUnitRepeatsRemoved removes the record that a reading of a unit repeats, after it was read: the reading is stored, and its outcome says so.
func TestUnitRepeatsRemoved(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	if err := s.Append([]*storage.Entry{reading("d", 1, 1)}); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	conn := connect(t, server)
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "BEGIN; LOCK TABLE "+o.Schema+".readings IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	unit := []*storage.Entry{reading("d", 1, 1), reading("d", 2, 2)}
	unit[0].Unit = 2
	ended := make(chan error, 1)
	go func() { ended <- s.Append(unit) }()
	polltest.Until(t, "the unit waits", func() bool {
		return queryValue[int](t, server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event_type = 'Lock'") > 0
	})
	if _, err := conn.Exec(ctx, "DELETE FROM "+o.Schema+".readings; COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for i, e := range unit {
		if e.Outcome != storage.Stored {
			t.Errorf("reading %d got outcome %s, want stored", i, storetest.OutcomeName(e.Outcome))
		}
	}
}
