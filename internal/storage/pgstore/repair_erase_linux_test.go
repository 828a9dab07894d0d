package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestRepairErasures repeats erasures. No erased device comes back, and nothing is reported as lost, though the devices
// are erased at once.
func TestRepairErasures(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	a, b := open(t, r.opt), open(t, r.opt)
	ctx := context.Background()
	const long = 10 * 60_000 // before a's erasure: if b repeats that one, it must not doubt
	mustStore(t, a, received(reading("own", 1, 1), long), received(reading("theirs", 1, 1), 0),
		received(reading("again", 1, 1), 0), received(reading("part", 1, 1), 0), received(reading("part", 5, 5), 0))
	try(t, a.Assign(ctx, assignment("part", "S-1", 1, 3)))
	earlier := r.backup(t)
	mustStore(t, a, received(reading("own", 2, 2), long), received(reading("fresh", 1, 1), 0),
		received(reading("part", 2, 2), 0))
	erase := func(s *pgstore.Store, device string) {
		t.Helper()
		name, _ := vitals.ParseName(device) // it is a name
		_, err := s.Erase(name)
		try(t, err)
	}
	erase(a, "own")
	erase(b, "theirs")
	erase(b, "again")
	erase(b, "fresh")
	_, err := b.EraseAssignment(assignment("part", "S-1", 1, 3))
	try(t, err)
	mustStore(t, a, received(reading("again", 2, 2), 0))
	generation := queryValue[int64](t, r.now, "SELECT generation FROM "+r.opt.Schema+".state")
	polltest.Until(t, "both know the erasures", func() bool {
		return pgstore.Learned(a) == generation &&
			pgstore.Learned(b) == generation
	})
	r.restore(t, earlier)
	awaitRepairs(t, a, 1)
	awaitRepairs(t, b, 1)
	for _, s := range []*pgstore.Store{a, b} {
		mustHave(t, s, "own", 0, 0)
		mustHave(t, s, "theirs", 0)
		mustHave(t, s, "fresh", 0)
		mustHave(t, s, "again", 0, 2)
		mustHave(t, s, "part", 0, 0, 0, 0, 5)
		mustNotLose(t, s)
	}
	if n := queryValue[int](t, r.now, "SELECT devices FROM "+r.opt.Schema+".state"); n != 2 {
		t.Errorf("the database has %d devices, want again and part", n)
	}
	if n := queryValue[int](t, r.now, "SELECT count(*) FROM "+r.opt.Schema+".changes"); n != 5 {
		t.Errorf("the database has %d changes, want 5", n)
	}
}

