package storetest

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Fault names one defect of a store. The suite must find each.
type Fault string

// BrokenHarness returns a harness of a Memory with the fault f.
func BrokenHarness(f Fault) Harness {
	disk := &broken{Memory: NewMemory(), fault: f}
	reopen := func(maxDevices int) (storage.Store, error) {
		if f == "reopen forgets completions" {
			disk.forgetCompletions()
		}
		if f == "one device too many" && maxDevices > 0 {
			maxDevices++
		}
		disk = &broken{Memory: disk.Memory.Reopen(maxDevices), fault: f, arrival: disk.arrival, before: disk.before}
		return disk, nil
	}
	return Harness{
		Open: func() (storage.Store, error) { return reopen(0) },
		Crash: func(unsyncedPercent int, _ uint64) {
			_ = disk.Memory.Close()
			switch {
			case f == "crash loses the last group", f == "crash restores removed readings",
				f == "duplicates are not synced" && unsyncedPercent == 0:
				disk.loseLastGroup()
			case f == "crash tears the last reading":
				disk.tearLastReading()
			}
		},
		OpenLimited: reopen,
		Concurrent:  true,
		OpenNode: func() (storage.Store, error) {
			if f == "nodes have their own records" {
				return &broken{Memory: disk.Memory.Clone(0), fault: f}, nil
			}
			return node{disk}, nil
		},
		Disturb: func() {
			switch f {
			case "a broken connection loses the last group":
				disk.loseLastGroup()
			case "a broken connection ends the store":
				disk.failed.Store(true)
			}
		},
	}
}

// A node is an open store, once more.
type node struct{ *broken }

func (node) Close() error { return nil }

// broken is a Memory with one fault. It leaves everything else to Memory.
type broken struct {
	*Memory
	fault   Fault
	arrival []arrived // in order of arrival
	before  records   // the records before the last group or removal
	expired records   // the records before the last removal
	failed  atomic.Bool
}

type arrived struct {
	device vitals.Name
	ms     int64
}

// forgetCompletions removes the resting heart rate from records with a heart rate.
func (b *broken) forgetCompletions() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, times := range b.records {
		for ms, rec := range times {
			if v, ok := rec.Values.Get(vitals.HeartRate); ok && rec.Values.Has(vitals.RestingHeartRate) {
				rec.Values = valuesOf(hr(v))
				times[ms] = rec
			}
		}
	}
}

func (b *broken) loseLastGroup() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.before != nil {
		b.records = b.before
	}
}

// tearLastReading keeps only the first sign of the reading that arrived last.
func (b *broken) tearLastReading() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.arrival) == 0 {
		return
	}
	k := b.arrival[len(b.arrival)-1]
	rec := b.records[k.device][k.ms]
	for s := range vitals.Sign(vitals.NumSigns) {
		if v, ok := rec.Values.Get(s); ok {
			rec.Values = valuesOf(sign{s, v})
			break
		}
	}
	b.records[k.device][k.ms] = rec
}

// A taker is a Guard whose Return does nothing.
type taker struct{ storage.Guard }

func (taker) Return() {}

func clone(rs records) records {
	c := records{}
	for name, times := range rs {
		c[name] = maps.Clone(times)
	}
	return c
}

