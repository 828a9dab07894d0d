package alert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

var lowOnly = []Rule{{Name: "Low", Sign: vitals.SpO2, Met: vitals.Range{Min: vitals.MinValue, Max: 90_00}, Values: 1,
	MaxAge: time.Hour}}

// group returns a reading of each of n devices.
func group(t *testing.T, n int, unixMs int64, v vitals.Value) (entries []*storage.Entry) {
	t.Helper()
	for i := range n {
		r := vitals.Reading{Device: name(t, fmt.Sprint("d", i)), TimeUnixMs: unixMs}
		r.Values.Set(vitals.SpO2, v)
		entries = append(entries, &storage.Entry{Reading: &r, ReceivedUnixMs: unixMs})
	}
	return entries
}

// wantActive checks how many alerts are active.
func wantActive(t *testing.T, e *Engine, want int) {
	t.Helper()
	if active, _ := e.State(0); len(active) != want {
		t.Errorf("%d alerts are active, want %d", len(active), want)
	}
}

// wantActiveAfter sleeps and then checks how many alerts are active. It must run in a bubble of synctest.
func wantActiveAfter(t *testing.T, e *Engine, after time.Duration, want int) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	wantActive(t, e, want)
}

// While the evaluation stands still, publishing never waits, and holds a bounded number of readings. The
// alerts of those that it had no room for are found in the store.
func TestEvaluationStandsStill(t *testing.T) {
	store := storetest.NewMemory()
	now := int64(1_800_000_000_000)
	e := NewEngine(store, lowOnly, Options{Now: func() time.Time { return time.UnixMilli(now) }})
	const devices, rounds = 4096, 7
	for i := range rounds {
		v := vitals.Value(97_00)
		if i == rounds-1 {
			v = 85_00
		}
		g := group(t, devices, now+int64(i), v)
		try(t, store.Append(g))
		e.Publish(g)
	}
	now += rounds
	e.step(t.Context(), false)
	if want := uint64(devices * rounds); e.lostEver != want {
		t.Errorf("%d readings were lost, want %d", e.lostEver, want)
	}
	if active, c := e.State(0); !c.Ready || len(active) != devices {
		t.Errorf("%d alerts are active, want %d", len(active), devices)
	}
}

// A slow is a store in which it takes a while to walk over all devices.
type slow struct {
	*storetest.Memory
	walks atomic.Int64
}

func (s *slow) WalkDevices(ctx context.Context, visit func([]storage.Device)) error {
	s.walks.Add(1)
	time.Sleep(100 * time.Millisecond)
	return s.Memory.WalkDevices(ctx, visit)
}

// While readings are lost all the time, sweeps take a small part of the time, and still find alerts.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Memory: storetest.NewMemory()}
		e := NewEngine(store, lowOnly, Options{})
		runEngine(t, e)
		g := group(t, 17_000, time.Now().UnixMilli(), 97_00)
		try(t, store.Append(g))
		for range 120 {
			e.Publish(g)
			e.Publish(g)
			time.Sleep(time.Second)
		}
		if n := store.walks.Load(); n < 8 || n > 15 {
			t.Errorf("%d sweeps of 100 ms in two minutes", n)
		}
		low := group(t, 1, time.Now().UnixMilli(), 85_00)
		try(t, store.Append(low))
		e.Publish(append(g, low...))
		time.Sleep(12 * time.Second)
		synctest.Wait()
		wantActive(t, e, 1)
	})
}

