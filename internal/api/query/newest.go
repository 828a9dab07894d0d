package query

import (
	"context"
	"errors"
	"math/bits"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A newestWorn has the newest value of each sign that was measured of a subject, and its device.
type newestWorn struct {
	latest [vitals.MaxSigns]storage.Latest
	device [vitals.MaxSigns]vitals.Name

	goesOn func() error     // called before further records are read; an error ends the search
	buffer []storage.Record // nil before the first read
	read   int              // records
	unread uint32           // signs of which older values would have had to be read
}

// maxOlder is the maximum number of records that a request reads to find the latest values of a subject.
const maxOlder = 1 << 18

// add adds a value of a sign. Of values of one time, the one of the last device counts, as readings are ordered.
func (n *newestWorn) add(s vitals.Sign, device vitals.Name, l storage.Latest) {
	if have := &n.latest[s]; !have.Known || l.TimeUnixMs > have.TimeUnixMs ||
		l.TimeUnixMs == have.TimeUnixMs && device.Compare(&n.device[s]) > 0 {
		n.latest[s], n.device[s] = l, device
	}
}

// find finds the values in assignments, which are by device. The store knows the newest value of a device. Only if that
// lies in no assignment and is not older than all, others must be read.
func (n *newestWorn) find(ctx context.Context, reader Reader, all []storage.Assignment) error {
	type search struct {
		of    []storage.Assignment // of one device
		signs uint32
	}
	var searches []search
	for len(all) > 0 {
		end := 1
		for end < len(all) && all[end].Device == all[0].Device {
			end++
		}
		of := all[:end]
		all = all[end:]
		d, err := reader.Latest(ctx, of[0].Device)
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		older := search{of: of}
		for s := range vitals.Sign(vitals.MaxSigns) {
			switch l := &d.Latest[s]; {
			case !l.Known || l.TimeUnixMs < of[0].FromUnixMs:
			case storage.SubjectAt(of, l.TimeUnixMs) != "":
				n.add(s, of[0].Device, *l)
			default:
				older.signs |= 1 << s
			}
		}
		searches = append(searches, older)
	}
	for _, older := range searches {
		for i := len(older.of) - 1; i >= 0 && older.signs != 0 && n.read < maxOlder; i-- {
			if err := n.search(ctx, reader, &older.of[i], &older.signs); err != nil {
				return err
			}
		}
		if n.read >= maxOlder {
			n.unread |= older.signs
		}
	}
	return nil
}

// search looks for values of signs in an assignment, the newest first, and removes the signs that it finds.
func (n *newestWorn) search(ctx context.Context, reader Reader, a *storage.Assignment, signs *uint32) error {
	scanner := storage.Scanner{Range: storage.Range{
		Device: a.Device, FromUnixMs: max(a.FromUnixMs, n.oldest(*signs)), ToUnixMs: a.ToUnixMs, Descending: true,
	}}
	if n.buffer == nil {
		n.buffer = make([]storage.Record, chunkRecords)
	}
	for more := scanner.FromUnixMs < scanner.ToUnixMs; more && *signs != 0 && n.read < maxOlder; {
		var records []storage.Record
		var err error
		if err = n.goesOn(); err != nil {
			return err
		}
		if records, more, err = scanner.Next(ctx, reader.Scan, n.buffer); err != nil {
			return err
		}
		n.read += len(records)
		for i := range records {
			r := &records[i]
			for found := r.Values.Present() & *signs; found != 0; found &= found - 1 {
				s := vitals.Sign(bits.TrailingZeros32(found))
				v, _ := r.Values.Get(s)
				l := storage.Latest{TimeUnixMs: r.TimeUnixMs, UTCOffset: r.UTCOffset, Value: v, Known: true}
				n.add(s, a.Device, l)
			}
			*signs &^= r.Values.Present()
		}
	}
	return nil
}

// oldest returns the time before which no value of some signs can be the newest.
func (n *newestWorn) oldest(signs uint32) int64 {
	oldest := storage.OpenEnd
	for s := range vitals.InOrder(signs) {
		if !n.latest[s].Known {
			return 0
		}
		oldest = min(oldest, n.latest[s].TimeUnixMs)
	}
	return oldest
}

// within reports whether the values lie in assignments.
func (n *newestWorn) within(all []storage.Assignment) bool {
	for s := range n.latest {
		if l := &n.latest[s]; l.Known && !slices.ContainsFunc(all, func(a storage.Assignment) bool {
			return a.Device == n.device[s] && a.Covers(l.TimeUnixMs)
		}) {
			return false
		}
	}
	return true
}

// flags returns the flags of the values, each by the limits of its device and the subject.
func (n *newestWorn) flags(subject storage.Subject, by flagger) (flags latestFlags) {
	for signs := knownSigns(&n.latest); signs != 0; {
		device := &n.device[vitals.First(signs)]
		var of uint32 // signs of the values of the device
		for s := range vitals.InOrder(signs) {
			if n.device[s] == *device {
				of |= 1 << s
			}
		}
		var own vitals.FlagLimits
		flags.add(&n.latest, of, by.of(device, subject, &own))
		signs &^= of
	}
	return flags
}

// appendTo appends the ranges, the values and the assignments of a subject as JSON:
//
//	{"subject":"P-1","latest":{"spo2_pct":{"value":97.5,"time":"…","device":"ppg-1"}},
//	 "assignments":[{"device":"ppg-1","from":"…"}]}
func (n *newestWorn) appendTo(dst []byte, of *worn, by flagger) []byte {
	flags, signs := n.flags(of.subject, by), by.all.Signs
	dst = append(append(append(dst, `{"subject":"`...), of.subject...), '"')
	dst = append(by.roster.AppendRanges(dst, new(vitals.Name), of.subject, by.all), `,"latest":{`...)
	before := `"`
	for s, sign := range signs.All() {
		if !n.latest[s].Known {
			continue
		}
		dst = append(append(append(dst, before...), sign.Field...), `":{`...)
		dst = n.device[s].AppendTo(append(appendLatest(dst, sign, &n.latest[s]), `,"device":"`...))
		dst, before = append(appendFlags(append(dst, '"'), signs, flags[s]), '}'), `,"`
	}
	before = `},"assignments":[`
	for i := range of.all {
		dst = append(append(dst, before...), `{"device":"`...)
		dst, before = appendPeriod(of.all[i].Device.AppendTo(dst), &of.all[i]), ","
	}
	if len(of.all) == 0 {
		dst = append(dst, before...)
	}
	dst, before = append(dst, ']'), `,"unread":["`
	for s := range vitals.InOrder(n.unread) {
		dst, before = append(append(append(dst, before...), signs.Field(s)...), '"'), `,"`
	}
	if n.unread != 0 {
		dst = append(dst, ']')
	}
	return append(appendNotice(dst), "}\n"...)
}