// TestRepairErasedBefore asks a server that has repaired the database to remove what only another one remembers, which
// repairs it later: a device, the assignments of a subject, an assignment, and the rest of one. None is there, and none
// comes back; what was not to be removed does. The assignments were made within a minute before, so that a loss is
// reported.
func TestRepairErasedBefore(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	a := open(t, r.opt)
	o := r.opt
	var bAddr atomic.Value
	bAddr.Store(r.now.Addr())
	o.DSN = forwarded.ReplaceAllString(o.DSN, r.sockets.Forward(t, func() string { return bAddr.Load().(string) }))
	b := open(t, o)
	ctx := context.Background()
	const long = 10 * 60_000 // before the erasures, so that clocks leave no doubt
	mustStore(t, a, received(reading("known", 1, 1), long))
	earlier := r.backup(t)
	mustStore(t, b, received(reading("gone", 1, 1), long), received(reading("worn", 1, 1), long),
		received(reading("worn", 2, 2), long), received(reading("worn", 4, 4), long),
		received(reading("lent", 1, 1), long), received(reading("lent", 2, 2), long), received(reading("kept", 1, 1), long))
	for _, as := range []storage.Assignment{
		assignment("worn", "S-1", 1, 3), assignment("worn", "S-2", 3, storage.OpenEnd), assignment("lent", "S-3", 1, 2),
		assignment("lent", "S-3", 2, 3), assignment("kept", "S-4", 1, storage.OpenEnd),
	} {
		try(t, b.Assign(ctx, as))
	}
	mustStore(t, b, claimed("named", 1, "S-5"), claimed("named", 9, "S-5"))
	mustStore(t, a, received(reading("known", 2, 2), long))
	generation := queryValue[int64](t, r.now, "SELECT generation FROM "+r.opt.Schema+".state")
	polltest.Until(t, "both know the generation", func() bool {
		return pgstore.Learned(a) == generation &&
			pgstore.Learned(b) == generation
	})

	bAddr.Store("")
	r.restore(t, earlier)
	awaitRepairs(t, a, 1)
	name := modelNames("gone")[0]
	if _, err := a.Erase(name); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Erase returned %v, want ErrNotFound", err)
	}
	for _, as := range []storage.Assignment{{Subject: "S-1"}, assignment("lent", "S-3", 2, 3),
		assignment("lent", "S-9", 1, 2)} {
		if _, err := a.EraseAssignment(as); !errors.Is(err, storage.ErrNotAssigned) {
			t.Errorf("EraseAssignment(%v) returned %v, want ErrNotAssigned", as, err)
		}
	}
	for _, as := range []storage.Assignment{assignment("kept", "S-4", 1, 5), assignment("worn", "S-9", 3, 4),
		assignment("named", "S-5", 1, 5)} {
		if err := a.EndAssignment(ctx, as); !errors.Is(err, storage.ErrNotAssigned) {
			t.Errorf("EndAssignment(%v) returned %v, want ErrNotAssigned", as, err)
		}
	}
	bAddr.Store(r.now.Addr())
	awaitRepairs(t, b, 1)
	for _, s := range []*pgstore.Store{a, b} {
		mustHave(t, s, "known", 1, 2)
		mustHave(t, s, "gone", 0)
		mustHave(t, s, "worn", 0, 0, 0, 4)
		mustHave(t, s, "lent", 1, 0)
		mustHave(t, s, "kept", 1)
	}
	got := make([]storage.Assignment, 10)
	n, err := a.Assignments(ctx, storage.AssignmentKey{}, got)
	try(t, err)
	if want := []storage.Assignment{assignment("kept", "S-4", 1, 5), assignment("lent", "S-3", 1, 2),
		assignment("named", "S-5", 1, 5), assignment("worn", "S-2", 3, storage.OpenEnd)}; !slices.EqualFunc(got[:n], want,
		func(a, b storage.Assignment) bool { return a.Same(b) }) {
		t.Errorf("the assignments are %v, want %v", got[:n], want)
	}
}

// TestRepairRepeatedErasure lets a server start in an earlier state and take a reading that was erased there for a
// duplicate, before another server repeats the erasure: then the reading is reported as lost.
func TestRepairRepeatedErasure(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	a := open(t, r.opt)
	mustStore(t, a, received(reading("d", 1, 1), 0))
	earlier := r.backup(t)
	name, _ := vitals.ParseName("d") // it is a name
	_, err := a.Erase(name)
	try(t, err)
	r.stop()
	earlier.Restart(t)
	other := r.opt
	other.DSN = earlier.DSN()
	b := open(t, other)
	// by its clock, the second one long after the erasure
	mustStore(t, b, received(reading("d", 1, 1), 0), received(reading("d", 2, 2), -10*60_000))
	r.use(earlier)
	awaitRepairs(t, a, 1)
	polltest.Until(t, "the duplicate is reported",
		func() bool { return metric(t, b, "pulsegate_postgres_losses_total", "") == 1 })
	mustHave(t, b, "d", 0, 2)
	mustStore(t, b, received(reading("d", 3, 3), 0))
	mustHave(t, a, "d", 0, 2, 3)
}

