package storetest

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A consumer keeps a copy of a store, or of the part that its filter selects, by what [storage.NextChanges] returns.
type consumer struct {
	filter storage.ChangeFilter
	cursor storage.ChangeCursor
	now    replica
	next   *replica // what was received since ChangeBegin; nil if no copy has begun

	saved *consumer // an earlier state, to which it may go back
}

// A replica is a copy of a store.
type replica struct {
	records records
	worn    map[vitals.Name][]storage.Assignment
}

func newReplica() replica {
	return replica{records{}, map[vitals.Name][]storage.Assignment{}}
}

func (r *replica) clone() replica {
	c := newReplica()
	for device, byTime := range r.records {
		c.records[device] = maps.Clone(byTime)
	}
	for device, all := range r.worn {
		c.worn[device] = slices.Clone(all)
	}
	return c
}

// clone returns a consumer in the same state.
func (c *consumer) clone() *consumer {
	same := *c
	same.now, same.saved = c.now.clone(), nil
	if c.next != nil {
		next := c.next.clone()
		same.next = &next
	}
	return &same
}

// apply applies a change.
func (c *consumer) apply(x *storage.Change) {
	switch x.Kind {
	case storage.ChangeBegin:
		next := newReplica()
		c.next = &next
		return
	case storage.ChangeComplete:
		c.now, c.next = *c.next, nil
		return
	}
	c.now.apply(x, c.filter.Subject != nil)
	if c.next != nil {
		c.next.apply(x, c.filter.Subject != nil)
	}
}

// apply applies a change. limited is set if what nobody wears any more must go.
func (r *replica) apply(x *storage.Change, limited bool) {
	switch x.Kind {
	case storage.ChangedReading:
		if r.records[x.Device] == nil {
			r.records[x.Device] = map[int64]storage.Record{}
		}
		have, ok := r.records[x.Device][x.Record.TimeUnixMs]
		now := x.Record
		if ok { // it may be an older state than the one that was received last
			now.Values = union(now.Values, have.Values)
			now.ChangedUnixMs = max(now.ChangedUnixMs, have.ChangedUnixMs)
			now.Shared = now.Shared || have.Shared
			if now.Gateway == nil {
				now.Gateway = have.Gateway
			}
			if now.UTCOffset == 0 {
				now.UTCOffset = have.UTCOffset
			}
		}
		r.records[x.Device][x.Record.TimeUnixMs] = now
	case storage.ChangeAssigned:
		r.cut(x.Device, "", x.FromUnixMs, x.ToUnixMs)
		r.worn[x.Device] = append(r.worn[x.Device], storage.Assignment{Subject: x.Subject, FromUnixMs: x.FromUnixMs,
			ToUnixMs: x.ToUnixMs})
	case storage.ChangeUnassigned:
		r.cut(x.Device, x.Subject, x.FromUnixMs, x.ToUnixMs)
		if limited {
			r.remove(x.Device, x.FromUnixMs, x.ToUnixMs)
		}
	case storage.ChangeErased:
		if x.Signs != 0 {
			r.strip(x)
			return
		}
		r.cut(x.Device, "", x.FromUnixMs, x.ToUnixMs)
		r.remove(x.Device, x.FromUnixMs, x.ToUnixMs)
	case storage.ChangeExpired:
		for device := range r.records {
			r.remove(device, math.MinInt64, x.ToUnixMs)
		}
	}
}

// strip removes the values of an erasure.
func (r *replica) strip(x *storage.Change) {
	for t, have := range r.records[x.Device] {
		if x.FromUnixMs > t || t >= x.ToUnixMs {
			continue
		}
		if have.Values = withSigns(have.Values, ^x.Signs); have.Values.IsZero() {
			delete(r.records[x.Device], t)
		} else {
			r.records[x.Device][t] = have
		}
	}
}

func (r *replica) remove(device vitals.Name, fromUnixMs, toUnixMs int64) {
	maps.DeleteFunc(r.records[device], func(t int64, _ storage.Record) bool { return fromUnixMs <= t && t < toUnixMs })
}

