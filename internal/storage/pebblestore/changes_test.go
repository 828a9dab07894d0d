package pebblestore_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// received returns e as it arrives at a time.
func received(unixMs int64, e *storage.Entry) *storage.Entry {
	e.ReceivedUnixMs = unixMs
	return e
}

// recordsOf returns all records of a device.
func recordsOf(t testing.TB, s *pebblestore.Store, device string) []storage.Record {
	t.Helper()
	all := make([]storage.Record, 100)
	n, err := s.Scan(context.Background(), storage.Range{Device: mustName(device), ToUnixMs: math.MaxInt64}, all)
	try(t, err)
	return all[:n]
}

// TestClockNeverFalls appends readings and assigns devices with a clock that goes back, also over restarts: nothing
// that is stored later has been changed earlier. All readings of a group have one time.
func TestClockNeverFalls(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs})
	restart := func(want int64) {
		t.Helper()
		mustClose(t, s)
		s = mustOpen(t, pebblestore.Options{FS: fs})
		if got := pebblestore.Clock(s); got != want {
			t.Errorf("after a restart the clock is %d, want %d", got, want)
		}
	}
	want := func(device string, i int, receivedUnixMs, changedUnixMs int64) {
		t.Helper()
		r := recordsOf(t, s, device)[i]
		if r.ReceivedUnixMs != receivedUnixMs || r.ChangedUnixMs != changedUnixMs {
			t.Errorf("reading %d of %s was received at %d, and changed at %d, want %d and %d", i, device, r.ReceivedUnixMs,
				r.ChangedUnixMs, receivedUnixMs, changedUnixMs)
		}
	}
	early := received(10, entry("a", 1, 1))
	mustAppend(t, s, early, received(30, entry("b", 1, 1)), received(20, entry("c", 1, 1)))
	if early.ReceivedUnixMs != 30 {
		t.Errorf("the entry says that it was received at %d, want 30", early.ReceivedUnixMs)
	}
	for _, device := range []string{"a", "b", "c"} {
		want(device, 0, 30, 0)
	}
	restart(30) // from a group
	mustAppend(t, s, received(5, entry("a", 2, 1)), received(5, with(entry("a", 1, 1), vitals.SpO2, 1)))
	want("a", 0, 30, 0) // completed at the same time
	want("a", 1, 30, 0)
	mustAppend(t, s, received(50, with(entry("a", 2, 1), vitals.SpO2, 1)))
	want("a", 1, 30, 50)
	try(t, pebblestore.Seal(s))
	want("a", 1, 30, 50)
	restart(50) // from the state
	mustAppend(t, s, received(49, with(entry("b", 1, 1), vitals.SpO2, 1)))
	want("b", 0, 30, 50)

	a := storage.Assignment{Device: mustName("a"), Subject: "P", FromUnixMs: 1, ToUnixMs: 5, ChangedUnixMs: 90}
	try(t, s.Assign(ctx, a))
	restart(90)
	a.ToUnixMs, a.ChangedUnixMs = 6, 7
	try(t, s.EndAssignment(ctx, a))
	all, err := s.DeviceAssignments(ctx, a.Device)
	try(t, err)
	if len(all) != 1 || all[0].ToUnixMs != 6 || all[0].ChangedUnixMs != 90 {
		t.Errorf("the assignments are %+v, want one changed at 90", all)
	}
	mustAppend(t, s, received(7, entry("d", 1, 1)))
	want("d", 0, 90, 0)

	// A claim that changes nothing but an assignment.
	claimed := received(100, entry("d", 1, 1))
	claimed.Claim, claimed.Recorded = &storage.Claim{Subject: "P", Assign: true}, true
	mustAppend(t, s, claimed)
	wantOutcome(t, claimed, storage.Duplicate)
	restart(100)
	try(t, pebblestore.Seal(s)) // which must not make it fall
	restart(100)
	mustClose(t, s)
}

// TestClockSetBack sets a clock back that was ahead by an hour, also over a restart: what is stored then has the time
// of the clock, and another mark. Seen to fail when times never fell: no reading was young until the clock had caught
// up.
func TestClockSetBack(t *testing.T) {
	const hour = 3_600_000
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs, ChangesKeep: time.Hour})
	mustAppend(t, s, received(1000, entry("a", 1, 1)))
	mustAppend(t, s, received(hour, entry("a", 2, 1)))
	marks := len(pebblestore.Marks(s))
	e := received(2000, entry("a", 3, 1))
	mustAppend(t, s, e, received(2000, with(entry("a", 2, 1), vitals.SpO2, 1)))
	if got := len(pebblestore.Marks(s)); got != marks+1 {
		t.Errorf("%d marks, want %d", got, marks+1)
	}
	mustAppend(t, s, received(hour, entry("a", 4, 1)))
	mustClose(t, s)
	s = mustOpen(t, pebblestore.Options{FS: fs})
	mustAppend(t, s, received(3000, entry("a", 5, 1)))
	try(t, pebblestore.Seal(s))
	var got []int64
	for _, r := range recordsOf(t, s, "a") {
		got = append(got, r.ReceivedUnixMs, r.ChangedUnixMs)
	}
	if want := []int64{1000, 0, hour, 0, 2000, 0, hour, 0, 3000, 0}; e.ReceivedUnixMs != 2000 || !slices.Equal(got, want) {
		t.Errorf("the readings were received and changed at %d, want %d", got, want)
	}
	mustClose(t, s)
}

