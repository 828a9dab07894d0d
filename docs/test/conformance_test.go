package docs_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	conformanceReadings = flag.Int("conformance.readings", 3, "readings of each device in TestConformance")
	conformancePage     = flag.String("conformance.page", "", "page into which TestConformance writes its figures")
)

// explained are the warnings of HL7's validator that remain, with the reason.
var explained = []struct{ part, why string }{
	{"all observations should have a performer",
		"a recommendation; who performed a measurement is not known to Pulsegate"},
	{"dom-6", "a recommendation; a narrative would repeat the values as text"},
	{"None of the codings provided are in the value set 'Vital Signs'",
		"the profiles ask for these codes, and the value set of the base profile does not list them"},
}

// conformanceDevices have names that are ids, names that are escaped, and one that is too long for an id.
var conformanceDevices = []string{"ppg-1", "Cuff.7", "ward_2:bed_4", strings.Repeat("long_", 12)}

// conformanceSigns are signs of the user's own: one with a LOINC code, and one without.
const conformanceSigns = `
[[sign]]
field = "rmssd_ms"
label = "RMSSD"
unit = "ms"
decimals = 1
accepted = { min = 0, max = 500 }
loinc = ["80404-7"]

[[sign]]
field = "skin_delta_c"
label = "Skin & core difference"
unit = "Cel"
decimals = 3
accepted = { min = -5, max = 5 }
`

// conformanceValidated is the digest of the resources that HL7's validator last accepted. It needs 15 seconds of
// CPU time, so the same resources are not validated again; make conformance always validates.
const conformanceValidated = "084eb3417c1d5b2c26eb86404fc06ed4"

// conformanceDigest returns a digest of the resources, apart from addresses, the time of the run and the version.
func conformanceDigest(t *testing.T, resources []string) string {
	t.Helper()
	hash := sha256.New()
	for _, name := range []string{"validator/Validate.java", "validator/pom.xml"} {
		text, err := os.ReadFile(name)
		try(t, err)
		hash.Write(text)
	}
	varies := regexp.MustCompile(`127\.0\.0\.1:\d+|"(date|lastUpdated|version)":"[^"]*"`)
	for _, text := range resources {
		hash.Write([]byte(varies.ReplaceAllString(text, "") + "\n"))
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// TestConformance lets HL7's validator check what a server serves under /fhir: Observations of each
// sign with the least and the greatest values, other values, times and offsets, searchset Bundles,
// answers to Bundles, Devices, Patients, the CapabilityStatement, OperationOutcomes and what exports say of removals.
func TestConformance(t *testing.T) {
	signs := filepath.Join(t.TempDir(), "signs.toml")
	try(t, os.WriteFile(signs, []byte(conformanceSigns), 0o600))
	s := serve(t, "--insecure", "--signs", signs)
	var resources []string
	add := func(text string) { resources = append(resources, oneLine(t, text)) }
	for i, device := range conformanceDevices {
		s.conformanceData(t, i, device)
		query := url.Values{"patient": {fmt.Sprintf("P-%d", i)}, "_count": {"40"}}
		for next := s.url + "/fhir/Observation?" + query.Encode(); next != ""; {
			text := fhirDo(t, "GET", next, "", 200)
			add(text)
			var bundle struct {
				Link  []struct{ Relation, URL string }
				Entry []struct{ Resource json.RawMessage }
			}
			try(t, json.Unmarshal([]byte(text), &bundle))
			for _, e := range bundle.Entry {
				add(string(e.Resource))
				var r struct{ Device struct{ Reference string } }
				try(t, json.Unmarshal(e.Resource, &r))
				device = r.Device.Reference
			}
			next = ""
			for _, l := range bundle.Link {
				if l.Relation == "next" {
					next = l.URL
				}
			}
		}
		add(fhirDo(t, "GET", s.url+"/fhir/"+device, "", 200))
		add(fhirDo(t, "GET", s.url+"/fhir/Patient/"+query.Get("patient"), "", 200))
	}
	add(fhirDo(t, "GET", s.url+"/fhir/metadata", "", 200))
	add(fhirDo(t, "GET", s.url+"/fhir/Observation?patient=P-0&_summary=count", "", 200))
	add(fhirDo(t, "GET", s.url+"/fhir/Observation?device=ppg-1&date=lt2000", "", 200))
	add(fhirDo(t, "GET", s.url+"/fhir/Observation?patient=P-0&date=x", "", 400))
	add(fhirDo(t, "GET", s.url+"/fhir/Observation/none", "", 404))
	add(fhirDo(t, "DELETE", s.url+"/fhir/Observation/none", "", 405))
	const post = `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"POST","url":"Observation"},"resource":
		{"resourceType":"Observation","status":"final","code":{"coding":[{"system":"http://loinc.org","code":"8867-4"}]},"subject":{"reference":"Patient/P-0"},
		"device":{"reference":"Device/ppg-1"},"effectiveDateTime":"2026-11-21T23:00:00Z","valueQuantity":{"value":61.5,"system":"http://unitsofmeasure.org","code":"/min"}}},
		{"request":{"method":"POST","url":"Patient"},"resource":{"resourceType":"Patient"}}]}`
	add(fhirDo(t, "POST", s.url+"/fhir", post, 200))
	_, since := s.removals(t, "")
	run(t, "", nil, program, "subject", "end", "--target", s.admin,
		"--device", conformanceDevices[0], "--from", "2026-01-01T00:00:00Z", "--to", "2026-11-22T00:00:00Z")
	run(t, "", nil, program, "erase", "--target", s.admin, "--yes", "--device", conformanceDevices[1])
	removals, _ := s.removals(t, since)
	if len(removals) != 3 {
		t.Errorf("the export has %q of removals, want a Bundle and two OperationOutcomes", removals)
	}
	for _, text := range removals {
		add(text)
	}
	kinds := map[string]int{}
	for _, text := range resources {
		kinds[kindOf(t, text)]++
	}
	digest := conformanceDigest(t, resources)
	if *conformanceReadings == 3 && digest == conformanceValidated {
		return // the validator has accepted them before
	}
	libraries := filepath.Join(root, "bin/tools/fhir_validator")
	_, noLibraries := os.Stat(libraries)
	if _, err := exec.LookPath("javac"); err != nil || noLibraries != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no Java or validator: run make setup")
		}
		t.Skip("no Java or validator: run make setup")
	}
	// The validator must find this error, or it finds none.
	control := len(resources)
	resources = append(resources, strings.Replace(first(t, resources, `"hr-`), `"code":"/min"`, `"code":"bpm"`, 1))

	cmd := exec.Command("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(libraries, "*"),
		"validator/Validate.java")
	cmd.Stdin = strings.NewReader(strings.Join(resources, "\n") + "\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || !strings.HasSuffix(string(out), fmt.Sprintf("validated\t%d\n", len(resources))) {
		t.Fatalf("the validator ends with %v: %s\n%s", err, out, stderr.String())
	}
	found, warnings := false, make([]int, len(explained))
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		f := strings.SplitN(lines.Text(), "\t", 4)
		if len(f) < 4 {
			continue
		}
		var n int
		if _, err := fmt.Sscan(f[0], &n); err != nil {
			t.Fatal(err)
		}
		is := func(e struct{ part, why string }) bool { return strings.Contains(f[3], e.part) }
		switch i := slices.IndexFunc(explained, is); {
		case n == control:
			found = found || f[1] == "error"
		case f[1] == "information":
		case f[1] == "warning" && i >= 0:
			warnings[i]++
		default:
			t.Errorf("%s: %s\n%s", strings.Join(f[1:3], " "), f[3], resources[n])
		}
	}
	if !found {
		t.Error("the validator accepts the unit bpm")
	}
	if *conformanceReadings == 3 && !t.Failed() {
		t.Errorf("the validator accepts the resources, which are new: set conformanceValidated to %q", digest)
	}
	if *conformancePage != "" && !t.Failed() {
		writeConformance(t, kinds, warnings)
	}
}

