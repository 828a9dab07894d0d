package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An Episode is an alert of a device, from its beginning to its end.
type Episode struct {
	Rule           *Rule
	SinceUnixMs    int64 // by measured time; late values may have moved it back
	FiredUnixMs    int64 // by the server's clock
	ResolvedUnixMs int64 // likewise; 0 means that it was active when the replay ended

	// newestUnixMs is the newest value that met the condition while the alert was active. There may be others before it
	// that do not: those have arrived late, or together with it.
	newestUnixMs int64
}

// Memory returns how much time before a moment matters to the alerts of that moment.
func Memory(rules []Rule) time.Duration {
	most := Lasts
	for i := range rules {
		most = max(most, rules[i].Silent, rules[i].MaxAge)
	}
	return most + enough
}

// maxAhead bounds the times of readings, before they arrive: it is more than serve --max-ahead usually is.
const maxAhead = 24 * time.Hour

// ErrTooMany means that a device has more than [Replay.MostReadings], or that it had more than [Replay.MostAlerts].
var ErrTooMany = errors.New("a device has too many readings or alerts to replay")

// A Replay replays stored readings through rules.
type Replay struct {
	Rules []Rule

	// Alerts that were active at FromUnixMs or later are returned, as they were at UntilUnixMs by the server's clock:
	// what arrived then or later is not known.
	FromUnixMs, UntilUnixMs int64

	MostReadings, MostAlerts int // of a device

	// Read calls visit with the records of a device in a range, in ascending order, or only with the newest one if the
	// range is descending. visit does not retain the record.
	Read func(ctx context.Context, r storage.Range, visit func(*storage.Record) error) error
}

// A Replayed is what a [Replay] has found of a device.
type Replayed struct {
	Episodes []Episode // in the order in which they began

	// Late is the number of records with a value that meets a rule, but was too old to count when it arrived.
	Late int

	untilUnixMs int64
	history     *history
}

// errInterrupted means that a context ended while what had been read was evaluated.
var errInterrupted = errors.New("evaluating readings was interrupted")

func interrupted(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", errInterrupted, err)
	}
	return nil
}

// Of replays the readings of a device: it returns the alerts that a server with the rules would have reported. A record
// is taken as having arrived whole: the store keeps the time of its first part only.
func (p *Replay) Of(ctx context.Context, device vitals.Name) (*Replayed, error) {
	h := newHistory(p.Rules, device)
	add := func(r *storage.Record) error {
		switch {
		case r.ReceivedUnixMs >= p.UntilUnixMs:
			return nil // what the server did not have yet
		case len(h.records) == p.MostReadings:
			return ErrTooMany
		}
		h.add(r)
		return nil
	}
	within := storage.Range{
		Device:     device,
		FromUnixMs: max(0, p.FromUnixMs-Memory(p.Rules).Milliseconds()),
		ToUnixMs:   min(max(p.UntilUnixMs, p.UntilUnixMs+maxAhead.Milliseconds()), vitals.MaxTimeUnixMs),
	}
	if within.FromUnixMs > 0 { // the reading before: the device may have been silent since
		before := storage.Range{Device: device, ToUnixMs: within.FromUnixMs, Descending: true}
		if err := p.Read(ctx, before, add); err != nil {
			return nil, err
		}
	}
	if err := p.Read(ctx, within, add); err != nil {
		return nil, err
	}
	episodes, late, err := h.replay(ctx, p.Rules, p.UntilUnixMs, p.MostAlerts)
	if err != nil {
		return nil, err
	}
	episodes = slices.DeleteFunc(episodes, func(e Episode) bool {
		return e.ResolvedUnixMs != 0 && e.ResolvedUnixMs < p.FromUnixMs
	})
	return &Replayed{episodes, late, p.UntilUnixMs, h}, nil
}