// A receiver that is away learns that it has missed changes, and what is active; the engine keeps a bounded
// number of changes.
func TestManyChanges(t *testing.T) {
	store := storetest.NewMemory()
	now := int64(1_800_000_000_000)
	e := NewEngine(store, lowOnly, Options{Now: func() time.Time { return time.UnixMilli(now) }})
	const devices, rounds = 500, 81
	for i := range rounds {
		g := group(t, devices, now, []vitals.Value{85_00, 97_00}[i%2])
		try(t, store.Append(g))
		e.Publish(g)
		e.step(t.Context(), i == 0)
		now += minute
	}
	active, c := e.State(0)
	if c.N != devices*rounds || !c.Lost || len(c.Alerts) > maxChanges || len(c.Alerts) < maxChanges/2 ||
		cap(e.changes) > 2*maxChanges {
		t.Errorf("%d changes, of which %d are kept, in room for %d; lost is %v", c.N, len(c.Alerts), cap(e.changes), c.Lost)
	}
	if len(active) != devices || active[0].SinceUnixMs != now-minute {
		t.Errorf("%d alerts are active, the first one since %d", len(active), active[0].SinceUnixMs)
	}
	if c := e.Changes(c.N - 3); c.Lost || len(c.Alerts) != 3 {
		t.Errorf("of the last three changes, got %d, lost is %v", len(c.Alerts), c.Lost)
	}
}

// Of a run that is as long as the store is deep, a bounded part is read.
func TestLongRun(t *testing.T) {
	store := storetest.NewMemory()
	now := int64(1_800_000_000_000)
	entries := make([]*storage.Entry, 0, 4000)
	for i := range cap(entries) { // 166 days, of which three are read
		r := vitals.Reading{Device: name(t, "d"), TimeUnixMs: now - int64(i)*60*minute}
		r.Values.Set(vitals.SpO2, 85_00)
		entries = append(entries, &storage.Entry{Reading: &r, ReceivedUnixMs: r.TimeUnixMs})
	}
	try(t, store.Append(entries))
	e := NewEngine(store, lowOnly, Options{Now: func() time.Time { return time.UnixMilli(now) }})
	e.step(t.Context(), true)
	active, _ := e.State(0)
	if age := time.Duration(now-active[0].SinceUnixMs) * time.Millisecond; len(active) != 1 || age < enough ||
		age > enough+time.Hour {
		t.Errorf("%d alerts, the first one since %v", len(active), age)
	}
}

// The states of all devices and rules have room in Options.MaxBytes. Devices that have none have no alerts,
// which Check and a metric say, and get them when there is room. Rules that would leave out devices are
// refused.
func TestStatesBound(t *testing.T) {
	store := storetest.NewMemory()
	now := int64(1_800_000_000_000)
	e := NewEngine(store, lowOnly, Options{
		Now: func() time.Time { return time.UnixMilli(now) }, MaxBytes: 3*(deviceBytes+stateBytes) + 100,
	})
	add := func(n int, v vitals.Value) {
		t.Helper()
		g := group(t, n, now, v)
		try(t, store.Append(g))
		e.Publish(g)
		now += minute
	}
	check := func(what string, alerts, leftOut int, full bool) {
		t.Helper()
		active, _ := e.State(0)
		if len(active) != alerts || e.board.leftOut != leftOut || e.board.devices.n > 3 ||
			(e.Check(t.Context()) != nil) != full {
			t.Errorf("%s: %d alerts, %d devices left out, states of %d, %v", what, len(active), e.board.leftOut,
				e.board.devices.n, e.Check(t.Context()))
		}
	}
	add(3, 85_00)
	e.step(t.Context(), true)
	check("three devices", 3, 0, false)
	add(5, 85_00)
	e.step(t.Context(), false)
	check("two more", 3, 0, true) // the next sweep counts them
	e.step(t.Context(), true)
	check("after a sweep", 3, 2, true)
	if err := e.SetRules(slices.Repeat(lowOnly, 5)); err == nil || len(e.board.rules) != 1 || e.next != nil {
		t.Errorf("rules that do not fit are in force: %v", err)
	}
	for _, device := range []string{"d0", "d1", "d2", "d3", "d4"} {
		if d := name(t, device); e.board.devices.get(&d) != nil && e.board.devices.n > 1 {
			if _, err := store.Erase(name(t, device)); err != nil {
				t.Fatal(err)
			}
			e.Erased(name(t, device))
		}
	}
	add(5, 85_00) // those that were left out, and erased ones again
	e.step(t.Context(), false)
	e.step(t.Context(), true)
	check("after erasures", 3, 2, true)
	for _, a := range first(e.State(0)) {
		records := make([]storage.Record, 9)
		if n, err := store.Scan(t.Context(), storage.Range{Device: a.Device, ToUnixMs: now}, records); err != nil || n == 0 ||
			records[0].TimeUnixMs != a.SinceUnixMs {
			t.Errorf("%s has an alert since %d, and %d readings from %d", a.Device, a.SinceUnixMs, n, records[0].TimeUnixMs)
		}
	}
	for i := range 5 {
		if _, err := store.Erase(name(t, fmt.Sprint("d", i))); err != nil {
			t.Fatal(err)
		}
		e.Erased(name(t, fmt.Sprint("d", i)))
	}
	add(2, 85_00)
	e.step(t.Context(), true)
	check("two devices", 2, 0, false)
	if err := e.SetRules(append(lowOnly[:1:1], Rule{Name: "Silent", Silent: time.Hour})); err != nil {
		t.Error(err)
	}
	e.step(t.Context(), true)
	check("two rules", 2, 0, false)
}

