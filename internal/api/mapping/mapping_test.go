package mapping_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/mapping"
	"github.com/pulsegate/pulsegate/internal/api/mqtt"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/vitals"
)

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// signs returns the built-in signs and some of a user's own, which are in the units of characteristics that no built-in
// one has.
func signs(t testing.TB) *vitals.Signs {
	t.Helper()
	table := vitals.NewSigns()
	own := func(field, unit string, decimals int) vitals.Definition {
		return vitals.Definition{Field: field, Label: field, Unit: unit, Decimals: decimals,
			Accepted: vitals.Range{Min: -1_000_000, Max: 1_000_000},
			Usual:    vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}}
	}
	if err := table.Define([]vitals.Definition{
		own("systolic_kpa", "kPa", 2), own("diastolic_kpa", "kPa", 2), own("map_mmhg", "mm[Hg]", 1),
		own("skin_f", "[degF]", 2), own("weight_lb", "[lb_av]", 2),
		own("bmi", "kg/m2", 1), own("height_m", "m", 3), own("pai_pct", "%", 2), own("spo2_fast_pct", "%", 0),
		own("delta_c", "Cel", 3),
	}); err != nil {
		t.Fatal(err)
	}
	return table
}

func topic(pattern string) (bool, error) {
	t, err := mqtt.ParseTopic(pattern)
	return t.HasDevice(), err
}

// read reads a file of mappings.
func read(t testing.TB, text string) (*mapping.Set, string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.toml")
	try(t, os.WriteFile(path, []byte(text), 0o600))
	set, err := mapping.Read([]string{path}, codes.Table{Signs: signs(t)}, nil, topic, nil)
	return set, path, err
}

// decode decodes a message with the mappings named m, and returns a line for each position.
func decode(t testing.TB, in ingest.Input, from vitals.Origin, message string) string {
	t.Helper()
	table := signs(t)
	rules, err := vitals.NewValidator(table.DefaultLimits())
	try(t, err)
	var batch vitals.Batch
	intake := ingest.Intake{NowUnixMs: now.UnixMilli(), Rules: rules, Origin: &from, MaxReadings: 4, Batch: &batch}
	if err := in.Decode([]byte(message), &intake); err != nil {
		return "error: " + err.Error()
	}
	lines := make([]string, batch.Len())
	for i := range batch.Readings {
		lines[batch.Index[i]] = string(table.AppendJSON(nil, &batch.Readings[i]))
	}
	for i := range batch.Refused {
		lines[batch.Refused[i].Index] = batch.Refused[i].Field + ": " + batch.Refused[i].Reason()
	}
	for _, l := range intake.LeftOut {
		if l.Ignored {
			lines = append(lines, " ignored")
			continue
		}
		lines = append(lines, l.Device.String()+" "+l.Field+" "+l.Why.String())
	}
	return strings.Join(lines, "\n")
}

const plain = `[[mapping]]
name = "m"
topic = "wards/{gateway}/{device}"
device = "/dev"
gateway = "/gw"
time = "/t"
[mapping.signs]
heart_rate_bpm = { at = "/v/hr" }
body_weight_kg = { at = "/w", unit_at = "/unit", unit_is = "kg" }
spo2_pct = { at = "/ratio", unit = "1" }
body_temperature_c = { at = "/temp/0", factor = 0.1 }
`

