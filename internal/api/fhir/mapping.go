package fhir

import "github.com/pulsegate/pulsegate/vitals"

// A group is a sign group: the signs of a reading that one Observation has.
type group uint8

// The sign groups, in the order in which Observations of one reading are served.
const (
	bloodPressure group = iota
	oxygenSaturation
	heartRate
	restingHeartRate
	numGroups
)

// A groups has bit g set for each group g in it.
type groups uint8

const allGroups groups = 1<<numGroups - 1

// Systems of codes, as FHIR names them.
const (
	loinc          = "http://loinc.org"
	ucum           = "http://unitsofmeasure.org"
	categorySystem = "http://terminology.hl7.org/CodeSystem/observation-category"
	statusSystem   = "http://hl7.org/fhir/observation-status"

	category = "vital-signs"
	status   = "final"

	profiles = "http://hl7.org/fhir/StructureDefinition/"
)

// A coding is a LOINC code with its long common name.
type coding struct{ code, display string }

// A component is one value of an Observation.
type component struct {
	sign vitals.Sign
	code coding // if the Observation has several
}

// mappings describe the Observation of each group, by the vital signs profiles of FHIR R4
// (https://hl7.org/fhir/R4/observation-vitalsigns.html). They are never modified. The names of
// units are those of that page's examples; their codes are [vitals.Sign.Unit].
var mappings = [numGroups]struct {
	key        string // in ids
	profile    string // below profiles
	codes      []coding
	components []component
	unit       string
}{
	bloodPressure: {
		"bp", "bp", []coding{{"85354-9", "Blood pressure panel with all children optional"}},
		[]component{{vitals.Systolic, coding{"8480-6", "Systolic blood pressure"}}, {vitals.Diastolic, coding{"8462-4", "Diastolic blood pressure"}}},
		"mmHg",
	},
	oxygenSaturation: {
		"spo2", "oxygensat", []coding{{"2708-6", "Oxygen saturation in Arterial blood"}, {"59408-5", "Oxygen saturation in Arterial blood by Pulse oximetry"}},
		[]component{{sign: vitals.SpO2}}, "%",
	},
	heartRate: {
		"hr", "heartrate", []coding{{"8867-4", "Heart rate"}},
		[]component{{sign: vitals.HeartRate}}, "beats/minute",
	},
	// The profile requires 8867-4, which is the more general code.
	restingHeartRate: {
		"rhr", "heartrate", []coding{{"40443-4", "Heart rate --resting"}, {"8867-4", "Heart rate"}},
		[]component{{sign: vitals.RestingHeartRate}}, "beats/minute",
	},
}

// groupOf returns the group with a key.
func groupOf(key string) (group, bool) {
	for g := range numGroups {
		if mappings[g].key == key {
			return g, true
		}
	}
	return 0, false
}

// withCode returns the groups whose Observations have a LOINC code.
func withCode(code string) (with groups) {
	for g := range numGroups {
		for _, c := range mappings[g].codes {
			if c.code == code {
				with |= 1 << g
			}
		}
	}
	return with
}

// groupsOf returns the groups of which values has all signs. Readings have either both
// pressures or none.
func groupsOf(values *vitals.Values) (of groups) {
	for g := range numGroups {
		whole := true
		for _, c := range mappings[g].components {
			whole = whole && values.Has(c.sign)
		}
		if whole {
			of |= 1 << g
		}
	}
	return of
}
