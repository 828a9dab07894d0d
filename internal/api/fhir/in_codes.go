package fhir

import "github.com/pulsegate/pulsegate/vitals"

// mdc is the system of IEEE 11073-10101 codes.
const mdc = "urn:iso:std:iso:11073:10101"

// A meaning is what a code says, as far as Pulsegate distinguishes it. Meanings are bits,
// because a concept may have several codes.
type meaning uint16

const (
	meansPressure meaning = 1 << iota
	meansSystolic
	meansDiastolic
	meansMean
	meansOxygen
	meansRate
	meansResting
	meansSupplement // a description of the measurement, not a value
	meansOther      // a code of LOINC or IEEE 11073 that is not stored
)

// loincMeanings and mdcMeanings are never modified. The IEEE 11073-10101 codes are those of the
// Personal Health Device guide (https://hl7.org/fhir/uv/phd/), which calls a pulse rate, however
// it is measured, a heart rate.
var (
	loincMeanings = map[string]meaning{
		"85354-9": meansPressure, "8480-6": meansSystolic, "8462-4": meansDiastolic, "8478-0": meansMean,
		"2708-6": meansOxygen, "59408-5": meansOxygen, "8867-4": meansRate, "40443-4": meansResting,
	}
	mdcMeanings = map[string]meaning{
		"150020": meansPressure,  // MDC_PRESS_BLD_NONINV
		"150021": meansSystolic,  // MDC_PRESS_BLD_NONINV_SYS
		"150022": meansDiastolic, // MDC_PRESS_BLD_NONINV_DIA
		"150023": meansMean,      // MDC_PRESS_BLD_NONINV_MEAN
		"150456": meansOxygen,    // MDC_PULS_OXIM_SAT_O2
		"149530": meansRate,      // MDC_PULS_OXIM_PULS_RATE
		"149546": meansRate,      // MDC_PULS_RATE_NON_INV
		"147842": meansRate,      // MDC_ECG_HEART_RATE
		"68193":  meansSupplement,
	}
)

// meaningOf returns the meaning of a code. Codes of other systems are translations of the
// others, and have none.
func meaningOf(system, code []byte) meaning {
	var m meaning
	switch string(system) {
	case loinc:
		m = loincMeanings[string(code)]
	case mdc:
		m = mdcMeanings[string(code)]
	default:
		return 0
	}
	if m == 0 {
		return meansOther
	}
	return m
}

// groupFor returns the sign group of an Observation whose code means m.
func groupFor(m meaning) (group, bool) {
	switch m {
	case meansPressure:
		return bloodPressure, true
	case meansOxygen:
		return oxygenSaturation, true
	case meansRate:
		return heartRate, true
	case meansResting, meansResting | meansRate: // the more general code may be given too
		return restingHeartRate, true
	}
	return 0, false
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