// cut makes a subject, or if it is empty everybody, not wear a device from one time to another.
func (r *replica) cut(device vitals.Name, subject storage.Subject, fromUnixMs, toUnixMs int64) {
	var left []storage.Assignment
	for _, a := range r.worn[device] {
		before, after := a, a
		before.ToUnixMs, after.FromUnixMs = min(a.ToUnixMs, fromUnixMs), max(a.FromUnixMs, toUnixMs)
		if subject != "" && a.Subject != subject {
			before, after = a, storage.Assignment{}
		}
		for _, part := range []storage.Assignment{before, after} {
			if part.FromUnixMs < part.ToUnixMs {
				left = append(left, part)
			}
		}
	}
	r.worn[device] = left
}

// compare compares the copy with the store.
func (c *consumer) compare(t tb, s store) {
	t.Helper()
	c.compareBut(t, s, s.(storage.Changes).Horizons())
}

// compareBut compares the copy with the store, without what has expired.
func (c *consumer) compareBut(t tb, s store, expired []storage.Horizon) {
	t.Helper()
	ctx := context.Background()
	selected := func(d vitals.Name) bool {
		return d.HasPrefix(&c.filter.Prefix) && (c.filter.Device == nil || c.filter.Device(&d))
	}
	for _, text := range randomDevices {
		device := mustName(text)
		all, err := s.DeviceAssignments(ctx, device)
		if err != nil {
			t.Fatalf("DeviceAssignments: %v", err)
		}
		if !selected(device) {
			all = nil
		}
		wears := func(unixMs int64) storage.Subject { return storage.SubjectAt(all, unixMs) }
		visible := func(subject storage.Subject) bool { return c.filter.Subject == nil || c.filter.Subject(subject) }
		for unixMs := range int64(310) {
			want := wears(unixMs)
			if !visible(want) {
				want = ""
			}
			if got := storage.SubjectAt(c.now.worn[device], unixMs); got != want {
				t.Fatalf("in the copy, %q wears %s at %d, want %q", got, device, unixMs, want)
			}
		}
		// A store may know by transactions, and not by times, which readings have expired. It has those of the copy.
		unknown := func(r *storage.Record) bool {
			return slices.ContainsFunc(expired, func(h storage.Horizon) bool {
				return h.AtUnixMs == math.MaxInt64 &&
					r.TimeUnixMs < h.BeforeUnixMs
			})
		}
		var want []storage.Record
		stored := map[int64]vitals.Values{}
		for _, r := range scanPages(t, s, allOf(text), 100) {
			stored[r.TimeUnixMs] = r.Values
			if c.filter.Signs != 0 {
				r.Values = withSigns(r.Values, c.filter.Signs)
			}
			if selected(device) && !storage.HasExpired(expired, &r) && visible(wears(r.TimeUnixMs)) && !r.Values.IsZero() {
				want = append(want, r)
			}
		}
		got := slices.DeleteFunc(c.now.records.scan(allOf(text)), func(r storage.Record) bool {
			if !unknown(&r) {
				return false
			}
			if have := stored[r.TimeUnixMs]; union(have, r.Values) != have {
				t.Fatalf("the copy has a reading of %s at %d with values that the store lacks", text, r.TimeUnixMs)
			}
			return true
		})
		wantRecords(t, "copy of "+text, got, want)
	}
}

// withSigns returns the values of some signs.
func withSigns(values vitals.Values, signs uint32) (some vitals.Values) {
	for s, v := range values.All() {
		if signs&(1<<s) != 0 {
			some.Set(s, v)
		}
	}
	return some
}