// TestReadErrors checks that errors have the file, the line, the key and the reason.
func TestReadErrors(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{`name = "m"`, `name = "a b"`, "2: name: not 1 to 64 bytes of A-Z a-z 0-9 . _ : and -, as an address has it"},
		{`name = "m"`, `name = "-m"`, "2: name: not 1 to 64 bytes of A-Z a-z 0-9 . _ : and -, as an address has it"},
		{`name = "m"`, `nam = "m"`, "2: nam: unknown key; did you mean name?"},
		{`name = "m"`, "", "1: name: not 1 to 64 bytes of A-Z a-z 0-9 . _ : and -, as an address has it"},
		{`wards/{gateway}/{device}`, `wards/+/{device}`,
			`3: topic: "+" is not a level of a topic: write text, {device} or {gateway}`},
		{`device = "/dev"`, `device = "dev"`,
			`4: device: not a JSON pointer, such as "/data/hr", or "" for the whole payload`},
		{`device = "/dev"`, `device = "/d~2v"`, "4: device: not a JSON pointer: ~ is written ~0, and / in a name ~1"},
		{`device = "/dev"`, `device = "/-/-/-"`, "4: device: - stands three times in the pointer"},
		{`device = "/dev"`, `device = 7.5`, "4: device: not a text or an array of texts"},
		{`device = "/dev"`, `device = []`, "4: device: an empty array"},
		{`device = "/dev"`, `device = "text:bed 7"`, "4: device: text: not a name of 1 to 64 bytes of A-Z a-z 0-9 . _ : -"},
		{`device = "/dev"`, "device = \"/dev + /bed\"\ndevices = { a = \"b\" }", "5: devices: needs a device of one place"},
		{`device = "/dev"`, "device = \"/dev\"\ndevices = { a = \"b c\" }",
			"5: devices: not a name of 1 to 64 bytes of A-Z a-z 0-9 . _ : -"},
		{`name = "m"`, "name = \"m\"\nsource = \"csv\"", "3: source: only json and lines are read here"},
		{plain, "[[mapping]]\nname = \"m\"\nignore = true",
			"3: ignore: needs where, or mappings before it: everything would be ignored"},
		{`name = "m"`, "name = \"m\"\nwhere = { \"/x\" = \"y\" }\nignore = true",
			"4: ignore: what is ignored is not read: give only name, topic and where"},
		{`name = "m"`, "name = \"m\"\nmissing = [255]", "3: missing: 255 is a number, and may be a value: give it to a sign"},
		{`at = "/v/hr"`, `at = "/v/hr", missing = 255`,
			"8: heart_rate_bpm: missing: 255 is in the accepted range, and may be a value"},
		{`at = "/v/hr"`, `at = "/v/hr", missing = " 72"`,
			"8: heart_rate_bpm: missing:  72 is in the accepted range, and may be a value"},
		{`at = "/v/hr"`, `at = "/v/hr", suffix = "bpm", missing = "72 bpm"`,
			"8: heart_rate_bpm: missing: 72 bpm is in the accepted range, and may be a value"},
		{`time = "/t"`, "time = \"/t\"\nmissing = [\"--\", \"255 mmHg\"]",
			"7: missing: 255 mmHg is a number, and may be a value: give it to a sign"},
		{`at = "/v/hr"`, `at = "/v/hr", missing = "2.5e2"`,
			"8: heart_rate_bpm: missing: 2.5e2 is in the accepted range, and may be a value"},
		{`at = "/v/hr"`, `at = "/v/hr", missing = [0, 65535, "--"]`, ""},
		{"topic = \"wards/{gateway}/{device}\"\ndevice = \"/dev\"", `topic = "wards"`,
			"1: device: missing: give a place, a text:NAME, or a topic with {device}"},
		{`time = "/t"`, ``,
			`1: time: missing: give a place, "characteristic", or "received", with which a retry is a new reading`},
		{`time = "/t"`, `time = "now"`, `6: time: not a JSON pointer, such as "/data/hr", or "" for the whole payload`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = \"unix\"",
			"7: time_format: not one of instant, unix_s, unix_ms, nor a pattern such as %Y-%m-%d %H:%M"},
		{`time = "/t"`, "time = \"received\"\ntime_format = \"unix_s\"", "7: time_format: only a time at a place has one"},
		{`time = "/t"`, "time = \"received\"\nzone = \"Europe/Berlin\"", `7: zone: times that are "received" have none`},
		{`time = "/t"`, "time = \"/t\"\nzone = \"Europe/Berln\"",
			`7: zone: neither the name of a zone, such as Europe/Berlin, nor an offset, such as +01:00`},
		{`time = "/t"`, "time = [\"received\", \"/t\"]", `6: time: "received" always has a time: nothing after it is used`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = \"%d.%m.%Y %H:%M\"",
			`7: time_format: "%d.%m.%Y %H:%M" has no %z: give a zone such as Europe/Berlin`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = \"%d.%m. %H:%M %z\"",
			`7: time_format: "%d.%m. %H:%M %z" has no year, such as %Y`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = \"%F %z\"", `7: time_format: "%F %z" has no minute, such as %M`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = \"%F %I:%M %z\"",
			`7: time_format: "%F %I:%M %z" %I and %p go together`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = \"%F %T %Z\"",
			`7: time_format: "%F %T %Z" "%Z" is not supported; the letters are Y y m d e B b h A a H k I l M S f p z F T R D`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = \"%F %T %d %z\"",
			`7: time_format: "%F %T %d %z" %d sets what is set already`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = \"%F %T %\"", `7: time_format: "%F %T %" ends with %`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = [\"%d/%m/%Y %R %z\", \"%m/%d/%Y %R %z\"]",
			`7: time_format: "%d/%m/%Y %R %z" and "%m/%d/%Y %R %z" read one text as two times`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = [\"unix_s\", \"unix_ms\"]",
			`7: time_format: "unix_s" and "unix_ms" read one text as two times`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = [\"%d-%b-%y %R %z\", \"%y-%b-%d %R %z\"]",
			`7: time_format: "%d-%b-%y %R %z" and "%y-%b-%d %R %z" read one text as two times`},
		{`time = "/t"`, "time = \"/t\"\ntime_format = [\"instant\", \"%Y-%d-%m %R %z\"]",
			`7: time_format: "instant" and "%Y-%d-%m %R %z" read one text as two times`},
		{`time = "/t"`, "time = \"/t\"\nzone = \"UTC\"\ntime_format = [\"unix_s\", \"%y%m%d%H%M\"]",
			`8: time_format: "unix_s" and "%y%m%d%H%M" read one text as two times`},
		{`time = "/t"`, "time = \"/t\"\nzone = \"UTC\"\ntime_format = [\"unix_s\", \"%Y%m%d.%H%M\"]",
			`8: time_format: "unix_s" and "%Y%m%d.%H%M" read one text as two times`},
		{`time = "/t"`, "time = \"/t\"\nzone = \"UTC\"\ntime_format = [\"%d%m%y%H%M%S\", \"%d%m%Y%H%M\"]",
			`8: time_format: "%d%m%y%H%M%S" and "%d%m%Y%H%M" read one text as two times`},
		{`time = "/t"`, "time = \"/t\"\nzone = \"UTC\"\ntime_format = [\"%Y%m%d %H%M%S\", \"%Y%m%d %H%M\"]",
			`8: time_format: "%Y%m%d %H%M%S" and "%Y%m%d %H%M" read one text as two times`},
		{`time = "/t"`, "time = \"/t\"\nzone = \"UTC\"\ntime_format = \"%Y%m%d %H%M%S%f\"",
			`8: time_format: "%Y%m%d %H%M%S%f" has %f beside another number: write something between them, such as a point`},
		{`time = "/t"`, "time = \"/t\"\nzone = \"UTC\"\ntime_format = [\"%Y%m%d %H%M%S\", \"%Y%m%d %H:%M\"]", ""},
		{`time = "/t"`, "time = \"/t\"\nzone = \"UTC\"\ntime_format = [\"%Y%m%d%H%M\", \"%Y%m%d%H%M%S\", \"instant\"]", ""},
		{`time = "/t"`, "time = \"/t\"\nzone = \"UTC\"\ntime_format = [\"unix_s\", \"%d.%m.%Y %H:%M\", \"%d.%m.%y %H:%M\"]",
			""},
		{`time = "/t"`, "time = \"/t\"\nzone = \"UTC\"\nambiguous = \"first\"", `8: ambiguous: neither earlier nor later`},
		{`time = "/t"`, "time = \"/t\"\nmonths = [\"Jan\"]", `7: months: not 12 names`},
		{`heart_rate_bpm = { at`, `hart_rate_bpm = { at`,
			"8: hart_rate_bpm: no such sign: it is neither built in nor defined by --signs; did you mean heart_rate_bpm?"},
		{`time = "/t"`, `time = "characteristic"`, `6: time: needs decode = "gatt"`},
		{`time = "/t"`, "time = \"/t\"\ndecode = \"cbor\"", `7: decode: only "gatt" is known`},
		{`time = "/t"`, "time = \"/t\"\ncharacteristic = \"2A37\"", `7: characteristic: needs decode = "gatt"`},
		{`heart_rate_bpm = { at`, `pulse = { at`, "8: pulse: no such sign: it is neither built in nor defined by --signs"},
		{`heart_rate_bpm = { at = "/v/hr" }`, `heart_rate_bpm = { }`, "8: heart_rate_bpm: at is missing: where the value is"},
		{`heart_rate_bpm = { at = "/v/hr" }`, `heart_rate_bpm = { att = "/v/hr" }`, "8: att: unknown key; did you mean at?"},
		{`at = "/v/hr" }`, `at = "hr" }`,
			`8: heart_rate_bpm: not a JSON pointer, such as "/data/hr", or "" for the whole payload`},
		{`at = "/temp/0"`, `at = "/v/hr"`, "8: heart_rate_bpm: at: /v/hr is that of body_temperature_c already"},
		{`at = "/temp/0"`, `at = "/w"`, "9: body_weight_kg: at: /w is that of body_temperature_c already"},
		{`at = "/temp/0"`, `at = "/w", suffix = "C"`, ""},
		{`at = "/temp/0"`, `at = "/w", unit_at = "/kind", unit_is = "C"`,
			"9: body_weight_kg: at: /w is that of body_temperature_c already"},
		{`at = "/temp/0"`, `at = "/w", unit_at = "/unit", unit_is = "kg"`,
			"9: body_weight_kg: at: /w is that of body_temperature_c already"},
		{`at = "/temp/0"`, `at = "/w", unit_at = "/unit", unit_is = "C"`, ""},
		{`, unit_is = "kg"`, ``, "9: body_weight_kg: unit_at and unit_is go together"},
		{`unit = "1"`, `unit = "mg"`,
			"10: spo2_pct: unit: a value in mg has no exact decimal in %: define an own sign in mg"},
		{`factor = 0.1`, `unit = "[degF]"`,
			"11: body_temperature_c: unit: a value in [degF] has no exact decimal in Cel: add round = true, or define an own " +
				"sign in [degF]"},
		{`factor = 0.1`, `factor = 0.1, unit = "K"`, "11: body_temperature_c: give either a factor or a unit"},
		{`factor = 0.1`, `factor = "1/10"`, "11: body_temperature_c: factor: not a decimal number above 0, such as 0.01"},
		{`factor = 0.1`, `factor = -0.1`, "11: body_temperature_c: factor: not a decimal number above 0, such as 0.01"},
		{`factor = 0.1`, `factor = inf`, "11: body_temperature_c: factor: not a decimal number above 0, such as 0.01"},
		{plain, strings.Split(plain, "[mapping.signs]")[0], "1: signs: missing"},
		{plain, plain + plain,
			`12: where: not reached: an earlier mapping of this name or topic takes every payload, because it has no where`},
		{`at = "/w"`, `at = "/a/-/w"`, ""},
		{`at = "/w", unit_at = "/unit"`, `at = "/a/-/w", unit_at = "/b/-"`,
			"9: body_weight_kg: the elements of another array are read already: /a/-"},
	} {
		_, path, err := read(t, strings.Replace(plain, tt.old, tt.new, 1))
		want := path + ":" + tt.want
		if tt.want == "" {
			want = "<nil>"
		}
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s:\n got %s\nwant %s", tt.new, got, want)
		}
	}
	for text, want := range map[string]string{"": ": no [[mapping]]",
		strings.Repeat("#", 70_000): " is larger than 65536 bytes"} {
		if _, path, err := read(t, text); fmt.Sprint(err) != path+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	many := ""
	for i := range 65 {
		many += strings.NewReplacer(`"m"`, fmt.Sprintf(`"m%d"`, i), "wards", fmt.Sprintf("w%d", i)).Replace(plain)
	}
	if _, path, err := read(t, many); fmt.Sprint(err) != path+":706: name: more than 64 mappings" {
		t.Errorf("got %v", err)
	}
}

// gatt has a mapping for each characteristic.
const gatt = `[[mapping]]
name = "m"
where = { "/c" = "2A35" }
device = "/d"
time = "characteristic"
zone = "Europe/Berlin"
decode = "gatt"
characteristic = "2A35"
value = "/x"
user_suffix = "-u"
signs = { systolic_mmhg = { at = "systolic" }, diastolic_mmhg = { at = "diastolic" }, pulse_rate_bpm = { at = "pulse_rate" }, map_mmhg = { at = "mean_arterial" } }

[[mapping]]
name = "kpa"
device = "/d"
time = "received"
decode = "gatt"
characteristic = "2a35"
value = "/x"
[mapping.signs]
systolic_mmhg = { at = "systolic" }
diastolic_mmhg = { at = "diastolic" }
systolic_kpa = { at = "systolic" }
diastolic_kpa = { at = "diastolic" }

[[mapping]]
name = "m"
where = { "/c" = "2A37" }
device = "/d"
time = "/t"
time_format = "unix_s"
decode = "gatt"
characteristic = "2A37"
value = "/x"
encoding = "base64"
signs.heart_rate_bpm.at = "heart_rate"

[[mapping]]
name = "m"
where = { "/c" = "2A5E" }
device = "/d"
time = "characteristic"
zone = "+05:30"
decode = "gatt"
characteristic = "2A5E"
value = "/x"
signs = { spo2_pct = { at = "spo2" }, pulse_rate_bpm = { at = "pulse_rate" }, pai_pct = { at = "pulse_amplitude" } }

[[mapping]]
name = "m"
where = { "/c" = "2A5F" }
device = "/d"
time = "received"
decode = "gatt"
characteristic = "2A5F"
value = "/x"
signs = { spo2_pct = { at = "spo2" }, pulse_rate_bpm = { at = "pulse_rate" }, spo2_fast_pct = { at = "spo2_fast" } }

[[mapping]]
name = "m"
where = { "/c" = "2A1C" }
device = "/d"
time = "received"
decode = "gatt"
characteristic = "2A1C"
value = "/x"
signs.body_temperature_c.at = "temperature"

[[mapping]]
name = "f"
device = "/d"
time = "received"
decode = "gatt"
characteristic = "2A1C"
value = "/x"
signs.skin_f.at = "temperature"

[[mapping]]
name = "m"
where = { "/c" = "2A9D" }
device = "/d"
time = "received"
decode = "gatt"
characteristic = "2A9D"
value = "/x"
signs = { body_weight_kg = { at = "weight" }, bmi = { at = "bmi" }, height_m = { at = "height" } }

[[mapping]]
name = "lb"
device = "/d"
time = "received"
decode = "gatt"
characteristic = "2A9D"
value = "/x"
signs.weight_lb.at = "weight"
`

// TestGATTErrors checks mappings of characteristics.
func TestGATTErrors(t *testing.T) {
	one := strings.Split(gatt, "\n\n")[0]
	for _, tt := range []struct{ old, new, want string }{
		{`characteristic = "2A35"`, `characteristic = "2A19"`,
			"8: characteristic: not one of 2A1C, 2A35, 2A37, 2A5E, 2A5F, 2A9D"},
		{`value = "/x"`, ``, "1: value: missing: the pointer to the characteristic"},
		{`value = "/x"`, "value = \"/x\"\nencoding = \"text\"", "10: encoding: neither hex nor base64"},
		{`user_suffix = "-u"`, `user_suffix = " u"`, "10: user_suffix: not up to 16 bytes of A-Z a-z 0-9 . _ : and -"},
		{`zone = "Europe/Berlin"`, ``,
			"1: zone: missing: time stamps of characteristics have none; give a name such as Europe/Berlin, or an offset " +
				"such as +01:00"},
		{`zone = "Europe/Berlin"`, `zone = "Local"`,
			"6: zone: neither the name of a zone, such as Europe/Berlin, nor an offset, such as +01:00"},
		{`zone = "Europe/Berlin"`, `zone = "CEST"`,
			"6: zone: neither the name of a zone, such as Europe/Berlin, nor an offset, such as +01:00"},
		{`characteristic = "2A35"`, `characteristic = "2A37"`, "5: time: 2A37 has no time stamp"},
		{`at = "systolic"`, `at = "spo2"`,
			"11: systolic_mmhg: at: the characteristic has no such part; it has diastolic, mean_arterial, pulse_rate, systolic"},
		{`at = "systolic"`, `at = "pulse_rate"`,
			"11: systolic_mmhg: at: this part is in /min, the sign in mm[Hg], and values are not converted: define an own sign"},
		{`at = "diastolic"`, `at = "systolic"`, "11: systolic_mmhg: at: systolic is that of diastolic_mmhg already"},
		{`at = "systolic"`, `at = "systolic", factor = 2`,
			"11: systolic_mmhg: a characteristic has its units; give only at and round"},
	} {
		text := strings.Replace(one, tt.old, tt.new, 1)
		_, path, err := read(t, text)
		if got, want := fmt.Sprint(err), path+":"+tt.want; got != want {
			t.Errorf("%s:\n got %s\nwant %s", tt.new, got, want)
		}
	}
}

// TestDecode checks payloads of JSON.
func TestDecode(t *testing.T) {
	set, _, err := read(t, plain)
	try(t, err)
	const at = `"dev":"d","t":"2026-11-25T10:00:00+01:00"`
	const ok = `{"device":"d","time":"2026-11-25T10:00:00.000+01:00"`
	for _, tt := range []struct{ message, want string }{
		{`{` + at + `,"v":{"hr":72}}`, ok + `,"heart_rate_bpm":72}`},
		{`{` + at + `,"v":{"hr":"72.50"}}`, ok + `,"heart_rate_bpm":72.5}`},
		{`{` + at + `,"v":{"hr":7.2e1,"x":[1,{}]},"temp":[367,1],"ratio":0.975,"w":80.005,"unit":"kg","gw":"g"}`,
			ok + `,"spo2_pct":97.5,"heart_rate_bpm":72,"body_temperature_c":36.7,"body_weight_kg":80.005,"gateway":"g"}`},
		{`{` + at + `,"v":{"hr":null},"temp":[36.75e1]}`, ok + `,"body_temperature_c":36.75}`},
		{"\ufeff{" + at + `,"v":{"hr":72},"temp":null,"gw":null,"w":null,"ratio":null}`, ok + `,"heart_rate_bpm":72}`},
		{`{` + at + `,"v":{"hr":null},"temp":[null]}`, ": no vital sign given"},
		{`{` + at + `,"ratio":0.01}`, "spo2_pct: outside the accepted range 2 to 100 %; a fraction? send per cent"},
		{`{` + at + `,"temp":[36.7555]}`, "body_temperature_c: more than two decimals"},
		{`{` + at + `,"temp":["warm"]}`, "body_temperature_c: neither a number nor a string with one"},
		{`{` + at + `,"temp":[true]}`, "body_temperature_c: neither a number nor a string with one"},
		{`{` + at + `,"temp":[[367]]}`, "body_temperature_c: neither a number nor a string with one"},
		{`{` + at + `,"temp":[1e100]}`, "body_temperature_c: a number of more than 64 bytes, or with an exponent beyond 99"},
		{`{` + at + `,"temp":[1e99]}`, "body_temperature_c: outside the accepted range"},
		{`{` + at + `,"temp":[1e-99]}`, "body_temperature_c: more than two decimals"},
		{`{` + at + `,"temp":[9999999999999999]}`, "body_temperature_c: outside the accepted range"},
		{`{` + at + `,"v":{"hr":0}}`, "heart_rate_bpm: no signal"},
		{`{` + at + `,"v":{"hr":301}}`, "heart_rate_bpm: outside the accepted range 20 to 300 /min"},
		{`{` + at + `,"v":{"hr":72.005}}`, "heart_rate_bpm: more than two decimals"},
		{`{` + at + `,"v":{"hr":"72 "}}`, "heart_rate_bpm: neither a number nor a string with one"},
		{`{` + at + `,"w":80}`, "body_weight_kg: the payload does not say its unit"},
		{`{` + at + `,"w":80,"unit":"lb"}`, "body_weight_kg: not in the unit of the mapping; units are not converted"},
		{`{` + at + `,"w":80,"unit":["kg"]}`, "body_weight_kg: not in the unit of the mapping; units are not converted"},
		{`{` + at + `,"v":72}`, ": no vital sign given"},
		{`{` + at + `}`, ": no vital sign given"},
		{`{"t":"2026-11-25T10:00:00Z","v":{"hr":72}}`, "device: missing"},
		{`{"dev":7,"t":"2026-11-25T10:00:00Z","v":{"hr":72}}`,
			`{"device":"7","time":"2026-11-25T10:00:00.000Z","heart_rate_bpm":72}`},
		{`{"dev":true,"v":{"hr":72}}`, "device: neither a string nor a number"},
		{`{"dev":"bed 7","t":"2026-11-25 10:00+01","v":{"hr":72}}`, strings.Replace(ok, `"d"`, `":bed:207"`, 1) +
			`,"heart_rate_bpm":72}`},
		{`{"dev":"` + strings.Repeat(" ", 22) + `","v":{"hr":72}}`,
			"device: longer than 64 bytes as a name, in which : and two digits are written for other characters"},
		{`{"dev":"d","v":{"hr":72}}`, "time: missing"},
		{`{"dev":"d","t":1,"v":{"hr":72}}`, "time: not a time such as 2026-11-21T10:00:00+01:00"},
		{`{"dev":"d","t":"2026-11-25T10:00:00","v":{"hr":72}}`, "time: no time zone"},
		{`{"dev":"d","t":"2026-11-26T10:00:00Z","v":{"hr":72}}`, "time: more than 5m0s ahead of the server's clock"},
		{`72`, "device: missing"},
		{`[]`, "device: missing"},
		{"{" + at + `,"v":{"hr":72}}` + "\n" + `{"dev":"e"}`, ok + `,"heart_rate_bpm":72}` + "\ntime: missing"},
		{"1 2 3 4", "device: missing\ndevice: missing\ndevice: missing\ndevice: missing"},
		{"1 2 3 4 5", "error: too many readings in one body"},
		{"", "error: byte 0: empty body"},
		{`{"dev":"d"`, "error: byte 10: cut off"},
		{`{"dev":"d","dev":"e"}`, "error: byte 11: field name given twice"},
		{`{"dev":"d"} x`, "error: byte 11: data after the end of the value"},
		{"{\"dev\":\"\xff\"}", "error: byte 8: not JSON"},
		{strings.Repeat("[", 65), "error: byte 64: nested more than 64 levels deep"},
	} {
		if got := decode(t, set.Named("m"), vitals.Origin{}, tt.message); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.message, got, tt.want)
		}
	}
	device, _ := vitals.ParseName("d")
	other, _ := vitals.ParseName("other")
	for _, tt := range []struct {
		from vitals.Origin
		want string
	}{
		{vitals.Origin{Device: device, Gateway: other}, ok + `,"heart_rate_bpm":72,"gateway":"other"}`},
		{vitals.Origin{Device: other}, "device: not the one of the topic or of the credentials"},
	} {
		if got := decode(t, set.OfTopic("wards/{gateway}/{device}"), tt.from, `{`+at+`,"v":{"hr":72}}`); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
	if set.Named("x") != nil || set.OfTopic("x") != nil {
		t.Error("an input of no mapping")
	}
}

// TestTimes checks the formats of times, exactly.
func TestTimes(t *testing.T) {
	for _, tt := range []struct{ format, at, want string }{
		{"unix_s", `1790000000`, "2026-09-21T14:13:20.000Z"},
		{"unix_s", `"1790000000.123"`, "2026-09-21T14:13:20.123Z"},
		{"unix_s", `1790000000.1230`, "2026-09-21T14:13:20.123Z"},
		{"unix_s", `1.790000000123e9`, "2026-09-21T14:13:20.123Z"},
		{"unix_s", `1790000000.1239`, "2026-09-21T14:13:20.123Z"},
		{"unix_s", `1e99`, "too far ahead of the server's clock"},
		{"unix_s", `-1e99`, "before 1970"},
		{"unix_s", `1790000000000`, "more than 5m0s ahead of the server's clock"},
		{"unix_s", `"2026-11-25T10:00:00Z"`, "neither a number nor a string with one"},
		{"unix_s", `false`, "neither a string nor a number"},
		{"unix_ms", `1790000000123`, "2026-09-21T14:13:20.123Z"},
		{"unix_ms", `1790000000123.5`, "2026-09-21T14:13:20.123Z"},
		{"unix_ms", `1790000000`, "before 2001-01-01T00:00:00.000Z, the oldest time that this server accepts"},
		{"rfc3339", `"2026-11-25T10:00:00.5+01:30"`, "2026-11-25T10:00:00.500+01:30"},
	} {
		set, _, err := read(t, strings.Replace(plain, `time = "/t"`, "time = \"/t\"\ntime_format = \""+tt.format+`"`, 1))
		try(t, err)
		want := `{"device":"d","time":"` + tt.want + `","heart_rate_bpm":72}`
		if !strings.HasSuffix(tt.want, "Z") && !strings.Contains(tt.want, "T10") {
			want = "time: " + tt.want
		}
		if got := decode(t, set.Named("m"), vitals.Origin{}, `{"dev":"d","t":`+tt.at+`,"v":{"hr":72}}`); got != want {
			t.Errorf("%s %s: got %s, want %s", tt.format, tt.at, got, want)
		}
	}
}

// TestElements checks that each element of an array is a reading, wherever the rest of the payload is.
func TestElements(t *testing.T) {
	set, _, err := read(t, `[[mapping]]
name = "m"
where = { "/kind" = "vitals", "/a/-/n" = "1" }
device = "/a/-/d"
time = "/ms"
time_format = "unix_ms"
signs.heart_rate_bpm.at = "/a/-/hr"
[[mapping]]
name = "m"
where = { "/kind" = "vitals", "/a/-/n" = "true" }
device = "/gw/0"
time = "/ms"
time_format = "unix_ms"
signs.spo2_pct.at = "/a/-/hr"
`)
	try(t, err)
	const at = `"time":"2026-09-21T14:13:20.000Z"`
	for _, tt := range []struct{ message, want string }{
		{`{"a":[{"d":"x","hr":70,"n":1},{"hr":71,"n":"1"},{"n":true,"hr":97},{"n":2}],"ms":1790000000000,"kind":"vitals",` +
			`"gw":["g"]}`,
			`{"device":"x",` + at + `,"heart_rate_bpm":70}` + "\ndevice: missing\n" + `{"device":"g",` + at + `,"spo2_pct":97}` +
				"\n: no mapping fits: none has a where that holds"},
		{`{"kind":"vitals","a":[]}`, ""},
		{`{"kind":"vitals","a":{"-":{"n":1}}}`, ": the array of readings is missing"},
		{`{"kind":"vitals"} {"a":[1]}`, ": the array of readings is missing\n: no mapping fits: none has a where that holds"},
		{`{"a":[1,2,3,4,5]}`, "error: too many readings in one body"},
	} {
		if got := decode(t, set.Named("m"), vitals.Origin{}, tt.message); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.message, got, tt.want)
		}
	}
}

