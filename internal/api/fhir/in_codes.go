package fhir

import (
	"math"
	"math/bits"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/vitals"
)

// mdc is the system of IEEE 11073-10101 codes.
const mdc = "urn:iso:std:iso:11073:10101"

// A meaning is what a code may mean: the bits of the groups whose Observations may have it, and those below. A concept with
// several codes means what all of them may mean.
type meaning uint64

const (
	meansSystolic meaning = 1 << (numGroups + iota)
	meansDiastolic
	meansMean
	meansSupplement // a description of the measurement, not a value

	meansAnything meaning = math.MaxUint64 // a concept without a code of a system that is known
)

// furtherCodes are those that no sign group has. It is never modified. Package codes has the IEEE 11073-10101 codes of signs.
var furtherCodes = map[[2]string]meaning{
	{loinc, "8480-6"}: meansSystolic,
	{loinc, "8462-4"}: meansDiastolic,
	{loinc, "8478-0"}: meansMean,
	{mdc, "150020"}:   1 << bloodPressure, // MDC_PRESS_BLD_NONINV
	{mdc, "150300"}:   1 << bloodPressure, // MDC_PRESS_CUFF
	{mdc, "150023"}:   meansMean,          // MDC_PRESS_BLD_NONINV_MEAN
	{mdc, "150303"}:   meansMean,          // MDC_PRESS_CUFF_MEAN
	{mdc, "68193"}:    meansSupplement,
}

// meaningOf returns what a code may mean: nothing if it is not stored and of a system whose codes are. Codes of other systems
// are translations of the others.
func meaningOf(signs *vitals.Signs, system, code []byte) meaning {
	m := furtherCodes[[2]string{string(system), string(code)}]
	switch string(system) {
	case loinc, signSystem:
		if len(code) == 0 { // withCode takes it for any code
			return 0
		}
		return m | meaning(withCode(signs, string(system), string(code)))
	case mdc:
		switch s, known := codes.MDC(code); {
		case !known:
			return m
		case s == vitals.Systolic:
			return meansSystolic
		case s == vitals.Diastolic:
			return meansDiastolic
		default: // the LOINC code of a heart rate is also that of a resting one
			return meaning(withCode(signs, loinc, builtIn[groupWith(s)].codes[0].code))
		}
	}
	return meansAnything
}

// groupFor returns the sign group of an Observation whose code means m. A code that built-in signs have is that of the first
// one; all codes of a user's own sign must be of the same one.
func groupFor(signs *vitals.Signs, m meaning) (group, bool) {
	found := groups(m) & allGroups
	first := group(bits.TrailingZeros32(uint32(found)))
	if m == meansAnything || int(first) < len(builtIn) {
		return first, m != meansAnything
	}
	for s, d := range signs.All() {
		if d.Retired {
			found &^= 1 << groupWith(s)
		}
	}
	return group(bits.TrailingZeros32(uint32(found))), bits.OnesCount32(uint32(found)) == 1
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