// TestRepairOldReadings does not put back what retention has removed.
func TestRepairOldReadings(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	s := open(t, r.opt)
	earlier := r.backup(t)
	const day = 24 * 60 * 60 * 1000
	mustStore(t, s, reading("old", 1, 1), reading("old", 2, 2), reading("new", 10*day, 1))
	if x, err := s.Expire(context.Background(), 5*day, 100); err != nil || x.Readings != 2 {
		t.Fatalf("Expire returned %+v, %v", x, err)
	}
	changes := "SELECT count(*) FROM " + r.opt.Schema + ".changes"
	for range 2 { // without a removal, and with one that the first change covers
		_, err := s.Expire(context.Background(), 5*day, 100)
		try(t, err)
		if n := queryValue[int](t, r.now, changes); n != 1 {
			t.Errorf("%d changes, want 1", n)
		}
		mustStore(t, s, reading("old", 3, 3))
	}
	mustStore(t, s, reading("old", 3, 3))
	r.restore(t, earlier)
	awaitRepairs(t, s, 1)
	mustHave(t, s, "old", 0, 0, 3) // the last one was acknowledged after the removal
	if n := queryValue[int](t, r.now, changes); n != 1 {
		t.Errorf("%d changes after the repair, want 1", n)
	}
	mustNotLose(t, s)
}

// TestRepairErasureSealed repeats the erasure of a device with sealed readings. They do not become rows first, which
// would take longer for a device with many than a transaction may.
//
// Seen to fail with the mutant repeat-erasure-in-rows.
func TestRepairErasureSealed(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	r.opt.SealAtLeast = 1
	s := open(t, r.opt)
	mustStore(t, s, mixed("gone", 1000)...)
	sealed := seal(t, s, sealStart+10_000*minuteMs)
	if sealed == 0 {
		t.Fatal("nothing was sealed")
	}
	execute(t, r.now,
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a row'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON `+r.opt.Schema+`.readings FOR EACH ROW WHEN (NEW.device = 'gone') EXECUTE `+
			`FUNCTION refuse()`)
	earlier := r.backup(t)
	_, err := s.Erase(modelNames("gone")[0])
	try(t, err)
	r.restore(t, earlier)
	awaitRepairs(t, s, 1)
	if n, err := s.CountReadings(context.Background()); err != nil || n != 0 {
		t.Errorf("the database has %d readings, %v, want none", n, err)
	}
	mustNotLose(t, s)
}

// TestRepairErasedAgain erases an assignment, or its subject, for a second time, when the device is another subject's.
// A repair puts back what was stored since the first time.
func TestRepairErasedAgain(t *testing.T) {
	t.Parallel()
	for _, again := range []storage.Assignment{assignment("d", "P", 1, 0), {Subject: "P"}} {
		r := startReturning(t)
		s := open(t, r.opt)
		mustStore(t, s, reading("other", 1, 1))
		earlier := r.backup(t)
		try(t, s.Assign(t.Context(), assignment("d", "P", 1, 5)))
		mustStore(t, s, reading("d", 2, 2))
		_, err := s.EraseAssignment(assignment("d", "P", 1, 0))
		try(t, err, s.Assign(t.Context(), assignment("d", "Q", 0, 9)))
		mustStore(t, s, reading("d", 2, 3))
		if _, err := s.EraseAssignment(again); !errors.Is(err, storage.ErrNotAssigned) {
			t.Errorf("the second erasure returns %v", err)
		}
		generation := queryValue[int64](t, r.now, "SELECT generation FROM "+r.opt.Schema+".state")
		polltest.Until(t, "known", func() bool { return pgstore.Learned(s) == generation })
		r.restore(t, earlier)
		awaitRepairs(t, s, 1)
		mustHave(t, s, "d", 0, 3)
		mustNotLose(t, s)
	}
}

