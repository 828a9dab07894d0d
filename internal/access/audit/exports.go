package audit

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// # Exports
//
// An export is recorded before it begins. A client that exports again and again must not
// be able to fill the log until its oldest file is dropped. So a record is not repeated:
// exports of the same device by the same token from the same address, of a time range
// that was recorded within the hour, are counted, and one record at the end of the hour
// holds their number.
//
// If the ranges keep changing, one record without a range covers all that follow within
// the hour. If the devices or the addresses do, one without these covers the day.
// No export begins before a record covers it.

// Bounds of what is recorded one by one.
const (
	exportsFor    = time.Hour
	maxRanges     = 4 // of one device, token and address in an hour
	allowanceFor  = 24 * time.Hour
	maxAllowance  = 10_000  // records of one token in a day: 3 MB
	maxExporting  = 1 << 16 // devices, tokens and addresses that are known at one time
	maxAllowances = 1 << 16 // tokens
)

// An exporter is who exports what.
type exporter struct {
	token   string
	gateway vitals.Name
	device  vitals.Name
	peer    netip.Addr
	actor   string
}

// who leaves what is exported out of e, and from where.
func (e exporter) who() exporter { return exporter{token: e.token, gateway: e.gateway, actor: e.actor} }

// An exporting is what the log holds about an exporter's exports.
type exporting struct {
	until  time.Time
	ranges []timeRange // recorded
	all    bool        // any range is
	more   int64       // exports without a record of their own
}

// A timeRange is from inclusive to exclusive; zero is open.
type timeRange struct{ from, to time.Time }

func (r timeRange) covers(o timeRange) bool {
	return (r.from.IsZero() || !o.from.IsZero() && !o.from.Before(r.from)) &&
		(r.to.IsZero() || !o.to.IsZero() && !o.to.After(r.to))
}

// lasts reports whether what was recorded still counts.
func (x *exporting) lasts(now time.Time) bool { return x != nil && now.Before(x.until) }

func (x *exporting) covers(r timeRange, now time.Time) bool {
	if !x.lasts(now) {
		return false
	}
	if x.all {
		return true
	}
	for _, recorded := range x.ranges {
		if recorded.covers(r) {
			return true
		}
	}
	return false
}

// An allowance counts the records of one token.
type allowance struct {
	until   time.Time
	records int
}

// exports are what a Log knows of exports.
type exports struct {
	exportsMu  sync.Mutex
	exporting  map[exporter]*exporting // guarded by exportsMu
	allowances map[exporter]*allowance // by who; guarded by exportsMu
}

// Export is Append for an export that is about to begin, whose Event need not be set.
// When it returns nil, records on stable storage cover the export. When it fails the
// export must not begin.
func (l *Log) Export(ctx context.Context, r Record) error {
	r.Event = Exported
	if err := r.check(); err != nil {
		return err
	}
	key := exporter{r.Token, r.Gateway, r.Device, r.Peer, r.Actor}
	covered, records := l.cover(&key, timeRange{r.From, r.To})
	if covered {
		// Nothing is written, but it must be possible.
		if err := l.do(ctx, func() error { return nil }); err != nil {
			return err
		}
		l.countMore(key, 1)
		return nil
	}
	if !records {
		r = key.record(0)
	}
	if err := l.append(ctx, r); err != nil {
		return err
	}
	l.recorded(key, timeRange{r.From, r.To}, !records)
	return nil
}

// cover reports whether records cover an export. If not, records reports whether it gets
// one of its own; otherwise it needs one that covers all that may follow of key, which
// cover may have made less precise.
func (l *Log) cover(key *exporter, r timeRange) (covered, records bool) {
	l.exportsMu.Lock()
	defer l.exportsMu.Unlock()
	now := l.opt.Now()
	known := l.exporting[*key]
	if known.covers(r, now) {
		return true, false
	}
	if l.exporting[key.who()].covers(r, now) {
		*key = key.who()
		return true, false
	}
	a := l.allowances[key.who()]
	if a != nil && now.Before(a.until) && a.records >= maxAllowance || known == nil && len(l.exporting) >= maxExporting {
		*key = key.who()
		return false, false
	}
	return false, !known.lasts(now) || len(known.ranges) < maxRanges
}

// recorded notes that a record covers a range, or all.
func (l *Log) recorded(key exporter, r timeRange, all bool) {
	l.exportsMu.Lock()
	defer l.exportsMu.Unlock()
	now := l.opt.Now()
	if l.exporting == nil {
		l.exporting, l.allowances = map[exporter]*exporting{}, map[exporter]*allowance{}
	}
	a := l.allowances[key.who()]
	if a == nil || !now.Before(a.until) {
		a = &allowance{until: now.Add(allowanceFor)}
		if len(l.allowances) < maxAllowances {
			l.allowances[key.who()] = a
		}
	}
	a.records++
	x := l.exporting[key]
	if x == nil {
		x = &exporting{}
		l.exporting[key] = x
	}
	if !x.lasts(now) { // what was counted waits for the next record
		x.ranges, x.all, x.until = nil, false, now.Add(exportsFor)
		if a.records > maxAllowance {
			x.until = a.until
		}
	}
	if all {
		x.all = true
	} else {
		x.ranges = append(x.ranges, r)
	}
}

// countMore counts exports that a record covers.
func (l *Log) countMore(key exporter, n int64) {
	l.exportsMu.Lock()
	defer l.exportsMu.Unlock()
	x := l.exporting[key]
	if x == nil { // it has ended since
		x = &exporting{}
		l.exporting[key] = x
	}
	x.more += n
}

// exported takes the counts of exports without a record of their own: those of hours and
// days that have ended, or all.
func (l *Log) exported(all bool) (records []Record) {
	l.exportsMu.Lock()
	defer l.exportsMu.Unlock()
	now := l.opt.Now()
	for key, x := range l.exporting {
		if !all && now.Before(x.until) {
			continue
		}
		if x.more > 0 {
			records = append(records, key.record(x.more))
		}
		delete(l.exporting, key)
	}
	for key, a := range l.allowances {
		if !now.Before(a.until) {
			delete(l.allowances, key)
		}
	}
	return records
}

// countAgain puts back the count of a record that could not be written.
func (l *Log) countAgain(r *Record) {
	l.countMore(exporter{r.Token, r.Gateway, r.Device, r.Peer, r.Actor}, r.Count)
}

// record returns the record of n exports that are covered by others; with n of 0, the
// one that covers those that may follow.
func (e exporter) record(n int64) Record {
	return Record{Event: ExportedMore, Token: e.token, Gateway: e.gateway, Device: e.device, Peer: e.peer, Actor: e.actor, Count: n}
}
