package query

import (
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A flagger knows which values are flagged: those beyond the usual ranges of the server, or of a device, its group or
// the subject of the value's time.
type flagger struct {
	all    *vitals.FlagLimits
	roster *roster.Roster
}

// flagger returns a flagger with the ranges that are in force now.
func (h *Handler) flagger() flagger { return flagger{&h.opt.Flags, h.opt.Roster.Current()} }

// of returns the limits of what a device measures of a subject. It may use own.
func (f flagger) of(device *vitals.Name, subject storage.Subject, own *vitals.FlagLimits) *vitals.FlagLimits {
	return f.roster.Limits(device, subject, f.all, own)
}

// latest returns the flags of each latest value of a device, which has some assignments.
func (f flagger) latest(d *storage.Device, assigned []storage.Assignment) (flags latestFlags) {
	var own vitals.FlagLimits
	signs := knownSigns(&d.Latest)
	if !f.roster.HasSubjectRanges() {
		flags.add(&d.Latest, signs, f.of(&d.Name, "", &own))
		return flags
	}
	for signs != 0 {
		subject := storage.SubjectAt(assigned, d.Latest[vitals.First(signs)].TimeUnixMs)
		var of uint32 // signs of the values that were measured of the subject
		for s := range vitals.InOrder(signs) {
			if storage.SubjectAt(assigned, d.Latest[s].TimeUnixMs) == subject {
				of |= 1 << s
			}
		}
		flags.add(&d.Latest, of, f.of(&d.Name, subject, &own))
		signs &^= of
	}
	return flags
}

// latestFlags has the flags of latest values. That of the difference of a pair belongs to the higher value.
type latestFlags [vitals.MaxSigns]vitals.FlagSet

// add adds the flags of the values of some signs by their limits. The difference of a pair is computed only if both
// values have the same time.
func (flags *latestFlags) add(latest *[vitals.MaxSigns]storage.Latest, signs uint32, limits *vitals.FlagLimits) {
	var some vitals.Values
	for s := range vitals.InOrder(signs) {
		some.Set(s, latest[s].Value)
	}
	set := limits.Flags(&some)
	for _, p := range vitals.Pairs {
		if latest[p.High].TimeUnixMs != latest[p.Low].TimeUnixMs {
			set = set.WithoutPairs()
		}
	}
	for s := range some.All() {
		flags[s] = set.About(s)
	}
}

// knownSigns returns the signs of latest values.
func knownSigns(latest *[vitals.MaxSigns]storage.Latest) (signs uint32) {
	for s := range latest {
		if latest[s].Known {
			signs |= 1 << s
		}
	}
	return signs
}

// A recordFlagger flags records, which usually have the device and the subject of the one before. It must not be
// copied after its first use.
type recordFlagger struct {
	flagger
	device  vitals.Name // of the last record
	subject storage.Subject
	limits  *vitals.FlagLimits // for these; may be own
	own     vitals.FlagLimits
}

// flags returns the flags of the values of a record.
func (f *recordFlagger) flags(device *vitals.Name, subject storage.Subject, values *vitals.Values) vitals.FlagSet {
	if f.limits == nil || f.roster.HasRanges() && (subject != f.subject || *device != f.device) {
		f.device, f.subject, f.limits = *device, subject, f.of(device, subject, &f.own)
	}
	return f.limits.Flags(values)
}
