package influx_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/influx"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/mapping"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/vitals"
)

var try = polltest.Try

// readMappings returns the mappings of a file for lines.
func readMappings(path string) (*influx.Mappings, error) {
	table := codes.Table{Signs: vitals.NewSigns()}
	lines := influx.NewMappings(table, nil)
	_, err := mapping.Read([]string{path}, table, nil, nil, mapping.Others{influx.Source: lines.Add})
	return lines, err
}

// mappingsOf is readMappings for a text.
func mappingsOf(t testing.TB, text string) (*influx.Mappings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.toml")
	try(t, os.WriteFile(path, []byte(text), 0o600))
	lines, err := readMappings(path)
	if err != nil {
		err = fmt.Errorf("%s", strings.TrimPrefix(err.Error(), path+":"))
	}
	return lines, err
}

// metric returns the value of a metric of the service.
func (s *service) metric(t *testing.T, name string) string {
	t.Helper()
	w := httptest.NewRecorder()
	metrics.Handler("", func() bool { return true }, s.core).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	_, value, _ := strings.Cut(w.Body.String(), "\n"+name+" ")
	value, _, _ = strings.Cut(value, "\n")
	return value
}

// homeAssistant has mappings of Home Assistant, and some for what is odd.
const homeAssistant = `[[mapping]]
name = "ha"
source = "lines"
where = { measurement = "bpm", "tag:entity_id" = "o2_hr" }
device = "text:watch-1"
signs.heart_rate_bpm = { at = "field:value" }
[[mapping]]
name = "ha"
source = "lines"
where = { measurement = "%", "tag:entity_id" = "o2_spo2" }
device = "text:watch-1"
missing = ["unknown", "NaN"]
signs.spo2_pct = { at = "field:value", missing = 255 }
[[mapping]]
name = "ha"
source = "lines"
where = { "tag:domain" = "sensor" }
ignore = true
[[mapping]]
name = "beds"
source = "lines"
where = { measurement = "beds", "field:worn" = "true", "field:mode" = "day \"1\"" }
device = "tag:ward + field:bed"
gateway = "tag:hub"
signs.heart_rate_bpm = { at = "field:hr", factor = 0.01 }
signs.body_temperature_c = { at = "field:f", unit = "[degF]", round = true }
[[mapping]]
name = "scale"
source = "lines"
where = { measurement = "scale" }
device = "tag:who"
devices = { "Person A" = "scale-a" }
time = ["timestamp", "field:at", "received"]
time_format = "unix_s"
signs.body_weight_kg = { at = "field:g", unit = "g" }
[[mapping]]
name = "clock"
source = "lines"
where = { measurement = "clock" }
device = "field:serial"
time = "field:date + field:clock"
time_format = ["%Y%m%d %H%M%S", "%Y%m%d %H:%M"]
zone = "Europe/Berlin"
signs.heart_rate_bpm = { at = "field:hr" }
`

