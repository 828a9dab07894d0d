// Package codes knows the codes that others have for signs and units.
//
// # Promise
//
// At every input that has codes, a code stands for a set of signs, and a concept for a sign that is in the sets of
// all its codes. Codes without a common sign contradict each other.
//
// # Not here
//
// What an input does with a code that no sign has.
package codes

import (
	"math"
	"math/bits"
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

// A source is a sign, and the place of one of its codes in their order. If a device measures a sign in several ways at
// once, the value of the first one is stored. LOINC codes, which mostly leave the method open, have the place Generic.
type source struct {
	sign  vitals.Sign
	order int
}

// Generic is the place of a code that leaves open how the sign is measured.
const Generic = 1

// mdcSigns has the sources by their codes of IEEE 11073-10101, as the Rosetta Terminology Mapping (RTMMS,
// https://rtmms.nist.gov/) lists them. It is never modified. Monitors at a bed send the pressures of a cuff and a
// temperature without its site. The rate of a ventilator (151586) is not the patient's, and the rate of the airway
// (151570) includes the ventilator's breaths.
var mdcSigns = map[string]source{
	"150021": {vitals.Systolic, 0},        // MDC_PRESS_BLD_NONINV_SYS
	"150301": {vitals.Systolic, 2},        // MDC_PRESS_CUFF_SYS
	"150022": {vitals.Diastolic, 0},       // MDC_PRESS_BLD_NONINV_DIA
	"150302": {vitals.Diastolic, 2},       // MDC_PRESS_CUFF_DIA
	"150456": {vitals.SpO2, 0},            // MDC_PULS_OXIM_SAT_O2
	"147842": {vitals.HeartRate, 0},       // MDC_ECG_HEART_RATE
	"149530": {vitals.PulseRate, 0},       // MDC_PULS_OXIM_PULS_RATE
	"149522": {vitals.PulseRate, 2},       // MDC_BLD_PULS_RATE_INV, of a pressure in an artery
	"149546": {vitals.PulseRate, 3},       // MDC_PULS_RATE_NON_INV, of a cuff
	"149514": {vitals.PulseRate, 4},       // MDC_PULS_RATE
	"151562": {vitals.RespiratoryRate, 0}, // MDC_RESP_RATE
	"151578": {vitals.RespiratoryRate, 2}, // MDC_TTHOR_RESP_RATE, by impedance
	"151594": {vitals.RespiratoryRate, 3}, // MDC_CO2_RESP_RATE
	"151650": {vitals.RespiratoryRate, 4}, // MDC_ACOUSTIC_RESP_RATE
	"151658": {vitals.RespiratoryRate, 5}, // MDC_PULS_OXIM_PLETH_RESP_RATE
	"150364": {vitals.BodyTemperature, 0}, // MDC_TEMP_BODY
	"150344": {vitals.BodyTemperature, 2}, // MDC_TEMP
	"188736": {vitals.BodyWeight, 0},      // MDC_MASS_BODY_ACTUAL
}

// LOINC codes of a pulse rate, of a body temperature, and of a temperature in the mouth, which is stored only if it
// is sent together with the code of a body temperature.
const (
	pulse       = "8889-8"
	temperature = "8310-5"
	oral        = "8331-1"
)

// A Meaning is the set of signs that a code may mean; 0 means that it is not stored. The meaning of several codes is
// the bitwise AND of their meanings. Bit s stands for sign s. The bits after the signs say what none of the codes is.
// Bits from Free on belong to the input.
type Meaning uint64

const (
	notTemperature Meaning = 1 << (vitals.MaxSigns + iota)
	notOral
	orders // as many bits as the place in the order, of at most maxOrder
)

const (
	maxOrder = 14

	Free = vitals.MaxSigns + 2 + maxOrder

	// Anything is the meaning of no code.
	Anything Meaning = math.MaxUint64
)

// a returns the meaning of a code of signs.
func a(signs uint32, order int) Meaning {
	if signs == 0 {
		return 0
	}
	return Meaning(signs) | notTemperature | notOral | orders*(1<<order-1)
}

// A Table has the signs that codes mean.
type Table struct {
	Signs            *vitals.Signs
	PulseAsHeartRate bool // a pulse rate is stored as a heart rate
}

// MDC returns the meaning of a code of IEEE 11073-10101, a decimal number with its partition: the signs with the LOINC
// code of its own sign.
func (t Table) MDC(code string) Meaning {
	is, known := mdcSigns[code]
	if !known {
		return 0
	}
	signs := t.with(t.Signs.Of(is.sign).LOINC[0])
	if is.sign == vitals.HeartRate {
		signs &^= t.with(pulse)
	}
	return a(signs, is.order)
}

// with returns the signs that are accepted and have a LOINC code.
func (t Table) with(code string) (signs uint32) {
	for s, d := range t.Signs.All() {
		if !d.Retired && slices.Contains(d.LOINC, code) {
			signs |= 1 << s
		}
	}
	return signs
}

// LOINC returns the meaning of a LOINC code.
func (t Table) LOINC(code string) Meaning {
	m := a(t.with(code), Generic)
	switch {
	case code == temperature:
		m &^= notTemperature
	case code == oral && m == 0:
		m = a(1<<vitals.BodyTemperature, Generic) &^ notOral
	}
	return m
}

// Field returns the meaning of the field of a sign of the user's own.
func (t Table) Field(field string) Meaning {
	s, known := t.Signs.Named(field)
	if d := t.Signs.Of(s); !known || !d.Own() || d.Retired {
		return 0
	}
	return a(1<<s, Generic)
}

// Sign returns the sign that a concept means, and the place of its code in the order of the sign's codes. If several
// built-in signs are possible, Sign returns the most general one, such as the heart rate. If several of the user's
// own signs are possible, ok is false.
func (t Table) Sign(m Meaning) (s vitals.Sign, order int, ok bool) {
	signs := uint32(m)
	if m&notOral == 0 && m&notTemperature != 0 {
		signs &^= 1 << vitals.BodyTemperature
	}
	if m == Anything || signs == 0 {
		return 0, 0, false
	}
	s, order = vitals.First(signs), bits.OnesCount64(uint64(m/orders)&(1<<maxOrder-1))
	if s == vitals.RestingHeartRate && signs&(1<<vitals.PulseRate) != 0 {
		s = vitals.PulseRate
	}
	if stored := t.Stored(s); stored != s { // the rate of an ECG comes first
		s, order = stored, order+maxOrder/2
	}
	return s, order, signs&(1<<vitals.NumBuiltIn-1) != 0 || bits.OnesCount32(signs) == 1
}

// Stored returns the sign as which the values of a sign are stored.
func (t Table) Stored(s vitals.Sign) vitals.Sign {
	if t.PulseAsHeartRate && s == vitals.PulseRate {
		return vitals.HeartRate
	}
	return s
}

// LeaveOut removes each reading of a batch for which the batch has another source of the same sign, device and time
// that comes first. Each reading has one sign, or one pair. order returns the place of a reading's source, given the
// reading's position. LeaveOut calls leftOut with the position and the device of each reading that it removes.
func LeaveOut(b *vitals.Batch, order func(index int32) int, leftOut func(index int32, device vitals.Name)) {
	type measured struct {
		device vitals.Name
		unixMs int64
		signs  uint32
	}
	several := false
	var orders [vitals.MaxSigns]int // plus 1
	for i := range b.Readings {
		s, its := vitals.First(b.Readings[i].Values.Present()), order(b.Index[i])+1
		several = several || orders[s] != 0 && orders[s] != its
		orders[s] = its
	}
	if !several { // as nearly always
		return
	}
	of := func(r *vitals.Reading) measured { return measured{r.Device, r.TimeUnixMs, r.Values.Present()} }
	first := make(map[measured]int, len(b.Readings))
	for i := range b.Readings {
		key, its := of(&b.Readings[i]), order(b.Index[i])
		if least, others := first[key]; !others || its < least {
			first[key] = its
		}
	}
	kept := 0
	for i := range b.Readings {
		if at := b.Index[i]; order(at) > first[of(&b.Readings[i])] {
			leftOut(at, b.Readings[i].Device)
			continue
		}
		b.Readings[kept], b.Index[kept] = b.Readings[i], b.Index[i]
		kept++
	}
	b.Readings, b.Index = b.Readings[:kept], b.Index[:kept]
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

// UnitMDC returns the code of IEEE 11073-10101 that a sign's unit in UCUM has, or "".
func UnitMDC(s vitals.Sign, ucum string) string {
	switch {
	case ucum == "/min" && s == vitals.RespiratoryRate:
		return "264928"
	case ucum == "/min":
		return "264864"
	}
	for code, its := range mdcUnits {
		if its == ucum {
			return code
		}
	}
	return ""
}

// spellings has units of UCUM by other spellings of exactly these units, in lower case: those of UCUM without regard to
// case (https://ucum.org/ucum), of ISO+ (HL7 v2, chapter 7, "Common ISO derived units"), and of the displays of
// monitors. No sign is measured in coulomb, so C is a temperature. It is never modified.
var spellings = map[string]string{
	"bpm": "/min", "beats/min": "/min", "beat/min": "/min", "/min": "/min", "1/min": "/min", "min-1": "/min",
	"rpm": "/min", "resp/min": "/min", "breaths/min": "/min", "breath/min": "/min",
	"mmhg": "mm[Hg]", "mm hg": "mm[Hg]", "mm[hg]": "mm[Hg]", "mm(hg)": "mm[Hg]",
	"pct": "%", "percent": "%",
	"cel": "Cel", "degc": "Cel", "deg c": "Cel", "°c": "Cel", "\xb0c": "Cel" /* in ISO 8859-1 */, "c": "Cel",
	"kg": "kg", "mg/dl": "mg/dL", "mmol/l": "mmol/L",
}

// Spelled returns the unit of UCUM for a spelling of it, or the text itself if the spelling is not known.
func Spelled(text string) string {
	lower := []byte(text) // of another character set, perhaps
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c - 'A' + 'a'
		}
	}
	if ucum, ok := spellings[string(lower)]; ok {
		return ucum
	}
	return text
}
