package fhir

import (
	"crypto/sha256"
	"encoding/base32"
	"math/bits"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// A group is a sign group: the signs of a reading that one Observation has. Blood pressure has two
// signs, each other group has one. Groups are in the order of [vitals.First], in which Observations of one
// reading are.
type group uint8

// The group of blood pressure, and the number of groups.
const (
	bloodPressure = group(vitals.Systolic)
	numGroups     = vitals.MaxSigns - 1
)

// A groups has bit g set for each group g in it.
type groups uint32

const allGroups groups = 1<<numGroups - 1

// groupWith returns the group of a sign.
func groupWith(s vitals.Sign) group {
	if s >= vitals.NumBuiltIn {
		return group(len(builtIn)) + group(vitals.OwnSign(0)-s)
	}
	return group(max(s, 1) - 1)
}

// sign returns the sign of a group; of blood pressure, the lower one.
func (g group) sign() vitals.Sign {
	if own := int(g) - len(builtIn); own >= 0 {
		return vitals.OwnSign(own)
	}
	return vitals.Sign(g) + 1
}

// Systems of codes, as FHIR names them. signSystem is that of the fields of a user's own signs.
const (
	loinc          = "http://loinc.org"
	ucum           = "http://unitsofmeasure.org"
	categorySystem = "http://terminology.hl7.org/CodeSystem/observation-category"
	statusSystem   = "http://hl7.org/fhir/observation-status"
	signSystem     = "urn:pulsegate:sign"

	vitalSigns = "vital-signs"
	laboratory = "laboratory"
	status     = "final"

	profiles = "http://hl7.org/fhir/StructureDefinition/"
)

// A coding is a code with its name, which may be empty.
type coding struct{ system, code, display string }

// A component is one value of an Observation.
type component struct {
	sign vitals.Sign
	code coding // if the Observation has several
}

// A mapping describes the Observation of a group.
type mapping struct {
	key        string // in ids, at most maxKey bytes
	profile    string // below profiles; "" means none
	category   string
	codes      []coding
	text       string // of the code
	components []component
	unit       string // its name; its code is that of the sign
}

// builtIn has the mappings of the built-in signs, by the vital signs profiles of FHIR R4
// (https://hl7.org/fhir/R4/observation-vitalsigns.html), which has none for
// glucose. It is never modified. The names of units are those of that page's examples.
var builtIn = [...]mapping{
	bloodPressure: {
		"bp", "bp", vitalSigns, []coding{{loinc, "85354-9", "Blood pressure panel with all children optional"}}, "",
		[]component{{vitals.Systolic, coding{loinc, "8480-6", "Systolic blood pressure"}},
			{vitals.Diastolic, coding{loinc, "8462-4", "Diastolic blood pressure"}}},
		"mmHg",
	},
	vitals.SpO2 - 1: {
		"spo2", "oxygensat", vitalSigns,
		[]coding{{loinc, "2708-6", "Oxygen saturation in Arterial blood"},
			{loinc, "59408-5", "Oxygen saturation in Arterial blood by Pulse oximetry"}}, "",
		[]component{{sign: vitals.SpO2}}, "%",
	},
	vitals.HeartRate - 1: {
		"hr", "heartrate", vitalSigns, []coding{{loinc, "8867-4", "Heart rate"}}, "",
		[]component{{sign: vitals.HeartRate}}, "beats/minute",
	},
	// The profile requires 8867-4, which is the more general code, also of a resting rate and of a pulse.
	vitals.RestingHeartRate - 1: {
		"rhr", "heartrate", vitalSigns, []coding{{loinc, "40443-4", "Heart rate --resting"}, {loinc, "8867-4", "Heart rate"}},
		"",
		[]component{{sign: vitals.RestingHeartRate}}, "beats/minute",
	},
	vitals.RespiratoryRate - 1: {
		"resp", "resprate", vitalSigns, []coding{{loinc, "9279-1", "Respiratory rate"}}, "",
		[]component{{sign: vitals.RespiratoryRate}}, "breaths/minute",
	},
	vitals.BodyTemperature - 1: {
		"temp", "bodytemp", vitalSigns, []coding{{loinc, "8310-5", "Body temperature"}}, "",
		[]component{{sign: vitals.BodyTemperature}}, "C",
	},
	vitals.BodyWeight - 1: {
		"wt", "bodyweight", vitalSigns, []coding{{loinc, "29463-7", "Body weight"}}, "",
		[]component{{sign: vitals.BodyWeight}}, "kg",
	},
	vitals.GlucoseMass - 1: {
		"glu", "", laboratory, []coding{{loinc, "2339-0", "Glucose [Mass/volume] in Blood"}}, "",
		[]component{{sign: vitals.GlucoseMass}}, "mg/dL",
	},
	vitals.GlucoseMolar - 1: {
		"glum", "", laboratory, []coding{{loinc, "15074-8", "Glucose [Moles/volume] in Blood"}}, "",
		[]component{{sign: vitals.GlucoseMolar}}, "mmol/L",
	},
	vitals.PulseRate - 1: {
		"pr", "heartrate", vitalSigns, []coding{{loinc, "8889-8", "Heart rate by Pulse oximetry"},
			{loinc, "8867-4", "Heart rate"}}, "",
		[]component{{sign: vitals.PulseRate}}, "beats/minute",
	},
	vitals.InterstitialGlucoseMass - 1: {
		"iglu", "", laboratory, []coding{{loinc, "99504-3", "Glucose [Mass/volume] in Interstitial fluid"}}, "",
		[]component{{sign: vitals.InterstitialGlucoseMass}}, "mg/dL",
	},
	vitals.InterstitialGlucoseMolar - 1: {
		"iglum", "", laboratory, []coding{{loinc, "105272-9", "Glucose [Moles/volume] in Interstitial fluid"}}, "",
		[]component{{sign: vitals.InterstitialGlucoseMolar}}, "mmol/L",
	},
}

// Each built-in sign has a mapping: without one, it would be served as a user's own.
var _ [vitals.NumBuiltIn - 1]mapping = builtIn

// categoryNames has the names of categories. It is never modified.
var categoryNames = map[string]string{vitalSigns: "Vital Signs", laboratory: "Laboratory"}

// mappingOf returns the mapping of a group, or nil if signs has none of its signs. A sign of a
// user's own has its LOINC codes, and its field as a code of this server's.
func mappingOf(signs *vitals.Signs, g group) *mapping {
	if int(g) < len(builtIn) {
		return &builtIn[g]
	}
	s := g.sign()
	d := signs.Of(s)
	if d == nil {
		return nil
	}
	m := &mapping{key: ownKey(d.Field), category: vitalSigns, text: d.Label, components: []component{{sign: s}},
		unit: d.Unit}
	for _, code := range d.LOINC {
		m.codes = append(m.codes, coding{system: loinc, code: code})
	}
	m.codes = append(m.codes, coding{signSystem, d.Field, d.Label})
	return m
}

// maxKey is the length of the keys of a user's own signs. Others are shorter.
const maxKey = len("s") + 8

// ownKey returns the key of a user's own sign: an s and the first 40 bits of the SHA-256 of its field in base32. So ids
// do not depend on the numbers that a store has for signs, and two of the few own signs have never the same.
func ownKey(field string) string {
	sum := sha256.Sum256([]byte(field))
	return "s" + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:5]))
}