// TestGATT checks characteristics. Their bytes are in hex or base64.
func TestGATT(t *testing.T) {
	set, _, err := read(t, gatt)
	try(t, err)
	reading := func(device, at, members string) string {
		return `{"device":"` + device + `","time":"` + at + `",` + members + `}`
	}
	left := func(why string, fields ...string) string {
		fields = slices.Sorted(slices.Values(fields))
		return "d " + strings.Join(fields, " "+why+"\nd ") + " " + why
	}
	oximeter, continuous := []string{"spo2_pct", "pulse_rate_bpm", "pai_pct"},
		[]string{"spo2_pct", "pulse_rate_bpm", "spo2_fast_pct"}
	const atNow = "2026-11-25T12:00:00.000Z"
	for _, tt := range []struct{ name, c, value, want string }{
		// Blood pressure: 120/80 (93), at 2026-07-01 08:30:05, 62/min, user 2, irregular pulse.
		{"m", "2A35", "1E7800500 05D00 EA0707 01081E05 3E00 02 0400", reading("d-u2", "2026-07-01T08:30:05.000+02:00",
			`"systolic_mmhg":120,"diastolic_mmhg":80,"pulse_rate_bpm":62,"map_mmhg":93`)},
		{"m", "2A35", "0E7800500 05D00 EA0707 01081E05 3E00 FF", reading("d", "2026-07-01T08:30:05.000+02:00",
			`"systolic_mmhg":120,"diastolic_mmhg":80,"pulse_rate_bpm":62,"map_mmhg":93`)},
		{"m", "2A35", "02 B0F4 20F3 FF07 EA0701 01081E05",
			reading("d", "2026-01-01T08:30:05.000+01:00", `"systolic_mmhg":120,"diastolic_mmhg":80`)},
		{"m", "2A35", "02 7800 FF07 FF07 EA0707 01081E05", "diastolic_mmhg: systolic and diastolic go together"},
		{"m", "2A35", "02 FF07 0008 0108 EA0707 01081E05", left("not_available", "systolic_mmhg", "diastolic_mmhg",
			"pulse_rate_bpm", "map_mmhg")},
		{"m", "2A35", "00 7800 5000 5D00", "time: missing"},
		{"m", "2A35", "02 7800 5000 5D00 00000000000000", "time: the time stamp has no date"},
		{"m", "2A35", "02 7800 5000 5D00 EA07021E081E05", "time: the time stamp is no date and time"},
		{"m", "2A35", "02 7800 5000 5D00 EA07031D020000", "time: the zone has no such time: its clock was put forward"},
		{"m", "2A35", "02 7800 5000 5D00 EA070A19020000", "time: the zone has this time twice: its clock was put back"},
		{"m", "2A35", "02 7800 5000 5D00 EA070A19010000",
			reading("d", "2026-10-25T01:00:00.000+02:00", `"systolic_mmhg":120,"diastolic_mmhg":80,"map_mmhg":93`)},
		{"m", "2A35", "02 7800 5000 5D00 EA070A19030000",
			reading("d", "2026-10-25T03:00:00.000+01:00", `"systolic_mmhg":120,"diastolic_mmhg":80,"map_mmhg":93`)},
		{"m", "2A35", "03 7800 5000 5D00 EA0707 01081E05",
			"systolic_mmhg: in kPa, of which the mapping has no sign; units are not converted"},
		{"m", "2A35", "22 7800 5000 5D00 EA0707 01081E05", "value: the characteristic has flags that are reserved"},
		{"m", "2A35", "02 7800 5000 5D00 EA0707 01081E", "value: the characteristic is shorter than its flags say"},
		{"m", "2A35", "", "value: the characteristic is shorter than its flags say"},
		{"m", "2A35", "02 7800 5000 5D00 EA0707 01081E05 00", "value: the characteristic is longer than its flags say"},
		{"m", "2A35", "0", "value: not a characteristic in hex"},
		{"m", "2A35", "zz", "value: not a characteristic in hex"},
		{"m", "2A35", strings.Repeat("00", 513), "value: the characteristic is longer than its flags say"},
		{"kpa", "2A35", "01 A0F0 6BF0 FF07", reading("d", atNow, `"systolic_kpa":16,"diastolic_kpa":10.7`)},
		{"kpa", "2A35", "00 7800 5000 FF07", reading("d", atNow, `"systolic_mmhg":120,"diastolic_mmhg":80`)},
		{"kpa", "2A35", "01 41D6 6BF0 FF07", "systolic_kpa: more than two decimals"},

		{"m", "2A37", "AEg=", reading("d", "2026-09-21T14:13:20.000Z", `"heart_rate_bpm":72`)},
		{"m", "2A37", "FkgABA==", reading("d", "2026-09-21T14:13:20.000Z", `"heart_rate_bpm":72`)}, // contact, one interval
		{"m", "2A37", "BEg=", left("not_available", "heart_rate_bpm")},
		{"m", "2A37", "CUgAAQA=", reading("d", "2026-09-21T14:13:20.000Z", `"heart_rate_bpm":72`)}, // 16 bits, energy
		{"m", "2A37", "EEgAAAA=", "value: the characteristic is longer than its flags say"},        // half an interval
		{"m", "2A37", "AAA=", "heart_rate_bpm: no signal"},
		{"m", "2A37", "AEg", "value: not a characteristic in base64"},

		{"m", "2A5E", "0B 6200 4800 EA0707 01081E05 0001 64F0",
			reading("d", "2026-07-01T08:30:05.000+05:30", `"spo2_pct":98,"pulse_rate_bpm":72,"pai_pct":10`)},
		{"m", "2A5E", "01 FF07 4800 EA0707 01081E05", reading("d", "2026-07-01T08:30:05.000+05:30", `"pulse_rate_bpm":72`)},
		{"m", "2A5E", "11 6200 4800 EA0707 01081E05", "time: the clock of the device is not set"},
		{"m", "2A5E", "03 6200 4800 EA0707 01081E05 0080", left("invalid", oximeter...)},
		{"m", "2A5E", "03 6200 4800 EA0707 01081E05 0004", left("demo", oximeter...)},
		{"m", "2A5E", "07 6200 4800 EA0707 01081E05 0040 010000", left("questionable", oximeter...)},
		{"m", "2A5E", "03 6200 4800 EA0707 01081E05 2000", left("busy", oximeter...)},
		{"m", "2A5E", "03 6200 4800 EA0707 01081E05 4000", left("early", oximeter...)},
		// validated, from storage
		{"m", "2A5E", "03 6200 4800 EA0707 01081E05 8003",
			reading("d", "2026-07-01T08:30:05.000+05:30", `"spo2_pct":98,"pulse_rate_bpm":72`)},
		{"m", "2A5E", "05 6200 4800 EA0707 01081E05 000800", left("not_available", oximeter...)},
		// poor
		{"m", "2A5E", "05 6200 4800 EA0707 01081E05 FF77FF",
			reading("d", "2026-07-01T08:30:05.000+05:30", `"spo2_pct":98,"pulse_rate_bpm":72`)},
		{"m", "2A5E", "00 6200 4800", "time: missing"},

		{"m", "2A5F", "00 CFF3 D0F2", reading("d", atNow, `"spo2_pct":97.5,"pulse_rate_bpm":72`)},
		{"m", "2A5F", "1F 6200 4800 6000 4900 FF07 FF07 0001 000000 FF07",
			reading("d", atNow, `"spo2_pct":98,"pulse_rate_bpm":72,"spo2_fast_pct":96`)},
		{"m", "2A5F", "08 6200 4800 000800", left("not_available", continuous...)},
		{"m", "2A5F", "08 6200 4800 008000", left("not_available", continuous...)},
		{"m", "2A5F", "05 6200 4800 6000 4900 0020", left("not_available", continuous...)},

		{"m", "2A1C", "06 6E0E00FE EA0707 01081E05 02", reading("d", atNow, `"body_temperature_c":36.94`)},
		{"m", "2A1C", "00 FFFF7F00", left("not_available", "body_temperature_c")},
		{"m", "2A1C", "00 AC9000FD", "body_temperature_c: more than two decimals"},
		{"m", "2A1C", "01 DA0300FF",
			"body_temperature_c: in [degF], of which the mapping has no sign; units are not converted"},
		{"f", "2A1C", "01 DA0300FF", reading("d", atNow, `"skin_f":98.6`)},
		{"f", "2A1C", "00 6E0100FF", "skin_f: in Cel, of which the mapping has no sign; units are not converted"},

		{"m", "2A9D", "00 8F38", reading("d", atNow, `"body_weight_kg":72.395`)},
		{"m", "2A9D", "0E 8F38 EA0707 01081E05 01 E700 D406",
			reading("d", atNow, `"body_weight_kg":72.395,"bmi":23.1,"height_m":1.748`)},
		{"m", "2A9D", "00 FFFF", left("not_available", "body_weight_kg", "bmi", "height_m")},
		{"m", "2A9D", "01 4C3E", "body_weight_kg: in [lb_av], of which the mapping has no sign; units are not converted"},
		{"lb", "2A9D", "01 4C3E", reading("d", atNow, `"weight_lb":159.48`)},
	} {
		message := fmt.Sprintf(`{"c":%q,"d":"d","t":1790000000,"x":%q}`, tt.c, strings.ReplaceAll(tt.value, " ", ""))
		if got := decode(t, set.Named(tt.name), vitals.Origin{}, message); got != tt.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tt.c, tt.value, got, tt.want)
		}
	}
	for message, want := range map[string]string{
		`{"c":"2A35","d":"d"}`:          "value: missing",
		`{"c":"2A35","d":"d","x":[]}`:   "value: neither a string nor a number",
		`{"c":"2A35","d":"d","x":7800}`: "value: the characteristic has flags that are reserved",
	} {
		if got := decode(t, set.Named("m"), vitals.Origin{}, message); got != want {
			t.Errorf("%s: got %s, want %s", message, got, want)
		}
	}
	long := strings.Repeat("d", 62)
	if got := decode(t, set.Named("m"), vitals.Origin{},
		`{"c":"2A35","d":"`+long+`","x":"0E780050005D00EA070701081E053E0002"}`); got !=
		"device: not a name of 1 to 64 bytes of A-Z a-z 0-9 . _ : -" {
		t.Errorf("a name that is too long with the user: %s", got)
	}
}

