// Package codes knows the codes that others have for signs and units.
//
// # Not here
//
// What an input does with a code that no sign has.
package codes

import (
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

// mdcSigns has the signs by their codes of IEEE 11073-10101. It is never modified. The Personal Health Device guide
// (https://hl7.org/fhir/uv/phd/) calls a pulse rate, however it is measured, a heart rate. Monitors at a bed send the
// pressures of a cuff and a temperature without its site.
var mdcSigns = map[string]vitals.Sign{
	"150021": vitals.Systolic,        // MDC_PRESS_BLD_NONINV_SYS
	"150022": vitals.Diastolic,       // MDC_PRESS_BLD_NONINV_DIA
	"150301": vitals.Systolic,        // MDC_PRESS_CUFF_SYS
	"150302": vitals.Diastolic,       // MDC_PRESS_CUFF_DIA
	"150456": vitals.SpO2,            // MDC_PULS_OXIM_SAT_O2
	"149530": vitals.HeartRate,       // MDC_PULS_OXIM_PULS_RATE
	"149546": vitals.HeartRate,       // MDC_PULS_RATE_NON_INV
	"147842": vitals.HeartRate,       // MDC_ECG_HEART_RATE
	"151562": vitals.RespiratoryRate, // MDC_RESP_RATE
	"150344": vitals.BodyTemperature, // MDC_TEMP
	"150364": vitals.BodyTemperature, // MDC_TEMP_BODY
	"188736": vitals.BodyWeight,      // MDC_MASS_BODY_ACTUAL
}

// MDC returns the sign with a code of IEEE 11073-10101, a decimal number with its partition.
func MDC[T ~string | ~[]byte](code T) (vitals.Sign, bool) {
	s, ok := mdcSigns[string(code)]
	return s, ok
}

// LOINC returns the first sign that is accepted and has a LOINC code: several have a general one in addition to
// their own.
func LOINC(signs *vitals.Signs, code string) (vitals.Sign, bool) {
	for s, d := range signs.All() {
		if !d.Retired && slices.Contains(d.LOINC, code) {
			return s, true
		}
	}
	return 0, false
}

// mdcUnits has the units of UCUM by their codes of IEEE 11073-10101. It is never modified.
var mdcUnits = map[string]string{
	"262688": "%",      // MDC_DIM_PERCENT
	"262656": "1",      // MDC_DIM_DIMLESS
	"263872": "g",      // MDC_DIM_G
	"263875": "kg",     // MDC_DIM_KILO_G
	"264274": "mg/dL",  // MDC_DIM_MILLI_G_PER_DL
	"264320": "s",      // MDC_DIM_SEC
	"264338": "ms",     // MDC_DIM_MILLI_SEC
	"264672": "/min",   // MDC_DIM_PER_MIN
	"264864": "/min",   // MDC_DIM_BEAT_PER_MIN
	"264928": "/min",   // MDC_DIM_RESP_PER_MIN
	"266016": "mm[Hg]", // MDC_DIM_MMHG
	"266866": "mmol/L", // MDC_DIM_MILLI_MOLE_PER_L
	"268192": "Cel",    // MDC_DIM_DEGC
}

// MDCUnit returns the UCUM code of a unit with a code of IEEE 11073-10101.
func MDCUnit[T ~string | ~[]byte](code T) (ucum string, ok bool) {
	ucum, ok = mdcUnits[string(code)]
	return ucum, ok
}