// TestMapped checks what is stored of lines that mappings fit, and why others are rejected.
func TestMapped(t *testing.T) {
	m, err := mappingsOf(t, homeAssistant)
	try(t, err)
	const now = 1795341600
	for _, tt := range []struct{ line, device, want string }{
		{"bpm,domain=sensor,entity_id=o2_hr friendly_name_str=\"O2 HR\",value=72.0 1795341600", "watch-1",
			`1795341600000,"heart_rate_bpm":72`},
		{"bpm,domain=sensor,entity_id=o2_hr value=72.126 1795341600", "", "heart_rate_bpm: more than two decimals"},
		{`bpm,domain=sensor,entity_id=o2_hr value="72" 1795341600`, "watch-1", `1795341600000,"heart_rate_bpm":72`},
		{"bpm,domain=sensor,entity_id=o2_hr value=072i 1795341600", "watch-1", `1795341600000,"heart_rate_bpm":72`},
		{"bpm,domain=sensor,entity_id=o2_hr value=.72e2 1795341600", "watch-1", `1795341600000,"heart_rate_bpm":72`},
		{"bpm,domain=sensor,entity_id=o2_hr value=t 1795341600", "",
			"heart_rate_bpm: neither a number nor a string with one"},
		{"bpm,domain=sensor,entity_id=o2_hr value=NaN 1795341600", "",
			"heart_rate_bpm: neither a number nor a string with one"},
		{"bpm,domain=sensor,entity_id=o2_hr value=72.5i 1795341600", "",
			"heart_rate_bpm: neither a number nor a string with one"},
		{"bpm,domain=sensor,entity_id=o2_hr value=-72u 1795341600", "",
			"heart_rate_bpm: neither a number nor a string with one"},
		{"bpm,domain=sensor,entity_id=o2_hr value=0 1795341600", "", "heart_rate_bpm: no signal"},
		{"bpm,domain=sensor,entity_id=o2_hr value=72", "",
			"time: missing; without a timestamp, each retry would be a new reading"},
		{"bpm,domain=sensor,entity_id=o2_hr value=72 1795341600123", "", "time: too far ahead of the server's clock"},
		{"bpm,domain=sensor,entity_id=o2_hr value=72,value=73 1795341600", "", "value: given twice"},
		{"bpm,domain=sensor,entity_id=o2_hr,entity_id=b value=72 1795341600", "", "entity_id: given twice"},
		{"bpm,domain=sensor,entity_id=o2_hr icon=1,icon=2,value=72 1795341600", "watch-1",
			`1795341600000,"heart_rate_bpm":72`},
		{"bpm,domain=sensor,entity_id=other value=72 1795341600", "", ""},
		{"%,domain=sensor,entity_id=battery value=97 1795341600", "", ""},
		{"%,domain=sensor,entity_id=o2_spo2 value=97 1795341600", "watch-1", `1795341600000,"spo2_pct":97`},
		{"%,domain=sensor,entity_id=o2_spo2 value=255i 1795341600", "", ""},
		{"%,domain=sensor,entity_id=o2_spo2 value=NaN 1795341600", "", ""},
		{`%,domain=sensor,entity_id=o2_spo2 value="unknown" 1795341600`, "", ""},
		{"%,domain=sensor,entity_id=o2_spo2 state=1 1795341600", "", ""}, // no place of a sign: ignored
		// No mapping fits: as without them.
		{"%,domain=light,entity_id=o2 value=97 1795341600", "", "value: unknown field"},
		{"v,device=d heart_rate_bpm=72 1795341600", "d", `1795341600000,"heart_rate_bpm":72`},
		{"v,device=d heart_rate_bpm=\"72\" 1795341600", "", "heart_rate_bpm: a string, not a number"},
		{"bpm,entity_id=o2_hr, value=72 1795341600", "", "byte 21 of the line: a comma without a tag"},

		{`beds,hub=gw,ward=ICU bed=7i,f=98.6,hr=7200,mode="day \"1\"",worn=T 1795341600`, "ICU.7",
			`1795341600000,"heart_rate_bpm":72,"body_temperature_c":37,gateway gw`},
		{`beds,ward=ICU bed="a b",f=98.5,mode="day \"1\"",worn=true 1795341600`, "ICU.a:20b",
			`1795341600000,"body_temperature_c":36.94`},
		{`beds,ward=ICU f=98.5,mode="day \"1\"",worn=true 1795341600`, "", "device: a part is empty"},
		{`beds,ward=ICU bed=7,f=98.5,mode="day \"1\"",worn=false 1795341600`, "", "bed: unknown field"},

		{`scale,who=Person\ A g=71500i 1795341600`, "scale-a", `1795341600000,"body_weight_kg":71.5`},
		{`scale,who=Person\ B g=71500i 1795341600`, "", "device: not one of the devices of the mapping"},
		{`scale,who=Person\ A g=71500i,at=1795341500`, "scale-a", `1795341500000,"body_weight_kg":71.5`},
		{`scale,who=Person\ A g=71500i,at=1795341500 1`, "scale-a", `1795341500000,"body_weight_kg":71.5`}, // lost its clock
		{`scale,who=Person\ A g=71500i`, "scale-a", fmt.Sprintf(`%d,"body_weight_kg":71.5`, now*1000)},
		// An integer has no zeros in front: a part of a time may be missing.
		{`clock date=20261121i,clock="013000",hr=72,serial="d"`, "d", `1795221000000,"heart_rate_bpm":72`},
		{`clock date=20261121i,clock=133000i,hr=72,serial="d"`, "d", `1795264200000,"heart_rate_bpm":72`},
		{`clock date=20261121i,clock=013000i,hr=72,serial="d"`, "", "time: in none of the time formats of the mapping"},
		{`clock date=20261121i,clock=13000i,hr=72,serial="d"`, "", "time: in none of the time formats of the mapping"},
		{`clock date=20261121i,clock=001330i,hr=72,serial="d"`, "", "time: in none of the time formats of the mapping"},
		{`clock date=20261121i,clock=130i,hr=72,serial="d"`, "", "time: in none of the time formats of the mapping"},
		{`clock date=20261121i,clock="13:30",hr=72,serial=0012-A`, "0012-A", `1795264200000,"heart_rate_bpm":72`},
		{`clock date=20261121i,clock="13:30",hr=72,serial=00a1`, "00a1", `1795264200000,"heart_rate_bpm":72`},
		{`scale,who=Person\ A g=71500i,at="noon"`, "", "time: neither a number nor a string with one"},
	} {
		s := serve(t, ingest.Config{}, influx.Options{Mappings: m})
		w := s.post("/api/v2/write?precision=s", "v,device=before heart_rate_bpm=72 1795341600\n"+tt.line)
		switch {
		case tt.device != "":
			if got := s.stored(t, tt.device); w.Code != http.StatusNoContent || len(got) != 1 || got[0] != tt.want {
				t.Errorf("%s: %d %s, stored %q, want %q", tt.line, w.Code, w.Body, got, tt.want)
			}
		case tt.want == "":
			if w.Code != http.StatusNoContent {
				t.Errorf("%s: %d %s", tt.line, w.Code, w.Body)
			}
		default:
			want := fmt.Sprintf(`{"code":"invalid","message":%q}`+"\n", "partial write: line 2: "+tt.want+"; dropped=1")
			if w.Code != http.StatusBadRequest || w.Body.String() != want {
				t.Errorf("%s: %d %s, want %s", tt.line, w.Code, w.Body, want)
			}
		}
		if got := s.stored(t, "before"); len(got) != 1 {
			t.Errorf("%s: the line before is stored as %q", tt.line, got)
		}
		if tt.device == "" && slices.ContainsFunc([]string{"watch-1", "scale-a", "d"},
			func(d string) bool { return len(s.stored(t, d)) > 0 }) {
			t.Errorf("%s is stored", tt.line)
		}
	}
}

