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
// Pulsegate is not an alarm system: nothing monitors flags, readings may arrive hours
// late, and the absence of a flag says nothing about a patient.
type Flag uint8

// The flags, in the order in which they are written.
const (
	SystolicLow Flag = iota
	SystolicHigh
	DiastolicLow
	DiastolicHigh
	PulsePressureLow  // systolic - diastolic
	PulsePressureHigh // systolic - diastolic
	SpO2Unvalidated   // below the range for which pulse oximeters are validated
	SpO2Low
	SpO2High
	HeartRateLow
	HeartRateHigh
	RestingHeartRateLow
	RestingHeartRateHigh

	// NumFlags is the number of flags.
	NumFlags = 13
)

// flags has the properties of each flag. It is never modified.
var flags = [NumFlags]struct{ subject, text string }{
	SystolicLow:          {signs[Systolic].field, "low"},
	SystolicHigh:         {signs[Systolic].field, "high"},
	DiastolicLow:         {signs[Diastolic].field, "low"},
	DiastolicHigh:        {signs[Diastolic].field, "high"},
	PulsePressureLow:     {"pulse_pressure_mmhg", "low"},
	PulsePressureHigh:    {"pulse_pressure_mmhg", "high"},
	SpO2Unvalidated:      {signs[SpO2].field, "outside validated range"},
	SpO2Low:              {signs[SpO2].field, "low"},
	SpO2High:             {signs[SpO2].field, "high"},
	HeartRateLow:         {signs[HeartRate].field, "low"},
	HeartRateHigh:        {signs[HeartRate].field, "high"},
	RestingHeartRateLow:  {signs[RestingHeartRate].field, "low"},
	RestingHeartRateHigh: {signs[RestingHeartRate].field, "high"},
}

// Subject returns the subject of the flag: the JSON name of a sign's field, or
// "pulse_pressure_mmhg".
func (f Flag) Subject() string { return flags[f].subject }

// Text returns the statement about the subject: "low", "high" or "outside validated
// range".
func (f Flag) Text() string { return flags[f].text }

// String returns subject and text, such as "spo2_pct low".
func (f Flag) String() string { return flags[f].subject + " " + flags[f].text }

// A FlagSet is a set of flags. The zero FlagSet is empty.
type FlagSet uint16

// All returns the flags of the set in order.
func (fs FlagSet) All() iter.Seq[Flag] {
	return func(yield func(Flag) bool) {
		for rest := fs; rest != 0; rest &= rest - 1 {
			if !yield(Flag(bits.TrailingZeros16(uint16(rest)))) {
				return
			}
		}
	}
}

// FlagLimits define which values are flagged as unusual.
type FlagLimits struct {
	// Usual has the range of each sign within which a value is not flagged.
	Usual [NumSigns]Range

	// PulsePressure is the range within which systolic - diastolic is not flagged.
	PulsePressure Range

	// SpO2Validated is the lowest SpO2 for which pulse oximeters are validated; a lower
	// one is flagged as outside that range.
	SpO2Validated Hundredths
}

// DefaultFlagLimits returns the default thresholds. Values are kept to 0.01, so "at
// most 91" means "below 91.01".
//
//   - SpO2 at most 91, heart rate at most 40 or at least 131, systolic at most 90
//     or at least 220: each scores 3, the highest, in the National Early Warning
//     Score (Royal College of Physicians: NEWS2, London 2017; SpO2 scale 1).
//   - SpO2 below 70: ISO 80601-2-61 specifies accuracy for 70 to 100 %.
//   - Resting heart rate below 40 or above 100, diastolic below 50 or above 120, pulse
//     pressure below 20 or above 120: chosen by this project, not by a standard. 100 is
//     the usual threshold for tachycardia at rest.
func DefaultFlagLimits() FlagLimits {
	return FlagLimits{
		Usual: [NumSigns]Range{
			Systolic:         {90_01, 219_99},
			Diastolic:        {50_00, 120_00},
			SpO2:             {91_01, maxHundredths},
			HeartRate:        {40_01, 130_99},
			RestingHeartRate: {40_00, 100_00},
		},
		PulsePressure: Range{20_00, 120_00},
		SpO2Validated: 70_00,
	}
}

// Validate returns an error that wraps [ErrLimits] if a range ends before it
// starts.
func (l *FlagLimits) Validate() error {
	for s, r := range l.Usual {
		if r.Min > r.Max {
			return fmt.Errorf("%w: usual %s: the range ends before it starts", ErrLimits, Sign(s))
		}
	}
	if l.PulsePressure.Min > l.PulsePressure.Max {
		return fmt.Errorf("%w: usual pulse pressure: the range ends before it starts", ErrLimits)
	}
	return nil
}

// Flags returns the flags of values. It does not allocate.
func (l *FlagLimits) Flags(values *Values) FlagSet {
	fs := l.sign(values, Systolic, SystolicLow, SystolicHigh) |
		l.sign(values, Diastolic, DiastolicLow, DiastolicHigh) |
		l.sign(values, SpO2, SpO2Low, SpO2High) |
		l.sign(values, HeartRate, HeartRateLow, HeartRateHigh) |
		l.sign(values, RestingHeartRate, RestingHeartRateLow, RestingHeartRateHigh)
	if spo2, ok := values.Get(SpO2); ok && spo2 < l.SpO2Validated {
		fs |= 1 << SpO2Unvalidated
	}
	systolic, hasSystolic := values.Get(Systolic)
	diastolic, hasDiastolic := values.Get(Diastolic)
	if hasSystolic && hasDiastolic {
		pulse := systolic - min(systolic, diastolic)
		fs |= outside(l.PulsePressure, pulse, PulsePressureLow, PulsePressureHigh)
	}
	return fs
}

func (l *FlagLimits) sign(values *Values, s Sign, low, high Flag) FlagSet {
	if v, ok := values.Get(s); ok {
		return outside(l.Usual[s], v, low, high)
	}
	return 0
}

func outside(usual Range, v Hundredths, low, high Flag) FlagSet {
	switch {
	case v < usual.Min:
		return 1 << low
	case v > usual.Max:
		return 1 << high
	default:
		return 0
	}
}
