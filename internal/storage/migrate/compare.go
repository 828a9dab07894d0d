package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// compare compares the stores. For the step Verify they must be equal. Otherwise the target may
// lack records, and lacking has the time of the first one that it lacks for each device of the
// source, or nothing. It is nil if the target lacks none.
func (r *run) compare(ctx context.Context, step Step) (report Report, lacking []int64, err error) {
	from, to := devices(source, r.From), devices(target, r.To)
	total := sha256.New()
	incomplete := false
	c := comparer{run: r, step: step, from: r.sourceRecords(), to: newRecords(target, r.To)}
	for {
		s, t, err := both(ctx, from, to)
		if err != nil {
			return report, nil, err
		}
		switch {
		case s == nil && t == nil:
			if !incomplete {
				lacking = nil
			}
			total.Sum(report.SHA256[:0])
			return report, lacking, nil
		case s == nil || t != nil && t.Name.Compare(&s.Name) < 0:
			return report, nil, fmt.Errorf("%w: it has the device %s, which the source does not have", ErrDiffers, t.Name)
		case t == nil || s.Name.Compare(&t.Name) < 0:
			if step == Verify {
				return report, nil, fmt.Errorf("%w: it lacks the device %s", ErrDiffers, s.Name)
			}
			lacking, incomplete = append(lacking, 0), true
			from.skip()
			continue
		}
		sum, fromMs, err := c.device(ctx, &s.Name)
		if err != nil {
			return report, nil, err
		}
		lacks := fromMs != nothing
		if lacks && step == Verify {
			return report, nil, fmt.Errorf("%w: it lacks readings of the device %s", ErrDiffers, s.Name)
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
	h := sha256.New()
	for {
		s, t, err := both(ctx, &c.from.cursor, &c.to.cursor)
		if err != nil {
			return sum, nothing, err
		}
		switch {
		case s == nil && t == nil:
			c.OnProgress(c.step, c.done)
			h.Sum(sum.SHA256[:0])
			return sum, lacking, nil
		case s == nil || t != nil && t.TimeUnixMs < s.TimeUnixMs:
			return sum, nothing, fmt.Errorf("%w: it has readings of the device %s that the source does not have",
				ErrDiffers, name)
		}
		c.from.skip()
		sum.Readings++
		if c.done++; c.done%pageRecords == 0 {
			c.OnProgress(c.step, c.done)
		}
		c.add(h, s)
		switch {
		case t == nil || t.TimeUnixMs > s.TimeUnixMs:
			lacks(s)
			continue
		case same(s, t):
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
	made := storage.RecordOf(&storage.Entry{Reading: &first, ReceivedUnixMs: s.ReceivedUnixMs})
	return err == nil && !rest.Values.IsZero() && same(t, &made)
}

// add adds a record to a checksum.
func (c *comparer) add(h hash.Hash, r *storage.Record) {
	b := binary.BigEndian.AppendUint64(c.buf[:0], uint64(r.TimeUnixMs))
	b = binary.BigEndian.AppendUint64(b, uint64(r.ReceivedUnixMs))
	b = binary.BigEndian.AppendUint64(b, uint64(r.ChangedUnixMs))
	b = appendValues(b, &r.Values)
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

// appendValues appends values in the form that checksums are computed of: their presence, then each in 4 bytes.
func appendValues(b []byte, values *vitals.Values) []byte {
	b = binary.BigEndian.AppendUint32(b, values.Present())
	for _, v := range values.All() {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return b
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