// removals returns what an export says of removals since a time, and the time for the next one.
func (s *server) removals(t *testing.T, since string) (resources []string, next string) {
	t.Helper()
	resp, err := http.Get(s.url + "/fhir/$export?_type=Patient,Device,Observation" + since)
	try(t, err)
	resp.Body.Close()
	var manifest struct {
		TransactionTime string
		Deleted, Error  []struct{ URL string }
	}
	try(t, json.Unmarshal([]byte(fhirDo(t, "GET", resp.Header.Get("Content-Location"), "", 200)), &manifest))
	for _, file := range append(manifest.Deleted, manifest.Error...) {
		resources = append(resources, strings.Split(strings.TrimSpace(fhirDo(t, "GET", file.URL, "", 200)), "\n")...)
	}
	return resources, "&_since=" + manifest.TransactionTime
}

// conformanceData assigns the device to patient P-i and stores readings of it: the least and greatest
// values, and others.
func (s *server) conformanceData(t *testing.T, i int, device string) {
	assign := exec.Command(program, "subject", "assign", "--target", s.admin, "--device", device, "--subject",
		fmt.Sprintf("P-%d", i), "--from", "2026-01-01T00:00:00Z")
	if out, err := assign.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	offsets := []string{"Z", "+14:00", "-12:00", "+05:45", "-00:30"}
	values := []string{
		`"systolic_mmhg":40,"diastolic_mmhg":20,"spo2_pct":2,"heart_rate_bpm":20,"resting_heart_rate_bpm":20,` +
			`"respiratory_rate_bpm":1,"body_temperature_c":20,"body_weight_kg":0.2,"glucose_mg_dl":10,"glucose_mmol_l":0.5,` +
			`"pulse_rate_bpm":20,"rmssd_ms":0,"skin_delta_c":-5`,
		`"systolic_mmhg":300,"diastolic_mmhg":250,"spo2_pct":100,"heart_rate_bpm":300,"resting_heart_rate_bpm":300,` +
			`"respiratory_rate_bpm":150,"body_temperature_c":46,"body_weight_kg":650,"glucose_mg_dl":1000,"glucose_mmol_l":56,` +
			`"pulse_rate_bpm":300,"rmssd_ms":500,"skin_delta_c":5`,
		`"systolic_mmhg":120.25,"diastolic_mmhg":80.5,"spo2_pct":97.01,"heart_rate_bpm":54.9,"resting_heart_rate_bpm":50.1,` +
			`"respiratory_rate_bpm":14.25,"body_temperature_c":36.65,"body_weight_kg":81.205,"glucose_mg_dl":99.5,` +
			`"glucose_mmol_l":5.51,"pulse_rate_bpm":54.9,"rmssd_ms":42.5,"skin_delta_c":-0.375`,
		`"spo2_pct":90`, `"systolic_mmhg":121,"diastolic_mmhg":81`, `"heart_rate_bpm":70`, `"resting_heart_rate_bpm":60.01`,
		`"respiratory_rate_bpm":14,"body_temperature_c":36.6`, `"body_weight_kg":3.5`,
		`"glucose_mg_dl":99,"pulse_rate_bpm":61`, `"glucose_mmol_l":5,"rmssd_ms":0.5,"skin_delta_c":0`,
	}
	var body strings.Builder
	for n := range *conformanceReadings {
		at := time.Date(2026, 10, 1, 0, 0, 0, n*7%1000*int(time.Millisecond), time.UTC).
			Add(time.Duration(n) * 61 * time.Second)
		offset := offsets[(n+i)%len(offsets)]
		fmt.Fprintf(&body, `{"device":%q,"time":"%s%s",%s}`+"\n", device, at.Format("2006-01-02T15:04:05.000"), offset,
			values[(n+2*i)%len(values)])
	}
	resp, err := http.Post(s.url+"/v1/readings", "application/x-ndjson", strings.NewReader(body.String()))
	try(t, err)
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
		t.Fatalf("%s: %s", resp.Status, text)
	}
}