func first[A, B any](a A, _ B) A { return a }

// A damaged is a store in which the readings of one device cannot be read.
type damaged struct {
	*storetest.Memory
	device vitals.Name
}

func (d *damaged) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	if r.Device == d.device {
		return 0, errFailing
	}
	return d.Memory.Scan(ctx, r, dst)
}

// Devices that cannot be read hold up no others, and Check says so: after a start, and after a change of the rules,
// when their alerts stay as they were.
func TestUnreadable(t *testing.T) {
	store := &damaged{Memory: storetest.NewMemory(), device: name(t, "d0")}
	now := int64(1_800_000_000_000)
	add := func(v vitals.Value) (g []*storage.Entry) {
		t.Helper()
		g = group(t, 3, now, v)
		try(t, store.Append(g))
		now += minute
		return g
	}
	add(85_00)
	from := &failing{Reader: store, fails: true}
	e := NewEngine(from, lowOnly, Options{Now: func() time.Time { return time.UnixMilli(now) }})
	check := func(what string, ready bool, alerts, since int64) {
		t.Helper()
		for range 20 { // in another order each time
			e.step(t.Context(), true)
			if err := e.Check(t.Context()); errors.Is(err, errFailing) != (from.fails || !store.device.IsZero()) {
				t.Errorf("%s: Check returns %v", what, err)
			}
		}
		active, c := e.State(0)
		if c.Ready != ready || len(active) != int(alerts) || alerts > 0 && active[0].SinceUnixMs != since {
			t.Errorf("%s: ready is %v, the alerts are %v", what, c.Ready, active)
		}
		for device, want := range map[string]int{"d0": 1, "d1": 0} {
			if from.fails || store.device.IsZero() {
				want = 0
			}
			if _, _, unread, _ := e.Newest(1, func(d *vitals.Name) bool { return *d == name(t, device) }); unread != want {
				t.Errorf("%s: %d devices of %s are unread, want %d", what, unread, device, want)
			}
		}
	}
	begin := now - minute
	check("nothing can be read", false, 0, 0)
	from.fails = false
	check("a start without one device", true, 2, begin)
	store.device = vitals.Name{}
	check("all can be read", true, 3, begin)
	store.device = name(t, "d0")
	rules := append(slices.Clone(lowOnly), Rule{Name: "Other", Sign: vitals.HeartRate, Met: lowOnly[0].Met, Values: 1})
	try(t, e.SetRules(rules))
	check("other rules without one device", true, 3, begin)
	changes := e.nChanges
	e.Publish(add(97_00))
	check("values that end all alerts", true, 0, 0)
	if e.nChanges != changes+3 {
		t.Errorf("%d changes, want 3", e.nChanges-changes)
	}
	e.Publish(add(85_00))
	check("values that begin them again", true, 3, now-minute)
	store.device = vitals.Name{}
	check("all can be read again", true, 3, now-minute)
}

