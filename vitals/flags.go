package vitals

import (
	"fmt"
	"iter"
	"math/bits"
)

// FlagNotice must be shown wherever flags are shown.
const FlagNotice = "Flags mark unusual values. Pulsegate is not an alarm system."

// A Flag marks an unusual property of a reading's values. Flags are computed when a
// reading is shown and never stored.
//
// Pulsegate is not an alarm system: readings may arrive hours late, and the absence of a flag says
// nothing about a patient.
type Flag struct {
	Subject string // the JSON name of a sign's field, or the name of a [Pair]'s difference
	Text    string // the statement about it: "low", "high" or "outside validated range"
}

// String returns subject and text, such as "spo2_pct low".
func (f Flag) String() string { return f.Subject + " " + f.Text }

// A FlagSet is a set of flags. The zero FlagSet is empty. Sets can be compared with ==.
type FlagSet struct {
	low, high, unvalidated uint32 // by sign
	pairLow, pairHigh      uint8  // by position in Pairs
}

// IsZero reports whether fs is empty.
func (fs FlagSet) IsZero() bool { return fs == FlagSet{} }

// Len returns the number of flags.
func (fs FlagSet) Len() int {
	return bits.OnesCount32(fs.low) + bits.OnesCount32(fs.high) + bits.OnesCount32(fs.unvalidated) +
		bits.OnesCount8(fs.pairLow) + bits.OnesCount8(fs.pairHigh)
}

// Intersects reports whether fs and other have a flag in common.
func (fs FlagSet) Intersects(other FlagSet) bool {
	return fs.low&other.low|fs.high&other.high|fs.unvalidated&other.unvalidated != 0 ||
		fs.pairLow&other.pairLow|fs.pairHigh&other.pairHigh != 0
}

// Union returns the flags of fs and of other.
func (fs FlagSet) Union(other FlagSet) FlagSet {
	return FlagSet{
		fs.low | other.low, fs.high | other.high, fs.unvalidated | other.unvalidated,
		fs.pairLow | other.pairLow, fs.pairHigh | other.pairHigh,
	}
}

// About returns the flags of fs about s, which include those about the difference of a pair of
// which s is the higher sign.
func (fs FlagSet) About(s Sign) FlagSet {
	about := FlagSet{low: fs.low & (1 << s), high: fs.high & (1 << s), unvalidated: fs.unvalidated & (1 << s)}
	for i, p := range Pairs {
		if p.High == s {
			about.pairLow, about.pairHigh = about.pairLow|fs.pairLow&(1<<i), about.pairHigh|fs.pairHigh&(1<<i)
		}
	}
	return about
}

// WithoutPairs returns the flags of fs that are not about the difference of a pair.
func (fs FlagSet) WithoutPairs() FlagSet {
	fs.pairLow, fs.pairHigh = 0, 0
	return fs
}

// Flags returns each flag of a set, also as a set of its own, in the order in which they are written: by
// sign, a pair's after those of its lower sign.
func (t *Signs) Flags(fs FlagSet) iter.Seq2[FlagSet, Flag] {
	return func(yield func(FlagSet, Flag) bool) {
		for s := range InOrder(fs.low | fs.high | fs.unvalidated | pairSigns(fs.pairLow|fs.pairHigh)) {
			d := t.Of(s)
			if d == nil {
				continue
			}
			one := uint32(1) << s
			switch {
			case fs.unvalidated&one != 0 && !yield(FlagSet{unvalidated: one}, Flag{d.Field, "outside validated range"}),
				fs.low&one != 0 && !yield(FlagSet{low: one}, Flag{d.Field, "low"}),
				fs.high&one != 0 && !yield(FlagSet{high: one}, Flag{d.Field, "high"}):
				return
			}
			for i, p := range Pairs {
				one := uint8(1) << i
				if p.Low == s && (fs.pairLow&one != 0 && !yield(FlagSet{pairLow: one}, Flag{p.Difference, "low"}) ||
					fs.pairHigh&one != 0 && !yield(FlagSet{pairHigh: one}, Flag{p.Difference, "high"})) {
					return
				}
			}
		}
	}
}