func fhirDo(t *testing.T, method, address, body string, status int) string {
	t.Helper()
	req, err := http.NewRequest(method, address, strings.NewReader(body))
	try(t, err)
	req.Header.Set("Content-Type", "application/fhir+json")
	resp, err := http.DefaultClient.Do(req)
	try(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("%s %s: %s %s %v, want %d", method, address, resp.Status, text, err, status)
	}
	return string(text)
}

// oneLine returns a JSON text without line breaks.
func oneLine(t *testing.T, text string) string {
	var b bytes.Buffer
	try(t, json.Compact(&b, []byte(text)))
	return b.String()
}

// kindOf returns the type of a resource; for an Observation also the sign.
func kindOf(t *testing.T, text string) string {
	var r struct{ ResourceType, ID string }
	try(t, json.Unmarshal([]byte(text), &r))
	if r.ResourceType == "Observation" {
		sign, _, _ := strings.Cut(r.ID, "-")
		return "Observation: " + map[string]string{
			"bp": "blood pressure", "spo2": "SpO2", "hr": "heart rate", "rhr": "resting heart rate", "resp": "respiratory rate",
			"temp": "body temperature", "wt": "body weight",
			"glu": "glucose in mg/dL", "glum": "glucose in mmol/L", "pr": "pulse rate",
			"s80t7cc4t": "sign of the user's own, with LOINC code", "sreljkib0": "sign of the user's own",
		}[sign]
	}
	return r.ResourceType
}

// first returns the first Observation whose text contains part.
func first(t *testing.T, resources []string, part string) string {
	i := slices.IndexFunc(resources, func(text string) bool {
		return strings.HasPrefix(text, `{"resourceType":"Observation"`) && strings.Contains(text, part)
	})
	if i < 0 {
		t.Fatalf("no Observation with %s", part)
	}
	return resources[i]
}

// writeConformance writes the figures into the page.
func writeConformance(t *testing.T, kinds map[string]int, warnings []int) {
	var b strings.Builder
	fmt.Fprintf(&b,
		"Written by `make conformance` on %s, with HAPI FHIR 8.4.0 and %s.\n\n| resource | validated | errors |\n"+
			"|---|--:|--:|\n", time.Now().UTC().Format(time.DateOnly), runtime.Version())
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&b, "| %s | %d | 0 |\n", kind, kinds[kind])
		total += kinds[kind]
	}
	fmt.Fprintf(&b, "| all | %d | 0 |\n\n| warning | times | why it remains |\n|---|--:|---|\n", total)
	for i, e := range explained {
		fmt.Fprintf(&b, "| %s | %d | %s |\n", e.part, warnings[i], e.why)
	}
	text, err := os.ReadFile(*conformancePage)
	try(t, err)
	block := regexp.MustCompile(`(?s)(<!-- conformance:begin -->\n).*(<!-- conformance:end -->)`)
	if !block.Match(text) {
		t.Fatalf("%s has no block of conformance", *conformancePage)
	}
	text = block.ReplaceAll(text, []byte("${1}\n"+b.String()+"\n${2}"))
	try(t, os.WriteFile(*conformancePage, text, 0o644))
}
