package query

import (
	"context"
	"strconv"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Lister lists devices: those that follow a name, in the order of their names, or all
// devices in no particular order. Package storage documents the contract of the former.
type Lister interface {
	Devices(ctx context.Context, after vitals.Name, dst []storage.Device) (int, error)

	// WalkDevices calls visit with all devices, some at a time. visit must not retain the
	// slice.
	WalkDevices(ctx context.Context, visit func(some []storage.Device)) error
}

// appendDevice appends a device as a JSON object: its label and group, the ranges that are usual for it and who wears
// it now, the time of its newest reading, the latest value of each sign with its time, the offset from UTC of that, the
// subject of that time and its flags, and the subject now.
//
//	{"device":"ppg-1","time":"…","latest":{"spo2_pct":{"value":97.5,"time":"…","subject":"P-1"}},"assigned_now":"P-2"}
func appendDevice(
	dst []byte, d *storage.Device, by flagger, assigned []storage.Assignment, nowUnixMs int64,
) []byte {
	wearer, signs := storage.SubjectAt(assigned, nowUnixMs), by.all.Signs
	dst = append(dst, `{"device":"`...)
	dst = by.roster.Of(&d.Name).AppendTo(append(d.Name.AppendTo(dst), '"'))
	dst = append(by.roster.AppendRanges(dst, &d.Name, wearer, by.all), `,"time":"`...)
	dst = vitals.AppendTime(dst, d.NewestUnixMs)
	dst = append(dst, `","latest":{`...)
	flags := by.latest(d, assigned)
	first := true
	for s, sign := range signs.All() {
		latest := &d.Latest[s]
		if !latest.Known {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendLatest(append(append(append(dst, '"'), sign.Field...), `":{`...), sign, latest)
		dst = appendSubject(dst, "subject", storage.SubjectAt(assigned, latest.TimeUnixMs))
		dst = append(appendFlags(dst, signs, flags[s]), '}')
	}
	return append(appendSubject(append(dst, '}'), "assigned_now", wearer), '}')
}

// appendLatest appends a latest value, its time, and the offset from UTC of that as members of JSON.
func appendLatest(dst []byte, d *vitals.Definition, latest *storage.Latest) []byte {
	dst = d.Append(append(dst, `"value":`...), latest.Value)
	dst = append(vitals.AppendTime(append(dst, `,"time":"`...), latest.TimeUnixMs), '"')
	if minutes, ok := latest.UTCOffset.Minutes(); ok {
		dst = strconv.AppendInt(append(dst, `,"utc_offset_minutes":`...), int64(minutes), 10)
	}
	return dst
}