// TestExamples checks the mappings of gateways with payloads that these send. docs/mappings.md has their sources.
func TestExamples(t *testing.T) {
	const examples = "../../../examples/mappings/"
	for _, tt := range []struct{ file, pattern, payloads, device, gateway, want string }{
		{"theengs", "home/{gateway}/BTtoMQTT/{device}", "theengs", "4C33A6603C79", "OMG",
			`{"device":"4C33A6603C79","time":"2023-03-17T01:05:07.000Z","body_weight_kg":61.75,"gateway":"OMG"}` +
				"\nbody_weight_kg: not in the unit of the mapping; units are not converted\n: no mapping fits: none has a " +
				"where that holds"},
		{"theengs-received", "home/{gateway}/BTtoMQTT/{device}", "theengs", "4C33A6603C79", "OMG",
			`{"device":"4C33A6603C79","time":"2026-11-25T12:00:00.000Z","body_weight_kg":61.75,"gateway":"OMG"}` +
				"\nbody_weight_kg: not in the unit of the mapping; units are not converted\n: no mapping fits: none has a " +
				"where that holds"},
		{"esphome", "{device}/sensor/heart_rate/state", "esphome", "node-1", "",
			`{"device":"node-1","time":"2026-11-25T12:00:00.000Z","heart_rate_bpm":72}`},
		{"cassia", "up/{gateway}/notification", "cassia", "", "CC:1B:E0:E2:8F:2C",
			`{"device":"AA:BB:CC:DD:EE:FF","time":"2023-03-13T09:04:57.028Z","systolic_mmhg":132,"diastolic_mmhg":73,` +
				`"pulse_rate_bpm":76,"gateway":"CC:1B:E0:E2:8F:2C"}`},
		{"cassia", "omron/blood_pressure", "cassia-omron", "", "",
			`{"device":"AA:BB:CC:DD:EE:FF","time":"2024-03-09T16:00:00.000Z","systolic_mmhg":132,"diastolic_mmhg":73,` +
				`"pulse_rate_bpm":76}`},
	} {
		set, err := mapping.Read([]string{examples + tt.file + ".toml"}, codes.Table{Signs: signs(t)}, nil, topic, nil)
		try(t, err)
		payloads, err := os.ReadFile(examples + "payloads/" + tt.payloads + ".json")
		try(t, err)
		var from vitals.Origin
		from.Device, _ = vitals.ParseName(tt.device)
		from.Gateway, _ = vitals.ParseName(tt.gateway)
		if got := decode(t, set.OfTopic(tt.pattern), from, string(payloads)); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.file, got, tt.want)
		}
	}
}

