package vitals

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
)

// A Sign is the number of a vital sign in a table of signs; see [Signs].
type Sign uint8

// The built-in signs, in the order in which they are stored and written. The numbers are
// part of the stored format and never change.
const (
	Systolic         Sign = 0  // systolic blood pressure, mm[Hg]
	Diastolic        Sign = 1  // diastolic blood pressure, mm[Hg]
	SpO2             Sign = 2  // oxygen saturation by pulse oximetry, %
	HeartRate        Sign = 3  // heart rate, /min
	RestingHeartRate Sign = 4  // resting heart rate, /min
	RespiratoryRate  Sign = 5  // respiratory rate, /min
	BodyTemperature  Sign = 6  // body temperature, Cel
	BodyWeight       Sign = 7  // body weight, kg
	GlucoseMass      Sign = 8  // glucose in blood, mg/dL
	GlucoseMolar     Sign = 9  // glucose in blood, mmol/L
	PulseRate        Sign = 10 // pulse rate by pulse oximetry, cuff or another sensor of the pulse, /min

	InterstitialGlucoseMass  Sign = 11 // glucose in interstitial fluid, mg/dL
	InterstitialGlucoseMolar Sign = 12 // glucose in interstitial fluid, mmol/L

	// NumBuiltIn is the number of built-in signs. Those of later versions get the numbers that
	// follow. Signs of a user's own have numbers from the largest one downward: see [OwnSign].
	NumBuiltIn = 13

	// MaxSigns is the largest number of signs in a table.
	MaxSigns = 32
)

// OwnSign returns the number of the sign of a user's own that a store defined after n others.
func OwnSign(n int) Sign { return Sign(MaxSigns - 1 - n) }

// First returns the sign of a bit set, which is not empty, that comes first wherever signs have an
// order: built-in ones in the order of their numbers, then a user's own in the order in which
// the store defined them, which is the reverse order of their numbers.
func First(signs uint32) Sign {
	if own := signs >> NumBuiltIn << NumBuiltIn; own == signs {
		return Sign(bits.Len32(own) - 1)
	}
	return Sign(bits.TrailingZeros32(signs))
}

// InOrder returns the signs of a bit set in the order of [First].
func InOrder(signs uint32) iter.Seq[Sign] {
	return func(yield func(Sign) bool) {
		for signs != 0 {
			s := First(signs)
			if signs &^= 1 << s; !yield(s) {
				return
			}
		}
	}
}

// BuiltIn returns the definition of a built-in sign. It panics for others.
func BuiltIn(s Sign) Definition { return builtIn[s] }

// String returns the field of a built-in sign, and otherwise the number.
func (s Sign) String() string {
	if s < NumBuiltIn {
		return builtIn[s].Field
	}
	return "sign " + strconv.Itoa(int(s))
}