// After an outage of the store, silence has the same grace as after a start.
func TestSilenceAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Reader: storetest.NewMemory()}
		try(t, store.Reader.(*storetest.Memory).Append(group(t, 1, time.Now().UnixMilli(), 97_00)))
		e := NewEngine(store, []Rule{{Name: "Silent", Silent: 30 * time.Minute}}, Options{Shared: true, Grace: time.Minute})
		check := func(what string, alerts int) {
			t.Helper()
			e.step(t.Context(), true)
			if active, _ := e.State(0); len(active) != alerts {
				t.Errorf("%s: %d alerts, want %d", what, len(active), alerts)
			}
		}
		time.Sleep(20 * time.Minute)
		check("before", 0)
		store.fails = true
		time.Sleep(20 * time.Minute)
		check("while the store is away", 0)
		store.fails = false
		time.Sleep(59 * time.Second)
		check("soon after", 0)
		time.Sleep(2 * time.Second)
		check("after a minute", 1)
	})
}

// While a device cannot be read, the values that arrive begin and end its alerts: whatever its other signs, and
// although another server may have stored some. The error is reported once, because damage stays.
func TestUnreadableValues(t *testing.T) {
	for _, shared := range []bool{false, true} {
		store := &damaged{Memory: storetest.NewMemory(), device: name(t, "d0")}
		now, reports := int64(1_800_000_000_000), 0
		e := NewEngine(store, append(slices.Clone(lowOnly), Rule{Name: "Silent", Silent: time.Hour}), Options{
			Shared: shared, Now: func() time.Time { return time.UnixMilli(now) }, OnError: func(error) { reports++ },
		})
		add := func(publish bool, v ...vitals.Value) {
			t.Helper()
			for _, v := range v {
				g := group(t, 1, now, v)
				if v == 0 { // another sign
					g[0].Reading.Values = vitals.Values{}
					g[0].Reading.Values.Set(vitals.HeartRate, 70_00)
				}
				try(t, store.Append(g))
				if publish {
					e.Publish(g)
				}
				now += 1000
			}
		}
		check := func(what string, want ...string) {
			t.Helper()
			e.step(t.Context(), false)
			e.step(t.Context(), true)
			e.step(t.Context(), true)
			active, c := e.State(0)
			var got []string
			for _, a := range active {
				got = append(got, a.Rule.Name)
			}
			if slices.Sort(got); !c.Ready || !slices.Equal(got, want) {
				t.Errorf("shared is %v, %s: got %q, want %q", shared, what, got, want)
			}
		}
		add(false, 85_00)
		check("a low value that is not known")
		add(true, 85_00)
		check("a low value", "Low")
		add(true, 97_00, 0)
		check("a value that is not low, and one of another sign")
		add(true, 85_00, 0)
		check("a low value, and one of another sign", "Low")
		add(false, 97_00, 0)
		check("a value that is not low, which was stored elsewhere")
		add(true, 85_00)
		check("a low value", "Low")
		now += 60 * minute
		check("silence", "Low", "Silent")
		now += Lasts.Milliseconds()
		check("a pause", "Silent")
		if reports != 1 {
			t.Errorf("shared is %v: the error was reported %d times, want once", shared, reports)
		}
	}
}

