package pgstore_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// A returning is a primary, of which tests bring back earlier states.
type returning struct {
	now     *pgtest.Server
	addr    atomic.Value // of now, or "" while none is reached
	sockets pgtest.Sockets
	opt     pgstore.Options
}

// startReturning starts a server. Stores remember for an hour.
func startReturning(t *testing.T) *returning {
	t.Helper()
	r := &returning{now: pgtest.Start(t, fast...)}
	r.addr.Store(r.now.Addr())
	r.opt = options(r.now)
	r.opt.DSN = strings.Replace(r.opt.DSN, r.now.Addr(),
		r.sockets.Forward(t, func() string { return r.addr.Load().(string) }), 1)
	r.opt.Remember = time.Hour
	r.opt.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	return r
}

// A testWriter writes to the log of a test.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// backup keeps the present state.
func (r *returning) backup(t *testing.T) *pgtest.Server {
	t.Helper()
	return r.now.Backup(t, fast...)
}

// restore replaces the primary by an earlier state.
func (r *returning) restore(t *testing.T, earlier *pgtest.Server) {
	t.Helper()
	r.stop()
	earlier.Restart(t)
	r.use(earlier)
}

// forwarded matches the address of a returning primary in its DSN.
var forwarded = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// stop kills the primary.
func (r *returning) stop() {
	r.addr.Store("")
	r.now.Kill()
	r.sockets.BreakAll()
}

// use makes a server the primary.
func (r *returning) use(s *pgtest.Server) {
	r.now = s
	r.addr.Store(s.Addr())
}

// awaitRepairs waits until a store is ready, and has repaired the database n times. A probe that was under way may make
// it look again.
func awaitRepairs(t *testing.T, s *pgstore.Store, n float64) {
	t.Helper()
	polltest.Until(t, "the database is repaired",
		func() bool { return metric(t, s, "pulsegate_postgres_repairs_total", "") >= n && s.Ready() == nil })
}

// mustHave checks the heart rates of a device, by time from 1 on; 0 means none.
func mustHave(t *testing.T, s *pgstore.Store, device string, want ...vitals.Value) {
	t.Helper()
	name, err := vitals.ParseName(device)
	try(t, err)
	records := make([]storage.Record, 1000)
	n, err := s.Scan(context.Background(), storage.Range{Device: name, ToUnixMs: math.MaxInt64}, records)
	try(t, err)
	got := make([]vitals.Value, len(want))
	for _, r := range records[:n] {
		if r.TimeUnixMs > int64(len(want)) {
			t.Errorf("%s has a reading at %d", device, r.TimeUnixMs)
			continue
		}
		got[r.TimeUnixMs-1], _ = r.Values.Get(vitals.HeartRate)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s has the heart rates %v, want %v", device, got, want)
			return
		}
	}
}

// mustNotLose checks that no loss was reported.
func mustNotLose(t *testing.T, s *pgstore.Store) {
	t.Helper()
	if err := s.Degraded(); err != nil {
		t.Errorf("a loss was reported: %v", err)
	}
	if n := metric(t, s, "pulsegate_postgres_losses_total", ""); n != 0 {
		t.Errorf("%v losses were reported", n)
	}
}

func TestRepair(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	s := open(t, r.opt)
	mustStore(t, s, reading("d", 1, 1))
	earlier := r.backup(t)
	mustStore(t, s, reading("d", 2, 2), reading("new", 1, 3))
	r.restore(t, earlier)
	awaitRepairs(t, s, 1)
	mustHave(t, s, "d", 1, 2)
	mustHave(t, s, "new", 3)
	mustNotLose(t, s)
	mustStore(t, s, reading("d", 3, 3))
	mustHave(t, s, "d", 1, 2, 3)
}

// received returns e as received n ms ago.
func received(e *storage.Entry, msAgo int64) *storage.Entry {
	e.ReceivedUnixMs = time.Now().UnixMilli() - msAgo
	return e
}