func (b *broken) Append(group []*storage.Entry) error {
	if b.failed.Load() {
		return fmt.Errorf("append: %w", storage.ErrFailed)
	}
	if b.fault == "concurrent groups do not see each other" {
		stale := b.Memory.Clone(b.maxDevices)
		runtime.Gosched()
		if err := stale.Append(group); err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range group {
			b.records.settle(&storage.Entry{Reading: e.Reading, ReceivedUnixMs: e.ReceivedUnixMs}, 0)
		}
		return nil
	}
	if b.fault == "writes after close" {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range group {
			e.Outcome, e.Sign = b.records.settle(e, b.maxDevices)
		}
		return nil
	}
	if b.fault == "empty reading is accepted" {
		group = slices.DeleteFunc(slices.Clone(group), func(e *storage.Entry) bool { return e.Reading.Values.IsZero() })
	}
	for _, e := range group {
		if e.Guard == nil {
			continue
		}
		switch g := e.Guard; b.fault {
		case "guard is not called":
			e.Guard = nil
			defer func() { e.Guard = g }()
		case "guard is never returned to":
			e.Guard = taker{g}
			defer func() { e.Guard = g }()
		}
	}
	if b.fault == "group is settled in reverse" {
		group = slices.Clone(group)
		slices.Reverse(group)
	}
	b.mu.RLock()
	closed := b.closed
	var prior records
	switch b.fault {
	case "crash loses the last group", "duplicates are not synced", "a broken connection loses the last group":
		prior = clone(b.records)
	}
	b.mu.RUnlock()
	if closed && b.fault == "closed without not-written" {
		return fmt.Errorf("append: %w", storage.ErrClosed)
	}
	outcomes := make([]storage.Outcome, len(group))
	for i, e := range group {
		outcomes[i] = b.settle(e)
		if b.fault == "old outcome is kept" && e.Outcome != 0 {
			outcomes[i] = e.Outcome
		}
		if b.fault == "entries of a group ignore each other" && slices.ContainsFunc(group[:i], func(o *storage.Entry) bool {
			return o.Reading.Device == e.Reading.Device && o.Reading.TimeUnixMs == e.Reading.TimeUnixMs
		}) {
			outcomes[i] = storage.Stored
		}
	}
	if slices.Contains(outcomes, 0) { // some are left to Memory
		if err := b.Memory.Append(group); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("append: %w: %w", storage.ErrNotWritten, storage.ErrClosed)
	}
	for i, e := range group {
		if outcomes[i] != 0 {
			e.Outcome = outcomes[i]
		}
		if e.Outcome == storage.Stored {
			b.arrival = append(b.arrival, arrived{e.Reading.Device, e.Reading.TimeUnixMs})
		}
		if b.fault == "conflict names the last sign" && e.Outcome == storage.Conflict {
			for s := range vitals.Sign(vitals.NumSigns) {
				have := b.records[e.Reading.Device][e.Reading.TimeUnixMs].Values
				old, _ := have.Get(s)
				if v, ok := e.Reading.Values.Get(s); ok && have.Has(s) && v != old {
					e.Sign = s
				}
			}
		}
		if b.fault == "reading is modified" {
			e.Reading.Values = b.records[e.Reading.Device][e.Reading.TimeUnixMs].Values
			e.Reading.Gateway = mustName("changed")
		}
	}
	if b.fault == "crash loses the last group" || b.fault == "a broken connection loses the last group" ||
		b.fault == "duplicates are not synced" && !slices.ContainsFunc(group, func(e *storage.Entry) bool { return e.Outcome == storage.Duplicate }) {
		b.before = prior
	}
	return nil
}

// settle applies the fault to the records before Memory settles the reading. It
// returns the outcome that the broken store reports, or 0 for Memory's.
func (b *broken) settle(e *storage.Entry) storage.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := e.Reading
	have, ok := b.records[r.Device][r.TimeUnixMs]
	if b.closed || r.Device.IsZero() || r.Values.IsZero() || r.TimeUnixMs < 0 {
		return 0
	}
	put := func(rec record) { b.records[r.Device][r.TimeUnixMs] = rec }
	_, conflict := firstConflict(have.Values, r.Values)
	completes := ok && !conflict && union(have.Values, r.Values) != have.Values
	switch b.fault {
	case "last write wins":
		if ok && conflict {
			have.Values = union(r.Values, have.Values)
			put(have)
			return storage.Completed
		}
	case "conflict is stored in part":
		if ok && conflict {
			have.Values = union(have.Values, r.Values)
			put(have)
			return storage.Conflict
		}
	case "identity per reading":
		if ok && have.Values != r.Values {
			return storage.Conflict
		}
	case "gateway is compared":
		if ok && have.Gateway != r.Gateway {
			return storage.Conflict
		}
	case "last gateway is kept":
		if completes {
			have.Gateway = r.Gateway
			put(have)
		}
	case "duplicate sets the gateway":
		if ok && !conflict && !completes && have.Gateway.IsZero() {
			have.Gateway = r.Gateway
			put(have)
		}
	case "offset is compared":
		if ok && have.UTCOffset != r.UTCOffset {
			return storage.Conflict
		}
	case "last offset is kept":
		if completes && r.UTCOffset != 0 {
			have.UTCOffset = r.UTCOffset
			put(have)
		}
	case "duplicate sets the offset":
		if ok && !conflict && !completes && have.UTCOffset == 0 {
			have.UTCOffset = r.UTCOffset
			put(have)
		}
	case "last receipt is kept":
		if completes {
			have.ReceivedUnixMs = e.ReceivedUnixMs
			put(have)
		}
	case "late reading is dropped":
		if len(b.records[r.Device]) > 0 && r.TimeUnixMs < b.records.latest(r.Device).NewestUnixMs && !ok {
			return storage.Stored
		}
	case "zero counts as missing":
		for s := range vitals.Sign(vitals.NumSigns) {
			if v, has := r.Values.Get(s); has && v == 0 && ok && have.Values.Has(s) {
				return storage.Completed
			}
		}
	case "writer's own record is guarded":
		if ok && e.Guard != nil && conflict && have.Gateway == r.Gateway && !e.Guard.Take() {
			return storage.Withheld
		}
	case "completion by another is forgotten":
		if ok {
			have.shared = false
			put(have)
		}
	case "entry is retained":
		if !ok && b.records[r.Device] != nil {
			b.arrival = append(b.arrival, arrived{r.Device, r.TimeUnixMs})
		}
	}
	return 0
}

