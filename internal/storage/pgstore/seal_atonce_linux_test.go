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

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// Settings of the bouts.
var (
	sealSeed   = flag.Uint64("seal.seed", 0, "seed of the bouts of calls at once; 0 means a random one")
	sealBouts  = flag.Int("seal.bouts", 2, "number of these bouts")
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
		return flat{storage.Record{TimeUnixMs: r.TimeUnixMs, ReceivedUnixMs: e.ReceivedUnixMs, Values: r.Values,
			UTCOffset: r.UTCOffset}, r.Gateway}, storage.Stored, 0
	}
	merged, sign, outcome := storage.Merge(&f.Values, &r.Values)
	if outcome != storage.Completed {
		return f, outcome, sign
	}
	f.Values, f.Shared = merged, f.Shared || f.gateway != r.Gateway
	if e.ReceivedUnixMs > f.ReceivedUnixMs {
		f.ChangedUnixMs = max(f.ChangedUnixMs, e.ReceivedUnixMs)
	}
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
		b.removals = append(b.removals, removal{device: modelDevices[r.IntN(3)], fromMs: modelMs + r.Int64N(100)*minuteMs,
			toMs: modelMs + (100+r.Int64N(200))*minuteMs})
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
	beside.Go(func() {
		for !ended.Load() && !t.Failed() {
			looking, err := pgx.Connect(context.Background(), server.DSN()) // a new process sees all partitions
			if err != nil {
				t.Error(err)
				return
			}
			if all, err := w.violations(looking); err != nil || len(butRegistered(all)) > 0 {
				t.Errorf("meanwhile: %v, %v", all, err)
			}
			_ = looking.Close(context.Background())
		}
	})
	if b.killing {
		own := rand.New(rand.NewPCG(r.Uint64(), 3))
		conn := connect(t, server)
		beside.Go(func() {
			defer conn.Close(context.Background())
			for !ended.Load() {
				time.Sleep(time.Duration(own.IntN(200)) * time.Millisecond)
				if _, err := conn.Exec(context.Background(),
					"SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE application_name = 'pulsegate' "+
						"ORDER BY state = 'idle', random() LIMIT 1) AS one"); err != nil {
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
	for _, s := range w.stores {
		pgstore.Reconnect(s) // readers may not see a new partition for a moment: TestPartitionAttached
	}
	_ = w.conn.Close(context.Background())
	w.conn = connect(t, server)
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
		t.Errorf("there are %d readings more, and %d were acknowledged as stored, and %d as removed", got,
			added+removed.Load(), removed.Load())
	}
	t.Logf("%d readings, and %d were sealed meanwhile", len(after), sealed.Load())
	w.mustBeLatest(t, after)
	if slices.Contains(b.stored, false) {
		return
	}
	w.mustHold(t)
}

// describe logs what the database has, whatever the store reads, and the end of the server's log.
func (w *sealWorld) describe(t *testing.T, server *pgtest.Server) {
	for _, sql := range []string{
		"SELECT format('%s: %s rows of %s', tableoid::regclass, count(*), device) FROM SCHEMA.readings GROUP BY tableoid, " +
			"device ORDER BY 1",
		"SELECT format('segments: %s readings of %s in %s', sum(n), device, count(*)) FROM SCHEMA.segments GROUP BY " +
			"device ORDER BY 1",
		"SELECT format('%s seconds since the server started', extract(epoch FROM now() - pg_postmaster_start_time()))",
	} {
		rows, err := w.conn.Query(context.Background(), w.sql(sql))
		lines, collectErr := pgx.CollectRows(rows, pgx.RowTo[string])
		t.Logf("%s %v %v", strings.Join(lines, "\n"), err, collectErr)
	}
	lines := strings.Split(server.Log(), "\n")
	t.Logf("%s", strings.Join(lines[max(0, len(lines)-200):], "\n"))
}

// butRegistered returns those violations that are not about devices that are not registered: after an erasure, a group
// that was being stored registers them before it is acknowledged.
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
		text += fmt.Sprintf("\n%s (sign %d, known: %v) of %s", storetest.OutcomeName(e.Outcome), e.Sign, e.known,
			record(next))
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
	span := storage.Range{Device: modelDevices[r.IntN(3)], FromUnixMs: randomTime(r), ToUnixMs: math.MaxInt64,
		Descending: r.IntN(2) == 0}
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
		if i > 0 && (rec.TimeUnixMs > dst[i-1].TimeUnixMs) == span.Descending || rec.TimeUnixMs < span.FromUnixMs ||
			rec.TimeUnixMs >= span.ToUnixMs {
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

// TestSealedAtOnce makes calls of three servers at once, while all of them seal, and looks for an order that explains
// what they returned and what is stored afterwards. In every other bout, connections are ended, and transactions of the
// sealers and of others fail in the middle.
func TestSealedAtOnce(t *testing.T) { playBouts(t, *sealBouts) }

// TestSealedAtOnceExhaustive (make exhaustive) plays more.
func TestSealedAtOnceExhaustive(t *testing.T) { playBouts(t, 300**sealBouts) }

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
		mustExecute(t, w.conn, w.sql("UPDATE SCHEMA.chaos SET p = $1"), p)
		b := newBout(r, w.snapshot(t, r), killing)
		b.play(t, r, w, server)
		if t.Failed() {
			w.describe(t, server)
			return
		}
	}
}