// read reads a page, and compares the copy if the consumer has caught up.
func (c *consumer) read(t tb, s store, most int) (caughtUp bool) {
	t.Helper()
	page, caughtUp, err := storage.NextChanges(context.Background(), s.(storage.Changes), &c.cursor, &c.filter, most)
	if errors.Is(err, storage.ErrUnknownPosition) {
		c.cursor = storage.ChangeCursor{}
		return false
	}
	if err != nil {
		t.Fatalf("NextChanges: %v", err)
	}
	if len(page) > most {
		t.Fatalf("NextChanges returned %d changes, want at most %d", len(page), most)
	}
	text := c.cursor.AppendTo(nil)
	if again, err := storage.ParseChangeCursor(text); err != nil || again != c.cursor {
		t.Fatalf("cursor %+v is parsed as %+v, %v", c.cursor, again, err)
	}
	for i := range page {
		c.apply(&page[i])
	}
	if caughtUp {
		c.compare(t, s)
	}
	return caughtUp
}

// newConsumers returns consumers with different filters.
func newConsumers() []*consumer {
	all := []*consumer{
		{},
		{filter: storage.ChangeFilter{Prefix: mustName("a-")}},
		{filter: storage.ChangeFilter{Signs: 1<<vitals.SpO2 | 1<<vitals.Systolic}},
		{filter: storage.ChangeFilter{Subject: func(s storage.Subject) bool { return s == "P" || s == "P-1" }}},
		{filter: storage.ChangeFilter{Device: func(n *vitals.Name) bool { return n.String() != "b" },
			Subject: func(s storage.Subject) bool { return s == "P" }}},
	}
	for _, c := range all {
		c.now = newReplica()
	}
	return all
}

// checkCopies lets consumers copy a store during random calls, reopens and crashes. They read pages of different
// sizes, stop within passes, and go back to earlier states. When one has caught up, its copy equals the store.
func checkCopies(t testing.TB, open func(testing.TB) Harness) {
	if open(t).OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	rapid.Check(t, func(rt *rapid.T) {
		h := open(t)
		h.Open = func() (storage.Store, error) { return h.OpenChanges(OwnSigns()) }
		// The store reads the clock when it erases.
		m := &machine{h: h, s: mustOpen(rt, h.Open), model: NewMemory(), nowUnixMs: time.Now().UnixMilli()}
		defer func() { _ = m.s.Close() }()
		all := newConsumers()
		nodes := make([]store, 2) // more of them, if the store has several
		defer func() {
			for _, s := range nodes {
				if s != nil {
					_ = s.Close()
				}
			}
		}()
		node := func(t *rapid.T) store {
			if h.OpenNode == nil {
				return m.s
			}
			i := rapid.IntRange(0, len(nodes)).Draw(t, "node")
			if i == len(nodes) {
				return m.s
			}
			if nodes[i] == nil {
				nodes[i] = mustOpen(t, h.Open)
			}
			return nodes[i]
		}
		onNode := func(do func(*rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) {
				first := m.s
				m.s = node(t)
				do(t)
				m.s = first
			}
		}
		read := func(t *rapid.T) {
			c := all[rapid.IntRange(0, len(all)-1).Draw(t, "consumer")]
			c.read(t, node(t), rapid.SampledFrom([]int{1, 2, 3, 7, 1000}).Draw(t, "most"))
		}
		actions := map[string]func(*rapid.T){
			"append": m.appendAny, "append+": onNode(m.appendAny), "change": m.change, "change+": onNode(m.change),
			"remove": onNode(m.remove),
			"read":   read, "read+": read, "read++": read,
			"reopen": func(t *rapid.T) { m.s = reopen(t, m.s, h) },
			"save":   func(t *rapid.T) { c := all[rapid.IntRange(0, len(all)-1).Draw(t, "consumer")]; c.saved = c.clone() },
			"go back": func(t *rapid.T) {
				if i := rapid.IntRange(0, len(all)-1).Draw(t, "consumer"); all[i].saved != nil {
					all[i] = all[i].saved.clone()
				}
			},
			"gap": func(t *rapid.T) { // as after ErrUnknownPosition
				all[rapid.IntRange(0, len(all)-1).Draw(t, "consumer")].cursor = storage.ChangeCursor{}
			},
			"catch up": func(t *rapid.T) {
				for _, c := range all {
					c.catchUp(t, node(t))
				}
			},
		}
		if h.Disturb != nil {
			actions["disturb"] = func(*rapid.T) { h.Disturb() }
		}
		if h.Crash != nil {
			actions["crash"] = func(t *rapid.T) {
				m.h.Crash(rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced percent"), rapid.Uint64().Draw(t, "seed"))
				m.s = mustOpen(t, m.h.Open)
				clear(nodes)
			}
		}
		rt.Repeat(actions)
		for _, c := range all {
			c.catchUp(rt, m.s)
		}
		// When all that has expired is removed, copies have nothing of it.
		before := int64(0)
		for _, x := range m.s.(storage.Changes).Horizons() {
			before = max(before, x.BeforeUnixMs)
		}
		for more := true; more; {
			x, err := m.s.Expire(context.Background(), before, math.MaxInt64)
			if err != nil {
				rt.Fatalf("Expire: %v", err)
			}
			more = x.More
		}
		for _, c := range all {
			c.catchUp(rt, m.s)
			c.compareBut(rt, m.s, nil)
		}
	})
}

// catchUp reads until the consumer has caught up.
func (c *consumer) catchUp(t tb, s store) {
	t.Helper()
	for range math.MaxInt16 {
		if c.read(t, s, 50) {
			return
		}
	}
	t.Fatalf("a consumer does not catch up")
}

// appendAny appends a group, however it is settled.
func (m *machine) appendAny(t *rapid.T) { mustAppend(t, m.s, m.drawGroup(t)...) }

// drawOne draws one of the assignments to subjects that there are.
func (m *machine) drawOne(t *rapid.T) (a storage.Assignment, ok bool) {
	var some [100]storage.Assignment
	n, err := m.s.Assignments(context.Background(), storage.AssignmentKey{}, some[:])
	if err != nil {
		t.Fatalf("Assignments: %v", err)
	}
	all := storage.Worn(some[:n])
	if len(all) == 0 {
		return a, false
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, "assignment")], true
}

