package vitals

// A Sign is one vital sign that a wearable measures.
type Sign uint8

// The signs, in the order in which they are stored and written. The numbers are
// part of the stored format and never change.
const (
	Systolic         Sign = 0 // systolic blood pressure, mm[Hg]
	Diastolic        Sign = 1 // diastolic blood pressure, mm[Hg]
	SpO2             Sign = 2 // oxygen saturation by pulse oximetry, %
	HeartRate        Sign = 3 // heart rate, /min
	RestingHeartRate Sign = 4 // resting heart rate, /min

	// NumSigns is the number of signs.
	NumSigns = 5
)

// Field returns the name of the sign's JSON field, such as "spo2_pct".
func (s Sign) Field() string { return signs[s].field }

// Unit returns the sign's unit as a UCUM code (https://ucum.org), such as
// "mm[Hg]".
func (s Sign) Unit() string { return signs[s].ucum }

// LOINC returns the sign's LOINC codes (https://loinc.org), the most specific one
// first.
func (s Sign) LOINC() []string { return append([]string(nil), signs[s].loinc...) }

// String returns the name of the sign's JSON field.
func (s Sign) String() string { return s.Field() }

// signs has the properties of each sign. It is never modified.
//
// The codes are from the HL7 FHIR R4 vital-signs profiles; the profile for SpO2
// requires 2708-6 in addition to 59408-5.
var signs = [NumSigns]struct {
	field  string
	member string // field as AppendJSON writes it
	ucum   string
	loinc  []string
}{
	Systolic:         {"systolic_mmhg", `,"systolic_mmhg":`, "mm[Hg]", []string{"8480-6"}},
	Diastolic:        {"diastolic_mmhg", `,"diastolic_mmhg":`, "mm[Hg]", []string{"8462-4"}},
	SpO2:             {"spo2_pct", `,"spo2_pct":`, "%", []string{"59408-5", "2708-6"}},
	HeartRate:        {"heart_rate_bpm", `,"heart_rate_bpm":`, "/min", []string{"8867-4"}},
	RestingHeartRate: {"resting_heart_rate_bpm", `,"resting_heart_rate_bpm":`, "/min", []string{"40443-4", "8867-4"}},
}

// Hundredths is a measured value in 1/100 of its sign's unit: an SpO2 of 97.5 % is
// Hundredths(9750). Integers represent decimal values exactly. The largest value,
// 655.35, is above every range that can be configured.
type Hundredths uint16

// Values has at most one value per sign. The zero Values has none. Values can be
// compared with ==.
type Values struct {
	// Bit s of present is set if there is a value of sign s.
	//
	// Invariant: at[s] is 0 if bit s is clear, so that == compares only values that are
	// present. TestValuesEqual checks it.
	present uint8
	at      [NumSigns]Hundredths
}

// Set sets the value of sign s to v.
func (vs *Values) Set(s Sign, v Hundredths) {
	vs.present |= 1 << s
	vs.at[s] = v
}

// Get returns the value of sign s and whether there is one.
func (vs *Values) Get(s Sign) (Hundredths, bool) { return vs.at[s], vs.Has(s) }

// Has reports whether there is a value of sign s.
func (vs *Values) Has(s Sign) bool { return vs.present&(1<<s) != 0 }

// Present returns a bit set in which bit s is set if there is a value of sign s.
func (vs *Values) Present() uint8 { return vs.present }

// IsZero reports whether there are no values.
func (vs *Values) IsZero() bool { return vs.present == 0 }
