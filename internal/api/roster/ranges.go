package roster

import (
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

// Limits returns the limits of what a device measures of a subject, which is "" for nobody. For each sign, the ranges of
// the subject come before those of the device, these before those of its group, and these before those of all. It
// returns all, or own, which it sets if there are any ranges.
func (r *Roster) Limits(
	device *vitals.Name, subject storage.Subject, all, own *vitals.FlagLimits,
) *vitals.FlagLimits {
	limits := all
	r.visit(device, subject, func(_ string, ranges []signRanges) {
		if limits == all {
			*own = *all
			limits = own
		}
		for _, s := range ranges {
			if s.usual != nil {
				own.Usual[s.sign] = *s.usual
			}
			if s.critical != nil {
				own.Critical[s.sign] = s.critical
			}
		}
	})
	return limits
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
// a subject, as far as they are not those of all.
//
//	,"ranges":{"spo2_pct":{"usual":{"min":88,"max":92,"of":"subject"}}}
func (r *Roster) AppendRanges(
	dst []byte, device *vitals.Name, subject storage.Subject, signs *vitals.Signs,
) []byte {
	type shown struct {
		r  *vitals.Range
		of string
	}
	var by [vitals.MaxSigns][2]shown // usual, critical
	found := false
	r.visit(device, subject, func(of string, ranges []signRanges) {
		found = true
		for _, s := range ranges {
			for i, to := range []*vitals.Range{s.usual, s.critical} {
				if to != nil {
					by[s.sign][i] = shown{to, of}
				}
			}
		}
	})
	if !found {
		return dst
	}
	before := `,"ranges":{"`
	for s, d := range signs.All() {
		if by[s] == [2]shown{} {
			continue
		}
		dst = append(append(append(dst, before...), d.Field...), `":{"`...)
		before = ""
		for i, part := range by[s] {
			if part.r == nil {
				continue
			}
			dst = append(append(append(dst, before...), rangeKeys[i]...), `":{`...)
			if part.r.Min != vitals.MinValue {
				dst = append(d.Append(append(dst, `"min":`...), part.r.Min), ',')
			}
			if part.r.Max != vitals.MaxValue {
				dst = append(d.Append(append(dst, `"max":`...), part.r.Max), ',')
			}
			dst = append(append(append(dst, `"of":"`...), part.of...), `"}`...)
			before = `,"`
		}
		dst, before = append(dst, '}'), `,"`
	}
	return append(dst, '}')
}