// TestMovedTimes moves readings with any times of receipt to a store, which keeps them.
func TestMovedTimes(t *testing.T) {
	fs := vfs.NewMem()
	s, err := pebblestore.OpenPartial(dataDir, pebblestore.Options{FS: fs})
	try(t, err)
	mustAppend(t, s, received(30, entry("a", 1, 1)), received(40, with(entry("a", 1, 1), vitals.SpO2, 1)),
		received(10, entry("a", 2, 1)))
	try(t, pebblestore.Seal(s))
	try(t, s.Publish())
	s = mustOpen(t, pebblestore.Options{FS: fs})
	defer mustClose(t, s)
	if all := recordsOf(t, s, "a"); len(all) != 2 || all[0].ReceivedUnixMs != 30 || all[0].ChangedUnixMs != 40 ||
		all[1].ReceivedUnixMs != 10 {
		t.Errorf("the readings are %+v", all)
	}
	if got := pebblestore.Clock(s); got != 40 {
		t.Errorf("the clock is %d, want 40", got)
	}
}

// TestStartMarks checks that each start that changes something adds an event with a mark of its own, one that changes
// nothing adds none, and that a start at which no events are kept removes all of them.
func TestStartMarks(t *testing.T) {
	fs := vfs.NewMem()
	keep := pebblestore.Options{FS: fs, ChangesKeep: time.Hour}
	s := mustOpen(t, keep)
	before := map[uint64]uint64{}
	restarted := func(number uint64, change func()) {
		t.Helper()
		change()
		got := pebblestore.Marks(s)
		if mark, ok := got[number]; number > 0 && (!ok || mark == 0 || mark == before[number-1]) || len(got) != int(number) {
			t.Fatalf("the marks are %v, want one with the number %d", got, number)
		}
		for n, mark := range before {
			if got[n] != mark {
				t.Errorf("mark %d is another", n)
			}
		}
		before = got
		mustClose(t, s)
		s = mustOpen(t, keep)
	}
	restarted(0, func() {})
	restarted(1, func() { mustAppend(t, s, entry("a", 1, 1)); mustAppend(t, s, entry("a", 2, 1)) })
	restarted(1, func() { mustAppend(t, s, entry("a", 1, 1)); try(t, pebblestore.Seal(s)) })
	restarted(2, func() { mustAppend(t, s, entry("a", 3, 1)) })
	restarted(4, func() {
		try(t, s.Assign(context.Background(), storage.Assignment{Device: mustName("a"), Subject: "P", ToUnixMs: 1}))
		mustAppend(t, s, entry("a", 4, 1))
	})
	mustClose(t, s)
	s = mustOpen(t, pebblestore.Options{FS: fs})
	mustAppend(t, s, entry("a", 5, 1))
	if got := pebblestore.Marks(s); len(got) != 1 || got[5] == 0 {
		t.Errorf("the marks are %v, want only the last one", got)
	}
	mustClose(t, s)
	_, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
	try(t, err)
}

// TestArrival checks when the last reading of a device arrived.
func TestArrival(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs})
	want := func(what string, unixMs int64) {
		t.Helper()
		if got, _ := pebblestore.ArrivedUnixMs(s, mustName("a")); got != unixMs {
			t.Errorf("%s: the last reading arrived at %d, want %d", what, got, unixMs)
		}
	}
	mustAppend(t, s, received(100, entry("a", 10, 1)))
	mustAppend(t, s, received(110, entry("a", 5, 1)))
	want("a late reading", 110)
	mustAppend(t, s, received(120, entry("a", 5, 1)), received(120, entry("a", 5, 2)), received(120, entry("b", 1, 1)))
	want("a duplicate and a conflict", 110)
	mustAppend(t, s, received(130, with(entry("a", 5, 1), vitals.SpO2, 1)))
	want("a completion", 130)
	rejected := []*storage.Entry{received(140, entry("a", 20, 1)), received(140, entry("a", 5, 2))}
	rejected[0].Unit = 2
	mustAppend(t, s, rejected...)
	want("a unit that is rejected", 130)
	mustClose(t, s)
	s = mustOpen(t, pebblestore.Options{FS: fs})
	want("after a restart", 130)
	try(t, pebblestore.Seal(s))
	mustClose(t, s)
	s = mustOpen(t, pebblestore.Options{FS: fs})
	want("sealed", 130)
	if table, record := pebblestore.ArrivedUnixMs(s, mustName("a")); table != record {
		t.Errorf("the record says %d, want %d", record, table)
	}
	a := storage.Assignment{Device: mustName("a"), Subject: "P", FromUnixMs: 5, ToUnixMs: 6}
	try(t, s.Assign(context.Background(), a))
	_, err := s.EraseAssignment(a)
	try(t, err)
	want("the reading was erased", 100)
	mustClose(t, s)
	_, err = pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
	try(t, err)
}