// builtIn has the built-in signs. It is never modified.
//
// The codes and units are from the HL7 FHIR R4 vital-signs profiles
// (https://hl7.org/fhir/R4/observation-vitalsigns.html); the profile for SpO2 requires
// 2708-6 in addition to 59408-5. The codes of glucose and of the pulse rate are from LOINC
// (https://loinc.org/2339-0, https://loinc.org/15074-8, https://loinc.org/99504-3,
// https://loinc.org/105272-9, https://loinc.org/8889-8). Glucose in mg/dL and in mmol/L are two
// signs, because a converted value is an altered one; and glucose in blood is another sign than
// that in interstitial fluid, which sensors under the skin measure, because it lags behind it.
//
// [Signs.DefaultLimits] and [Signs.DefaultFlagLimits] say where the ranges are from.
var builtIn = [...]Definition{
	Systolic: {
		Field: "systolic_mmhg", Label: "Systolic pressure", Unit: "mm[Hg]", Decimals: 2, LOINC: []string{"8480-6"},
		Accepted: Range{40_00, 300_00}, Usual: Range{90_01, 219_99},
	},
	Diastolic: {
		Field: "diastolic_mmhg", Label: "Diastolic pressure", Unit: "mm[Hg]", Decimals: 2, LOINC: []string{"8462-4"},
		Accepted: Range{20_00, 250_00}, Usual: Range{50_00, 120_00},
	},
	SpO2: {
		Field: "spo2_pct", Label: "SpO₂", Unit: "%", Decimals: 2, LOINC: []string{"59408-5", "2708-6"},
		Accepted: Range{2_00, 100_00}, Usual: Range{91_01, MaxValue}, ValidatedMin: 70_00, Critical: &Range{MinValue, 69_99},
	},
	HeartRate: {
		Field: "heart_rate_bpm", Label: "Heart rate", Unit: "/min", Decimals: 2, LOINC: []string{"8867-4"},
		Accepted: Range{20_00, 300_00}, Usual: Range{40_01, 130_99},
	},
	RestingHeartRate: {
		Field: "resting_heart_rate_bpm", Label: "Resting heart rate", Unit: "/min", Decimals: 2,
		LOINC:    []string{"40443-4", "8867-4"},
		Accepted: Range{20_00, 300_00}, Usual: Range{40_00, 100_00},
	},
	RespiratoryRate: {
		Field: "respiratory_rate_bpm", Label: "Respiratory rate", Unit: "/min", Decimals: 2, LOINC: []string{"9279-1"},
		Accepted: Range{1_00, 150_00}, Usual: Range{8_01, 24_99},
	},
	BodyTemperature: {
		Field: "body_temperature_c", Label: "Body temperature", Unit: "Cel", Decimals: 2, LOINC: []string{"8310-5"},
		Accepted: Range{20_00, 46_00}, Usual: Range{35_01, 39_09},
	},
	BodyWeight: { // scales for infants show 5 g
		Field: "body_weight_kg", Label: "Body weight", Unit: "kg", Decimals: 3, LOINC: []string{"29463-7"},
		Accepted: Range{200, 650_000}, Usual: Range{MinValue, MaxValue},
	},
	GlucoseMass: {
		Field: "glucose_mg_dl", Label: "Glucose", Unit: "mg/dL", Decimals: 2, LOINC: []string{"2339-0"},
		Accepted: Range{10_00, 1000_00}, Usual: Range{70_00, 250_00}, Critical: &Range{MinValue, 53_99},
	},
	GlucoseMolar: {
		Field: "glucose_mmol_l", Label: "Glucose", Unit: "mmol/L", Decimals: 2, LOINC: []string{"15074-8"},
		Accepted: Range{50, 56_00}, Usual: Range{3_90, 13_90}, Critical: &Range{MinValue, 2_99},
	},
	PulseRate: {
		Field: "pulse_rate_bpm", Label: "Pulse rate", Unit: "/min", Decimals: 2, LOINC: []string{"8889-8", "8867-4"},
		Accepted: Range{20_00, 300_00}, Usual: Range{40_01, 130_99},
	},
	InterstitialGlucoseMass: {
		Field: "interstitial_glucose_mg_dl", Label: "Interstitial glucose", Unit: "mg/dL", Decimals: 2,
		LOINC:    []string{"99504-3"},
		Accepted: Range{20_00, 600_00}, Usual: Range{70_00, 250_00}, Critical: &Range{MinValue, 53_99},
	},
	InterstitialGlucoseMolar: {
		Field: "interstitial_glucose_mmol_l", Label: "Interstitial glucose", Unit: "mmol/L", Decimals: 2,
		LOINC:    []string{"105272-9"},
		Accepted: Range{1_10, 33_30}, Usual: Range{3_90, 13_90}, Critical: &Range{MinValue, 2_99},
	},
}

// Each built-in sign has a definition.
var _ [NumBuiltIn]Definition = builtIn

