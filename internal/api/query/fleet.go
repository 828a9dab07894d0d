package query

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// DefaultStaleAfter is the default of Options.StaleAfter.
const DefaultStaleAfter = 15 * time.Minute

// A state is a set of properties of a device. A device is either fresh or stale, and in
// addition may be flagged.
type state uint8

const (
	fresh   state = 1 << iota // has a reading within Options.StaleAfter, by measured time
	stale                     // has none
	flagged                   // a latest value has a flag
)

// A deviceSort is an order of devices.
type deviceSort int

// The orders, as choices of the parameter sort. Ties are in the order of names.
const (
	byName  deviceSort = iota
	byAge              // the one silent for the longest time first
	byWorst            // see reason
)

// A deviceSelection selects devices.
type deviceSelection struct {
	access *gate.Access // that covers them
	prefix vitals.Name  // of their names
	match  string       // folded; a part of their names or labels
	group  string
	roster *roster.Roster
	state  state // one of these properties; 0 means any
	sort   deviceSort
	after  deviceKey // only those after it, in this order
	limit  int
	counts bool // count all devices by state
	list   list // of cursors
}

// A deviceKey is the place of a device in an order: by rank, and then by name.
type deviceKey struct {
	rank int64
	name vitals.Name
}

func (k *deviceKey) compare(other *deviceKey) int {
	if k.rank != other.rank {
		return cmp.Compare(k.rank, other.rank)
	}
	return k.name.Compare(&other.name)
}

// needsAll reports whether all devices must be visited.
func (q *deviceSelection) needsAll() bool {
	return q.state != 0 || q.sort != byName || q.counts || q.match != "" || q.group != ""
}

// isWhole reports whether all devices are selected, of whatever state.
func (q *deviceSelection) isWhole() bool {
	return q.prefix.IsZero() && q.match == "" && q.group == "" && q.access.CoversAll()
}

// A fleet is a page of devices. It finds at most twice as many as it needs.
type fleet struct {
	q           *deviceSelection
	h           *Handler
	nowUnixMs   int64
	staleUnixMs int64 // devices with an older newest reading are stale
	found       []place
	last        *deviceKey // devices after it are not on the page; nil means not known yet
	counts      stateCounts

	flags   flagger
	ranged  map[vitals.Name][]storage.Assignment // by device, to subjects that have ranges
	some    []storage.Device                     // those that are selected of the devices that are being added
	reasons []reason                             // with byWorst, of these, and then of the page
	// what is stored of those found; one more than the limit if there is a next page
	page []storage.Device
}

// A place is a device in an order.
type place struct {
	deviceKey
	state state
}

// stateCounts has the number of devices that are selected, of whatever state, by state.
type stateCounts struct{ all, fresh, stale, flagged int }

func (h *Handler) fleetOf(q *deviceSelection, nowUnixMs int64) *fleet {
	return &fleet{
		q: q, h: h, nowUnixMs: nowUnixMs, staleUnixMs: nowUnixMs - h.opt.StaleAfter.Milliseconds(),
		flags: flagger{&h.opt.Flags, q.roster},
	}
}

// newFleet returns the selected devices, one more than the limit if there are so many.
func (h *Handler) newFleet(ctx context.Context, q *deviceSelection, nowUnixMs int64) (f *fleet, err error) {
	f = h.fleetOf(q, nowUnixMs)
	if q.needsAll() {
		ordered := false
		if q.sort == byWorst {
			if ordered, err = f.addOrder(ctx); err != nil {
				return nil, err
			}
		}
		if !ordered {
			if err := f.walk(ctx); err != nil {
				return nil, err
			}
		}
		return f, f.read(ctx)
	}
	after := q.after.name
	for _, before := range []vitals.Name{q.access.Before(), token.Before(q.prefix)} {
		if after.Compare(&before) < 0 {
			after = before
		}
	}
	f.page = make([]storage.Device, q.limit+1)
	n, err := h.lister.Devices(ctx, after, f.page)
	f.page = slices.DeleteFunc(f.page[:n], func(d storage.Device) bool { return !q.selects(&d.Name) })
	return f, err
}

// selects reports whether the prefix, the token, match and group select a device.
func (q *deviceSelection) selects(name *vitals.Name) bool {
	return name.HasPrefix(&q.prefix) && q.access.Covers(name) && q.roster.Selects(name, q.match, q.group)
}

// walk adds all devices that are selected.
func (f *fleet) walk(ctx context.Context) error {
	var failed error // the first
	err := f.findRanged(ctx)
	if err != nil {
		return err
	}
	err = f.h.lister.WalkDevices(ctx, func(some []storage.Device) {
		if failed == nil {
			failed = f.add(ctx, some)
		}
	})
	f.trim()
	return cmp.Or(err, failed)
}

// findRanged sets f.ranged.
func (f *fleet) findRanged(ctx context.Context) (err error) {
	if f.ranged == nil {
		f.ranged, err = f.h.opt.assignedToRanged(ctx, f.flags.roster)
	}
	return err
}