// change makes an assignment, or ends one at some time. It is admitted or not.
func (m *machine) change(t *rapid.T) {
	a := storage.Assignment{Device: drawDevice(t), Subject: drawSubject(t), FromUnixMs: drawTime(t), ToUnixMs: drawEnd(t),
		ChangedUnixMs: m.nowUnixMs}
	if old, ok := m.drawOne(t); ok && rapid.Bool().Draw(t, "end") {
		old.ToUnixMs, old.ChangedUnixMs, old.By, old.NamedUnixMs = a.ToUnixMs, m.nowUnixMs, storage.ByHand, 0
		_ = m.s.EndAssignment(context.Background(), old)
		return
	}
	_ = m.s.Assign(context.Background(), a)
}

// remove erases a device, an assignment or values, or expires readings, some times.
func (m *machine) remove(t *rapid.T) {
	var err error
	switch rapid.IntRange(0, 7).Draw(t, "what") {
	case 0:
		_, err = m.s.Erase(drawDevice(t))
	case 1:
		if a, ok := m.drawOne(t); ok {
			_, err = m.s.EraseAssignment(a)
		}
	case 2:
		_, err = m.s.EraseValues(drawValues(t))
	case 3:
		_, err = m.s.Expire(context.Background(), drawTime(t),
			rapid.OneOf(rapid.Int64Range(1, 5), rapid.Just(int64(math.MaxInt64))).Draw(t, "at most"))
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("removal: %v", err)
	}
}

