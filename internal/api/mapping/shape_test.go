package mapping_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/mapping"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestMissing checks texts and numbers that are no values: they are left out, and the other values are stored.
func TestMissing(t *testing.T) {
	set, _, err := read(t, `[[mapping]]
name = "m"
device = "/id"
time = "received"
missing = ["--", "NA"]
signs = { spo2_pct = { at = "/spo2", missing = 255 }, pulse_rate_bpm = { at = "/pr", missing = [65535, "off"] }, body_temperature_c = { at = "/t", factor = 0.1, missing = "32767" } }
`)
	try(t, err)
	const ok = `{"device":"d","time":"2026-11-25T12:00:00.000Z",`
	for _, tt := range []struct{ members, want string }{
		{`"spo2":95,"pr":61,"t":367`, ok + `"spo2_pct":95,"body_temperature_c":36.7,"pulse_rate_bpm":61}`},
		{`"spo2":255,"pr":61`, ok + `"pulse_rate_bpm":61}` + "\nd spo2_pct not_available"},
		{`"spo2":"255.0","pr":6.5535e4`, "d pulse_rate_bpm not_available\nd spo2_pct not_available"},
		{`"spo2":" -- ","pr":"off","t":"NA"`,
			"d body_temperature_c not_available\nd pulse_rate_bpm not_available\nd spo2_pct not_available"},
		{`"spo2":null,"pr":"--"`, "d pulse_rate_bpm not_available"},
		{`"spo2":null`, ": no vital sign given"},
		{`"spo2":95,"t":32767`, ok + `"spo2_pct":95}` + "\nd body_temperature_c not_available"},
		{`"spo2":95,"t":3276.7`, "body_temperature_c: outside the accepted range 20 to 46 Cel"},
		{`"spo2":"--","pr":"off by one"`, "pulse_rate_bpm: neither a number nor a string with one"},
		{`"spo2":"na","pr":61`, "spo2_pct: neither a number nor a string with one"},
	} {
		if got := decode(t, set.Named("m"), vitals.Origin{}, `{"id":"d",`+tt.members+`}`); strings.TrimSpace(got) != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.members, got, tt.want)
		}
	}
}

// TestMissingAccepted compares a number that is no value with the range of a server.
func TestMissingAccepted(t *testing.T) {
	_, path, err := read(t, `[[mapping]]
name = "m"
device = "/id"
time = "received"
signs.heart_rate_bpm = { at = "/hr", missing = 350 }
`)
	try(t, err)
	accepted := signs(t).DefaultLimits().Accepted
	accepted[vitals.HeartRate] = vitals.Range{Min: 20_00, Max: 400_00}
	_, err = mapping.Read([]string{path}, codes.Table{Signs: signs(t)}, &accepted, topic, nil)
	if err == nil || !strings.Contains(err.Error(), "350 is in the accepted range") {
		t.Errorf("with a range up to 400: %v", err)
	}
}

// TestRound checks values that a mapping rounds, and that they are counted.
func TestRound(t *testing.T) {
	set, _, err := read(t, `[[mapping]]
name = "m"
device = "/id"
time = "received"
signs.body_temperature_c = { at = "/f", unit = "[degF]", round = true }
signs.body_weight_kg = { at = "/lb", unit = "[lb_av]", suffix = "lb", round = true }
signs.map_mmhg = { at = "/kpa", unit = "kPa", round = true }
signs.heart_rate_bpm = { at = "/hr", round = true }
[[mapping]]
name = "gatt"
device = "/id"
time = "received"
decode = "gatt"
characteristic = "2A1C"
value = "/x"
signs.body_temperature_c = { at = "temperature", round = true }
`)
	try(t, err)
	rules, err := vitals.NewValidator(signs(t).DefaultLimits())
	try(t, err)
	for _, tt := range []struct {
		name, members, want string
		rounded             int
	}{
		{"m", `"f":98.6`, `"body_temperature_c":37}`, 0},
		{"m", `"f":"98.5"`, `"body_temperature_c":36.94}`, 1},
		{"m", `"lb":"159.6 lb"`, `"body_weight_kg":72.393}`, 1},
		{"m", `"lb":"159.6 kg"`, "body_weight_kg: not in the unit of the mapping; units are not converted", 0},
		{"m", `"kpa":16`, `"map_mmhg":120}`, 1},
		{"m", `"hr":72.125`, `"heart_rate_bpm":72.12}`, 1},
		{"m", `"hr":72.135`, `"heart_rate_bpm":72.14}`, 1},
		{"m", `"hr":72.1350001`, `"heart_rate_bpm":72.14}`, 1},
		{"m", `"hr":72.12`, `"heart_rate_bpm":72.12}`, 0},
		{"m", `"hr":19.995,"f":98.5`, `"heart_rate_bpm":20,"body_temperature_c":36.94}`, 2},
		{"m", `"hr":19.994`, "heart_rate_bpm: outside the accepted range 20 to 300 /min", 1},
		{"gatt", `"x":"01DA0300FF"`, `"body_temperature_c":37}`, 0},
		{"gatt", `"x":"01D90300FF"`, `"body_temperature_c":36.94}`, 1},
		{"gatt", `"x":"006E0100FF"`, `"body_temperature_c":36.6}`, 0},
	} {
		message := `{"id":"d",` + tt.members + `}`
		if got := decode(t, set.Named(tt.name), vitals.Origin{}, message); !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s:\n got %s\nwant %s", tt.members, got, tt.want)
		}
		var batch vitals.Batch
		in := ingest.Intake{NowUnixMs: now.UnixMilli(), Rules: rules, MaxReadings: 1, Batch: &batch}
		if err := set.Named(tt.name).Decode([]byte(message), &in); err != nil || in.Rounded != tt.rounded {
			t.Errorf("%s: %d rounded, %v, want %d", tt.members, in.Rounded, err, tt.rounded)
		}
	}
}