// TestChangedSince compares what iterators with the filter return with all segments, while these are made, merged,
// divided, completed, cut and erased, and tables are compacted: each that was changed since must be there, and none
// that was replaced or removed.
func TestChangedSince(t *testing.T) {
	skipped := 0
	rapid.Check(t, func(t *rapid.T) {
		s, err := pebblestore.Open(dataDir,
			pebblestore.WithSegmentRows(pebblestore.Options{FS: vfs.NewMem(), MinFreeBytes: -1}, 8))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		now := int64(1000)
		drawTime := func() int64 { return rapid.Int64Range(0, 60).Draw(t, "time") }
		drawDevice := func() string { return fmt.Sprintf("d%d", rapid.IntRange(0, 3).Draw(t, "device")) }
		appendSome := func(t *rapid.T) {
			now += 10
			var group []*storage.Entry
			device, from := drawDevice(), drawTime()
			for i := range rapid.Int64Range(1, 20).Draw(t, "n") {
				e := received(now, entry(device, from+i, 1))
				if rapid.Bool().Draw(t, "another") {
					e.Reading.Values = vitals.Values{}
					e.Reading.Values.Set(vitals.SpO2, 2)
				}
				group = append(group, e)
			}
			must(s.Append(group))
			if rapid.Bool().Draw(t, "seal") {
				must(pebblestore.Seal(s))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append":  appendSome,
			"append+": appendSome,
			"tidy":    func(*rapid.T) { must(pebblestore.TidyPass(s)) },
			"flush":   func(*rapid.T) { must(pebblestore.Flush(s)) },
			"compact": func(*rapid.T) { pebblestore.CompactAll(s) },
			"expire": func(*rapid.T) {
				_, err := s.Expire(context.Background(), drawTime(), 5)
				must(err)
			},
			"erase": func(t *rapid.T) {
				a := storage.Assignment{Device: mustName(drawDevice()), Subject: "P", FromUnixMs: drawTime()}
				a.ToUnixMs = a.FromUnixMs + rapid.Int64Range(1, 9).Draw(t, "span")
				must(s.Assign(context.Background(), a))
				_, err := s.EraseAssignment(a)
				must(err)
			},
			"": func(t *rapid.T) {
				all, total := pebblestore.SegmentsSince(s, 0)
				since := now - 10*rapid.Int64Range(-1, 12).Draw(t, "since")
				got, read := pebblestore.SegmentsSince(s, since)
				want := map[string]string{}
				for key, value := range all {
					rows, err := columns.DecodeSegment([]byte(value), nil)
					must(err)
					if columns.ChangedUnixMs(rows) >= since {
						want[key] = value
					}
				}
				if !maps.Equal(got, want) {
					t.Fatalf("since %d: %d segments are returned, want %d of %d", since, len(got), len(want), total)
				}
				skipped += max(total-read, 0)
			},
		})
	})
	if skipped == 0 {
		t.Error("nothing was skipped")
	}
}

// TestChangedSinceSkips compacts many segments, and checks that iterators skip nearly all if few were changed of late.
func TestChangedSinceSkips(t *testing.T) {
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem(), MinFreeBytes: -1})
	defer mustClose(t, s)
	var group []*storage.Entry
	const devices = 4000
	for i := range devices {
		for ms := range int64(5) {
			group = append(group, received(100, entry(fmt.Sprintf("device-%05d", i), 1000*ms, vitals.Value(i))))
		}
	}
	mustAppend(t, s, group...)
	try(t, pebblestore.Seal(s))
	mustAppend(t, s, received(200, with(entry("device-02000", 1000, 2000), vitals.SpO2, 1)))
	try(t, pebblestore.Seal(s))
	pebblestore.CompactAll(s)
	if found, read := pebblestore.SegmentsSince(s, 101); len(found) != 1 || read > devices/10 {
		t.Errorf("%d of %d segments are read to find %d, want 1", read, devices, len(found))
	}
	if _, read := pebblestore.SegmentsSince(s, 201); read != 0 {
		t.Errorf("%d segments are read to find none", read)
	}
}

// TestCheckPositionReadsFewEvents checks a position that many events follow. Each event that is read allocates. Seen to
// fail when all events after the position were read.
func TestCheckPositionReadsFewEvents(t *testing.T) {
	ctx := context.Background()
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem(), ChangesKeep: time.Hour})
	defer mustClose(t, s)
	mustAppend(t, s, entry("a", 1, 1))
	p, _, err := s.Position(ctx)
	try(t, err)
	const events = 500
	for i := range int64(events) {
		a := storage.Assignment{Device: mustName("a"), Subject: "P", FromUnixMs: 2 * i, ToUnixMs: 2*i + 1,
			ChangedUnixMs: p.ChangedUnixMs}
		try(t, s.Assign(ctx, a))
	}
	check := func() { try(t, s.CheckPosition(ctx, p)) }
	if got := testing.AllocsPerRun(10, check); got > events/2 {
		t.Errorf("to check a position that %d events follow allocates %.0f times", events, got)
	}
}
