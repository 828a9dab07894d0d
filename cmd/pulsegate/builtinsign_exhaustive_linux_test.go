package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// addedSign is the field of a made-up built-in sign with three decimals, whose values may be negative.
const addedSign = "made_up_pressure_kpa"

// withSign returns the files of the source tree to which the sign is added, as CONTRIBUTING.md says.
func withSign(t *testing.T) map[string]string {
	replaced := map[string]string{}
	for _, r := range []struct{ file, old, added string }{
		{"vitals/sign.go", "\n\t// NumBuiltIn is the number ", "\tMadeUp Sign = 13\n"},
		{"vitals/sign.go", "\n\n\t// MaxSigns is ", " + 1"}, // NumBuiltIn
		{"vitals/sign.go", "}\n\n// Each built-in sign has a definition.", `	MadeUp: {
		Field: "made_up_pressure_kpa", Label: "Made-up pressure", Unit: "kPa", Decimals: 3, LOINC: []string{"00000-0"},
		Accepted: Range{-900_500, 900_500}, Usual: Range{MinValue, 500_000},
	},
`},
		{"internal/api/fhir/mapping.go", "}\n\n// Each built-in sign has a mapping", `	vitals.MadeUp - 1: {
		"mup", "", vitalSigns, []coding{{loinc, "00000-0", "Made-up pressure"}}, "",
		[]component{{sign: vitals.MadeUp}}, "kilopascal",
	},
`},
		{"internal/client/sim/wearer.go", "}\n\n// Each built-in sign is in traits",
			"\t{vitals.MadeUp, false, 10_000, 3_000, 1_000, -50_000, 50_000, 1},\n"},
	} {
		path, err := filepath.Abs(filepath.Join(root, r.file))
		try(t, err)
		if replaced[path] == "" {
			text, err := os.ReadFile(path)
			try(t, err)
			replaced[path] = string(text)
		}
		if strings.Count(replaced[path], r.old) != 1 {
			t.Fatalf("%s does not hold %q once", r.file, r.old)
		}
		replaced[path] = strings.Replace(replaced[path], r.old, r.added+r.old, 1)
	}
	return replaced
}

// TestAddSignExhaustive uses a program with one more built-in sign: it is in all inputs and outputs, and in both
// stores.
func TestAddSignExhaustive(t *testing.T) {
	t.Parallel()
	bin, err := buildInto(t.TempDir(), withSign(t))
	try(t, err)
	for _, name := range []string{"directory", "postgres"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			driveAddedSign(t, bin, name == "postgres")
		})
	}
}

func driveAddedSign(t *testing.T, bin string, postgres bool) {
	dir := filepath.Join(t.TempDir(), "data")
	db := pgtest.Start(t, "fsync=off")
	with := []string{"--admin-addr=127.0.0.1:0"}
	if postgres {
		with = append(with, "--store="+db.DSN(), "--postgres-single")
	}
	p := start(t, bin, dir, with...)
	ask := func(method, path, body string, want int) string {
		t.Helper()
		kind := "application/json"
		if strings.HasPrefix(path, "/fhir") {
			kind = "application/fhir+json"
		}
		resp, text := fetch(t, method, p.url(path), body, "Content-Type", kind)
		if resp.StatusCode != want {
			t.Fatalf("%s %s: %d, want %d: %s", method, path, resp.StatusCode, want, text)
		}
		return text
	}
	run := func(want string, args ...string) {
		t.Helper()
		if out, errs, code := output(t, bin, args...); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("%v: exit code %d, %q is missing in %s%s", args, code, want, out, errs)
		}
	}

	const (
		one         = `{"device":"d-1","time":"2026-11-21T10:00:00Z","heart_rate_bpm":72,"` + addedSign + `":-800.125}`
		line        = "v,device=d-1 " + addedSign + "=-800.125 1795255200"
		observation = `{"resourceType":"Observation","status":"final","code":{"coding":[{"system":"http://loinc.org","code":"00000-0"}]},
			"device":{"identifier":{"system":"urn:pulsegate:device","value":"d-1"}},"effectiveDateTime":"2026-11-21T10:00:00Z",
			"valueQuantity":{"value":-800.125,"unit":"kPa","system":"http://unitsofmeasure.org","code":"kPa"}}`
	)
	ask(http.MethodPost, "/v1/readings", one, 200)
	ask(http.MethodPost, "/v1/readings", strings.Replace(one, "00Z", "01Z", 1)+"\n"+strings.NewReplacer("00Z", "02Z",
		"-800.125", "500.001").Replace(one), 200)
	ask(http.MethodPost, "/v1/readings", strings.Replace(one, "125", "126", 1), 409)
	ask(http.MethodPost, "/v1/readings", strings.Replace(one, "800.125", "900.501", 1), 422)
	ask(http.MethodPost, "/api/v2/write?precision=s", line, 204)
	ask(http.MethodPost, "/api/v2/write?precision=s", strings.Replace(line, "-800.125", "-800.126", 1), 400)
	ask(http.MethodPost, "/fhir/Observation", observation, 200)
	ask(http.MethodPost, "/fhir/Observation", strings.Replace(observation, "-800.125", "-800.126", 1), 409)

	reads := func() {
		t.Helper()
		for path, want := range map[string]string{
			"/v1/devices/d-1/readings":                             `"` + addedSign + `":-800.125`,
			"/v1/devices/d-1/readings?signs=" + addedSign:          `"` + addedSign + ` high"`,
			"/v1/devices/d-1/readings?format=csv":                  "500.001",
			"/v1/devices/d-1/aggregates?step=1h":                   `"max":500.001`,
			"/v1/devices/d-1":                                      `"` + addedSign + `":{"value":500.001`,
			"/v1/devices":                                          `"` + addedSign + `":{"value":500.001`,
			"/v1/limits":                                           `"` + addedSign + `":{`,
			"/openapi.json":                                        addedSign,
			"/fhir/Observation?device=d-1&code=00000-0":            `"display":"Made-up pressure"`,
			"/fhir/Observation?device=d-1&code=00000-0&_":          `"unit":"kilopascal"`,
			"/fhir/Observation/$lastn?device=d-1&max=1":            "500.001",
			"/v1/devices/d-1/readings?flag=" + addedSign + "+high": "500.001",
		} {
			if text := ask(http.MethodGet, strings.TrimSuffix(path, "&_"), "", 200); !strings.Contains(text, want) {
				t.Errorf("GET %s: %q is missing in %s", path, want, text)
			}
		}
		if text := ask(http.MethodGet, "/fhir/Observation?device=d-1", "", 200); strings.Contains(text,
			"urn:pulsegate:sign") {
			t.Errorf("FHIR has the sign as a user's own: %s", text)
		}
		run("500.001", "latest", "d-1", "--target="+p.url(""))
	}
	reads()
	run("missing=0 altered=0 ", "sim", "--target="+p.url(""), "--also="+addedSign, "--users=2", "--posts=20", "--seed=7",
		"--verify", "--start=2026-11-20T00:00:00Z")
	p.kill()
	p = start(t, bin, dir, with...)
	reads()
	p.stop()

	moved := filepath.Join(t.TempDir(), "moved")
	if postgres {
		run("ok devices=", "migrate", "--from="+db.DSN(), "--to="+moved)
		run(addedSign+"=", "check", moved)
		p = start(t, bin, moved)
	} else {
		run("ok devices=", "migrate", "--from="+dir, "--to="+db.DSN(), "--postgres-single")
		p = start(t, bin, moved, "--store="+db.DSN(), "--postgres-single")
	}
	reads()
	p.stop()
}