// TestPlaces checks devices and times that are at several places, and payloads that are ignored.
func TestPlaces(t *testing.T) {
	set, _, err := read(t, `[[mapping]]
name = "beds"
where = { "/kind" = "battery" }
ignore = true
[[mapping]]
name = "beds"
device = "/ward + /bed"
gateway = "text:bridge"
time = "/date + /clock"
time_format = ["%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S"]
zone = "Europe/Berlin"
ambiguous = "later"
signs.heart_rate_bpm.at = "/hr"
[[mapping]]
name = "listed"
device = ["/serial", "/id"]
devices = { "bed 7" = "bed-7", "8" = "bed-8" }
time = ["/measured", "/sent", "received"]
signs.heart_rate_bpm.at = "/hr"
[[mapping]]
name = "cuff"
device = "/id"
decode = "gatt"
characteristic = "2A35"
value = "/x"
time = ["characteristic", "/received_at"]
time_format = "unix_s"
zone = "Europe/Berlin"
signs = { systolic_mmhg = { at = "systolic" }, diastolic_mmhg = { at = "diastolic" } }
`)
	try(t, err)
	reading := func(device, at, rest string) string {
		return `{"device":"` + device + `","time":"` + at + `",` + rest + `}`
	}
	bridged, pressure := `"heart_rate_bpm":72,"gateway":"bridge"`, `"systolic_mmhg":120,"diastolic_mmhg":80`
	for _, tt := range []struct{ name, message, want string }{
		{"beds", `{"kind":"battery"}`, " ignored"},
		{"beds", `{"ward":"ICU","bed":7,"date":"24.11.2026","clock":"08:05","hr":72}`,
			reading("ICU.7", "2026-11-24T08:05:00.000+01:00", bridged)},
		{"beds", `{"ward":"I.C U","bed":"7:","date":"24.11.2026","clock":"08:05:07","hr":72}`,
			reading("I:2EC:20U.7:3A", "2026-11-24T08:05:07.000+01:00", bridged)},
		{"beds", `{"ward":"a","bed":"b","date":"25.10.2026","clock":"02:30","hr":72}`,
			reading("a.b", "2026-10-25T02:30:00.000+01:00", bridged)},
		{"beds", `{"ward":"a","bed":"b","date":"29.03.2026","clock":"02:30","hr":72}`,
			"time: the zone has no such time: its clock was put forward"},
		{"beds", `{"ward":"a","bed":"b","date":"31.02.2026","clock":"02:30","hr":72}`,
			"time: in none of the time formats of the mapping"},
		{"beds", `{"ward":"ICU","date":"24.11.2026","clock":"08:05","hr":72}`, "device: a part is empty"},
		{"beds", `{"date":"24.11.2026","clock":"08:05","hr":72}`, "device: missing"},
		{"beds", `{"ward":"ICU","bed":7,"date":"24.11.2026","hr":72}`, "time: missing"},
		{"listed", `{"serial":"bed 7","id":"x","hr":72}`,
			reading("bed-7", "2026-11-25T12:00:00.000Z", `"heart_rate_bpm":72`)},
		{"listed", `{"id":8,"sent":"2026-11-25 08:00Z","hr":72}`,
			reading("bed-8", "2026-11-25T08:00:00.000Z", `"heart_rate_bpm":72`)},
		{"listed", `{"id":8,"measured":"1970-01-01T00:01Z","sent":"2026-11-25 08:00Z","hr":72}`,
			reading("bed-8", "2026-11-25T08:00:00.000Z", `"heart_rate_bpm":72`)},
		{"listed", `{"id":8,"measured":"1970-01-01T00:01+09:00","hr":72}`,
			reading("bed-8", "2026-11-25T12:00:00.000Z", `"heart_rate_bpm":72`)},
		{"listed", `{"id":8,"measured":"soon","sent":"2026-11-25 08:00Z","hr":72}`,
			"time: not a time such as 2026-11-21T10:00:00+01:00"},
		{"listed", `{"id":9,"hr":72}`, "device: not one of the devices of the mapping"},
		{"cuff", `{"id":"d","x":"02780050005D00EA070701081E05","received_at":1790000000}`,
			reading("d", "2026-07-01T08:30:05.000+02:00", pressure)},
		{"cuff", `{"id":"d","x":"00780050005D00","received_at":1790000000}`,
			reading("d", "2026-09-21T14:13:20.000Z", pressure)},
		{"cuff", `{"id":"d","x":"02780050005D0000000000000000","received_at":1790000000}`,
			reading("d", "2026-09-21T14:13:20.000Z", pressure)},
		// 1999
		{"cuff", `{"id":"d","x":"02780050005D00CF070701081E05","received_at":1790000000}`,
			reading("d", "2026-09-21T14:13:20.000Z", pressure)},
		{"cuff", `{"id":"d","x":"02780050005D00EA07021E081E05","received_at":1790000000}`,
			"time: the time stamp is no date and time"},
		{"cuff", `{"id":"d","x":"00780050005D00"}`, "time: missing"},
	} {
		if got := strings.TrimPrefix(decode(t, set.Named(tt.name), vitals.Origin{}, tt.message), "\n"); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.message, got, tt.want)
		}
	}
}