// TestRepairConfused plays the two cases in which nobody but the servers can notice anything: the second of two equal
// standbys is promoted, so that both histories have the same timeline number, and an old primary is started again.
// Nothing is missing after either.
func TestRepairConfused(t *testing.T) {
	t.Parallel()
	c := startConfused(t)
	o := c.options()
	o.Remember = time.Hour
	o.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	s := open(t, o)
	var want []vitals.Value
	add := func() {
		for range 50 {
			n := len(want) + 1
			want = append(want, vitals.Value(n))
			mustStore(t, s, reading("d", int64(n), vitals.Value(n)))
		}
	}
	add()
	c.awaitEqual(t)
	c.primary.Kill()
	c.b.Kill() // it does not follow the primary when that is started again
	c.a.Promote(t)
	add()
	c.a.Kill()
	c.primary.Restart(t) // an old primary
	awaitRepairs(t, s, 1)
	mustHave(t, s, "d", want...)
	add()
	c.primary.Kill()
	c.b.Restart(t)
	c.b.Promote(t) // with the timeline number that a has had
	awaitRepairs(t, s, 2)
	mustHave(t, s, "d", want...)
	if got := metric(t, s, "pulsegate_postgres_repaired_readings_total", ""); got != 150 {
		t.Errorf("%v readings were put back, want 50 and 100", got)
	}
	mustNotLose(t, s)
}

// TestRepairRecords compares records before and after a repair: many of several transactions, with duplicates,
// completions, all kinds of values, units, times of receipt, and months that the earlier state has no partition for.
func TestRepairRecords(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	r.opt.Signs = ownSigns()
	s := open(t, r.opt)
	earlier := r.backup(t)
	for n := range 7 {
		var group []*storage.Entry
		for i := range 1000 {
			e := reading(string(rune('a'+i%26))+"-device", int64(i)*100_000_000+int64(n%3), vitals.Value(i))
			e.ReceivedUnixMs = int64(1_700_000_000_000 + n*1000 + i)
			switch n % 4 {
			case 1: // completes, with other signs and a gateway
				e.Reading.TimeUnixMs--
				e.Reading.Values = vitals.Values{}
				e.Reading.Values.Set(vitals.SpO2, vitals.Value(9000+i%1000))
				e.Reading.Values.Set(vitals.BodyTemperature, 3700)
				e.Reading.Gateway, _ = vitals.ParseName("gateway-" + string(rune('a'+i%5))) // it is a name
			case 2:
				e.Reading.UTCOffset = vitals.MakeUTCOffset(60)
				if i%2 == 0 {
					e.Unit = 2
				}
			case 3: // completes with an offset alone
				e.Relayed = true
				e.Reading.UTCOffset = vitals.MakeUTCOffset(120)
			}
			group = append(group, e)
		}
		mustStore(t, s, group...)
	}
	table := "SELECT md5(string_agg((to_jsonb(r) - 'changed')::text, '' ORDER BY device, time_ms)) FROM " + r.opt.Schema +
		".readings AS r"
	count := "SELECT count(*) FROM " + r.opt.Schema + ".readings"
	devices := "SELECT string_agg(concat(device, ' ', signs), ', ' ORDER BY device) || (SELECT ' ' || devices FROM " +
		r.opt.Schema + ".state) FROM " + r.opt.Schema + ".devices"
	want, rows, registered := queryValue[string](t, r.now, table), queryValue[int](t, r.now, count),
		queryValue[string](t, r.now, devices)
	r.restore(t, earlier)
	awaitRepairs(t, s, 1)
	if got := queryValue[int](t, r.now, count); got != rows {
		t.Errorf("%d readings after the repair, want %d", got, rows)
	}
	if got := queryValue[string](t, r.now, table); got != want {
		t.Error("the readings differ after the repair")
	}
	if got := queryValue[string](t, r.now, devices); got != registered {
		t.Errorf("the devices after the repair are\n%s, want\n%s", got, registered)
	}
	mustNotLose(t, s)
}

// TestRepairContradictions keeps what another server has stored in the earlier state.
func TestRepairContradictions(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	s := open(t, r.opt)
	earlier := r.backup(t)
	ctx := context.Background()
	mustStore(t, s, reading("d", 1, 1), reading("d", 2, 2))
	try(t, s.Assign(ctx, assignment("d", "S-1", 10, 20)))
	r.stop()
	earlier.Restart(t)
	other := r.opt
	other.DSN, other.Remember = earlier.DSN(), 0
	b := open(t, other)
	mustStore(t, b, reading("d", 1, 7))
	theirs := assignment("d", "S-1", 10, 15)
	try(t, b.Assign(ctx, theirs))
	r.use(earlier)
	awaitRepairs(t, s, 1)
	mustHave(t, s, "d", 7, 2)
	if all, err := s.DeviceAssignments(ctx, theirs.Device); err != nil ||
		!slices.Equal(all, []storage.Assignment{theirs}) {
		t.Errorf("the assignments after the repair are %v, %v, want %v", all, err, theirs)
	}
	if n := metric(t, s, "pulsegate_postgres_contradicted_total", ""); n != 2 {
		t.Errorf("%v contradictions, want 2", n)
	}
	mustNotLose(t, s)
}