// add adds those of some devices that are selected.
func (f *fleet) add(ctx context.Context, some []storage.Device) error {
	if !f.q.isWhole() {
		f.some = f.some[:0]
		for i := range some {
			if f.q.selects(&some[i].Name) {
				f.some = append(f.some, some[i])
			}
		}
		some = f.some
	}
	if err := f.reasonsOf(ctx, some); err != nil {
		return err
	}
	for i := range some {
		d := &some[i]
		p := place{deviceKey{name: d.Name}, f.stateOf(d)}
		switch f.q.sort {
		case byAge:
			p.rank = d.NewestUnixMs
		case byWorst:
			p.rank = f.reasons[i].rank
		}
		f.counts.add(p.state)
		if f.q.state != 0 && p.state&f.q.state == 0 || p.compare(&f.q.after) <= 0 || f.last != nil && p.compare(f.last) > 0 {
			continue
		}
		if f.found = append(f.found, p); len(f.found) >= 2*(f.q.limit+1) {
			f.trim()
		}
	}
	return nil
}

// read reads what is stored of the devices that were found. Those that are gone are left out.
func (f *fleet) read(ctx context.Context) error {
	found := f.found
	f.found = nil
	for _, p := range found {
		d, err := f.h.reader.Latest(ctx, p.name)
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		f.found, f.page = append(f.found, p), append(f.page, d)
	}
	return f.reasonsOf(ctx, f.page)
}

// trim sorts what was found and keeps what may be on the page, and one more device, which
// shows that there is a next page.
func (f *fleet) trim() {
	slices.SortFunc(f.found, func(a, b place) int { return a.compare(&b.deviceKey) })
	if len(f.found) > f.q.limit {
		f.found = f.found[:f.q.limit+1]
		last := f.found[f.q.limit].deviceKey
		f.last = &last
	}
}

func (f *fleet) isStale(d *storage.Device) bool { return d.NewestUnixMs < f.staleUnixMs }

func (f *fleet) stateOf(d *storage.Device) state {
	s := fresh
	if f.isStale(d) {
		s = stale
	}
	for _, flags := range f.flags.latest(d, f.ranged[d.Name]) {
		if !flags.IsZero() {
			return s | flagged
		}
	}
	return s
}

func (c *stateCounts) add(s state) {
	c.all++
	c.fresh += int(s & fresh / fresh)
	c.stale += int(s & stale / stale)
	c.flagged += int(s & flagged / flagged)
}

// shown returns the devices of the page.
func (f *fleet) shown() []storage.Device { return f.page[:min(len(f.page), f.q.limit)] }

// appendTo appends the page as JSON.
func (f *fleet) appendTo(dst []byte, assigned map[vitals.Name][]storage.Assignment, nowUnixMs int64) []byte {
	page := f.shown()
	dst = append(dst, `{"devices":[`...)
	for i := range page {
		if i > 0 {
			dst = append(dst, ',')
		}
		d := &page[i]
		dst = appendDevice(append(dst, '\n'), d, f.flags, assigned[d.Name], nowUnixMs)
		if f.q.needsAll() && f.isStale(d) {
			dst = append(dst[:len(dst)-1], `,"stale":true}`...)
		}
		if f.q.sort == byWorst {
			dst = f.reasons[i].appendTo(dst, f.h.opt.Flags.Signs)
		}
	}
	dst = append(dst, "\n]"...)
	if f.q.counts {
		dst = strconv.AppendInt(append(dst, `,"counts":{"devices":`...), int64(f.counts.all), 10)
		dst = strconv.AppendInt(append(dst, `,"fresh":`...), int64(f.counts.fresh), 10)
		dst = strconv.AppendInt(append(dst, `,"stale":`...), int64(f.counts.stale), 10)
		dst = append(strconv.AppendInt(append(dst, `,"flagged":`...), int64(f.counts.flagged), 10), '}')
		dst = f.q.appendGroups(dst)
	}
	if len(f.page) > len(page) {
		last := deviceKey{name: page[len(page)-1].Name}
		if f.found != nil {
			last = f.found[len(page)-1].deviceKey
		}
		dst = appendNext(dst, f.q.list.deviceCursor(&last))
	}
	return append(appendNotice(dst), "}\n"...)
}

// appendGroups appends the groups of all devices that the client may see, if there are any.
func (q *deviceSelection) appendGroups(dst []byte) []byte {
	covers := q.access.Covers
	if q.access.CoversAll() {
		covers = nil
	}
	groups := q.roster.Groups(covers)
	for i, group := range groups {
		dst = append(dst, [2]string{`,"groups":[`, ","}[min(i, 1)]...)
		dst, _ = jsontext.AppendQuote(dst, group) // the text is valid UTF-8
	}
	if len(groups) > 0 {
		dst = append(dst, ']')
	}
	return dst
}

// parseDevices parses the parameters of a request for devices, of which named has labels and groups.
func parseDevices(access *gate.Access, named *roster.Roster, raw string) (*deviceSelection, error) {
	p := ReadParams(raw, nil, "prefix", "match", "group", "state", "sort", "counts", "limit", "cursor")
	q := &deviceSelection{
		access: access, after: deviceKey{rank: math.MinInt64}, roster: named,
		limit:  p.Limit(DefaultDevices, MaxDevices),
		prefix: p.Name("prefix"), match: roster.Fold(p.text("match", roster.MaxText)), group: p.text("group", roster.MaxText),
	}
	if i := p.choice("state", -1, "fresh", "stale", "flagged"); i >= 0 {
		q.state = 1 << i
	}
	q.sort = deviceSort(p.choice("sort", int(byName), "name", "age", "worst"))
	q.counts = p.choice("counts", 0, "false", "true") == 1
	state, _ := p.get("state")
	q.list = newList(cursorDevices[q.sort], q.prefix.String(), state, q.match, q.group)
	p.cursor(" with this sort, prefix, match, group and state", func(text string) (err error) {
		q.after, err = q.list.parseDevice(text)
		return err
	})
	return q, p.Err
}
