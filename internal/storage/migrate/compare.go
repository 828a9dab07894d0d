package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// compare compares the stores. For the step Verify they must be equal. Otherwise the target may
// lack records, and lacking has the time of the first one that it lacks for each device of the
// source, or nothing. It is nil if the target lacks none.
func (r *run) compare(ctx context.Context, step Step) (report Report, lacking []int64, err error) {
	from, to := devices{store: r.From}, devices{store: r.To}
	total := sha256.New()
	incomplete := false
	c := comparer{run: r, step: step, from: newRecords(r.From), to: newRecords(r.To)}
	for {
		s, err := from.peek(ctx)
		if err != nil {
			return report, nil, fmt.Errorf("read source: %w", err)
		}
		t, err := to.peek(ctx)
		if err != nil {
			return report, nil, fmt.Errorf("read target: %w", err)
		}
		switch {
		case s == nil && t == nil:
			if !incomplete {
				lacking = nil
			}
			total.Sum(report.SHA256[:0])
			return report, lacking, nil
		case s == nil || t != nil && t.Compare(s) < 0:
			return report, nil, fmt.Errorf("%w: it has the device %s, which the source does not have", ErrDiffers, t)
		case t == nil || s.Compare(t) < 0:
			if step == Verify {
				return report, nil, fmt.Errorf("%w: it lacks the device %s", ErrDiffers, s)
			}
			lacking, incomplete = append(lacking, 0), true
			from.skip()
			continue
		}
		sum, fromMs, err := c.device(ctx, s)
		if err != nil {
			return report, nil, err
		}
		lacks := fromMs != nothing
		if lacks && step == Verify {
			return report, nil, fmt.Errorf("%w: it lacks readings of the device %s", ErrDiffers, s)
		}
		lacking, incomplete = append(lacking, fromMs), incomplete || lacks
		if !lacks {
			report.Devices++
			report.Readings += sum.Readings
			total.Write(sum.append(nil))
			if step == Verify && r.OnDevice != nil {
				r.OnDevice(sum)
			}
		}
		from.skip()
		to.skip()
	}
}

// append appends the sum in the form that the total is computed of.
func (s *Sum) append(b []byte) []byte {
	b = appendName(b, &s.Device)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Readings))
	return append(b, s.SHA256[:]...)
}

// A comparer compares the records of devices.
type comparer struct {
	*run
	step     Step
	from, to *records
	done     int64 // records compared
	buf      []byte
}

// nothing is the time of the first record that is lacking if none is.
const nothing = -1

// device compares the records of a device, and returns the time of the first one that the target
// lacks. If it lacks none, sum is valid.
func (c *comparer) device(ctx context.Context, name *vitals.Name) (sum Sum, lacking int64, err error) {
	lacking = nothing
	c.from.start(name, 0)
	c.to.start(name, 0)
	sum.Device = *name
	lacks := func(s *storage.Record) {
		if lacking == nothing {
			lacking = s.TimeUnixMs
		}
	}
	source, target := sha256.New(), sha256.New()
	for {
		s, err := c.from.next(ctx)
		if err != nil {
			return sum, nothing, fmt.Errorf("read source: %w", err)
		}
		t, err := c.to.peek(ctx)
		if err != nil {
			return sum, nothing, fmt.Errorf("read target: %w", err)
		}
		switch {
		case s == nil && t == nil:
			c.OnProgress(c.step, c.done)
			source.Sum(sum.SHA256[:0])
			if lacking == nothing && sum.SHA256 != [sha256.Size]byte(target.Sum(nil)) {
				return sum, nothing, fmt.Errorf("%w: the checksums of the device %s are not equal", ErrDiffers, name)
			}
			return sum, lacking, nil
		case s == nil || t != nil && t.TimeUnixMs < s.TimeUnixMs:
			return sum, nothing, fmt.Errorf("%w: it has readings of the device %s that the source does not have", ErrDiffers, name)
		}
		sum.Readings++
		if c.done++; c.done%pageRecords == 0 {
			c.OnProgress(c.step, c.done)
		}
		c.add(source, s)
		switch {
		case t == nil || t.TimeUnixMs > s.TimeUnixMs:
			lacks(s)
			continue
		case same(s, t):
			c.add(target, t)
		case begun(name, s, t):
			lacks(s)
		default:
			return sum, nothing, fmt.Errorf("%w: it contradicts the source in readings of the device %s", ErrDiffers, name)
		}
		c.to.skip()
	}
}