// Values that only prolong an alert are left out. It does not end by a value that is older than one of them, or by a
// pause before one, even for as long as the device has not been read.
func TestProlonged(t *testing.T) {
	store, now := storetest.NewMemory(), int64(1_800_000_000_000)
	e := NewEngine(store,
		append(slices.Clone(lowOnly),
			Rule{Name: "Slow", Sign: vitals.HeartRate, Met: vitals.Range{Min: vitals.MinValue, Max: 40_00}, Values: 9,
				MaxAge: time.Hour}), Options{Now: func() time.Time { return time.UnixMilli(now) }})
	e.step(t.Context(), true)
	put := func(unixMs int64, v vitals.Value, leftOut bool) {
		t.Helper()
		g := group(t, 1, unixMs, v)
		if v == 86_00 { // it meets the other rule, too
			g[0].Reading.Values.Set(vitals.HeartRate, 39_00)
		}
		g[0].ReceivedUnixMs = now
		try(t, store.Append(g))
		if got := !e.filter.Load().fill(new(update), g[0]); got != leftOut {
			t.Errorf("a value of %d at %d is left out: %t, want %t", v, unixMs, got, leftOut)
		}
		e.Publish(g)
	}
	check := func(what string, sinceUnixMs ...int64) {
		t.Helper()
		active, _ := e.State(0)
		var got []int64
		for _, a := range active {
			got = append(got, a.SinceUnixMs)
		}
		if !slices.Equal(got, sinceUnixMs) {
			t.Errorf("%s: active since %d, want %d", what, got, sinceUnixMs)
		}
	}
	began := now
	put(now, 85_00, false)
	e.step(t.Context(), false)
	check("a low value", began)
	now += minute
	put(now, 85_00, true)
	put(now-1000, 97_00, false)
	put(now-2000, 85_00, true)
	e.take(nil)
	e.settle(false)
	check("an older value that is not low, before it is read", began)
	e.step(t.Context(), false)
	began = now
	check("an older value that is not low", began)

	now += 17 * 60 * minute
	put(now, 85_00, true)
	now += 20 * 60 * minute
	e.settle(true)
	e.step(t.Context(), false)
	check("less than a pause", began)
	put(now+1, 85_00, false) // what is known is too old
	e.step(t.Context(), false)
	check("another low value", began)
	now += Lasts.Milliseconds()
	e.settle(true)
	e.step(t.Context(), false)
	check("nearly a pause", began)
	now++
	e.step(t.Context(), false)
	check("a pause")
	put(now, 85_00, false)
	e.step(t.Context(), false)
	check("a low value after the pause", now)
	began = now
	put(began+17*60*minute, 85_00, true)
	now += Lasts.Milliseconds() + minute
	put(now, 85_00, false)
	e.step(t.Context(), false)
	check("less than a pause after a value that was left out", began)
	now += minute
	put(now-3000, 97_00, false)
	put(now-1000, 86_00, false)
	put(now-2000, 85_00, true)
	e.step(t.Context(), false)
	check("an end and a beginning at once", now-2000)
	put(now, 97_00, false)
	e.step(t.Context(), false)
	check("a value that is not low")
}

// A sweep finds that another server has erased a device and stored another value with the same time.
func TestStoredAgain(t *testing.T) {
	store, now := storetest.NewMemory(), int64(1_800_000_000_000)
	e := NewEngine(store, lowOnly, Options{Shared: true, Now: func() time.Time { return time.UnixMilli(now) }})
	for i, v := range []vitals.Value{97_00, 85_00, 97_00} {
		g := group(t, 1, now, v)
		try(t, store.Append(g))
		e.step(t.Context(), true)
		if active, _ := e.State(0); len(active) != i%2 {
			t.Errorf("after %d: %d alerts are active, want %d", v, len(active), i%2)
		}
		_, err := store.Erase(g[0].Reading.Device)
		try(t, err)
	}
}

// What is kept of a device that was erased is not evaluated any more, although it was about to be.
func TestErasedWhileEvaluated(t *testing.T) {
	store := storetest.NewMemory()
	now := int64(1_800_000_000_000)
	e := NewEngine(store, []Rule{{Name: "Silent", Silent: time.Minute}},
		Options{Now: func() time.Time { return time.UnixMilli(now) }})
	e.step(t.Context(), true)
	g := group(t, 1, now, 97_00)
	try(t, store.Append(g))
	e.Publish(g)
	e.take(nil)
	if _, err := store.Erase(g[0].Reading.Device); err != nil {
		t.Fatal(err)
	}
	e.Erased(g[0].Reading.Device)
	now += minute // a step of the clock
	e.settle(false)
	if e.nChanges != 0 || e.board.reported != 0 {
		t.Errorf("%d changes, %d alerts are active", e.nChanges, e.board.reported)
	}
}

