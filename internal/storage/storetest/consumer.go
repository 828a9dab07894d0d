package storetest

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"

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