// TestMappedLimits checks that lines that a mapping reads or ignores count, and that they may not be too long.
func TestMappedLimits(t *testing.T) {
	m, err := mappingsOf(t, homeAssistant)
	try(t, err)
	s := serve(t, ingest.Config{MaxReadings: 10}, influx.Options{Mappings: m})
	for body, want := range map[string]int{
		strings.Repeat("%,domain=sensor x=1 1\n", 10):                                 204,
		strings.Repeat("%,domain=sensor x=1 1\n", 11):                                 413,
		"%,domain=sensor,x=" + strings.Repeat("y", 1000) + " x=1 1":                   204,
		"bpm,entity_id=o2_hr,x=" + strings.Repeat("y", 1000) + " value=72 1795341600": 413,
	} {
		if w := s.post("/api/v2/write?precision=s", body); w.Code != want {
			t.Errorf("%.50q is answered %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
}

// TestMappedCounts checks that values and lines that are not stored are counted.
func TestMappedCounts(t *testing.T) {
	m, err := mappingsOf(t, homeAssistant)
	try(t, err)
	s := serve(t, ingest.Config{}, influx.Options{Mappings: m})
	w := s.post("/write?precision=s", `%,domain=sensor,entity_id=o2_spo2 value=255 1795341600
%,domain=sensor,entity_id=battery value=97 1795341600
beds,ward=a bed="b",f=98.5,mode="day \"1\"",worn=true 1795341600
`)
	if w.Code != http.StatusNoContent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for name, want := range map[string]string{
		"pulsegate_mapping_ignored_total":                                   "1",
		"pulsegate_mapping_rounded_total":                                   "1",
		`pulsegate_left_out_total{input="mapping",reason="not_available"}`:  "1",
		`pulsegate_readings_total{outcome="stored"}`:                        "1",
		`pulsegate_left_out_total{input="mapping",reason="another_source"}`: "0",
	} {
		if got := s.metric(t, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestMappingErrors checks that errors of mappings have the line, the key and the reason.
func TestMappingErrors(t *testing.T) {
	const plain = `[[mapping]]
name = "m"
source = "lines"
where = { measurement = "m" }
device = "tag:d"
time = "timestamp"
signs.heart_rate_bpm = { at = "field:hr" }
`
	const noPlace = `neither measurement, nor a tag or a field, such as "tag:entity_id" and "field:value"`
	for _, tt := range []struct{ old, new, want string }{
		{"", "", ""},
		{`time = "timestamp"`, ``, ""},
		{`where = { measurement = "m" }`, ``, ""},
		{`"tag:d"`, `"d"`, "5: device: " + noPlace},
		{`"field:hr"`, `"/hr"`, "7: heart_rate_bpm: " + noPlace},
		{`"field:hr"`, `"field:"`, "7: heart_rate_bpm: " + noPlace},
		{`measurement = "m"`, `name = "m"`, "4: where: " + noPlace},
		{`device = "tag:d"`, ``, "1: device: missing: give a place or a text:NAME"},
		{`"timestamp"`, `"time"`, "6: time: " + noPlace},
		{`"timestamp"`, "\"timestamp\"\nzone = \"Europe/Berlin\"", `7: zone: times that are "timestamp" have none`},
		{`"timestamp"`, "\"timestamp\"\ntime_format = \"unix_s\"", "7: time_format: only a time at a place has one"},
		{`"timestamp"`, `["received", "timestamp"]`, `6: time: "received" always has a time: nothing after it is used`},
		{`"timestamp"`, `"characteristic"`, `6: time: needs decode = "gatt"`},
		{`name = "m"`, "name = \"m\"\ntopic = \"a/b\"", `3: topic: not of a mapping with source = "lines"`},
		{`name = "m"`, "name = \"m\"\nmember = \"a\"", `3: member: not of a mapping with source = "lines"`},
		{`name = "m"`, "name = \"m\"\nelement = \"a\"", `3: element: needs source = "xml"`},
		{`name = "m"`, "name = \"m\"\ndecimal = \",\"", `3: decimal: needs source = "csv"`},
		{`"lines"`, `"line"`, `3: source: only json and lines are read here`},
		{`at = "field:hr"`, `at = "field:hr", missing = 127`,
			"7: heart_rate_bpm: missing: 127 is in the accepted range, and may be a value"},
		{plain, "[[mapping]]\nname = \"m\"\nsource = \"lines\"\nignore = true\n",
			"4: ignore: needs where, or mappings before it: everything would be ignored"},
		{plain, plain + "[[mapping]]\nname = \"m\"\nsource = \"lines\"\nignore = true\n" + plain,
			"15: where: not reached: an earlier mapping ignores every line, because it has no where"},
	} {
		text := plain
		if tt.old != "" {
			text = strings.Replace(plain, tt.old, tt.new, 1)
		}
		got := ""
		if _, err := mappingsOf(t, text); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.new, got, tt.want)
		}
	}
}

// TestNoLines checks that either API answers a body without lines as InfluxDB does: Home Assistant writes one to
// InfluxDB 1 to see whether it may write.
func TestNoLines(t *testing.T) {
	s := serve(t, ingest.Config{}, influx.Options{})
	for path, want := range map[string]int{"/write": 204, "/api/v2/write": 400} {
		for _, body := range []string{"\n", "# a comment\n"} {
			if w := s.post(path, body); w.Code != want {
				t.Errorf("%s %q is answered %d %s, want %d", path, body, w.Code, w.Body, want)
			}
		}
	}
}

// TestMappingExamples checks the mappings of senders of lines with lines that these send. docs/influxdb.md has their
// sources.
func TestMappingExamples(t *testing.T) {
	const examples = "../../../examples/mappings/"
	for _, tt := range []struct {
		name    string
		stored  map[string][]string // by device
		ignored string
		answer  string // "" means that all lines are stored or left out
	}{
		{"home-assistant", map[string][]string{
			"watch-1":       {`1790000000123,"spo2_pct":97,"heart_rate_bpm":72`},
			"thermometer-1": {`1790000060000,"body_temperature_c":36.6`},
			"scale-1":       {`1790000120000,"body_weight_kg":71.55`},
		}, "2", `{"error":"partial write: line 7: state: unknown field; dropped=1"}`}, // another domain
		{"fitbit-grafana", map[string][]string{
			"watch-1": {`1790000000000,"heart_rate_bpm":63`, `1790000005000,"heart_rate_bpm":64`,
				`1790000040000,"spo2_pct":96.4`},
		}, "5", ""},
		{"garmin-grafana", map[string][]string{
			"watch-1": {`1790000040000,"heart_rate_bpm":61,"respiratory_rate_bpm":13`, `1790000100000,"spo2_pct":95`},
			"cuff-1":  {`1790000220000,"systolic_mmhg":121,"diastolic_mmhg":79,"pulse_rate_bpm":64`},
		}, "4", ""},
		{"tasmota", map[string][]string{
			"thermometer-1": {fmt.Sprintf(`%d,"body_temperature_c":36.6`, receivedAt.UnixMilli())},
		}, "2", ""},
	} {
		lines, err := os.ReadFile(examples + "payloads/" + tt.name + ".lines")
		try(t, err)
		m, err := readMappings(examples + tt.name + ".toml")
		try(t, err)
		s := serve(t, ingest.Config{}, influx.Options{Mappings: m})
		if w := s.post("/write?db=any", string(lines)); strings.TrimSpace(w.Body.String()) != tt.answer {
			t.Errorf("%s: %d %s, want %s", tt.name, w.Code, w.Body, tt.answer)
		}
		for device, want := range tt.stored {
			if got := s.stored(t, device); !slices.Equal(got, want) {
				t.Errorf("%s: stored of %s: %q, want %q", tt.name, device, got, want)
			}
		}
		if got := s.metric(t, "pulsegate_mapping_ignored_total"); got != tt.ignored {
			t.Errorf("%s: %s lines are ignored, want %s", tt.name, got, tt.ignored)
		}
	}
}