// ReadFrom returns a function that reads from a store, for Replay.Read.
func ReadFrom(
	scan func(ctx context.Context, r storage.Range, dst []storage.Record) (int, error),
) func(ctx context.Context, r storage.Range, visit func(*storage.Record) error) error {
	return func(ctx context.Context, r storage.Range, visit func(*storage.Record) error) error {
		page := make([]storage.Record, 2*pageReadings)
		if r.Descending {
			n, err := scan(ctx, r, page[:1])
			if err != nil || n == 0 {
				return err
			}
			return visit(&page[0])
		}
		for from, more := (storage.Scanner{Range: r}), true; more; {
			var records []storage.Record
			var err error
			if records, more, err = from.Next(ctx, scan, page); err != nil {
				return err
			}
			for i := range records {
				if err := visit(&records[i]); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	}
}

// replay returns the alerts that a server with some rules would have reported until a time, if it had got the records
// when they arrived; and the number of late ones.
func (h *history) replay(ctx context.Context, rules []Rule, untilUnixMs int64, mostAlerts int) (episodes []Episode,
	late int, err error) {
	device := h.summary.Name
	order := make([]int, len(h.records))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(h.records[a].receivedUnixMs, h.records[b].receivedUnixMs)
	})
	received := func(i int) int64 { return h.records[i].receivedUnixMs }
	var now int64
	e := NewEngine(h, rules, Options{
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
		if w := e.board.devices.get(&device); w != nil {
			for i := range w.runs {
				if u := &w.runs[i]; u.reported {
					of := &episodes[open[&e.board.rules[i]]]
					of.SinceUnixMs = min(of.SinceUnixMs, u.sinceUnixMs)
					of.newestUnixMs = max(of.newestUnixMs, u.newestUnixMs)
				}
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
		at := max(now, received(order[0]))
		if at >= untilUnixMs {
			break
		}
		pass(at)
		for len(order) > 0 && received(order[0]) < min(at+gatherFor.Milliseconds(), untilUnixMs) {
			r := h.record(order[0])
			now = max(now, r.ReceivedUnixMs)
			h.arrive(order[0])
			order = order[1:]
			if slices.ContainsFunc(rules, func(rule Rule) bool { return rule.appliesTo(device.String()) && rule.tooOld(&r) }) {
				late++
			}
			u := update{device: device, unixMs: r.TimeUnixMs, receivedUnixMs: r.ReceivedUnixMs}
			e.board.filter.look(&u, &r.Values)
			e.board.take(&u, nil)
		}
		e.readUnread(ctx, true, true)
		settle()
		if len(episodes) > mostAlerts {
			return nil, 0, ErrTooMany
		}
	}
	pass(untilUnixMs)
	settle()
	return episodes, late, cmp.Or(err, interrupted(ctx))
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

// A history is a Reader of the records of one device that have arrived. Of a record it keeps 24 bytes and the values
// that rules are about.
type history struct {
	signs   uint32 // bit set of those that rules are about
	records []past // in ascending order
	values  []vitals.Value
	arrived []bool         // by record
	summary storage.Device // of those that have arrived
}

// A past is a record.
type past struct {
	unixMs, receivedUnixMs int64
	first                  uint32 // index of its first value
	present                uint32 // bit set of the signs of its values, which are in their order
}

func newHistory(rules []Rule, device vitals.Name) *history {
	h := &history{summary: storage.Device{Name: device, NewestUnixMs: -1}}
	for i := range rules {
		if rules[i].Silent == 0 {
			h.signs |= 1 << rules[i].Sign
		}
	}
	return h
}

// add adds a record that is newer than all others. It has not arrived.
func (h *history) add(r *storage.Record) {
	p := past{r.TimeUnixMs, r.ReceivedUnixMs, uint32(len(h.values)), r.Values.Present() & h.signs}
	for s, v := range r.Values.All() {
		if p.present>>s&1 != 0 {
			h.values = append(h.values, v)
		}
	}
	h.records, h.arrived = append(h.records, p), append(h.arrived, false)
}

// record returns the record with an index.
func (h *history) record(i int) storage.Record {
	p := &h.records[i]
	r := storage.Record{TimeUnixMs: p.unixMs, ReceivedUnixMs: p.receivedUnixMs}
	values := h.values[p.first:]
	for signs := p.present; signs != 0; signs &= signs - 1 {
		r.Values.Set(vitals.Sign(bits.TrailingZeros32(signs)), values[0])
		values = values[1:]
	}
	return r
}

// value returns the value that the record with an index has of a sign.
func (h *history) value(i int, sign vitals.Sign) (v vitals.Value, has bool) {
	p := &h.records[i]
	if p.present>>sign&1 == 0 {
		return 0, false
	}
	return h.values[int(p.first)+bits.OnesCount32(p.present&(1<<sign-1))], true
}

// arrive makes a record arrive.
func (h *history) arrive(i int) {
	r, d := h.record(i), &h.summary
	h.arrived[i] = true
	d.NewestUnixMs = max(d.NewestUnixMs, r.TimeUnixMs)
	for s, v := range r.Values.All() {
		if l := &d.Latest[s]; !l.Known || l.TimeUnixMs <= r.TimeUnixMs {
			*l = storage.Latest{TimeUnixMs: r.TimeUnixMs, Value: v, Known: true}
		}
	}
}

// at returns the index of the first record at or after a time.
func (h *history) at(unixMs int64) int {
	i, _ := slices.BinarySearchFunc(h.records, unixMs, func(p past, t int64) int { return cmp.Compare(p.unixMs, t) })
	return i
}

// WalkDevices visits nothing: the device has no records before the replay begins.
func (h *history) WalkDevices(context.Context, func([]storage.Device)) error { return nil }

func (h *history) Latest(context.Context, vitals.Name) (storage.Device, error) {
	return h.summary, nil
}

func (h *history) Scan(_ context.Context, r storage.Range, dst []storage.Record) (n int, _ error) {
	from, to := h.at(r.FromUnixMs), h.at(r.ToUnixMs)
	for from < to && n < len(dst) {
		i := from
		if r.Descending {
			to--
			i = to
		} else {
			from++
		}
		if h.arrived[i] {
			dst[n] = h.record(i)
			n++
		}
	}
	return n, nil
}
