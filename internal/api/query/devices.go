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

// appendDevice appends a device as a JSON object: the time of its newest reading, and
// the latest value of each sign with its time, the offset from UTC of that and its flags.
//
//	{"device":"ppg-1","time":"…","latest":{"spo2_pct":{"value":97.5,"time":"…"}}}
func appendDevice(dst []byte, d *storage.Device, limits *vitals.FlagLimits) []byte {
	dst = append(dst, `{"device":"`...)
	dst = d.Name.AppendTo(dst)
	dst = append(dst, `","time":"`...)
	dst = vitals.AppendTime(dst, d.NewestUnixMs)
	dst = append(dst, `","latest":{`...)
	flags := deviceFlags(d, limits)
	first := true
	for s := range vitals.Sign(vitals.NumSigns) {
		latest := d.Latest[s]
		if !latest.Known {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), s.Field()...), `":{"value":`...)
		dst = vitals.AppendHundredths(dst, latest.Value)
		dst = vitals.AppendTime(append(dst, `,"time":"`...), latest.TimeUnixMs)
		dst = append(dst, '"')
		if minutes, ok := latest.UTCOffset.Minutes(); ok {
			dst = strconv.AppendInt(append(dst, `,"utc_offset_minutes":`...), int64(minutes), 10)
		}
		dst = append(appendFlags(dst, flags[s]), '}')
	}
	return append(dst, "}}"...)
}

// deviceFlags returns the flags of each latest value. The pulse pressure is computed
// only if both pressures have the same time; its flag belongs to the systolic value.
func deviceFlags(d *storage.Device, limits *vitals.FlagLimits) (flags [vitals.NumSigns]vitals.FlagSet) {
	if limits == nil {
		return flags
	}
	for s, latest := range d.Latest {
		if !latest.Known {
			continue
		}
		var alone vitals.Values
		alone.Set(vitals.Sign(s), latest.Value)
		if vitals.Sign(s) == vitals.Systolic {
			diastolic := d.Latest[vitals.Diastolic]
			if diastolic.Known && diastolic.TimeUnixMs == latest.TimeUnixMs {
				alone.Set(vitals.Diastolic, diastolic.Value)
			}
		}
		for f := range limits.Flags(&alone).All() {
			if vitals.Sign(s) == vitals.Systolic && f.Subject() == vitals.Diastolic.Field() {
				continue
			}
			flags[s] |= 1 << f
		}
	}
	return flags
}
