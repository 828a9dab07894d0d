package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// TestFHIROnBothStores sends, searches and erases over FHIR, with the embedded store and with
// PostgreSQL. The device is assigned to another patient between two readings 1 ms apart.
func TestFHIROnBothStores(t *testing.T) {
	skipIfShort(t)
	for name, flags := range map[string]func(*testing.T) []string{
		"directory": func(*testing.T) []string { return nil },
		"PostgreSQL": func(t *testing.T) []string {
			return []string{"--store=" + pgtest.Start(t, "fsync=off").DSN(), "--postgres-single"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := program(t)
			p := start(t, bin, filepath.Join(t.TempDir(), "data"), append(flags(t), "--admin-addr=127.0.0.1:0")...)
			testFHIR(t, bin, p)
		})
	}
}

func testFHIR(t *testing.T, bin string, p *process) {
	run := func(want string, args ...string) {
		t.Helper()
		args = append(args, "--target=http://"+p.admin)
		if out, stderr, code := output(t, bin, args...); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("%q: exit code %d, %s%s, want %q", args, code, out, stderr, want)
		}
	}
	const change = "2026-11-21T10:00:00.001Z"
	run("assigned", "subject", "assign", "--device=ppg-1", "--subject=P-1", "--from=2026-11-21T09:00:00Z", "--to="+change)
	run("assigned", "subject", "assign", "--device=ppg-1", "--subject=P-2", "--from="+change)
	observation := func(patient, time, value string) string {
		return fmt.Sprintf(`{"resourceType":"Observation","status":"final","code":{"coding":[{"system":"http://loinc.org","code":"8867-4"}]},"subject":{"reference":"Patient/%s"},
			"device":{"reference":"Device/ppg-1"},"effectiveDateTime":"2026-11-21T%s","valueQuantity":{"value":%s,"system":"http://unitsofmeasure.org","code":"/min"}}`, patient, time, value)
	}
	post := func(path, body string, want int) (answer string) {
		t.Helper()
		resp, err := http.Post(p.url(path), "application/fhir+json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want {
			t.Errorf("POST %s: %s %s %v, want %d", path, resp.Status, text, err, want)
		}
		return string(text)
	}
	transaction := func(resources ...string) string {
		for i, r := range resources {
			resources[i] = `{"resource":` + r + `,"request":{"method":"POST","url":"Observation"}}`
		}
		return `{"resourceType":"Bundle","type":"transaction","entry":[` + strings.Join(resources, ",") + `]}`
	}
	post("/fhir/Observation", observation("P-1", "09:30:00Z", "60.5"), 201)
	post("/fhir/Observation", observation("P-1", "09:30:00Z", "60.5"), 200)
	post("/fhir/Observation", observation("P-1", "09:30:00Z", "61"), 409)
	post("/fhir/Observation", observation("P-2", "09:30:00Z", "60.5"), 422) // not the patient of that time
	post("/fhir", transaction(observation("P-1", "10:00:00.000Z", "62"), observation("P-2", "10:00:00.001Z", "63"), observation("P-2", "11:00:00+01:00", "64")), 422)
	post("/fhir", transaction(observation("P-1", "10:00:00.000Z", "62"), observation("P-2", "10:00:00.001Z", "63"), observation("P-2", "12:00:00+01:00", "64")), 200)
	post("/fhir", transaction(observation("P-2", "10:30:00Z", "70"), observation("P-1", "10:00:00.000Z", "99")), 409) // all or nothing

	search := func(patient, want string) {
		t.Helper()
		var got []string
		for next := p.url("/fhir/Observation?_count=1&patient=" + patient); next != ""; {
			resp, err := http.Get(next)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var bundle struct {
				Link  []struct{ Relation, URL string }
				Entry []struct {
					Resource struct {
						EffectiveDateTime string
						ValueQuantity     struct{ Value json.Number }
					}
				}
			}
			if err := json.NewDecoder(resp.Body).Decode(&bundle); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s %v", next, resp.Status, err)
			}
			for _, e := range bundle.Entry {
				got = append(got, e.Resource.EffectiveDateTime[11:]+"="+e.Resource.ValueQuantity.Value.String())
			}
			next = ""
			for _, l := range bundle.Link {
				if l.Relation == "next" {
					next = l.URL
				}
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %q, want %s", patient, got, want)
		}
	}
	search("P-1", "09:30:00.000Z=60.5 10:00:00.000Z=62")
	search("P-2", "10:00:00.001Z=63 12:00:00.000+01:00=64")
	run("erased subject=P-2 assignments=1 readings=2\n", "erase", "--subject=P-2", "--yes")
	search("P-1", "09:30:00.000Z=60.5 10:00:00.000Z=62")
	search("P-2", "")
	post("/fhir/Observation", observation("P-2", "12:00:00+01:00", "64"), 422) // no longer assigned
	run("erased device=ppg-1 readings=2\n", "erase", "--device=ppg-1", "--yes")
	search("P-1", "")
	if s := status(p.url("/v1/devices/ppg-1")); s != http.StatusNotFound {
		t.Errorf("the device is answered %d", s)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("the server's exit code is %d:\n%s", code, p.stderr())
	}
}