// TestRepairBeforeNobody puts back an assignment that HL7 made, in a state in which another server has stored since
// that nobody wears the device at a later time: it ends there. If it begins within a span of nobody, which the state
// has, it is no longer than the message that made it says.
func TestRepairBeforeNobody(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		before []*storage.Entry
		want   string
	}{
		{[]*storage.Entry{reading("other", 1, 1)}, "S-1 10 20, 20 9223372036854775807"},
		{[]*storage.Entry{claimed("d", 5, "")}, " 5 10,S-1 10 11, 11 9223372036854775807"},
	} {
		r := startReturning(t)
		s := open(t, r.opt)
		mustStore(t, s, tt.before...)
		earlier := r.backup(t)
		mustStore(t, s, claimed("d", 10, "S-1"))
		r.stop()
		earlier.Restart(t)
		other := r.opt
		other.DSN, other.Remember = earlier.DSN(), 0
		mustStore(t, open(t, other), claimed("d", 20, ""))
		r.use(earlier)
		awaitRepairs(t, s, 1)
		const spans = "SELECT string_agg(format('%s %s %s', subject, from_ms, to_ms), ',' ORDER BY from_ms) FROM "
		if got := queryValue[string](t, r.now, spans+r.opt.Schema+".assignments"); got != tt.want {
			t.Errorf("the spans after the repair are %q, want %q", got, tt.want)
		}
		mustStore(t, s, claimed("d", 30, "S-2"))
	}
}

// TestRepairGone reports as lost what the memory does not have any more, and puts the rest back.
func TestRepairGone(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	r.opt.RememberBytes = 1 // only the last transaction, or none
	var lost []pgstore.Loss
	r.opt.OnLoss = func(l pgstore.Loss) { lost = append(lost, l) }
	s := open(t, r.opt)
	for i := range int64(100) { // so that all slots have marks
		mustStore(t, s, reading("other", i, 1))
	}
	// as if the clock of the database were a month ahead
	execute(t, r.now, "UPDATE "+r.opt.Schema+".marks SET at_ms = at_ms + 1000000")
	earlier := r.backup(t)
	fromMs := time.Now().UnixMilli()
	mustStore(t, s, reading("d", 2, 2))
	mustStore(t, s, reading("d", 3, 3))
	r.restore(t, earlier)
	awaitRepairs(t, s, 1)
	polltest.Until(t, "the loss is reported", func() bool {
		return s.Degraded() != nil &&
			metric(t, s, "pulsegate_postgres_losses_total", "") == 1
	})
	if len(lost) != 1 {
		t.Fatalf("OnLoss was called with %v, want one loss", lost)
	}
	if l := lost[0]; l.FromUnixMs > l.ToUnixMs || l.ToUnixMs < fromMs || l.ToUnixMs > time.Now().UnixMilli() {
		t.Errorf("lost from %d to %d, want a time since %d", l.FromUnixMs, l.ToUnixMs, fromMs)
	}
	mustStore(t, s, reading("d", 4, 4)) // it serves on
}

// TestRepairAgain replaces the primary again and again while it is repaired.
func TestRepairAgain(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	s := open(t, r.opt)
	first := r.backup(t)
	group := make([]*storage.Entry, 0, 3000)
	for n := range 4 {
		group = group[:0]
		for i := range 3000 {
			group = append(group, reading("d", int64(n*3000+i), 1))
		}
		mustStore(t, s, group...)
	}
	second := r.backup(t)
	third := r.backup(t)
	mustStore(t, s, reading("e", 1, 1))
	for _, earlier := range []*pgtest.Server{first, second} {
		r.restore(t, earlier)
		polltest.Until(t, "the repair has begun", func() bool {
			_, repairing := errors.AsType[*pgstore.RepairError](s.Ready())
			return repairing || metric(t, s, "pulsegate_postgres_repairs_total", "") > 0
		})
	}
	r.restore(t, third)
	polltest.Until(t, "the database is repaired", func() bool {
		return s.Ready() == nil && queryValue[int](t, third, "SELECT count(*) FROM "+r.opt.Schema+".readings") == 12_001
	})
	mustHave(t, s, "e", 1)
	mustNotLose(t, s)
}