// A Pair is two signs that are given together, the first of which is the higher one.
type Pair struct {
	High, Low       Sign
	Label           string // of both together
	Difference      string // name of High - Low in flags, in the unit of both
	DifferenceLabel string
	Usual           Range // of the difference; one outside is flagged
}

// Pairs has the pairs of signs. It is never modified.
//
// A pulse pressure below 20 or above 120 mmHg is flagged; this project chose these numbers.
var Pairs = [...]Pair{{Systolic, Diastolic, "Blood pressure", "pulse_pressure_mmhg", "Pulse pressure",
	Range{20_00, 120_00}}}

// paired is the presence of the signs that have a pair. It is never modified.
var paired = func() (signs uint32) {
	for _, p := range Pairs {
		signs |= 1<<p.High | 1<<p.Low
	}
	return signs
}()

// A Definition defines a sign.
type Definition struct {
	// Field is the name of the JSON field: a letter and at most MaxFieldBytes-1 letters,
	// digits and underscores, all in lower case.
	Field string

	// Label is the name that people read.
	Label string

	// Unit is a UCUM code (https://ucum.org), such as "mm[Hg]".
	Unit string

	// Decimals is the number of decimals of a value, 0 to MaxDecimals. A value with more is
	// rejected, never rounded.
	Decimals int

	// LOINC has LOINC codes (https://loinc.org), the most specific one first. It may be
	// empty, and is never modified.
	LOINC []string

	// Accepted is the range outside of which a value is rejected, by default.
	Accepted Range

	// Usual is the range outside of which a stored value is flagged, by default. The
	// range from MinValue to MaxValue means never.
	Usual Range

	// ValidatedMin is the least value for which the devices that measure the sign are
	// validated; a lower one is flagged as outside that range. 0 means none.
	ValidatedMin Value

	// Critical is the range of the flagged values that come before all others in the order worst first. If nil, there is
	// none. It is never modified.
	//
	// The built-in ranges are an SpO2 below 70, below which devices are not validated, and level 2
	// hypoglycemia, glucose below 54 mg/dL (3.0 mmol/L), of the American Diabetes Association
	// (Standards of Care in Diabetes 2024, section 6; doi:10.2337/dc24-S006).
	Critical *Range

	// Retired means that the sign is stored, but not accepted any more.
	Retired bool

	own    bool   // the sign is a user's own
	member string // `,"field":`
}

// Bounds of a [Definition].
const (
	MaxFieldBytes = 40
	MaxLabelBytes = 64
	MaxDecimals   = 3
	maxCodes      = 8
)

// Errors about definitions of signs.
var (
	// ErrDefinition is wrapped by errors about invalid definitions.
	ErrDefinition = errors.New("bad definition of a sign")

	// ErrTaken is wrapped by [Signs.Restore] if a built-in sign has the number or the field.
	ErrTaken = errors.New("a sign of the store's own is in the way of a built-in one")
)

// Own reports whether d, from a table of signs, defines a sign of a user's own.
func (d *Definition) Own() bool { return d.own }

// Append appends v to dst as the shortest exact decimal, such as 97.5, in the unit of the
// sign.
func (d *Definition) Append(dst []byte, v Value) []byte { return AppendDecimal(dst, v, d.Decimals) }

// Float64 returns the number nearest to v in the unit of the sign: the shortest text of that is the decimal
// that Append appends.
func (d *Definition) Float64(v Value) float64 { return float64(v) / float64(powers[d.Decimals]) }

// Parse parses text as [ParseValue] does, with the decimals of the sign. An [ErrPrecision] says how many
// these are, and of an SpO2 that looks like a fraction, such as 0.975, that it does.
func (d *Definition) Parse(text []byte) (Value, error) {
	v, err := ParseValue(text, d.Decimals)
	if err != nil && d.Field == builtIn[SpO2].Field && errors.Is(err, ErrPrecision) {
		if f, _ := strconv.ParseFloat(string(text), 64); f > 0 && f < leastPercentage {
			return 0, errFraction
		}
	}
	return v, err
}