// What was kept of a device before it was erased says nothing about the device that came back.
func TestBackWhileEvaluated(t *testing.T) {
	store, now := storetest.NewMemory(), int64(1_800_000_000_000)
	e := NewEngine(store, lowOnly, Options{Now: func() time.Time { return time.UnixMilli(now) }})
	e.step(t.Context(), true)
	put := func(v vitals.Value) {
		t.Helper()
		now += minute
		g := group(t, 1, now, v)
		try(t, store.Append(g))
		e.Publish(g)
	}
	device := name(t, "d0")
	put(85_00)
	e.step(t.Context(), false)
	put(97_00)
	e.take(nil)
	a := storage.Assignment{Device: device, Subject: "P-17", FromUnixMs: now, ToUnixMs: now + 1}
	try(t, store.Assign(t.Context(), a))
	_, err := store.EraseAssignment(a)
	try(t, err)
	e.Erased(device)
	e.readUnread(t.Context(), true, true)
	e.settle(false)
	put(97_00)
	e.step(t.Context(), false)
	wantActive(t, e, 0)
}

// A slowRead is a store in which it takes a while to read records.
type slowRead struct {
	*storetest.Memory
	reads atomic.Int64
}

func (s *slowRead) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	s.reads.Add(1)
	time.Sleep(100 * time.Millisecond)
	return s.Memory.Scan(ctx, r, dst)
}

// What other servers may have stored of active alerts is read in a small part of the time, however long that takes;
// what is newer than all values is known after a sweep.
func TestRereading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowRead{Memory: storetest.NewMemory()}
		begin := time.Now()
		rule := lowOnly[0]
		rule.Values = 2
		for range 2 {
			try(t, store.Append(group(t, 20, time.Now().UnixMilli(), 85_00)))
			time.Sleep(time.Second)
		}
		e := NewEngine(store, []Rule{rule}, Options{Shared: true})
		runEngine(t, e)
		wantActiveAfter(t, e, time.Minute, 20)
		before := store.reads.Load()
		wantActiveAfter(t, e, 20*time.Minute, 20)
		if share := (store.reads.Load() - before) * 1000 / 12000; share < 5 || share > 15 {
			t.Errorf("%d thousandths of the time were spent with reading", share)
		}
		try(t, store.Append(group(t, 1, time.Now().UnixMilli(), 97_00)))
		wantActiveAfter(t, e, 15*time.Second, 19)
		between := group(t, 2, begin.UnixMilli()+500, 97_00)
		try(t, store.Append(between[1:]))
		wantActiveAfter(t, e, 20*time.Minute, 18)
	})
}

// Devices that each sweep finds to have newer values do not keep the others from being read again.
func TestRereadingOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowRead{Memory: storetest.NewMemory()}
		begin := time.Now().UnixMilli()
		try(t, store.Append(group(t, 20, begin, 85_00)))
		time.Sleep(time.Second)
		try(t, store.Append(group(t, 20, begin+1000, 85_00)))
		rule := lowOnly[0]
		rule.Values = 2
		e := NewEngine(store, []Rule{rule}, Options{Shared: true})
		runEngine(t, e)
		for i := range 3600 {
			g := group(t, 25, time.Now().UnixMilli(), 85_00)[20:]
			for _, entry := range g { // not young
				entry.ReceivedUnixMs += 2 * rule.MaxAge.Milliseconds()
			}
			try(t, store.Append(g))
			if i == 180 {
				try(t, store.Append(group(t, 2, begin+500, 97_00)[1:]))
			}
			time.Sleep(10 * time.Second)
			if active, _ := e.State(0); i > 180 && len(active) == 19 {
				return
			}
		}
		t.Error("a value between others of an alert has not been read in nine hours")
	})
}

