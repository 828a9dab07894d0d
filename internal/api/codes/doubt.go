package codes

// A Doubt is a mark with which a device qualifies its own value. All doubts but [Questionable] disown the value: it
// was not measured. Of several doubts, the greatest counts.
type Doubt uint8

// The doubts. The zero Doubt means that there is none.
const (
	Questionable Doubt = 1 + iota
	Early              // an early estimate
	Busy               // the measurement goes on
	Calibrating
	Demo
	Test
	NotAvailable
	Invalid
	NumDoubts
)

// doubts has the spellings of the doubts, which are the states of MeasurementStatus of IEEE 11073-10201. It is never
// modified. IHE's technical framework for devices, Volume 2, B.8 (https://profiles.ihe.net/DEV/) defines the flags of
// OBX-8; https://hl7.org/fhir/uv/pocd/CodeSystem/measurement-status the codes of FHIR; and Bluetooth's Pulse Oximeter
// Service 1.0 the bits.
var doubts = [NumDoubts]struct {
	label, text, flag, code string
	bit                     uint8
}{
	0:            {label: "another_source"},
	Questionable: {"questionable", "questionable", "QUES", "questionable", 14},
	Early:        {"early", "an early estimate", "EARLY", "early-indication", 6},
	Busy:         {"busy", "still being measured", "BUSY", "msmt-ongoing", 5},
	Calibrating:  {"calibrating", "measured during calibration", "CALIB", "calibration-ongoing", 12},
	Demo:         {"demo", "data for demonstration", "DEMO", "demo-data", 10},
	Test:         {"test", "data for testing", "TEST", "test-data", 11},
	NotAvailable: {"not_available", "not available", "NAV", "not-available", 13},
	Invalid:      {"invalid", "invalid", "INV", "invalid", 15},
}

// String returns the label of a doubt in metrics. Without a doubt, a value is left out for another source of its sign.
func (d Doubt) String() string { return doubts[d].label }

// Reason returns why a value with a doubt is left out, in words.
func (d Doubt) Reason() string { return "left out: marked by the device as " + doubts[d].text }

// FlagDoubt returns the doubt of a flag of OBX-8 in HL7 v2. Other flags, such as H for high, are none.
func FlagDoubt[T ~string | ~[]byte](flag T) Doubt {
	return find(func(d Doubt) bool { return doubts[d].flag == string(flag) })
}

// StatusDoubt returns the doubt of a code of measurement-status in FHIR.
func StatusDoubt[T ~string | ~[]byte](code T) Doubt {
	return find(func(d Doubt) bool { return doubts[d].code == string(code) })
}

// BitsDoubt returns the greatest doubt of a measurement status of Bluetooth.
func BitsDoubt(status int) Doubt {
	return find(func(d Doubt) bool { return status>>doubts[d].bit&1 != 0 })
}

func find(is func(Doubt) bool) Doubt {
	d := NumDoubts - 1
	for d > 0 && !is(d) {
		d--
	}
	return d
}