// same reports whether a and b are equal. Their gateways are compared by name.
func same(a, b *storage.Record) bool {
	x, y := *a, *b
	if x.Gateway != nil && y.Gateway != nil && *x.Gateway == *y.Gateway {
		x.Gateway = y.Gateway
	}
	return x == y
}

// begun reports whether t is the first of the two readings that make the record s.
func begun(device *vitals.Name, s, t *storage.Record) bool {
	first, rest, err := readings(device, s)
	return err == nil && !rest.Values.IsZero() &&
		same(t, &storage.Record{TimeUnixMs: s.TimeUnixMs, ReceivedUnixMs: s.ReceivedUnixMs, Values: first.Values, UTCOffset: first.UTCOffset})
}

// add adds a record to a checksum.
func (c *comparer) add(h hash.Hash, r *storage.Record) {
	b := binary.BigEndian.AppendUint64(c.buf[:0], uint64(r.TimeUnixMs))
	b = binary.BigEndian.AppendUint64(b, uint64(r.ReceivedUnixMs))
	b = append(b, r.Values.Present())
	for sg := range vitals.Sign(vitals.NumSigns) {
		v, _ := r.Values.Get(sg)
		b = binary.BigEndian.AppendUint16(b, uint16(v))
	}
	minutes, known := r.UTCOffset.Minutes()
	b = binary.BigEndian.AppendUint16(b, uint16(int16(minutes)))
	b = append(b, bit(known), bit(r.Shared))
	gateway := r.Gateway
	if gateway == nil {
		gateway = &vitals.Name{}
	}
	c.buf = appendName(b, gateway)
	h.Write(c.buf)
}

func appendName(b []byte, name *vitals.Name) []byte {
	return name.AppendTo(append(b, byte(name.Len())))
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Sizes of pages.
const (
	pageDevices = 500
	pageRecords = 4096
)

// devices reads the devices of a store in their order.
type devices struct {
	store storage.Store
	page  []storage.Device
	at, n int
	after vitals.Name
	ended bool
}

// peek returns the next device, or nil. It is valid until skip.
func (d *devices) peek(ctx context.Context) (*vitals.Name, error) {
	if d.at == d.n && !d.ended {
		if d.page == nil {
			d.page = make([]storage.Device, pageDevices)
		}
		n, err := d.store.Devices(ctx, d.after, d.page)
		if err != nil {
			return nil, err
		}
		d.at, d.n, d.ended = 0, n, n < len(d.page)
		if n > 0 {
			d.after = d.page[n-1].Name
		}
	}
	if d.at == d.n {
		return nil, nil
	}
	return &d.page[d.at].Name, nil
}

func (d *devices) skip() { d.at++ }

// records reads the records of a device in the order of time.
type records struct {
	store  storage.Store
	device vitals.Name
	page   []storage.Record
	at, n  int
	fromMs int64
	ended  bool
}

func newRecords(s storage.Store) *records {
	return &records{store: s, page: make([]storage.Record, pageRecords)}
}

// start moves to the first record of a device that is not before fromMs.
func (r *records) start(device *vitals.Name, fromMs int64) {
	r.device, r.at, r.n, r.fromMs, r.ended = *device, 0, 0, fromMs, false
}

// peek returns the next record, or nil. It is valid until the next call after skip.
func (r *records) peek(ctx context.Context) (*storage.Record, error) {
	if r.at == r.n && !r.ended {
		n, err := r.store.Scan(ctx, storage.Range{Device: r.device, FromUnixMs: r.fromMs, ToUnixMs: math.MaxInt64}, r.page)
		if err != nil {
			return nil, err
		}
		r.at, r.n, r.ended = 0, n, n < len(r.page)
		if n > 0 {
			r.fromMs = r.page[n-1].TimeUnixMs + 1
		}
	}
	if r.at == r.n {
		return nil, nil
	}
	return &r.page[r.at], nil
}

func (r *records) skip() { r.at++ }

// next is peek and skip.
func (r *records) next(ctx context.Context) (*storage.Record, error) {
	rec, err := r.peek(ctx)
	if rec != nil {
		r.at++
	}
	return rec, err
}