// Late readings of many devices, which take long to read from the store, do not hold up the alerts of others.
func TestManyLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowRead{Memory: storetest.NewMemory()}
		e := NewEngine(store, lowOnly, Options{})
		runEngine(t, e)
		add := func(g []*storage.Entry) {
			t.Helper()
			try(t, store.Append(g))
			e.Publish(g)
		}
		begin := time.Now().UnixMilli()
		add(group(t, 100, begin, 85_00)) // 20 s to read
		wantActiveAfter(t, e, 25*time.Second, 100)
		add(group(t, 100, begin-1000, 85_00)) // the same again
		wantActiveAfter(t, e, time.Second, 100)
		add(group(t, 101, time.Now().UnixMilli(), 85_00)[100:])
		wantActiveAfter(t, e, 3*time.Second, 101)
		wantActiveAfter(t, e, 20*time.Second, 101)
		if len(e.board.unread) > 0 {
			t.Errorf("%d devices are not read", len(e.board.unread))
		}
		for _, a := range first(e.State(0))[:100] {
			if want := begin - 1000; a.Device != name(t, "d100") && a.SinceUnixMs != want {
				t.Fatalf("%s has an alert since %d, want %d", a.Device, a.SinceUnixMs, want)
			}
		}
	})
}

// While the runs of many devices are read again, because other servers may have stored late values of them, the alerts
// of others begin, and so do those that such a device gets.
func TestNewWhileRereading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowRead{Memory: storetest.NewMemory()}
		const devices = 200
		try(t, store.Append(group(t, devices, time.Now().UnixMilli(), 85_00)))
		rules := append(slices.Clone(lowOnly), Rule{Name: "Fast", Sign: vitals.HeartRate,
			Met: vitals.Range{Min: 100_00, Max: vitals.MaxValue}, Values: 1, MaxAge: time.Hour})
		e := NewEngine(store, rules, Options{Shared: true})
		runEngine(t, e)
		time.Sleep(5 * time.Minute) // until all are active
		for i := range 200 {
			g := group(t, devices+i+1, time.Now().UnixMilli(), 85_00)[devices+i:]
			if i%2 == 0 { // of a device that has an alert
				g[0].Reading.Device = name(t, fmt.Sprint("d", i))
				g[0].Reading.Values.Reset()
				g[0].Reading.Values.Set(vitals.HeartRate, 120_00)
			}
			try(t, store.Append(g))
			e.Publish(g)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if active, _ := e.State(0); len(active) != devices+i+1 {
				t.Fatalf("%d alerts are active, want %d", len(active), devices+i+1)
			}
		}
	})
}

// A slowWalk is a store in which it takes a while to read the summary of each device.
type slowWalk struct{ *storetest.Memory }

func (s slowWalk) WalkDevices(ctx context.Context, visit func(some []storage.Device)) error {
	var all []storage.Device
	err := s.Memory.WalkDevices(ctx, func(some []storage.Device) { all = append(all, some...) })
	for i := range all {
		time.Sleep(100 * time.Millisecond)
		if d, err := s.Latest(ctx, all[i].Name); err == nil {
			visit([]storage.Device{d})
		}
	}
	return err
}

// While devices are compared with a store to which other servers write, the alerts of what this one stores begin.
func TestNewWhileSweeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slowWalk{storetest.NewMemory()}
		try(t, store.Append(group(t, 100, time.Now().UnixMilli(), 97_00)))
		e := NewEngine(store, lowOnly, Options{Shared: true})
		runEngine(t, e)
		time.Sleep(time.Minute) // until it is ready
		for i := range 400 {
			g := group(t, 101+i, time.Now().UnixMilli(), 85_00)[100+i:]
			try(t, store.Append(g))
			e.Publish(g)
			time.Sleep(time.Second)
			synctest.Wait()
			if active, _ := e.State(0); len(active) != i+1 {
				t.Fatalf("%d alerts are active, want %d", len(active), i+1)
			}
		}
	})
}

