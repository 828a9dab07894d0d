// Package omh converts between readings and data points of Open mHealth.
//
// A data point has the header of IEEE 1752.1 and a body of one of the Open mHealth schemas
// blood-pressure 4.0, oxygen-saturation 2.0, heart-rate 2.0, respiratory-rate 2.0, body-temperature
// 4.0, body-weight 3.0 and blood-glucose 4.0. Resting heart rate is a heart rate whose temporal
// relationship to physical activity is "at rest". Glucose in mg/dL and in mmol/L are two signs with
// one schema.
//
// # Promise
//
// The output of [Encoder] is valid by these schemas, and [Form] decodes it to the same values,
// time, offset, device and gateway. An accepted data point is stored exactly: a data point with
// members that would not be stored is rejected, except for the header's uuid and creation time.
// The uuid that Encoder writes depends on device, time and schema only.
//
// The pulse rate, and signs of a user's own, have no schema. Encoder leaves them out, and names them.
//
// # Not here
//
// No other schemas, no data series, no averages.
package omh

import "github.com/pulsegate/pulsegate/vitals"

// A schema is a kind of data points.
type schema struct {
	name, version string
	signs         []vitals.Sign
	members       []string // of body, by sign
	unit          string
	more          string // further members of body, which say what the sign is
}

const namespace = "omh"

// schemas has the schema of each group of signs. It is never modified. The uuid of a data point has the
// number of its schema, so schemas are added at the end. Units are those of the schemas
// (https://github.com/openmhealth/schemas).
var schemas = [...]schema{
	{"blood-pressure", "4.0", []vitals.Sign{vitals.Systolic, vitals.Diastolic},
		[]string{"systolic_blood_pressure", "diastolic_blood_pressure"}, "mmHg", ""},
	{"oxygen-saturation", "2.0", []vitals.Sign{vitals.SpO2}, []string{"oxygen_saturation"}, "%",
		`,"system":"` + peripheral + `","measurement_method":"` + oximetry + `"`},
	{"heart-rate", "2.0", []vitals.Sign{vitals.HeartRate}, []string{"heart_rate"}, "beats/min", ""},
	{"heart-rate", "2.0", []vitals.Sign{vitals.RestingHeartRate}, []string{"heart_rate"}, "beats/min",
		`,"temporal_relationship_to_physical_activity":"` + atRest + `"`},
	{"respiratory-rate", "2.0", []vitals.Sign{vitals.RespiratoryRate}, []string{"respiratory_rate"}, "breaths/min", ""},
	{"body-temperature", "4.0", []vitals.Sign{vitals.BodyTemperature}, []string{"body_temperature"}, "C", ""},
	{"body-weight", "3.0", []vitals.Sign{vitals.BodyWeight}, []string{"body_weight"}, "kg", ""},
	{"blood-glucose", "4.0", []vitals.Sign{vitals.GlucoseMass}, []string{"blood_glucose"}, "mg/dL", ""},
	{"blood-glucose", "4.0", []vitals.Sign{vitals.GlucoseMolar}, []string{"blood_glucose"}, "mmol/L", ""},
	{"blood-glucose", "4.0", []vitals.Sign{vitals.InterstitialGlucoseMass}, []string{"blood_glucose"}, "mg/dL",
		`,"specimen_source":"` + interstitial + `"`},
	{"blood-glucose", "4.0", []vitals.Sign{vitals.InterstitialGlucoseMolar}, []string{"blood_glucose"}, "mmol/L",
		`,"specimen_source":"` + interstitial + `"`},
}

// EachSchema calls visit with the schema of each group of signs: its name and version, the members of body that
// have a value, and their unit. A schema of several groups is visited more than once.
func EachSchema(visit func(name, version string, members []string, unit string)) {
	for _, s := range schemas {
		visit(s.name, s.version, s.members, s.unit)
	}
}

const (
	sensed     = "sensed"
	peripheral = "peripheral capillary"
	oximetry   = "pulse oximetry"
	atRest     = "at rest"

	interstitial = "interstitial fluid" // of SNOMED CT

	// deviceURN and gatewayURN begin the references of the datasheets that name the device
	// and the gateway of a data point.
	deviceURN  = "urn:pulsegate:device:"
	gatewayURN = "urn:pulsegate:gateway:"
)
