package audit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// # Exports
//
// An export is recorded before it begins. A client that exports again and again must not
// be able to fill the log until its oldest file is dropped. So records are not repeated:
// further exports of the same device or patient by the same token from the same address, within a
// time range that was recorded within the hour, are only counted, and one record at the
// end of the hour has their number.
//
// If the ranges keep changing, one record without a range covers all further ones
// within the hour. If the devices, patients or addresses keep changing, one record without
// these covers the day. No export begins before a record covers it.

// Bounds of the records of exports.
const (
	exportsFor    = time.Hour
	maxRanges     = 4 // per device, token and address in an hour
	allowanceFor  = 24 * time.Hour
	maxAllowance  = 10_000  // records per token in a day: 3 MB
	maxExporting  = 1 << 16 // combinations of device, patient, token and address that are remembered
	maxAllowances = 1 << 16 // tokens that are remembered
)

// An exporter is who exports which device or patient from where, as the record of exports that
// other records cover. As a key, its Count is 0.
type exporter Record

func (r *Record) exporter() exporter {
	return exporter{Event: ExportedMore, Token: r.Token, Gateway: r.Gateway, Device: r.Device, Subject: r.Subject,
		Peer: r.Peer, Actor: r.Actor}
}

// who returns e without the device, the patient and the address.
func (e exporter) who() exporter {
	return exporter{Event: e.Event, Token: e.Token, Gateway: e.Gateway, Actor: e.Actor}
}

// An exporting describes which exports of an exporter are covered by records.
type exporting struct {
	until  time.Time
	ranges []timeRange // with a record
	all    bool        // a record covers every range
	more   int64       // number of exports without a record of their own
}

// A timeRange is from inclusive to exclusive; zero is open.
type timeRange struct{ from, to time.Time }

func (r timeRange) covers(o timeRange) bool {
	return (r.from.IsZero() || !o.from.IsZero() && !o.from.Before(r.from)) &&
		(r.to.IsZero() || !o.to.IsZero() && !o.to.After(r.to))
}

// lasts reports whether x is still in effect at now.
func (x *exporting) lasts(now time.Time) bool { return x != nil && now.Before(x.until) }

func (x *exporting) covers(r timeRange, now time.Time) bool {
	return x.lasts(now) &&
		(x.all || slices.ContainsFunc(x.ranges, func(recorded timeRange) bool { return recorded.covers(r) }))
}

// An allowance counts the records of one token.
type allowance struct {
	until   time.Time
	records int
}

// Export records an export that is about to begin. It ignores r.Event. When it returns
// nil, records on stable storage cover the export. If it returns an error, the export
// must not begin.
func (l *Log) Export(ctx context.Context, r Record) error {
	r.Event = Exported
	if err := r.check(); err != nil {
		return err
	}
	key := r.exporter()
	covered, records := l.exports.cover(&key, timeRange{r.From, r.To}, l.opt.Now())
	if covered {
		// Write nothing, but check that writing is possible.
		if err := l.do(ctx, func() error { return nil }); err != nil {
			return err
		}
		l.exports.countMore(key, 1)
		return nil
	}
	if !records {
		r = Record(key) // without a count, it covers later exports
	}
	if err := l.append(ctx, r); err != nil {
		return err
	}
	l.exports.recorded(key, timeRange{r.From, r.To}, !records, l.opt.Now())
	return nil
}

// exports is what records cover. It is safe for concurrent use.
type exports struct {
	mu         sync.Mutex // guards the following fields
	byExporter map[exporter]*exporting
	allowances map[exporter]*allowance // by who
}

// cover reports whether records already cover an export. If not, records reports whether
// the export gets a record of its own. Otherwise it needs a record that covers all
// further exports of key, from which cover may have removed device, patient and address.
func (s *exports) cover(key *exporter, r timeRange, now time.Time) (covered, records bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.byExporter[*key]
	if known.covers(r, now) {
		return true, false
	}
	if s.byExporter[key.who()].covers(r, now) {
		*key = key.who()
		return true, false
	}
	a := s.allowances[key.who()]
	if a != nil && now.Before(a.until) && a.records >= maxAllowance || known == nil && len(s.byExporter) >= maxExporting {
		*key = key.who()
		return false, false
	}
	return false, !known.lasts(now) || len(known.ranges) < maxRanges
}

// recorded notes that a record covers a range or, if all is set, every range.
func (s *exports) recorded(key exporter, r timeRange, all bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.allowances[key.who()]
	if a == nil || !now.Before(a.until) {
		a = &allowance{until: now.Add(allowanceFor)}
		if len(s.allowances) < maxAllowances {
			s.allowances[key.who()] = a
		}
	}
	a.records++
	x := s.ofLocked(key)
	if !x.lasts(now) { // x.more is kept for the next record
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

// ofLocked returns the exporting of an exporter, a new one if necessary.
func (s *exports) ofLocked(key exporter) *exporting {
	if s.byExporter[key] == nil {
		s.byExporter[key] = &exporting{}
	}
	return s.byExporter[key]
}

// countMore counts exports that records already cover.
func (s *exports) countMore(key exporter, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ofLocked(key).more += n
}

// counted returns records with the counts of exports without a record of their own, and
// removes these counts: of the hours and days that have ended or, if all is set, of all.
func (s *exports) counted(now time.Time, all bool) (records []Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, x := range s.byExporter {
		if !all && now.Before(x.until) {
			continue
		}
		delete(s.byExporter, key)
		if key.Count = x.more; x.more > 0 {
			records = append(records, Record(key))
		}
	}
	maps.DeleteFunc(s.allowances, func(_ exporter, a *allowance) bool { return !now.Before(a.until) })
	return records
}
