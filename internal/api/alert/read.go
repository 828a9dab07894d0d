package alert

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Reader reads stored readings. Package storage documents its contract.
type Reader interface {
	Latest(ctx context.Context, device vitals.Name) (storage.Device, error)
	Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error)

	// WalkDevices calls visit with all devices, some at a time. visit must not retain the slice.
	WalkDevices(ctx context.Context, visit func(some []storage.Device)) error
}

// Bounds of reading a device's runs.
const (
	// enough is how far before a sign's newest value a run is read although more of it is stored, once
	// its condition is met. The alert then seems to have begun later than it did.
	enough = 2 * Lasts

	// maxRead is the number of a device's readings after which no older ones are read.
	maxRead = 1 << 17

	pageReadings = 512
)

// A tail is what is known of a run while its values are read from the newest one back.
type tail struct {
	met, open                            bool  // the newest value meets the condition; the run may have older values
	cut                                  bool  // older values of the run were not read
	newestUnixMs                         int64 // of the sign
	oldestUnixMs                         int64 // of the run, so far
	youngNewestUnixMs, youngOldestUnixMs int64 // of its young values; with young > 0
	young                                int   // number of them
}

// extend adds a record that is older than those before it.
func (t *tail) extend(rule *Rule, r *storage.Record) {
	v, has := r.Values.Get(rule.Sign)
	switch {
	case t.oldestUnixMs-r.TimeUnixMs >= Lasts.Milliseconds(), has && !rule.Met.Contains(v):
		t.open = false
		return
	case !has:
		return
	}
	t.oldestUnixMs = r.TimeUnixMs
	if r.ReceivedUnixMs-r.TimeUnixMs <= rule.MaxAge.Milliseconds() {
		if t.young == 0 {
			t.youngNewestUnixMs = r.TimeUnixMs
		}
		t.young++
		t.youngOldestUnixMs = r.TimeUnixMs
	}
	met := t.young >= rule.Values && t.youngNewestUnixMs-t.youngOldestUnixMs >= rule.For.Milliseconds()
	t.cut = met && t.newestUnixMs-t.oldestUnixMs >= enough.Milliseconds()
	t.open = !t.cut
}

// readRuns reads the runs of a device, and the time of its newest reading, from the store. It returns an error that
// wraps storage.ErrNotFound if the device has no readings. It uses page for what it reads.
func readRuns(
	ctx context.Context, from Reader, rules []Rule, device vitals.Name, page []storage.Record,
) (runs []run, newestUnixMs int64, err error) {
	runs = newRuns(rules, &device)
	d, err := from.Latest(ctx, device)
	if err != nil || runs == nil {
		return nil, 0, err
	}
	tails, toUnixMs := newTails(rules, runs, &d)
	if err := readTails(ctx, from, storage.Range{Device: device, ToUnixMs: toUnixMs, Descending: true}, rules, tails,
		page); err != nil {
		return nil, 0, err
	}
	for i := range tails {
		runs[i].cut = tails[i].cut
	}
	if err := replayTails(ctx, from, storage.Range{Device: device, ToUnixMs: toUnixMs}, rules, tails, runs,
		page); err != nil {
		return nil, 0, err
	}
	for i := range tails {
		runs[i].newestUnixMs = max(runs[i].newestUnixMs, tails[i].newestUnixMs)
	}
	return runs, d.NewestUnixMs, nil
}

// newTails begins the tails and the runs with the newest values of a device. All of these were measured before
// toUnixMs.
func newTails(rules []Rule, runs []run, d *storage.Device) (tails []tail, toUnixMs int64) {
	tails = make([]tail, len(rules))
	for i := range rules {
		if latest := &d.Latest[rules[i].Sign]; runs[i].applies && rules[i].Silent == 0 && latest.Known {
			met := rules[i].Met.Contains(latest.Value)
			runs[i].known, runs[i].met, runs[i].newestUnixMs = true, met, latest.TimeUnixMs
			tails[i] = tail{
				met: met, open: true, newestUnixMs: latest.TimeUnixMs, oldestUnixMs: latest.TimeUnixMs,
			}
			toUnixMs = max(toUnixMs, latest.TimeUnixMs+1)
		}
	}
	return tails, toUnixMs
}

// readTails reads span from its end until it knows where each run begins.
func readTails(
	ctx context.Context, from Reader, span storage.Range, rules []Rule, tails []tail, page []storage.Record,
) error {
	isOpen := func(t tail) bool { return t.open }
	for read := 0; slices.ContainsFunc(tails, isOpen); {
		if read >= maxRead {
			for i := range tails {
				tails[i].cut = tails[i].cut || tails[i].open
			}
			break
		}
		n, err := from.Scan(ctx, span, page)
		if err != nil {
			return err
		}
		for i := range tails {
			for j := 0; j < n && tails[i].open; j++ {
				tails[i].extend(&rules[i], &page[j])
			}
		}
		if n < len(page) {
			break
		}
		read += n
		span.ToUnixMs = page[n-1].TimeUnixMs
	}
	return nil
}

