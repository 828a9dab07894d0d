package fhir

import (
	"iter"
	"slices"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/vitals"
)

// mdc is the system of IEEE 11073-10101 codes.
const mdc = "urn:iso:std:iso:11073:10101"

// A meaning is what a code says, as far as Pulsegate distinguishes it. Meanings are bits,
// because a concept may have several codes.
type meaning uint64

const (
	meansPressure meaning = 1 << iota
	meansSystolic
	meansDiastolic
	meansMean
	meansOxygen
	meansRate
	meansResting
	meansSupplement // a description of the measurement, not a value
	meansOther      // a code that is not stored, of a system whose codes are
)

// byCode is the meaning of a LOINC or IEEE 11073 code of a sign after the first five.
func byCode(s vitals.Sign) meaning { return 1 << (9 + s) }

// byField is the meaning of the field of a sign of a user's own as a code.
func byField(s vitals.Sign) meaning { return 1 << (32 + s) }

// loincMeanings and mdcMeanings are never modified. Package codes has the IEEE 11073-10101 codes of signs.
var (
	loincMeanings = map[string]meaning{
		"85354-9": meansPressure, "8480-6": meansSystolic, "8462-4": meansDiastolic, "8478-0": meansMean,
		"2708-6": meansOxygen, "59408-5": meansOxygen, "8867-4": meansRate, "40443-4": meansResting,
		"9279-1": byCode(vitals.RespiratoryRate), "8310-5": byCode(vitals.BodyTemperature), "29463-7": byCode(vitals.BodyWeight),
		"2339-0": byCode(vitals.GlucoseMass), "15074-8": byCode(vitals.GlucoseMolar), "8889-8": byCode(vitals.PulseRate),
	}
	mdcMeanings = map[string]meaning{
		"150020": meansPressure, // MDC_PRESS_BLD_NONINV
		"150300": meansPressure, // MDC_PRESS_CUFF
		"150023": meansMean,     // MDC_PRESS_BLD_NONINV_MEAN
		"150303": meansMean,     // MDC_PRESS_CUFF_MEAN
		"68193":  meansSupplement,
	}
)

// ofSign returns the meaning of a code that a sign has, or 0.
func ofSign(s vitals.Sign, known bool) meaning {
	switch {
	case !known:
		return 0
	case s == vitals.Systolic:
		return meansSystolic
	case s == vitals.Diastolic:
		return meansDiastolic
	case s == vitals.SpO2:
		return meansOxygen
	case s == vitals.HeartRate:
		return meansRate
	}
	return byCode(s)
}

// meaningOf returns the meaning of a code. A code of LOINC that built-in signs have is never that of a
// user's own. Codes of other systems are translations of the others, and have none.
func meaningOf(signs *vitals.Signs, system, code []byte) (m meaning) {
	switch string(system) {
	case loinc:
		if m = loincMeanings[string(code)]; m == 0 {
			for s, d := range ownSigns(signs) {
				if slices.Contains(d.LOINC, string(code)) {
					m |= byCode(s)
				}
			}
		}
	case mdc:
		if m = mdcMeanings[string(code)]; m == 0 {
			m = ofSign(codes.MDC(code))
		}
	case signSystem:
		for s, d := range ownSigns(signs) {
			if d.Field == string(code) {
				m = byField(s)
			}
		}
	default:
		return 0
	}
	if m == 0 {
		return meansOther
	}
	return m
}

// ownSigns returns the signs of a user's own that are accepted.
func ownSigns(signs *vitals.Signs) iter.Seq2[vitals.Sign, *vitals.Definition] {
	return func(yield func(vitals.Sign, *vitals.Definition) bool) {
		for s, d := range signs.All() {
			if d.Own() && !d.Retired && !yield(s, d) {
				return
			}
		}
	}
}

// groupFor returns the sign group of an Observation whose code means m.
func groupFor(signs *vitals.Signs, m meaning) (group, bool) {
	switch m {
	case meansPressure:
		return bloodPressure, true
	case meansOxygen:
		return groupWith(vitals.SpO2), true
	case meansRate:
		return groupWith(vitals.HeartRate), true
	case meansResting, meansResting | meansRate: // the more general code may be given too
		return groupWith(vitals.RestingHeartRate), true
	}
	for s := vitals.RestingHeartRate + 1; s < vitals.NumBuiltIn; s++ {
		if m == byCode(s) {
			return groupWith(s), true
		}
	}
	// All codes must be of the same sign, and of no other one.
	found, n := vitals.Sign(0), 0
	for s, d := range ownSigns(signs) {
		if m&(byField(s)|byCode(s)) == 0 {
			continue
		}
		its := byField(s)
		for _, code := range d.LOINC {
			its |= meaningOf(signs, []byte(loinc), []byte(code))
		}
		if m&^its == 0 {
			found = s
			n++
		}
	}
	return groupWith(found), n == 1
}

// signFor returns the sign of a component of a blood pressure whose code means m.
func signFor(m meaning) (vitals.Sign, bool) {
	switch m {
	case meansSystolic:
		return vitals.Systolic, true
	case meansDiastolic:
		return vitals.Diastolic, true
	}
	return 0, false
}