// TestNestedElements checks that each element of the arrays in the elements of an array is a reading.
func TestNestedElements(t *testing.T) {
	set, _, err := read(t, `[[mapping]]
name = "m"
where = { "/type" = "status" }
ignore = true
[[mapping]]
name = "m"
device = "/beds/-/id"
time = "/beds/-/values/-/0"
time_format = "unix_ms"
where = { "/v" = "1" }
signs.heart_rate_bpm.at = "/beds/-/values/-/1"
`)
	try(t, err)
	at := func(device, hr string) string {
		return `{"device":"` + device + `","time":"2026-09-21T14:13:20.000Z","heart_rate_bpm":` + hr + `}`
	}
	for _, tt := range []struct{ message, want string }{
		{`{"beds":[{"values":[[1790000000000,70],[1790000000000,71]],"id":"a"},{"id":"b","values":[[1790000000000,` +
			`72]]}],"v":1}`, at("a", "70") + "\n" + at("a", "71") + "\n" + at("b", "72")},
		{`{"v":1,"beds":[{"id":"a","values":[[1790000000000,70]]},{"values":[[1790000000000,71]]}]}`,
			at("a", "70") + "\ndevice: missing"},
		{`{"v":1,"beds":[{"id":"a"},{"id":"b","values":[[1790000000000,72]]}]}`,
			at("b", "72") + "\n: the array of readings is missing"},
		{`{"v":1,"beds":[]}`, ""},
		{`{"v":1,"beds":[{"values":[]}]}`, ""},
		{`{"v":1,"beds":null}`, ""}, // as an array without elements
		{`{"v":1,"beds":[{"id":"a","values":null},{"id":"b","values":[[1790000000000,72]]}]}`, at("b", "72")},
		{`{"v":1}`, ": the array of readings is missing"},
		{`{"type":"status"}`, " ignored"},
		{`{"type":"status","beds":[{"id":"a"}]}`, " ignored"},
		{`{"beds":[{"values":[1,2,3,4,5]}]}`, "error: too many readings in one body"},
		{strings.Repeat(`{"type":"status"}`, 5), "error: too many readings in one body"},
	} {
		if got := decode(t, set.Named("m"), vitals.Origin{}, tt.message); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.message, got, tt.want)
		}
	}
}

// TestIgnoreOrder checks that a mapping with ignore skips a payload without the array only if no earlier one fits it.
func TestIgnoreOrder(t *testing.T) {
	set, _, err := read(t, `[[mapping]]
name = "m"
device = "/id"
time = "/t"
where = { "/v" = "1" }
signs.heart_rate_bpm.at = "/beds/-/hr"
[[mapping]]
name = "m"
where = { "/type" = "status" }
ignore = true
`)
	try(t, err)
	for _, tt := range []struct{ message, want string }{
		{`{"type":"status"}`, " ignored"},
		{`{"type":"status","v":1}`, ": the array of readings is missing"},
	} {
		if got := decode(t, set.Named("m"), vitals.Origin{}, tt.message); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.message, got, tt.want)
		}
	}
}

// TestStampAnywhere reads the time stamp of a characteristic in UTC, of which the place is unknown.
func TestStampAnywhere(t *testing.T) {
	set, _, err := read(t, `[[mapping]]
name = "m"
device = "/id"
time = "characteristic"
zone = "Z"
decode = "gatt"
characteristic = "2A35"
value = "/value"
signs = { systolic_mmhg = { at = "systolic" }, diastolic_mmhg = { at = "diastolic" } }
`)
	try(t, err)
	const want = `{"device":"d","time":"2026-11-21T09:30:05.000Z","systolic_mmhg":120,"diastolic_mmhg":80}`
	if got := decode(t, set.Named("m"), vitals.Origin{},
		`{"id":"d","value":"02780050005D00EA070B15091E05"}`); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