// replayTails gives the values of span that are in tails that are met to the runs, oldest first, until each has an
// active alert or no more values: once an alert is active, the values that follow in its run change nothing.
func replayTails(
	ctx context.Context, from Reader, span storage.Range, rules []Rule, tails []tail, runs []run, page []storage.Record,
) error {
	span.FromUnixMs = math.MaxInt64
	for i := range tails {
		if tails[i].met {
			span.FromUnixMs = min(span.FromUnixMs, tails[i].oldestUnixMs)
		}
	}
	for span.FromUnixMs < span.ToUnixMs {
		n, err := from.Scan(ctx, span, page)
		if err != nil {
			return err
		}
		for j := range n {
			if !replay(rules, tails, runs, &page[j]) {
				return nil
			}
		}
		if n < len(page) {
			break
		}
		span.FromUnixMs = page[n-1].TimeUnixMs + 1
	}
	return nil
}

// replay gives a record to the runs whose tails have it. It reports whether a run that is met has no active alert yet.
func replay(rules []Rule, tails []tail, runs []run, r *storage.Record) (waits bool) {
	for i := range tails {
		t := &tails[i]
		if v, has := r.Values.Get(rules[i].Sign); has && t.met && r.TimeUnixMs >= t.oldestUnixMs {
			runs[i].take(&rules[i], rules[i].Met.Contains(v), r.TimeUnixMs, r.ReceivedUnixMs)
		}
		waits = waits || t.met && !runs[i].active
	}
	return waits
}

// maxFailures is the number of devices in a row that cannot be read, after which the store is taken to have failed: the
// other ones are read next time.
const maxFailures = 8

// readUnread reads the runs of unread devices; with again, also of those that could not be read before. Unless whole is
// true or the engine is not ready, it takes about readFor, reads those of the order perhaps for rereadFor in a small
// part of the time, and reports whether it has come to the end of the others.
func (e *Engine) readUnread(ctx context.Context, again, whole bool) (done bool) {
	began := time.Now()
	until := began.Add(readFor)
	e.mu.Lock()
	if whole || !e.ready {
		until, e.rereadAt = time.Time{}, began
	}
	var must [numOrders][]vitals.Name // those that have failed before are the last
	var doubts []vitals.Name
	for device, u := range e.board.unread {
		switch {
		case u.failed != 0 && again:
			must[perhaps] = append(must[perhaps], device)
		case u.failed == 0 && u.order != perhaps:
			must[u.order] = append(must[u.order], device)
		case u.failed == 0 && !began.Before(e.rereadAt):
			doubts = append(doubts, device)
		}
	}
	e.mu.Unlock()
	done = e.read(ctx, slices.Concat(must[:]...), until)
	if done && len(doubts) > 0 {
		rereads := time.Now()
		if !until.IsZero() {
			until = rereads.Add(rereadFor)
		}
		e.read(ctx, doubts, until)
		took := time.Since(rereads)
		e.reread += took
		e.rereadAt = time.Now().Add((seldom - 1) * took)
	}
	return done
}

// read reads the runs of devices until a time, or all if it is zero. It reports whether it has come to the end.
func (e *Engine) read(ctx context.Context, devices []vitals.Name, until time.Time) (done bool) {
	var readErr, newErr error
	failures := 0
	done = true
	for _, device := range devices {
		if done = until.IsZero() || time.Now().Before(until); !done {
			break
		}
		e.mu.Lock()
		erasures := e.erasures
		e.mu.Unlock()
		if e.page == nil {
			e.page = make([]storage.Record, pageReadings)
		}
		runs, newestUnixMs, err := readRuns(ctx, e.reader, e.board.rules, device, e.page)
		if ctx.Err() != nil {
			return true
		}
		failed := err != nil && !errors.Is(err, storage.ErrNotFound)
		e.mu.Lock()
		switch {
		case failed && e.board.unread[device].failed == 0:
			e.board.unread[device], newErr = unread{order: differs, failed: e.board.sweep}, err
		case failed:
		case e.erasures == erasures: // otherwise what was read may be of erased readings
			e.installLocked(&device, runs, newestUnixMs)
		}
		e.mu.Unlock()
		if !failed {
			failures = 0
			continue
		}
		readErr = err
		if failures++; failures == maxFailures {
			break
		}
	}
	if newErr != nil { // others were reported before
		e.opt.report(newErr)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if readErr != nil || e.board.failed() == 0 {
		e.readErr = readErr
	}
	return done
}
