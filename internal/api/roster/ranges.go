package roster

import (
	"iter"
	"maps"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// signRanges are ranges of one sign. They are never modified.
type signRanges struct {
	sign            vitals.Sign
	usual, critical *vitals.Range // nil means none
}

// HasRanges reports whether a device, a group or a subject has ranges.
func (r *Roster) HasRanges() bool {
	return r != nil && len(r.ofDevices)+len(r.ofGroups)+len(r.ofSubjects) > 0
}

// HasSubjectRanges reports whether a subject has ranges, so that limits depend on who wears a device.
func (r *Roster) HasSubjectRanges() bool { return r != nil && len(r.ofSubjects) > 0 }

// Limits returns the limits of what a device measures of a subject, which is "" for nobody. For each sign, the ranges
// of the subject come before those of the device, these before those of its group, and these before those of all: also
// where a usual range of one has values that are critical by another. It returns all, or own, which it sets if there
// are any ranges.
func (r *Roster) Limits(
	device *vitals.Name, subject storage.Subject, all, own *vitals.FlagLimits,
) *vitals.FlagLimits {
	limits := all
	r.visit(device, subject, func(_ string, ranges []signRanges) {
		if limits == all {
			*own = *all
			limits = own
		}
		for i := range ranges {
			ranges[i].layOver(own)
		}
	})
	return limits
}

// layOver replaces the ranges of a sign by those of s, and cuts off what these contradict.
func (s *signRanges) layOver(limits *vitals.FlagLimits) {
	usual, critical := &limits.Usual[s.sign], &limits.Critical[s.sign]
	if s.usual != nil {
		*usual = *s.usual
		*critical = cutCritical(*critical, usual)
	}
	if s.critical != nil {
		*critical = s.critical
		*usual = cutUsual(*usual, s.critical)
	}
}

func overlap(a, b *vitals.Range) bool { return a.Min <= b.Max && a.Max >= b.Min }

// cutCritical returns a critical range without the values that are usual. Of one that is on both sides of them, the
// side with the end of all values remains.
func cutCritical(critical, usual *vitals.Range) *vitals.Range {
	switch {
	case critical == nil || !overlap(critical, usual):
		return critical
	case critical.Min < usual.Min && (critical.Max <= usual.Max || critical.Max < vitals.MaxValue):
		return &vitals.Range{Min: critical.Min, Max: usual.Min - 1}
	case critical.Max > usual.Max:
		return &vitals.Range{Min: usual.Max + 1, Max: critical.Max}
	}
	return nil
}

// cutUsual returns a usual range without the values that are critical. If none are left, the values on the other side
// of the critical ones are usual. A critical range has an end, or none of the values of all.
func cutUsual(usual vitals.Range, critical *vitals.Range) vitals.Range {
	switch {
	case !overlap(&usual, critical):
	case critical.Min > usual.Min:
		usual.Max = critical.Min - 1
	case critical.Max < usual.Max:
		usual.Min = critical.Max + 1
	case critical.Max < vitals.MaxValue:
		usual = vitals.Range{Min: critical.Max + 1, Max: vitals.MaxValue}
	default:
		usual = vitals.Range{Min: vitals.MinValue, Max: critical.Min - 1}
	}
	return usual
}

// visit calls f with the ranges of a device's group, of the device and of a subject, and what they are of.
func (r *Roster) visit(device *vitals.Name, subject storage.Subject, f func(of string, ranges []signRanges)) {
	if !r.HasRanges() {
		return
	}
	for i, ranges := range [...][]signRanges{
		r.ofGroups[r.devices[*device].Group], r.ofDevices[*device], r.ofSubjects[subject],
	} {
		if ranges != nil {
			f([...]string{"group", "device", "subject"}[i], ranges)
		}
	}
}

// AppendRanges appends the member ranges of a JSON object, after other members: the ranges of what a device measures of
// a subject, as Limits returns them, as far as they are not those of all.
//
//	,"ranges":{"spo2_pct":{"usual":{"min":88,"max":92,"of":"subject"}}}
func (r *Roster) AppendRanges(
	dst []byte, device *vitals.Name, subject storage.Subject, all *vitals.FlagLimits,
) []byte {
	var own *vitals.FlagLimits
	var of [vitals.MaxSigns][2]string // whose the usual and critical ranges are that are not those of all
	r.visit(device, subject, func(name string, ranges []signRanges) {
		if own == nil {
			copied := *all
			own = &copied
		}
		for i := range ranges {
			s := &ranges[i]
			usual, critical := own.Usual[s.sign], own.Critical[s.sign]
			s.layOver(own)
			if s.usual != nil || own.Usual[s.sign] != usual {
				of[s.sign][0] = name
			}
			if own.Critical[s.sign] != critical {
				of[s.sign][1] = name
			}
		}
	})
	if own == nil {
		return dst
	}
	before := `,"ranges":{"`
	for s, d := range all.Signs.All() {
		if of[s] == [2]string{} {
			continue
		}
		dst = append(append(append(dst, before...), d.Field...), `":{`...)
		before = `"`
		for i, r := range []*vitals.Range{&own.Usual[s], own.Critical[s]} {
			if of[s][i] == "" || r == nil {
				continue
			}
			dst = append(append(append(dst, before...), rangeKeys[i]...), `":{`...)
			if r.Min != vitals.MinValue {
				dst = append(d.Append(append(dst, `"min":`...), r.Min), ',')
			}
			if r.Max != vitals.MaxValue {
				dst = append(d.Append(append(dst, `"max":`...), r.Max), ',')
			}
			dst = append(append(append(dst, `"of":"`...), of[s][i]...), `"}`...)
			before = `,"`
		}
		dst, before = append(dst, '}'), `,"`
	}
	if before != `,"` {
		return dst // nothing was appended
	}
	return append(dst, '}')
}

// Subjects returns the subjects that have ranges, in no particular order.
func (r *Roster) Subjects() iter.Seq[storage.Subject] {
	if r == nil {
		return func(func(storage.Subject) bool) {}
	}
	return maps.Keys(r.ofSubjects)
}

// EmptyGroups returns the groups that have ranges, and no device.
func (r *Roster) EmptyGroups() (groups []string) {
	for group := range r.ofGroups {
		if _, has := slices.BinarySearch(r.groups, group); !has {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return groups
}