// checkPositions uses positions where they are not known.
func checkPositions(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	positionOf := func() storage.Position {
		t.Helper()
		p, _, err := s.(storage.Changes).Position(ctx)
		if err != nil {
			t.Fatalf("Position: %v", err)
		}
		return p
	}
	check := func(what string, p storage.Position, known bool) {
		t.Helper()
		if err := s.(storage.Changes).CheckPosition(ctx, p); known && err != nil ||
			!known && !errors.Is(err, storage.ErrUnknownPosition) {
			t.Errorf("%s: CheckPosition returned %v, want it to be known: %t", what, err, known)
		}
	}
	keyOf := func() []byte {
		t.Helper()
		key, err := s.(storage.Changes).CursorKey(ctx)
		if err != nil || len(key) != storage.CursorKeyBytes {
			t.Fatalf("CursorKey returned %d bytes, %v, want %d", len(key), err, storage.CursorKeyBytes)
		}
		return slices.Clone(key)
	}
	now := time.Now().UnixMilli()
	empty := positionOf()
	mustAppend(t, s, at(now, entry("a", 1, hr(1))))
	first := positionOf()
	a := assignment("a", "P", 0, 5)
	if a.ChangedUnixMs = now; s.Assign(ctx, a) != nil {
		t.Fatal("not assigned")
	}
	assigned := positionOf()
	if assigned.Same(&first) || first.Same(&empty) {
		t.Errorf("the positions %+v, %+v, %+v are the same", empty, first, assigned)
	}
	key := keyOf()
	s = reopen(t, s, h)
	if !slices.Equal(keyOf(), key) {
		t.Error("the key of cursors is another one after the store was opened again")
	}
	mustAppend(t, s, at(now+1, entry("a", 2, hr(1))))
	last := positionOf()
	for what, p := range map[string]storage.Position{"empty": empty, "first": first, "assigned": assigned, "last": last} {
		check(what, p, true)
	}
	other := assigned
	other.Mark ^= 1
	check("another mark", other, false)
	later := last
	later.Group += 1000
	check("a later group", later, false)
	later = last
	later.Event += 1000
	check("a later event", later, false)
	p, err := s.(storage.Changes).PositionAt(ctx, now+1)
	if err != nil {
		t.Fatalf("PositionAt: %v", err)
	}
	check("position at a time", p, true)
	c, seen := storage.ChangeCursor{From: p}, 0
	page, caughtUp, err := storage.NextChanges(ctx, s.(storage.Changes), &c, &storage.ChangeFilter{}, 10)
	for i := range page {
		if page[i].Kind == storage.ChangedReading && page[i].Record.TimeUnixMs == 2 {
			seen++
		}
	}
	if err != nil || !caughtUp || seen == 0 {
		t.Errorf("since a time: %d changes, %d of the reading, caught up %t, %v", len(page), seen, caughtUp, err)
	}
	if p, err = s.(storage.Changes).PositionAt(ctx, 1); err != nil {
		t.Fatalf("PositionAt: %v", err)
	}
	c = storage.ChangeCursor{From: p}
	page, _, err = storage.NextChanges(ctx, s.(storage.Changes), &c, &storage.ChangeFilter{}, 10)
	if !slices.ContainsFunc(page, func(c storage.Change) bool { return c.Kind == storage.ChangeAssigned }) {
		t.Errorf("since before everything: no assignment among %d changes, %v", len(page), err)
	}
	mustClose(t, s)
	if err := s.(storage.Changes).CheckPosition(ctx, last); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("closed: CheckPosition returned %v", err)
	}
}

// checkOthersCursors continues with each cursor of a consumer of a subject, of whom a device was in the copy, as one
// that does not see the device.
func checkOthersCursors(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	mustAppend(t, s, entry("a", 1, hr(1)), entry("a", 2, hr(1)), entry("b", 1, hr(1)))
	if err := s.Assign(ctx, assignment("a", "P", 0, 5)); err != nil {
		t.Fatal(err)
	}
	c, caughtUp := storage.ChangeCursor{}, false
	for n := 0; !caughtUp && n < 20; n++ {
		for what, other := range map[string]*storage.ChangeFilter{
			"a token for another device": {Device: func(n *vitals.Name) bool { return *n == mustName("b") }},
			"a prefix":                   {Prefix: mustName("b")},
			"another subject":            {Subject: func(s storage.Subject) bool { return s == "Q" }},
		} {
			for own := c; ; {
				page, end, err := storage.NextChanges(ctx, s.(storage.Changes), &own, other, 10)
				if err != nil {
					t.Fatalf("NextChanges: %v", err)
				}
				for i := range page {
					if page[i].Device == mustName("a") {
						t.Errorf("after %d changes, %s sees a %d of a", n, what, page[i].Kind)
					}
				}
				if end {
					break
				}
			}
		}
		var err error
		_, caughtUp, err = storage.NextChanges(ctx, s.(storage.Changes), &c,
			&storage.ChangeFilter{Subject: func(s storage.Subject) bool { return s == "P" }}, 1)
		if err != nil {
			t.Fatalf("NextChanges: %v", err)
		}
	}
	if !caughtUp {
		t.Error("the consumer has not caught up")
	}
	mustClose(t, s)
}