// TestRepairSchema repairs a database that has no schema, and one that lacks the column of a sign.
func TestRepairSchema(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	r.opt.Signs = ownSigns()
	none, old := r.backup(t), r.backup(t)
	s := open(t, r.opt)
	e := reading("d", 1, 1)
	e.Reading.Values.Set(vitals.OwnSign(0), 5)
	mustStore(t, s, e, reading("d", 2, 2))
	r.restore(t, none)
	awaitRepairs(t, s, 1)
	mustHave(t, s, "d", 1, 2)

	r.stop()
	old.Restart(t)
	without := r.opt
	without.DSN, without.Signs, without.Remember = old.DSN(), nil, 0
	try(t, open(t, without).Close())
	r.use(old)
	awaitRepairs(t, s, 2)
	mustHave(t, s, "d", 1, 2)
	mustNotLose(t, s)
}

// TestRepairAccepted accepts a restore: readings are not put back, but erasures are repeated.
func TestRepairAccepted(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	s := open(t, r.opt)
	mustStore(t, s, reading("d", 1, 1), reading("erased", 1, 1))
	earlier := r.backup(t)
	mustStore(t, s, reading("d", 2, 2))
	name, _ := vitals.ParseName("erased") // it is a name
	_, err := s.Erase(name)
	try(t, err)
	r.stop()
	earlier.Restart(t)
	command, err := pgstore.Open(context.Background(), pgstore.Options{DSN: earlier.DSN(), Single: true, Existing: true,
		Schema: r.opt.Schema})
	try(t, err)
	err = command.AcceptRestore(context.Background())
	if closeErr := command.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	r.use(earlier)
	awaitRepairs(t, s, 1)
	mustHave(t, s, "d", 1, 0)
	mustHave(t, s, "erased", 0)
	mustNotLose(t, s)
}

// TestForgottenByAll shows what remains: without a directory, what a server acknowledged that has stopped is lost with
// the database's memory of it. Another server takes the earlier state as it is, and nobody notices.
func TestForgottenByAll(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	a, b := open(t, r.opt), open(t, r.opt)
	mustStore(t, b, reading("d", 1, 1))
	earlier := r.backup(t)
	mustStore(t, a, reading("d", 2, 2))
	mustClose(t, a)
	r.restore(t, earlier)
	polltest.Until(t, "the server is ready", func() bool {
		return b.Ready() == nil &&
			b.Append([]*storage.Entry{reading("d", 3, 3)}) == nil
	})
	mustHave(t, b, "d", 1, 0, 3)
	mustNotLose(t, b)
}

// TestRepairNotReplicated does not repair a server without synchronous standbys, until it has one.
func TestRepairNotReplicated(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	r.now.Standby(t, "a", fast...)
	earlier := r.backup(t)
	setStandbys(t, r.now, "ANY 1 (a)")
	r.opt.Single, r.opt.Timeout = false, 2*time.Second
	s := open(t, r.opt)
	mustStore(t, s, reading("d", 1, 1))
	r.restore(t, earlier)
	polltest.Until(t, "the server is refused",
		func() bool { return metric(t, s, "pulsegate_postgres_forgot_total", "") > 8 })
	if n := queryValue[int](t, earlier, "SELECT count(*) FROM pg_namespace WHERE nspname = '"+r.opt.Schema+"'"); n != 0 {
		t.Error("a server without standbys was written to")
	}
	earlier.Standby(t, "a", fast...)
	setStandbys(t, r.now, "ANY 1 (a)")
	awaitRepairs(t, s, 1)
	mustHave(t, s, "d", 1)
	mustNotLose(t, s)
}

func ownSigns() []vitals.Definition {
	return []vitals.Definition{{Field: "own", Label: "Own", Unit: "1", LOINC: []string{"8867-4"},
		Accepted: vitals.Range{Min: 0, Max: 100}, Usual: vitals.Range{Min: 0, Max: 100}}}
}

// TestRepairSilentHost repairs a database while the first host of the address, which had everything, does not answer.
// The server is idle, so only its probes can notice.
func TestRepairSilentHost(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	defer silent.Close()
	r.opt.DSN = forwarded.ReplaceAllString(r.opt.DSN, silent.Addr().String()+",$0")
	s := open(t, r.opt)
	earlier := r.backup(t)
	mustStore(t, s, reading("d", 1, 1))
	r.restore(t, earlier)
	awaitRepairs(t, s, 1)
	mustHave(t, s, "d", 1)
	mustNotLose(t, s)
}