// FormatRange returns a range as text, such as "1..100". An end that is MinValue or MaxValue is left
// out.
func (d *Definition) FormatRange(r Range) string {
	var text []byte
	if r.Min != MinValue {
		text = d.Append(text, r.Min)
	}
	text = append(text, ".."...)
	if r.Max != MaxValue {
		text = d.Append(text, r.Max)
	}
	return string(text)
}

// ParseRange parses the format of FormatRange. Its errors wrap [ErrLimits].
func (d *Definition) ParseRange(text string) (Range, error) {
	low, high, ok := strings.Cut(text, "..")
	if !ok {
		return Range{}, fmt.Errorf("%w: a range is written MIN..MAX", ErrLimits)
	}
	r := Range{MinValue, MaxValue}
	var err error
	if low != "" {
		if r.Min, err = ParseValue(low, d.Decimals); err != nil {
			return Range{}, fmt.Errorf("%w: start of range: %w", ErrLimits, err)
		}
	}
	if high != "" {
		if r.Max, err = ParseValue(high, d.Decimals); err != nil {
			return Range{}, fmt.Errorf("%w: end of range: %w", ErrLimits, err)
		}
	}
	return r, nil
}

// A FieldOf names the part of a [Definition] that an error of [Definition.Validate] is about,
// as the file of definitions writes it.
type FieldOf struct {
	Part string // "field", "unit", "decimals" …
	Err  error
}

// Error returns the reason with the name of the part.
func (e *FieldOf) Error() string { return e.Part + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *FieldOf) Unwrap() error { return e.Err }

// Validate returns a [*FieldOf], which wraps [ErrDefinition], unless d can be the definition of
// a sign of a user's own.
func (d *Definition) Validate() error {
	if err := d.wellFormed(); err != nil {
		return err
	}
	switch {
	case isTaken(d.Field):
		return badPart("field", "%s is a built-in field", d.Field)
	case !IsUCUM(d.Unit):
		return badPart("unit", "%q is not a UCUM code that this program knows, such as ms, mm[Hg], /min, %% or 1", d.Unit)
	case d.Critical != nil && d.Critical.Min > d.Critical.Max:
		return badPart("critical", "the range ends before it starts")
	case d.Critical != nil && d.Critical.Min <= d.Usual.Max && d.Critical.Max >= d.Usual.Min:
		return badPart("critical", "the range has values that are usual")
	}
	return nil
}

// wellFormed is Validate without what may differ between versions: the built-in fields and the units
// that are known.
func (d *Definition) wellFormed() error {
	switch {
	case !isField(d.Field):
		return badPart("field", "not a letter and at most %d letters, digits and underscores, all in lower case",
			MaxFieldBytes-1)
	case d.Label == "" || len(d.Label) > MaxLabelBytes || !isText(d.Label):
		return badPart("label", "not 1 to %d bytes of text", MaxLabelBytes)
	case d.Unit == "" || len(d.Unit) > maxUnitBytes || !isText(d.Unit):
		return badPart("unit", "not 1 to %d bytes of text", maxUnitBytes)
	case d.Decimals < 0 || d.Decimals > MaxDecimals:
		return badPart("decimals", "not 0 to %d", MaxDecimals)
	case len(d.LOINC) > maxCodes:
		return badPart("loinc", "more than %d codes", maxCodes)
	case d.Accepted.Min > d.Accepted.Max:
		return badPart("accepted", "the range ends before it starts")
	case d.Accepted.Min == MinValue || d.Accepted.Max == MaxValue:
		return badPart("accepted", "the range has no end")
	case d.Usual.Min > d.Usual.Max:
		return badPart("usual", "the range ends before it starts")
	}
	for _, code := range d.LOINC {
		if !isLOINC(code) {
			return badPart("loinc", "%q is not a LOINC code, such as 8867-4", code)
		}
	}
	return nil
}