// checkErasedAssignment erases the second assignment of a device to a subject, while consumers have seen neither.
// Seen to fail when the erasure removed the event of the first one.
func checkErasedAssignment(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	now := time.Now().UnixMilli() // what the store reads when it erases
	mustAppend(t, s, at(now, entry("a", 10, hr(1))), at(now, entry("a", 70, hr(1))))
	consumers := newConsumers()
	for _, c := range consumers {
		c.catchUp(t, s)
	}
	first, second := assignment("a", "P", 1, storage.OpenEnd), assignment("a", "P", 60, storage.OpenEnd)
	first.ChangedUnixMs, second.ChangedUnixMs = now, now
	err := s.Assign(ctx, first)
	first.ToUnixMs = 50
	err = errors.Join(err, s.EndAssignment(ctx, first), s.Assign(ctx, second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.EraseAssignment(second); err != nil {
		t.Fatal(err)
	}
	for _, c := range consumers {
		c.catchUp(t, s)
	}
	mustClose(t, s)
}

// checkErasedDevice ends an assignment, erases it, and then erases the device, before consumers have seen any of it.
// Who sees only the subject must learn that it does not wear the device after the end. Seen to fail when the erasure of
// the device removed the event of the end, and named only those who still wore the device.
func checkErasedDevice(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	now := time.Now().UnixMilli()
	mustAppend(t, s, at(now, entry("a", 10, hr(1))), at(now, entry("a", 70, hr(1))))
	a := assignment("a", "P", 1, storage.OpenEnd)
	a.ChangedUnixMs = now
	if err := s.Assign(ctx, a); err != nil {
		t.Fatal(err)
	}
	consumers := newConsumers()
	for _, c := range consumers {
		c.catchUp(t, s)
	}
	a.ToUnixMs = 50
	if err := s.EndAssignment(ctx, a); err != nil {
		t.Fatal(err)
	}
	_, err := s.EraseAssignment(a)
	if err == nil {
		_, err = s.Erase(mustName("a"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range consumers {
		c.catchUp(t, s)
	}
	mustClose(t, s)
}

// checkLateExpired appends readings that are older than those that expired: they are stored, so consumers get them,
// also when they begin later. What remained of those that expired is not delivered, until it is completed. Seen to fail
// when no reading from before the latest expiry was delivered.
func checkLateExpired(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	now := time.Now().UnixMilli()
	mustAppend(t, s, at(now, entry("a", 10, hr(1))), at(now, entry("a", 20, hr(1))), at(now, entry("a", 90, hr(1))))
	consumers := newConsumers()
	want := func(what string, times ...int64) {
		t.Helper()
		consumers = append(consumers, newConsumers()[0])
		for i, c := range consumers {
			c.catchUp(t, s)
			var got []int64
			for _, r := range c.now.records.scan(allOf("a")) {
				got = append(got, r.TimeUnixMs)
			}
			if c.filter.Signs == 0 && c.filter.Subject == nil && c.filter.Prefix.IsZero() && !slices.Equal(got, times) {
				t.Errorf("%s: copy %d has readings of times %d, want %d", what, i, got, times)
			}
		}
	}
	expire := func(before, atMost int64) {
		t.Helper()
		if _, err := s.Expire(ctx, before, atMost); err != nil {
			t.Fatal(err)
		}
	}
	want("at first", 10, 20, 90)
	expire(80, 1)
	want("one expired", 90)
	mustAppend(t, s, at(now+5000, entry("a", 50, hr(1))))
	want("a late one", 50, 90)
	mustAppend(t, s, at(now+5001, entry("a", 20, spo2(1))))
	want("completed", 20, 50, 90)
	s = reopen(t, s, h)
	want("reopened", 20, 50, 90)
	expire(30, 10)
	want("kept for longer", 50, 90)
	mustAppend(t, s, at(now+6000, entry("a", 5, hr(1))))
	want("the oldest", 5, 50, 90)
	mustClose(t, s)
}

// A counted is a store of which the calls that read are counted.
type counted struct {
	storage.Changes
	calls int
}

func (c *counted) ReadChanges(ctx context.Context, from, to *storage.Position,
	do func(storage.ChangeReader) error) error {
	return c.Changes.ReadChanges(ctx, from, to,
		func(r storage.ChangeReader) error { return do(&countedReader{r, &c.calls}) })
}

type countedReader struct {
	storage.ChangeReader
	calls *int
}

func (c *countedReader) VisitChanged(ctx context.Context, from, to storage.Position, after storage.ChangedKey,
	prefix vitals.Name,
	visit func(uint64, *vitals.Name, []storage.Record) bool) error {
	*c.calls++
	return c.ChangeReader.VisitChanged(ctx, from, to, after, prefix, visit)
}

func (c *countedReader) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	*c.calls++
	return c.ChangeReader.Scan(ctx, r, dst)
}

// checkFewSelected reads changes one by one, of which few are selected: by sign, or of an assignment by subject. The
// store is read about once for each thousand. Seen to fail when each step read only as many as fit.
func checkFewSelected(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	const readings = 5000
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	for ms := int64(0); ms < readings; ms += 500 {
		var group []*storage.Entry
		for i := range int64(500) {
			group = append(group, entry("a", ms+i, hr(1)))
		}
		mustAppend(t, s, group...)
	}
	mustAppend(t, s, entry("b", 1, spo2(1)), entry("b", 2, spo2(1)))
	if err := s.Assign(context.Background(), assignment("a", "P", 0, storage.OpenEnd)); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]storage.ChangeFilter{
		"a sign":           {Signs: 1 << vitals.SpO2},
		"a subject's sign": {Signs: 1 << vitals.SpO2, Subject: func(s storage.Subject) bool { return s == "P" }},
	} {
		c, n := counted{Changes: s.(storage.Changes)}, 0
		for cursor, caughtUp := (storage.ChangeCursor{}), false; !caughtUp && n < readings; n++ {
			var page []storage.Change
			var err error
			if page, caughtUp, err = storage.NextChanges(context.Background(), &c, &cursor, &f, 1); err != nil || len(page) > 1 {
				t.Fatalf("NextChanges returned %d changes, %v", len(page), err)
			}
		}
		if c.calls > 20 || n > 20 {
			t.Errorf("%s: the store is read %d times for %d pages", what, c.calls, n)
		}
	}
	mustClose(t, s)
}

// checkWaiting waits for what comes after a position: a reading, an event, and the end of the store.
func checkWaiting(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	for _, change := range []func(){
		func() { mustAppend(t, s, entry("a", 1, hr(1))) },
		func() {
			if err := s.Assign(ctx, assignment("a", "P", 0, 5)); err != nil {
				t.Error(err)
			}
		},
		func() {
			if _, err := s.Erase(mustName("a")); err != nil {
				t.Error(err)
			}
		},
		func() { mustClose(t, s) },
	} {
		before, later, err := s.(storage.Changes).Position(ctx)
		if err != nil {
			t.Fatalf("Position: %v", err)
		}
		done := make(chan struct{})
		go func() { defer close(done); change() }()
		for {
			<-later
			var after storage.Position
			if after, later, err = s.(storage.Changes).Position(ctx); err != nil || !after.Same(&before) {
				break
			}
		}
		if err != nil && !errors.Is(err, storage.ErrClosed) {
			t.Errorf("Position returned %v", err)
		}
		<-done
	}
}