// groupOf returns the group with a key.
func groupOf(signs *vitals.Signs, key string) (group, bool) {
	for g := range group(numGroups) {
		if m := mappingOf(signs, g); m != nil && m.key == key {
			return g, true
		}
	}
	return 0, false
}

// withCode returns the groups whose Observations have a code of a system; "" means any system or code.
func withCode(signs *vitals.Signs, system, code string) (with groups) {
	has := func(g group, itsSystem, itsCode string) {
		if (system == "" || system == itsSystem) && (code == "" || code == itsCode) {
			with |= 1 << g
		}
	}
	for g := range builtIn {
		for _, c := range builtIn[g].codes {
			has(group(g), c.system, c.code)
		}
	}
	for s, d := range signs.All() {
		if !d.Own() {
			continue
		}
		has(groupWith(s), signSystem, d.Field)
		for _, its := range d.LOINC {
			has(groupWith(s), loinc, its)
		}
	}
	return with
}

// withCategory returns the groups whose Observations have a category; "" means any.
func withCategory(category string) (with groups) {
	for g := range group(numGroups) {
		own := vitalSigns
		if int(g) < len(builtIn) {
			own = builtIn[g].category
		}
		if category == "" || category == own {
			with |= 1 << g
		}
	}
	return with
}

// groupsOf returns the groups of which values has all signs. Readings have either both
// pressures or none.
func groupsOf(values *vitals.Values) groups {
	const mask = 1<<vitals.NumBuiltIn - 1
	present := values.Present()
	first := present & mask
	return groups(first>>1&^1 | first>>1&first&1 | bits.Reverse32(present&^mask)<<len(builtIn))
}