// TestRepairErasedValues repeats erasures of values: of a time, and of a sign. What was erased does not come back, and
// what was left, or came again, does.
func TestRepairErasedValues(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	a, b := open(t, r.opt), open(t, r.opt)
	const long = 10 * 60_000 // before the erasures, so that clocks leave no doubt
	both := func(e *storage.Entry) *storage.Entry {
		e.Reading.Values.Set(vitals.SpO2, 970)
		return received(e, long)
	}
	mustStore(t, a, both(reading("time", 1, 1)), both(reading("sign", 1, 1)))
	earlier := r.backup(t)
	mustStore(t, a, both(reading("time", 2, 2)), both(reading("time", 3, 3)), both(reading("sign", 2, 2)),
		received(reading("sign", 3, 3), long))
	for _, e := range []storage.Erasure{
		{Device: modelNames("time")[0], FromUnixMs: 1, ToUnixMs: 3},
		{Device: modelNames("sign")[0], ToUnixMs: storage.OpenEnd, Signs: 1 << vitals.HeartRate},
	} {
		_, err := b.EraseValues(e)
		try(t, err)
	}
	mustStore(t, a, received(reading("time", 1, 5), 0))
	generation := queryValue[int64](t, r.now, "SELECT generation FROM "+r.opt.Schema+".state")
	polltest.Until(t, "both know the erasures", func() bool {
		return pgstore.Learned(a) == generation &&
			pgstore.Learned(b) == generation
	})
	r.restore(t, earlier)
	awaitRepairs(t, a, 1)
	awaitRepairs(t, b, 1)
	for _, s := range []*pgstore.Store{a, b} {
		mustHave(t, s, "time", 5, 0, 3)
		mustHave(t, s, "sign", 0, 0, 0)
		mustNotLose(t, s)
	}
	if n, err := a.CountReadings(context.Background()); err != nil || n != 2+2 {
		t.Errorf("the database has %d readings, %v, want 4", n, err)
	}
}

// TestRepairErasedGateway repeats erasures of a gateway's values in a database from before everything: each reading is
// as it was before the restore.
//
// Seen to fail when only what the gateway itself had sent was erased; when each gateway that had sent something counted
// as one that has completed the reading; when the gateway of a part, and not the first one, decided about it; and when
// an erasure of some values counted as one of the reading for those after it.
func TestRepairErasedGateway(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	s := open(t, r.opt)
	mustStore(t, s, heardBy("g3", 9, vitals.HeartRate))
	earlier := r.backup(t)
	hr, spo2 := vitals.HeartRate, vitals.SpO2
	var want string
	for ms, tt := range []struct {
		sent   string // gateways, the second of which completes the reading, or sends the same if it has a +
		erased []storage.Erasure
		left   string
	}{
		{"g1", []storage.Erasure{byGateway("g1", false)}, ""},
		{"g1", []storage.Erasure{byGateway("g2", true)}, "g1 8"},
		{"g1 g2", []storage.Erasure{byGateway("g1", false)}, "g1 12"},
		{"g1 g2", []storage.Erasure{byGateway("g1", true)}, ""},
		{"g2 g1", []storage.Erasure{byGateway("g1", true)}, "g2 12"},
		{"g1 g2", []storage.Erasure{byGateway("g3", false), byGateway("g1", false)}, "g1 12"},
		{"g1 g2", []storage.Erasure{byGateway("g3", false), byGateway("g1", true)}, ""},
		{"g1 g2", []storage.Erasure{{Signs: 1 << spo2}, byGateway("g1", false)}, "g1 8"},
		{"g1 +g2", []storage.Erasure{byGateway("g1", false)}, ""},
		{"g1 +g2", []storage.Erasure{byGateway("g2", true)}, "g1 8"},
	} {
		at := int64(100 + ms)
		sign := hr
		for gateway := range strings.FieldsSeq(tt.sent) {
			name, same := strings.CutPrefix(gateway, "+")
			if same {
				sign = hr
			}
			try(t, s.Append([]*storage.Entry{heardBy(name, at, sign)}))
			sign = spo2
		}
		for _, e := range tt.erased {
			e.Device, e.FromUnixMs, e.ToUnixMs = modelNames("heard")[0], at, at+1
			_, err := s.EraseValues(e)
			try(t, err)
		}
		if tt.left != "" {
			want += fmt.Sprintf("%d %s\n", at, tt.left)
		}
	}
	if got := heardText(t, s); got != want {
		t.Fatalf("before the restore the database has\n%s, want\n%s", got, want)
	}
	r.restore(t, earlier)
	awaitRepairs(t, s, 1)
	if got := heardText(t, s); got != want {
		t.Errorf("after the repair the database has\n%s, want\n%s", got, want)
	}
	mustNotLose(t, s)
}