func badPart(part, format string, args ...any) error {
	return &FieldOf{part, fmt.Errorf("%w: "+format, append([]any{ErrDefinition}, args...)...)}
}

// isTaken reports whether a field is built in.
func isTaken(field string) bool {
	return slices.Contains(reserved[:], field) ||
		slices.ContainsFunc(builtIn[:], func(b Definition) bool { return b.Field == field })
}

// reserved has fields of a reading, and of answers beside signs, what every object of JavaScript has, and the columns
// that tables of readings in PostgreSQL have beside those of signs.
var reserved = [...]string{
	"constructor", fieldDevice, fieldTime, fieldGateway, "received", "subject", "shared", "flags", "utc_offset_minutes",
	Pairs[0].Difference,
	"time_ms", "received_ms", "utc_offset", "changed", "stored_from_ms", "stored_to_ms", "last_ms", "first_ms", "delay_ms",
	"n", "signs", "back", "delays",
	"tableoid", "ctid", "xmin", "xmax", "cmin", "cmax",
}

func isField(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || i > 0 && (isDigit(c) || c == '_')) {
			return false
		}
	}
	return name != "" && len(name) <= MaxFieldBytes
}

func isText(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) || r == '\ufffd' || r == '"' || r == '\\' || r == '<' {
			return false
		}
	}
	return strings.TrimSpace(s) == s
}

// isLOINC reports whether code has the form of a LOINC code: digits, a hyphen, and the check
// digit of the digits before it by Luhn's algorithm (ISO/IEC 7812-1), as LOINC uses it.
func isLOINC(code string) bool {
	n := len(code) - 2
	if n < 1 || n > 7 || code[n] != '-' || !isDigit(code[n+1]) {
		return false
	}
	sum := 0
	for i := range n {
		if !isDigit(code[i]) {
			return false
		}
		d := int(code[i] - '0')
		if (n-i)%2 == 1 { // the last digit is doubled, and every second one before it
			d *= 2
		}
		sum += d/10 + d%10
	}
	return byte('0'+(10-sum%10)%10) == code[n+1]
}

// A Signs is a table of signs: the built-in ones, and signs of a user's own. Signs are only
// added, and the field, the unit and the decimals of a sign never change. It is safe for
// concurrent use.
type Signs struct {
	rows [MaxSigns]atomic.Pointer[Definition]
}

// NewSigns returns a table of the built-in signs, and of later ones, with the numbers that follow, as a
// later version may build them in.
func NewSigns(later ...Definition) *Signs {
	t := new(Signs)
	for s, d := range builtIn {
		t.put(Sign(s), d)
	}
	for i, d := range later {
		t.put(Sign(NumBuiltIn+i), d)
	}
	return t
}

// Of returns the definition of s, or nil if there is none. It must not be modified.
func (t *Signs) Of(s Sign) *Definition {
	if s >= MaxSigns {
		return nil
	}
	return t.rows[s].Load()
}

// All returns the signs in the order of [First].
func (t *Signs) All() iter.Seq2[Sign, *Definition] {
	return func(yield func(Sign, *Definition) bool) {
		for s := range InOrder(t.Known()) {
			if !yield(s, t.rows[s].Load()) {
				return
			}
		}
	}
}

// Known returns a bit set in which bit s is set if t has sign s.
func (t *Signs) Known() (signs uint32) {
	for s := range t.rows {
		if t.rows[s].Load() != nil {
			signs |= 1 << s
		}
	}
	return signs
}

// Named returns the sign with a field.
func (t *Signs) Named(field string) (Sign, bool) {
	for s, d := range t.All() {
		if d.Field == field {
			return s, true
		}
	}
	return 0, false
}

// Field returns the field of s, or "" if t has no such sign.
func (t *Signs) Field(s Sign) string {
	if d := t.Of(s); d != nil {
		return d.Field
	}
	return ""
}