var try = polltest.Try

// A pulse rate is stored as a heart rate if the table says so. A payload with both keeps the heart rate.
func TestPulseAsHeartRate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.toml")
	try(t, os.WriteFile(path, []byte(`[[mapping]]
name = "m"
where = { "/c" = "2A5F" }
device = "/id"
time = "received"
decode = "gatt"
characteristic = "2A5F"
value = "/value"
signs = { spo2_pct = { at = "spo2" }, pulse_rate_bpm = { at = "pulse_rate" } }
[[mapping]]
name = "m"
device = "/id"
time = "received"
signs = { heart_rate_bpm = { at = "/hr" }, pulse_rate_bpm = { at = "/pr" } }
`), 0o600))
	set, err := mapping.Read([]string{path}, codes.Table{Signs: signs(t), PulseAsHeartRate: true}, nil, topic, nil)
	try(t, err)
	for _, tt := range []struct{ members, want string }{
		{`"c":"2A5F","value":"0062004800"`, `"spo2_pct":98,"heart_rate_bpm":72}`},
		{`"c":"2A5F","value":"0062000000"`, "heart_rate_bpm: no signal"},
		{`"pr":72`, `"heart_rate_bpm":72}`},
		{`"pr":72,"hr":70`, `,"heart_rate_bpm":70}`},
		{`"pr":"x"`, "heart_rate_bpm: neither a number"},
	} {
		if got := decode(t, set.Named("m"), vitals.Origin{}, `{"id":"d",`+tt.members+`}`); !strings.Contains(got, tt.want) ||
			strings.Contains(got, "pulse") {
			t.Errorf("%s: got %s, want %s", tt.members, got, tt.want)
		}
	}
}