func (b *broken) Latest(ctx context.Context, device vitals.Name) (storage.Device, error) {
	b.mu.RLock()
	times := b.records[device]
	b.mu.RUnlock()
	if b.fault == "unknown device is empty" && len(times) == 0 {
		return storage.Device{Name: device}, nil
	}
	if b.fault == "context is ignored" {
		ctx = context.Background()
	}
	d, err := b.Memory.Latest(ctx, device)
	if err != nil {
		return d, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.latest(d), nil
}

// latest applies the fault to the summary of a device.
func (b *broken) latest(d storage.Device) storage.Device {
	switch b.fault {
	case "latest of the newest record only":
		for s := range d.Latest {
			if d.Latest[s].TimeUnixMs != d.NewestUnixMs {
				d.Latest[s] = storage.Latest{}
			}
		}
	case "latest by arrival":
		d.Latest = [vitals.NumSigns]storage.Latest{}
		for _, a := range b.arrival {
			if a.device != d.Name {
				continue
			}
			rec := b.records[a.device][a.ms]
			for s := range vitals.Sign(vitals.NumSigns) {
				if v, ok := rec.Values.Get(s); ok {
					d.Latest[s] = storage.Latest{TimeUnixMs: a.ms, UTCOffset: rec.UTCOffset, Value: v, Known: true}
				}
			}
		}
	case "latest values have no offset":
		for s := range d.Latest {
			d.Latest[s].UTCOffset = 0
		}
	case "latest values have the newest offset":
		newest := b.records[d.Name][d.NewestUnixMs].UTCOffset
		for s := range d.Latest {
			if d.Latest[s].Known {
				d.Latest[s].UTCOffset = newest
			}
		}
	case "expired signs stay":
		b.expiredSigns(&d)
	case "newest by arrival":
		for _, a := range b.arrival {
			if a.device == d.Name {
				d.NewestUnixMs = a.ms
			}
		}
	}
	return d
}

func (b *broken) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if err := b.readable(ctx); err != nil && b.fault != "reads after close" && b.fault != "context is ignored" {
		return 0, err
	}
	requested := r
	switch b.fault {
	case "to is inclusive":
		if r.ToUnixMs < endOfTime {
			r.ToUnixMs++
		}
	case "from is exclusive":
		r.FromUnixMs++
	case "from is unsigned":
		if r.FromUnixMs < 0 {
			return 0, nil
		}
	}
	all := b.records.scan(r)
	switch b.fault {
	case "descending pages start at the oldest":
		if requested.Descending && len(all) > len(dst) {
			all = all[len(all)-len(dst):]
		}
	case "order is ignored":
		if requested.Descending {
			slices.Reverse(all)
		}
	case "short pages":
		if len(all) > 1 && len(dst) > 1 {
			all = all[:min(len(all), len(dst)-1)]
		}
	case "names match as prefixes":
		all = nil
		for name := range b.records {
			if p := r.Device.String(); p != "" && len(name.String()) >= len(p) && name.String()[:len(p)] == p {
				r := r
				r.Device = name
				all = append(all, b.records.scan(r)...)
			}
		}
	case "gateways are not stored":
		for i := range all {
			all[i].Gateway = nil
		}
	case "offsets are not stored":
		for i := range all {
			all[i].UTCOffset = 0
		}
	case "offset of zero is not stored":
		for i := range all {
			if all[i].UTCOffset == vitals.MakeUTCOffset(0) {
				all[i].UTCOffset = 0
			}
		}
	case "entry is retained":
		for i := range all {
			if len(all) == 1 && all[i].TimeUnixMs == 7 {
				all[i].Values = valuesOf(spo2(1)) // as if the caller's change had reached it
			}
		}
	}
	return copy(dst, all), nil
}

func (b *broken) Devices(ctx context.Context, after vitals.Name, dst []storage.Device) (int, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if err := b.readable(ctx); err != nil && b.fault != "context is ignored" {
		return 0, err
	}
	all := b.records.devices(after)
	switch b.fault {
	case "devices by arrival":
		var seen []storage.Device
		for _, a := range b.arrival {
			i := slices.IndexFunc(all, func(d storage.Device) bool { return d.Name == a.device })
			if i >= 0 {
				seen = append(seen, all[i])
				all = slices.Delete(all, i, i+1)
			}
		}
		all = append(seen, all...)
	case "after is inclusive":
		if b.records[after] != nil {
			all = append([]storage.Device{b.records.latest(after)}, all...)
		}
	}
	for i := range all {
		all[i] = b.latest(all[i])
	}
	return copy(dst, all), nil
}