// Restore adds a sign of a user's own as a store has it, with its number. An earlier or later version
// may have accepted the definition, so a unit that this one does not know is none the worse. It returns an
// error that wraps [ErrTaken] if t has a built-in sign of that number or field, and one that wraps
// [ErrDefinition] if d is malformed or t has another sign of that number or field.
func (t *Signs) Restore(s Sign, d Definition) error {
	if err := d.wellFormed(); err != nil {
		return err
	}
	if s >= MaxSigns {
		return fmt.Errorf("%w: number %d of %s", ErrDefinition, s, d.Field)
	}
	have, known := t.Named(d.Field)
	switch old := t.Of(s); {
	case isTaken(d.Field) || known && !t.Of(have).own:
		return fmt.Errorf("%w: %s is a built-in field of this version", ErrTaken, d.Field)
	case old != nil && !old.own:
		return fmt.Errorf("%w: %s has the number of %s: this version has room for fewer signs of your own", ErrTaken,
			d.Field, old.Field)
	case known && have != s, old != nil && old.Field != d.Field:
		return fmt.Errorf("%w: %s is given twice", ErrDefinition, d.Field)
	case old != nil && (old.Unit != d.Unit || old.Decimals != d.Decimals):
		return fmt.Errorf("%w: %s: unit or decimals differ", ErrDefinition, d.Field)
	}
	d.own = true
	t.put(s, d)
	return nil
}

// Define makes own the signs of a user's own that are accepted: others that t has become retired.
// A sign that t has keeps its number, and may change all but its unit and its decimals; others get
// the next numbers. It returns an error, and leaves t as it was, if a definition is invalid or a
// field is given twice, if the unit or the decimals of a sign change, or if there are too many
// signs. An error about one definition is a [*DefinitionError].
func (t *Signs) Define(own []Definition) error {
	var rows [MaxSigns]*Definition // of a user's own
	next := OwnSign(0)
	for s, d := range t.All() {
		if d.own {
			retired := *d
			retired.Retired = true
			rows[s] = &retired
			next = s - 1
		}
	}
	for i := range own {
		d := own[i]
		d.Retired, d.own = false, true
		fail := func(err error) error { return &DefinitionError{Index: i, Err: err} }
		if err := d.Validate(); err != nil {
			return fail(err)
		}
		if slices.ContainsFunc(own[:i], func(o Definition) bool { return o.Field == d.Field }) {
			return fail(&FieldOf{"field", fmt.Errorf("%w: %s is given twice", ErrDefinition, d.Field)})
		}
		s, known := t.Named(d.Field)
		if !known {
			if t.Of(next) != nil { // a built-in one
				return fail(&FieldOf{"field", fmt.Errorf("%w: more than %d signs, including those that the store has",
					ErrDefinition, MaxSigns)})
			}
			s = next
			next--
		} else if old := t.Of(s); old.Unit != d.Unit {
			return fail(&FieldOf{"unit", fmt.Errorf("%w: %s is stored in %s", ErrDefinition, d.Field, old.Unit)})
		} else if old.Decimals != d.Decimals {
			return fail(&FieldOf{"decimals", fmt.Errorf("%w: %s is stored with %d decimals", ErrDefinition, d.Field,
				old.Decimals)})
		}
		rows[s] = &d
	}
	for s, d := range rows {
		if d != nil {
			t.put(Sign(s), *d)
		}
	}
	return nil
}

// A DefinitionError is an error about one definition of several.
type DefinitionError struct {
	Index int // of the definition, from 0
	Err   error
}

// Error returns the text of Err.
func (e *DefinitionError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *DefinitionError) Unwrap() error { return e.Err }

func (t *Signs) put(s Sign, d Definition) {
	d.member = `,"` + d.Field + `":`
	t.rows[s].Store(&d)
}