// An alert does not begin while a late value that may prevent it has not been read.
func TestLateBeforeBegin(t *testing.T) {
	store := &failing{Reader: storetest.NewMemory()}
	now := int64(1_800_000_000_000)
	rule := lowOnly[0]
	rule.Values = 3
	e := NewEngine(store, []Rule{rule}, Options{Now: func() time.Time { return time.UnixMilli(now) }})
	e.step(t.Context(), true)
	add := func(unixMs int64, v vitals.Value) {
		t.Helper()
		g := group(t, 1, unixMs, v)
		try(t, store.Reader.(*storetest.Memory).Append(g))
		e.Publish(g)
	}
	add(now-2*minute, 85_00)
	add(now-minute, 85_00)
	add(now-minute/2*3, 97_00) // between them
	add(now, 85_00)
	e.take(nil)
	e.settle(false) // its run is read later
	wantActive(t, e, 0)
	e.step(t.Context(), false)
	if active, _ := e.State(0); len(active) != 0 {
		t.Errorf("after the run was read, %d alerts are active, want 0", len(active))
	}
}

// runEngine runs an engine, in a bubble of synctest, until the test ends.
func runEngine(t *testing.T, e *Engine) {
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { e.Run(ctx) })
	t.Cleanup(func() { stop(); run.Wait() })
	synctest.Wait()
}

// After a burst that was lost, a load that the inbox has room for is evaluated again, although it does not hold a
// second of it.
func TestAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		// nothing is left out
		e := NewEngine(store, append(slices.Clone(lowOnly), Rule{Name: "Silent", Silent: 5 * time.Minute}), Options{})
		runEngine(t, e)
		g := group(t, 2500, time.Now().UnixMilli(), 97_00)
		try(t, store.Append(g))
		for range 10 {
			e.Publish(g)
		}
		var lost uint64
		for i := range 100 { // 25,000 readings/s
			if i == 50 {
				synctest.Wait()
				if lost = e.lostEver; lost == 0 {
					t.Error("the burst was not lost")
				}
			}
			e.Publish(g)
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if e.lostEver != lost {
			t.Errorf("%d readings were lost, want %d", e.lostEver, lost)
		}
	})
}

// While many devices that seem to be silent are read, the alerts of others begin.
func TestManySilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowRead{Memory: storetest.NewMemory()}
		e := NewEngine(store, append(slices.Clone(lowOnly), Rule{Name: "Silent", Silent: 30 * time.Minute}), Options{})
		add := func(g []*storage.Entry) {
			t.Helper()
			try(t, store.Append(g))
			e.Publish(g)
		}
		runEngine(t, e)
		add(group(t, 300, time.Now().UnixMilli(), 97_00))
		time.Sleep(30*time.Minute + 6*time.Second)
		for i := range 5 {
			add(group(t, 301+i, time.Now().UnixMilli(), 85_00)[300+i:])
			time.Sleep(2 * time.Second)
			synctest.Wait()
			low := 0
			for _, a := range first(e.State(0)) {
				if a.Rule.Silent == 0 {
					low++
				}
			}
			if low != i+1 {
				t.Errorf("%d alerts about values are active, want %d", low, i+1)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		wantActive(t, e, 305)
	})
}

// When an engine is ready, the alerts that are stored are active: a restart does not end them for a while.
func TestActiveWhenReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowRead{Memory: storetest.NewMemory()}
		try(t, store.Append(group(t, 30, time.Now().UnixMilli(), 85_00)))
		e := NewEngine(store, lowOnly, Options{})
		runEngine(t, e)
		for c := e.Changes(0); !c.Ready; c = e.Changes(0) {
			<-c.Next
		}
		wantActive(t, e, 30)
	})
}

// A group that is larger than maxOffered is not lost if most of it does not matter.
func TestLargeGroup(t *testing.T) {
	store := storetest.NewMemory()
	now := int64(1_800_000_000_000)
	e := NewEngine(store, lowOnly, Options{Now: func() time.Time { return time.UnixMilli(now) }})
	g := group(t, maxOffered+1, now, 97_00)
	try(t, store.Append(g))
	e.step(t.Context(), true)
	e.Publish(g)
	e.step(t.Context(), false)
	if e.lostEver != 0 {
		t.Errorf("%d readings were lost", e.lostEver)
	}
}
