package fhir

import (
	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/vitals"
)

// mdc is the system of IEEE 11073-10101 codes.
const mdc = "urn:iso:std:iso:11073:10101"

// A meaning is what a code may mean: signs, and those below.
type meaning = codes.Meaning

const (
	meansBloodPressure meaning = 1 << (codes.Free + iota)
	meansMean
	meansSupplement // a description of the measurement, not a value
)

// furtherCodes are those that no sign has. It is never modified. Package codes has the IEEE 11073-10101 codes of signs.
var furtherCodes = map[[2]string]meaning{
	{loinc, "85354-9"}: meansBloodPressure,
	{loinc, "8478-0"}:  meansMean,
	{mdc, "150020"}:    meansBloodPressure, // MDC_PRESS_BLD_NONINV
	{mdc, "150300"}:    meansBloodPressure, // MDC_PRESS_CUFF
	{mdc, "150023"}:    meansMean,          // MDC_PRESS_BLD_NONINV_MEAN
	{mdc, "150303"}:    meansMean,          // MDC_PRESS_CUFF_MEAN
	{mdc, "68193"}:     meansSupplement,
}

// meaningOf returns what a code may mean: nothing if it is not stored and of a system whose codes are. Codes of other
// systems are translations of the others.
func meaningOf(table codes.Table, system, code []byte) meaning {
	m := furtherCodes[[2]string{string(system), string(code)}]
	switch string(system) {
	case loinc:
		return m | table.LOINC(string(code))
	case mdc:
		return m | table.MDC(string(code))
	case signSystem:
		return table.Field(string(code))
	}
	return codes.Anything
}

// groupFor returns the sign group of an Observation whose code means m, and the place of its source in their order.
func groupFor(table codes.Table, m meaning) (g group, order int, ok bool) {
	if m != codes.Anything && m&meansBloodPressure != 0 {
		return bloodPressure, 0, true
	}
	s, order, ok := table.Sign(m &^ (1<<vitals.Systolic | 1<<vitals.Diastolic))
	return groupWith(s), order, ok && m != codes.Anything
}

// signFor returns the sign of a component of a blood pressure whose code means m.
func signFor(table codes.Table, m meaning) (vitals.Sign, bool) {
	s, _, ok := table.Sign(m)
	return s, ok && groupWith(s) == bloodPressure
}