// pairSigns returns the lower signs of pairs.
func pairSigns(pairs uint8) (signs uint32) {
	for i, p := range Pairs {
		if pairs&(1<<i) != 0 {
			signs |= 1 << p.Low
		}
	}
	return signs
}

// EveryFlag returns each flag that values of t's signs can have, as a set of one, in the order of
// [Signs.Flags].
func (t *Signs) EveryFlag() iter.Seq2[FlagSet, Flag] {
	all := FlagSet{pairLow: 1<<len(Pairs) - 1, pairHigh: 1<<len(Pairs) - 1}
	for s, d := range t.All() {
		all.low, all.high = all.low|1<<s, all.high|1<<s
		if d.ValidatedMin != 0 {
			all.unvalidated |= 1 << s
		}
	}
	return t.Flags(all)
}

// FlagLimits define which values are flagged as unusual.
type FlagLimits struct {
	// Signs has the signs.
	Signs *Signs

	// Usual has the range of each sign within which a value is not flagged.
	Usual [MaxSigns]Range

	// Critical has the range of each sign in which flagged values come before all others where the worst come first;
	// nil means that there is none. The ranges must not be modified.
	Critical [MaxSigns]*Range
}

// DefaultFlagLimits returns the default thresholds for the signs of t. "At most 91" means "below
// 91.01" for a sign with two decimals.
//
//   - SpO2 at most 91, heart rate and pulse rate at most 40 or at least 131, systolic at most 90
//     or at least 220, respiratory rate at most 8 or at least 25, temperature at most 35.0: each
//     scores 3, the highest, in the National Early Warning Score (Royal College of Physicians:
//     NEWS2, London 2017; SpO2 scale 1). Temperature at least 39.1: scores 2, the highest for fever.
//   - SpO2 below 70: ISO 80601-2-61 specifies accuracy for 70 to 100 %.
//   - Glucose below 70 mg/dL (3.9 mmol/L) or above 250 mg/dL (13.9 mmol/L): level 1 hypoglycemia
//     and level 2 hyperglycemia of the American Diabetes Association (Standards of Care in
//     Diabetes 2024, sections 6 and 7; doi:10.2337/dc24-S006, doi:10.2337/dc24-S007).
//   - Resting heart rate below 40 or above 100, diastolic below 50 or above 120: chosen by this
//     project, not by a standard. 100 is the usual threshold for tachycardia at rest.
//   - Body weight: never.
func (t *Signs) DefaultFlagLimits() FlagLimits {
	l := FlagLimits{Signs: t}
	for s := range l.Usual { // a sign that is added later is not flagged
		l.Usual[s] = Range{MinValue, MaxValue}
	}
	for s, d := range t.All() {
		l.Usual[s], l.Critical[s] = d.Usual, d.Critical
	}
	return l
}

// Validate returns an error that wraps [ErrLimits] if a range ends before it
// starts.
func (l *FlagLimits) Validate() error {
	for s, d := range l.Signs.All() {
		if l.Usual[s].Min > l.Usual[s].Max {
			return fmt.Errorf("%w: usual %s: the range ends before it starts", ErrLimits, d.Field)
		}
	}
	return nil
}

// Flags returns the flags of values. It does not allocate.
func (l *FlagLimits) Flags(values *Values) (fs FlagSet) {
	for rest := values.present; rest != 0; rest &= rest - 1 {
		s := Sign(bits.TrailingZeros32(rest))
		v := values.at[s]
		switch usual := &l.Usual[s]; {
		case v < usual.Min:
			fs.low |= 1 << s
		case v > usual.Max:
			fs.high |= 1 << s
		}
		if d := l.Signs.Of(s); d != nil && d.ValidatedMin != 0 && v < d.ValidatedMin {
			fs.unvalidated |= 1 << s
		}
	}
	for i, p := range Pairs {
		high, hasHigh := values.Get(p.High)
		low, hasLow := values.Get(p.Low)
		if !hasHigh || !hasLow {
			continue
		}
		switch difference := high - min(high, low); {
		case difference < p.Usual.Min:
			fs.pairLow |= 1 << i
		case difference > p.Usual.Max:
			fs.pairHigh |= 1 << i
		}
	}
	return fs
}