// A Value is a measured value in units of 10^-Decimals of its sign's unit: an SpO2 of 97.5 %,
// with two decimals, is Value(9750). Integers represent decimal values exactly.
type Value int32

// MinValue and MaxValue are the ends of a range without one. No accepted range contains them.
const (
	MinValue Value = math.MinInt32
	MaxValue Value = math.MaxInt32
)

// Values has at most one value per sign. The zero Values has none. Values can be
// compared with ==.
//
// Most readings have few signs, with low numbers. Where there are many readings, Reset, CopyFrom and
// Equal are cheaper than =, = and ==: they leave the memory of higher numbers alone.
type Values struct {
	// Bit s of present is set if there is a value of sign s.
	//
	// Invariant: at[s] is 0 if bit s is clear, so that == compares only values that are
	// present. TestValuesEqual checks it.
	present uint32
	at      [MaxSigns]Value
}

// lowSigns is the number of the signs that most readings have no others of.
const lowSigns = 8

// low returns the places of the low signs.
func (vs *Values) low() *[lowSigns]Value { return (*[lowSigns]Value)(vs.at[:lowSigns]) }

// Reset removes all values.
func (vs *Values) Reset() {
	if vs.present>>lowSigns != 0 {
		clear(vs.at[lowSigns:])
	}
	*vs.low() = [lowSigns]Value{}
	vs.present = 0
}

// CopyFrom makes vs equal to from.
func (vs *Values) CopyFrom(from *Values) {
	if (vs.present|from.present)>>lowSigns != 0 {
		copy(vs.at[lowSigns:], from.at[lowSigns:])
	}
	low := *from.low() // by way of a variable, which spares a call of memmove
	*vs.low() = low
	vs.present = from.present
}

// Equal reports whether vs and other have the same values.
func (vs *Values) Equal(other *Values) bool {
	return vs.present == other.present && *vs.low() == *other.low() && (vs.present>>lowSigns == 0 || vs.at == other.at)
}

// Len returns the number of values.
func (vs *Values) Len() int { return bits.OnesCount32(vs.present) }

// Pack fills the beginning of dst with the values, in the order of their signs. It panics if dst
// is too short.
func (vs *Values) Pack(dst []Value) {
	i := 0
	for rest := vs.present; rest != 0; rest &= rest - 1 {
		dst[i] = vs.at[bits.TrailingZeros32(rest)%MaxSigns]
		i++
	}
}

// Unpack makes vs the values that Pack has written, whose presence is given.
func (vs *Values) Unpack(present uint32, packed []Value) {
	vs.Reset()
	vs.present = present
	i := 0
	for rest := present; rest != 0; rest &= rest - 1 {
		vs.at[bits.TrailingZeros32(rest)%MaxSigns] = packed[i]
		i++
	}
}

// Set sets the value of sign s to v.
func (vs *Values) Set(s Sign, v Value) {
	vs.present |= 1 << s
	vs.at[s] = v
}

// SetPresent makes vs, which must have no values, have the value 0 of each sign in a bit set.
func (vs *Values) SetPresent(signs uint32) { vs.present = signs }

// Get returns the value of sign s and whether there is one.
func (vs *Values) Get(s Sign) (Value, bool) { return vs.at[s], vs.Has(s) }

// Has reports whether there is a value of sign s.
func (vs *Values) Has(s Sign) bool { return vs.present&(1<<s) != 0 }

// Present returns a bit set in which bit s is set if there is a value of sign s.
func (vs *Values) Present() uint32 { return vs.present }

// IsZero reports whether there are no values.
func (vs *Values) IsZero() bool { return vs.present == 0 }

// All returns the values in the order of [First].
func (vs *Values) All() iter.Seq2[Sign, Value] {
	return func(yield func(Sign, Value) bool) {
		for s := range InOrder(vs.present) {
			if !yield(s, vs.at[s]) {
				return
			}
		}
	}
}
