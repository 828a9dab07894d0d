package alert

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An Episode is an alert of a device, from its beginning to its end.
type Episode struct {
	Rule           *Rule
	SinceUnixMs    int64 // by measured time
	FiredUnixMs    int64 // by the server's clock
	ResolvedUnixMs int64 // likewise; 0 means that it was active when the replay ended
}

// Memory returns how much time before a moment matters to the alerts of that moment.
func Memory(rules []Rule) time.Duration {
	most := Lasts
	for i := range rules {
		most = max(most, rules[i].Silent, rules[i].MaxAge)
	}
	return most + enough
}

// Replay returns the alerts that a server with some rules would have reported of a device until a time, if
// it had got the records, which are in ascending order, when they arrived. A record is taken as having
// arrived whole: the store keeps the time of its first part only. late is the number of records with a value
// that meets a rule, but was too old to count when it arrived.
func Replay(ctx context.Context, rules []Rule, device vitals.Name, records []storage.Record, untilUnixMs int64) (episodes []Episode, late int, err error) {
	order := make([]int, len(records))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(records[a].ReceivedUnixMs, records[b].ReceivedUnixMs)
	})
	got := arrived{records: records, is: make([]bool, len(records)), summary: storage.Device{Name: device, NewestUnixMs: -1}}
	var now int64
	e := NewEngine(&got, rules, Options{
		Now: func() time.Time { return time.UnixMilli(now) }, OnError: func(failed error) { err = failed },
	})
	e.sweep(ctx, nil)
	var changes uint64
	open := map[*Rule]int{} // index of the episode that has not ended
	settle := func() {
		e.settle(true)
		e.readUnread(ctx, true, true) // before an alert begins
		c := e.Changes(changes)
		changes = c.N
		for _, a := range c.Alerts {
			if a.EndedUnixMs == 0 {
				open[a.Rule] = len(episodes)
				episodes = append(episodes, Episode{Rule: a.Rule, SinceUnixMs: a.SinceUnixMs, FiredUnixMs: now})
			} else {
				episodes[open[a.Rule]].ResolvedUnixMs = a.EndedUnixMs
			}
		}
	}
	// pass lets time pass until a moment, and settles when it alone begins or ends an alert.
	pass := func(untilUnixMs int64) {
		for {
			next := untilUnixMs
			for _, at := range e.board.turns(&device) {
				if at > now {
					next = min(next, at)
				}
			}
			if next >= untilUnixMs {
				break
			}
			now = next
			settle()
		}
		now = max(now, untilUnixMs)
	}
	settle()
	for len(order) > 0 && err == nil && ctx.Err() == nil {
		at := max(now, records[order[0]].ReceivedUnixMs)
		if at >= untilUnixMs {
			break
		}
		pass(at)
		for len(order) > 0 && records[order[0]].ReceivedUnixMs < min(at+gatherFor.Milliseconds(), untilUnixMs) {
			r := &records[order[0]]
			now = max(now, r.ReceivedUnixMs)
			got.add(order[0])
			order = order[1:]
			if slices.ContainsFunc(rules, func(rule Rule) bool { return rule.appliesTo(device.String()) && rule.tooOld(r) }) {
				late++
			}
			u := update{device: device, unixMs: r.TimeUnixMs, receivedUnixMs: r.ReceivedUnixMs}
			e.board.filter.look(&u, &r.Values)
			e.board.take(&u, nil)
		}
		e.readUnread(ctx, true, true)
		settle()
	}
	pass(untilUnixMs)
	settle()
	return episodes, late, cmp.Or(err, ctx.Err())
}

// tooOld reports whether a record has a value that meets the condition, and is not young.
func (r *Rule) tooOld(record *storage.Record) bool {
	v, has := record.Values.Get(r.Sign)
	return r.Silent == 0 && has && r.Met.Contains(v) && record.ReceivedUnixMs-record.TimeUnixMs > r.MaxAge.Milliseconds()
}

// turns returns the times at which alerts of a device may begin or end though no reading arrives.
func (b *board) turns(device *vitals.Name) (unixMs []int64) {
	w := b.devices.get(device)
	if w == nil {
		return nil
	}
	for i := range w.runs {
		switch u, rule := &w.runs[i], &b.rules[i]; {
		case rule.Silent != 0:
			unixMs = append(unixMs, w.newestUnixMs+rule.Silent.Milliseconds(), w.newestUnixMs+rule.MaxAge.Milliseconds())
		case u.active:
			unixMs = append(unixMs, u.newestUnixMs+Lasts.Milliseconds())
		}
	}
	return unixMs
}

// An arrived is a Reader of the records of one device that have arrived.
type arrived struct {
	records []storage.Record // in ascending order
	is      []bool
	summary storage.Device
}

// add makes a record arrive.
func (a *arrived) add(i int) {
	r, d := &a.records[i], &a.summary
	a.is[i] = true
	d.NewestUnixMs = max(d.NewestUnixMs, r.TimeUnixMs)
	for s, v := range r.Values.All() {
		if l := &d.Latest[s]; !l.Known || l.TimeUnixMs <= r.TimeUnixMs {
			*l = storage.Latest{TimeUnixMs: r.TimeUnixMs, Value: v, Known: true}
		}
	}
}

// WalkDevices visits nothing: the device has no records before the replay begins.
func (a *arrived) WalkDevices(context.Context, func([]storage.Device)) error { return nil }

func (a *arrived) Latest(context.Context, vitals.Name) (storage.Device, error) {
	return a.summary, nil
}

func (a *arrived) Scan(_ context.Context, r storage.Range, dst []storage.Record) (n int, _ error) {
	after := func(unixMs int64) int {
		i, _ := slices.BinarySearchFunc(a.records, unixMs, func(r storage.Record, t int64) int { return cmp.Compare(r.TimeUnixMs, t) })
		return i
	}
	from, to := after(r.FromUnixMs), after(r.ToUnixMs)
	for from < to && n < len(dst) {
		i := from
		if r.Descending {
			to--
			i = to
		} else {
			from++
		}
		if a.is[i] {
			dst[n] = a.records[i]
			n++
		}
	}
	return n, nil
}