// TestRepairErasedServers restores what two servers have stored, and parts of which a gateway's values were erased:
// neither knows what the other one has acknowledged, so all comes back, and nothing is lost that was left. The same
// erasure then removes the same as before.
func TestRepairErasedServers(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	a, b := open(t, r.opt), open(t, r.opt)
	mustStore(t, a, heardBy("g3", 9, vitals.HeartRate))
	mustStore(t, b, heardBy("g3", 8, vitals.HeartRate))
	earlier := r.backup(t)
	mustStore(t, a, heardBy("g1", 101, vitals.HeartRate), heardBy("g1", 102, vitals.HeartRate))
	mustStore(t, b, heardBy("g2", 101, vitals.SpO2))
	e := byGateway("g1", false)
	e.Device, e.FromUnixMs, e.ToUnixMs = modelNames("heard")[0], 100, 200
	_, err := a.EraseValues(e)
	try(t, err)
	left := heardText(t, a)
	generation := queryValue[int64](t, r.now, "SELECT generation FROM "+r.opt.Schema+".state")
	polltest.Until(t, "both know the erasure", func() bool {
		return pgstore.Learned(a) == generation &&
			pgstore.Learned(b) == generation
	})
	r.restore(t, earlier)
	awaitRepairs(t, a, 1)
	awaitRepairs(t, b, 1)
	if n, err := a.CountReadings(context.Background()); err != nil || n != 4 {
		t.Errorf("after the repair the database has %d readings, %v, want 4", n, err)
	}
	got, err := a.EraseValues(e)
	if text := heardText(t, a); err != nil || got.Readings != 1 || !sameSigns(text, left) {
		t.Errorf("erased %d again, %v, and left\n%s, want\n%s", got.Readings, err, text, left)
	}
	mustNotLose(t, a)
	mustNotLose(t, b)
}

// sameSigns compares texts without gateways: which one is first depends on which server is.
func sameSigns(a, b string) bool {
	replace := strings.NewReplacer("g1", "", "g2", "")
	return replace.Replace(a) == replace.Replace(b)
}

func byGateway(name string, shared bool) storage.Erasure {
	return storage.Erasure{Gateway: modelNames(name)[0], Shared: shared}
}

// heardText returns the time, gateway and signs of each reading of the device from 100 on.
func heardText(t *testing.T, s *pgstore.Store) string {
	t.Helper()
	var text strings.Builder
	for _, r := range scanned(t, s, storage.Range{Device: modelNames("heard")[0], FromUnixMs: 100,
		ToUnixMs: storage.OpenEnd}, 100) {
		fmt.Fprintf(&text, "%d %s %d\n", r.TimeUnixMs, r.Gateway, r.Values.Present())
	}
	return text.String()
}

// heardBy returns a reading of a device that several gateways hear, long before now, so that clocks leave no doubt.
func heardBy(gateway string, ms int64, sign vitals.Sign) *storage.Entry {
	e := reading("heard", ms, 1)
	e.Reading.Values = vitals.Values{}
	e.Reading.Values.Set(sign, 9000)
	e.Reading.Gateway = modelNames(gateway)[0]
	return received(e, 10*60_000)
}
