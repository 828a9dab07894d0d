package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// groupReadings is the number of readings that are appended at once.
const groupReadings = 4096

// copy appends the records of each device from the first lacking one on, and returns the number
// of those that the target did not have.
func (r *run) copy(ctx context.Context, lacking []int64) (copied int64, err error) {
	w := &writer{run: r, entries: make([]storage.Entry, 0, groupReadings),
		readings: make([]vitals.Reading, 0, groupReadings)}
	from, page := devices(source, r.From), r.sourceRecords()
	for _, fromMs := range lacking {
		d, err := from.next(ctx)
		if err == nil && d == nil {
			err = errors.New("read source: a device has disappeared")
		}
		if err == nil && fromMs != nothing {
			page.start(&d.Name, fromMs)
			err = w.device(ctx, &d.Name, page)
		}
		if err != nil {
			return w.copied, err
		}
	}
	return w.copied, w.flush(ctx)
}

// A writer appends records in groups.
type writer struct {
	*run
	entries  []storage.Entry
	readings []vitals.Reading // of entries
	group    []*storage.Entry
	done     int64 // records
	copied   int64 // of these, those that the target did not have
}

// device adds the records of page, which are those of a device.
func (w *writer) device(ctx context.Context, name *vitals.Name, page *records) error {
	for {
		rec, err := page.next(ctx)
		if err != nil || rec == nil {
			return err
		}
		if len(w.entries)+2 > cap(w.entries) {
			if err := w.flush(ctx); err != nil {
				return err
			}
		}
		first, rest, err := readings(name, rec)
		if err != nil {
			return err
		}
		w.add(&first, rec.ReceivedUnixMs)
		if !rest.Values.IsZero() {
			w.add(&rest, max(rec.ReceivedUnixMs, rec.ChangedUnixMs))
		}
		w.done++
	}
}

func (w *writer) add(r *vitals.Reading, receivedUnixMs int64) {
	w.readings = append(w.readings, *r)
	w.entries = append(w.entries, storage.Entry{Reading: &w.readings[len(w.readings)-1], ReceivedUnixMs: receivedUnixMs})
}

// flush appends the group.
func (w *writer) flush(ctx context.Context) error {
	if err := w.alone(ctx); err != nil {
		return err
	}
	if len(w.entries) == 0 {
		return nil
	}
	w.group = w.group[:0]
	for i := range w.entries {
		w.group = append(w.group, &w.entries[i])
	}
	if err := w.To.Append(w.group); err != nil {
		return fmt.Errorf("write target: %w", err)
	}
	for _, e := range w.group {
		switch e.Outcome {
		case storage.Stored:
			w.copied++
		case storage.Completed, storage.Duplicate:
		case storage.Unreadable:
			return fmt.Errorf("write target: %w: readings of the device %s", storage.ErrCorrupt, e.Reading.Device)
		case storage.Conflict:
			return fmt.Errorf("%w: it contradicts the source in readings of the device %s", ErrDiffers, e.Reading.Device)
		default:
			return fmt.Errorf("write target: it rejects readings of the device %s (outcome %d)", e.Reading.Device, e.Outcome)
		}
	}
	w.entries, w.readings = w.entries[:0], w.readings[:0]
	w.OnProgress(Copy, w.done)
	return nil
}

// readings returns the readings that make a record: one; or two if it was completed later, or by several gateways. A
// store counts a record as shared if a gateway has completed one that named none.
func readings(device *vitals.Name, r *storage.Record) (first, rest vitals.Reading, err error) {
	first = vitals.Reading{Device: *device, TimeUnixMs: r.TimeUnixMs, Values: r.Values, UTCOffset: r.UTCOffset}
	if r.Gateway != nil {
		first.Gateway = *r.Gateway
	}
	if !r.Shared && (r.ChangedUnixMs <= r.ReceivedUnixMs || r.Values.Len() == 1) {
		return first, rest, nil
	}
	rest = first
	first.Values, rest.Values = vitals.Values{}, vitals.Values{}
	if r.Shared {
		first.Gateway = vitals.Name{}
	}
	for sg, v := range r.Values.All() {
		if first.Values.IsZero() {
			first.Values.Set(sg, v)
		} else {
			rest.Values.Set(sg, v)
		}
	}
	if r.Shared && (rest.Values.IsZero() || rest.Gateway.IsZero()) {
		return first, rest,
			fmt.Errorf("%w: a record of the device %s is said to be completed by another gateway, and cannot be",
				storage.ErrCorrupt, device)
	}
	return first, rest, nil
}
