package fhir_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

const dayMs = 86_400_000

// dayUnixMs is 2026-11-21T00:00:00Z, the day on which patient p of ward wore ppg-1.
const dayUnixMs = 1_795_219_200_000

// ward has two patients: p wore cuff-1 all the time and ppg-1 for a day, and q wore ppg-1 from
// then on. There are readings right before and right after each change.
func ward(t testing.TB) *store {
	s := fill(t,
		`{"device":"ppg-1","time":"2026-11-20T23:59:59.999Z","spo2_pct":95,"heart_rate_bpm":60}`,
		`{"device":"ppg-1","time":"2026-11-21T00:00:00Z","spo2_pct":96,"heart_rate_bpm":61}`,
		`{"device":"ppg-1","time":"2026-11-21T23:59:59.999Z","spo2_pct":97,"resting_heart_rate_bpm":62}`,
		`{"device":"ppg-1","time":"2026-11-22T00:00:00Z","spo2_pct":98}`,
		`{"device":"cuff-1","time":"2026-11-21T00:00:00Z","systolic_mmhg":120,"diastolic_mmhg":80,"heart_rate_bpm":63}`,
	)
	s.assign(t, "ppg-1", "p", dayUnixMs, dayUnixMs+dayMs)
	s.assign(t, "ppg-1", "q", dayUnixMs+dayMs, storage.OpenEnd)
	s.assign(t, "cuff-1", "p", 0, storage.OpenEnd)
	return s
}

// The Observations of ward, by short names.
var wardIDs = map[string]string{
	"bp": id("bp", dayUnixMs, "cuff-1"), "hr-cuff": id("hr", dayUnixMs, "cuff-1"), "spo2": id("spo2", dayUnixMs, "ppg-1"),
	"hr":        id("hr", dayUnixMs, "ppg-1"),
	"spo2-last": id("spo2", dayUnixMs+dayMs-1, "ppg-1"), "rhr-last": id("rhr", dayUnixMs+dayMs-1, "ppg-1"),
	"spo2-q": id("spo2", dayUnixMs+dayMs, "ppg-1"),
}

func id(group string, unixMs int64, device string) string {
	return group + "-" + strconv.FormatInt(unixMs, 36) + "-" + device
}

// short returns the short names of Observations of ward.
func short(ids []string) string {
	var names []string
	for _, id := range ids {
		name := id
		for short, full := range wardIDs {
			if id == full {
				name = short
			}
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

const allOfP = "bp hr-cuff spo2 hr spo2-last rhr-last"

// The searches that US Core requires or recommends for vital signs
// (https://hl7.org/fhir/us/core/STU6.1/StructureDefinition-us-core-vital-signs.html#mandatory-search-parameters).
func TestUSCore(t *testing.T) {
	srv := serve(t, ward(t), fhir.Options{})
	const loinc, categories = "http://loinc.org|", "http://terminology.hl7.org/CodeSystem/observation-category|"
	for _, tt := range []struct{ expectation, query, want string }{
		// SHALL: patient and category
		{"SHALL", params("patient", "p", "category", categories+"vital-signs"), allOfP},
		{"SHALL", params("patient", "Patient/p", "category", "vital-signs"), allOfP},
		{"SHALL", params("patient", "p", "category", "laboratory"), ""},
		{"SHALL", params("patient", "p", "category", "http://example.com|vital-signs"), ""},
		// SHALL: patient and code; OR of codes is optional
		{"SHALL", params("patient", "p", "code", loinc+"85354-9"), "bp"},
		{"SHALL", params("patient", "p", "code", "2708-6"), "spo2 spo2-last"},
		{"SHALL", params("patient", "p", "code", "59408-5"), "spo2 spo2-last"},
		{"SHALL", params("patient", "p", "code", loinc+"8867-4"), "hr-cuff hr rhr-last"},
		{"MAY", params("patient", "p", "code", loinc+"40443-4,"+loinc+"85354-9,8480-6,1-1"), "bp rhr-last"},
		{"SHALL", params("patient", "p", "code", "|8867-4"), ""},
		{"SHALL", params("patient", "p", "code", loinc), allOfP},
		{"SHALL", params("patient", "p", "code", "http://snomed.info/sct|8867-4"), ""},
		// SHALL: patient, category and date, with gt, lt, ge and le; several dates are optional
		{"SHALL", params("patient", "p", "category", "vital-signs", "date", "2026-11-21"), allOfP},
		{"SHALL", params("patient", "p", "category", "vital-signs", "date", "gt2026-11-21"), ""},
		{"SHALL", params("patient", "p", "category", "vital-signs", "date", "ge2026-11-21T23:59Z"), "spo2-last rhr-last"},
		{"SHALL", params("patient", "p", "category", "vital-signs", "date", "lt2026-11-21T00:00:01Z"), "bp hr-cuff spo2 hr"},
		{"SHALL", params("patient", "p", "category", "vital-signs", "date", "lt2026-11-21"), ""},
		{"SHALL", params("patient", "p", "category", "vital-signs", "date", "le2026-11-21T00:00:00.000Z"),
			"bp hr-cuff spo2 hr"},
		{"SHALL", params("patient", "p", "category", "vital-signs", "date", "gt2026-11-21T00:00:00.000Z"),
			"spo2-last rhr-last"},
		{"SHOULD", params("patient", "p", "category", "vital-signs", "date", "gt2026-11-20", "date",
			"lt2026-11-21T12:00:00+02:00"), "bp hr-cuff spo2 hr"},
		{"SHOULD", params("patient", "p", "category", "vital-signs", "date", "ge2026-11-21", "date", "lt2026-11-21"), ""},
		// SHOULD: patient, category and status
		{"SHOULD", params("patient", "p", "category", "vital-signs", "status", "final"), allOfP},
		{"SHOULD", params("patient", "p", "category", "vital-signs", "status",
			"amended,http://hl7.org/fhir/observation-status|final"), allOfP},
		{"SHOULD", params("patient", "p", "category", "vital-signs", "status", "preliminary"), ""},
		// SHOULD: patient, code and date
		{"SHOULD", params("patient", "p", "code", "8867-4", "date", "ge2026-11-21T01:00:00Z"), "rhr-last"},
	} {
		if ids, _ := srv.search(tt.query, "Prefer", "handling=strict"); short(ids) != tt.want {
			t.Errorf("%s %s: got %s, want %s", tt.expectation, tt.query, short(ids), tt.want)
		}
		resp, text := srv.form(tt.query)
		if b := srv.parse(text); resp.StatusCode != 200 || short(b.ids()) != tt.want {
			t.Errorf("POST %s: got %s, want %s", tt.query, text, tt.want)
		}
	}
}

// Further parameters, and the assigned time to the millisecond.
func TestSearch(t *testing.T) {
	s := ward(t)
	s.add(t, receivedUnixMs+5000, `{"device":"late","time":"2026-11-21T00:00:00Z","spo2_pct":90}`)
	s.assign(t, "late", "r", dayUnixMs, dayUnixMs+1)
	srv := serve(t, s, fhir.Options{})
	for _, tt := range []struct{ query, want string }{
		{params("subject", "Patient/p"), allOfP},
		{params("subject:Patient", "p"), allOfP},
		{params("patient", "q"), "spo2-q"},
		{params("patient", "nobody"), ""},
		{params("patient", "q,p"), allOfP + " spo2-q"},
		{params("patient", "p,p", "patient", "p,q"), allOfP},
		{params("patient", "p", "subject", "q"), ""},
		{params("device", "ppg-1"), "spo2 hr spo2-last rhr-last spo2-q"},
		{params("device", "Device/cuff-1"), "bp hr-cuff"},
		{params("device", "cuff-1,none"), "bp hr-cuff"},
		{params("device", "cuff-1", "patient", "p"), "bp hr-cuff"},
		{params("device", "cuff-1", "patient", "q"), ""},
		{params("device", "none"), ""},
		{params("patient", "p", "_sort", "-date"), "spo2-last rhr-last bp hr-cuff spo2 hr"},
		{params("patient", "p,q", "_sort", "-date", "_count", "1"), "spo2-q spo2-last rhr-last bp hr-cuff spo2 hr"},
		{params("patient", "p", "_sort", "date", "_count", "2"), allOfP},
		{params("patient", "p", "_count", "6"), allOfP},
		{params("patient", "p", "_count", "99999999999999999999"), allOfP},
		{params("patient", "p", "_summary", "false"), allOfP},
		{params("patient", "p,r", "_lastUpdated", "gt2027-01-15T08:00:00Z"), id("spo2", dayUnixMs, "late")},
		{params("patient", "p,r", "_lastUpdated", "le2027-01-15T08:00:00Z"), allOfP},
		{params("patient", "p,r", "_lastUpdated", "2027-01-16"), ""},
		{"patient=p&date=lt2026-11-21T01:00:00+01:00", ""},                                // an unescaped plus
		{"patient=p&date=le2026-11-21T01:00:00+01:00&_format=json", "bp hr-cuff spo2 hr"}, // likewise
	} {
		if ids, _ := srv.search(tt.query); short(ids) != tt.want {
			t.Errorf("%s: got %s, want %s", tt.query, short(ids), tt.want)
		}
		b := srv.parse(srv.get("Observation?" + tt.query + "&_summary=count"))
		if total := len(strings.Fields(tt.want)); b.Total == nil || *b.Total != total || len(b.Entry) > 0 {
			t.Errorf("%s has total %v, want %d", tt.query, b.Total, total)
		}
	}
	if b := srv.parse(srv.get("Observation?patient=p&_count=0")); b.Total == nil || *b.Total != 6 {
		t.Errorf("_count=0: total %v, want 6", b.Total)
	}
	// An Observation shows the patient to whom the device was assigned at its time.
	for _, e := range srv.parse(srv.get("Observation?device=ppg-1")).Entry {
		want := "Patient/p"
		if e.Resource.ID == wardIDs["spo2-q"] {
			want = "Patient/q"
		}
		if e.Search.Mode == "match" && e.Resource.Subject.Reference != want {
			t.Errorf("%s is of %s", short([]string{e.Resource.ID}), e.Resource.Subject.Reference)
		}
	}
}

// A search by device reports that there are readings that are not served.
func TestUnassigned(t *testing.T) {
	srv := serve(t, ward(t), fhir.Options{})
	for _, tt := range []struct {
		query string
		want  bool
	}{
		{"device=ppg-1", true},
		{"device=ppg-1&date=lt2026-11-21", true},
		{"device=ppg-1&date=ge2026-11-21", false},
		{"device=ppg-1&patient=p", false},
		{"device=cuff-1", false},
		{"device=cuff-1,ppg-1", true},
		{"patient=p", false},
	} {
		b := srv.parse(srv.get("Observation?" + tt.query))
		if got := strings.Contains(strings.Join(b.notes(), " "), "assigned to no patient"); got != tt.want {
			t.Errorf("%s: notes %q", tt.query, b.notes())
		}
	}
	// It is on the first page only.
	b := srv.parse(srv.get("Observation?device=ppg-1&_count=2"))
	next := srv.parse(srv.get(b.link("next")))
	if len(b.notes()) != 1 || len(next.notes()) != 0 || len(b.ids()) != 2 || len(next.ids()) != 2 {
		t.Errorf("the first two pages have the notes %q and %q, and %q and %q", b.notes(), next.notes(), b.ids(), next.ids())
	}
}

// Invalid parameters are rejected, unknown ones ignored, unless the client prefers otherwise.
func TestParameters(t *testing.T) {
	srv := serve(t, ward(t), fhir.Options{})
	for query, want := range map[string]string{
		"":                     "a search needs patient, subject or device",
		"category=vital-signs": "a search needs patient, subject or device",
		"patient=":             "patient: not an id",
		"patient=a_b":          "patient: not an id",
		"patient=Device/p":     "patient: not an id",
		"subject=Group/p":      "subject: not an id",
		"patient=p,":           "patient: not an id",
		"patient=" + strings.Join(slices.Repeat([]string{"p"}, 17), ","): "patient: more than 16",
		"device=a:b": "device: not an id",
		"device=" + strings.Join(slices.Repeat([]string{"d"}, 101), ","): "device: more than 100",
		"patient:identifier=p":     "patient: modifiers and chains",
		"patient.name=p":           "patient: modifiers and chains",
		"patient=p&code:not=1":     "code: modifiers and chains",
		"patient=p&code=":          "code: a value is empty",
		"patient=p&code=|":         "code: a value is empty",
		"patient=p&category=":      "category: a value is empty",
		"patient=p&status=":        "status: a value is empty",
		"patient=p&date=":          "date: not a date",
		"patient=p&date=ne2026":    "date: not a date",
		"patient=p&date=ap2026":    "date: not a date",
		"patient=p&date=2026,2027": "date: not a date",
		"patient=p&_lastUpdated=x": "_lastUpdated: not a date",
		"patient=p&_count=-1":      "_count: not a whole number",
		"patient=p&_count=x":       "_count: not a whole number",
		"patient=p&_sort=code":     "_sort: not date or -date",
		"patient=p&_summary=text":  "_summary: not count or false",
		"patient=%zz":              "the query is not well formed",
		"_page=x":                  "_page: not of a link",
		"patient=p&_page=x":        "_page: has all parameters",
		"patient=p&" + strings.Repeat("code=8867-4&", 400): "the parameters are longer than 4096 bytes",
	} {
		resp, text := srv.send("GET", "Observation?"+query, "")
		if got, name := srv.diagnostics(text); resp.StatusCode != 400 || name != "bad-parameter" ||
			!strings.HasPrefix(got, want) {
			t.Errorf("%.80s: %s %s, want %s", query, resp.Status, got, want)
		}
	}
	const unknown = "Observation?patient=p&_elements=id&colour=blue&_pretty=true&_format=json"
	b := srv.parse(srv.get(unknown))
	if short(b.ids()) != allOfP || len(b.notes()) != 1 || b.link("self") != srv.URL+"/fhir/Observation?patient=p" {
		t.Errorf("unknown parameters: %+v", b)
	}
	srv.get(unknown, "Prefer", "respond-async, handling=lenient")
	resp, text := srv.send("GET", unknown, "", "Prefer", `return=minimal, handling="strict"`)
	if got, _ := srv.diagnostics(text); resp.StatusCode != 400 || !strings.Contains(got, "CapabilityStatement") {
		t.Errorf("strict: %s %s", resp.Status, got)
	}
	for _, tt := range []struct {
		typ, body string
		status    int
	}{
		{"application/json", "patient=p", 415}, {"application/fhir+xml", "patient=p", 415}, {"", "patient=p", 415},
		{"application/x-www-form-urlencoded", "patient=%zz", 400},
		{"application/x-www-form-urlencoded", "patient=p&x=" + strings.Repeat("x", 1<<16), 400},
	} {
		if resp, text := srv.send("POST", "Observation/_search", tt.body, "Content-Type",
			tt.typ); resp.StatusCode != tt.status {
			t.Errorf("%q %.20s: %s %s", tt.typ, tt.body, resp.Status, text)
		}
	}
	if resp, text := srv.send("POST", "Observation/_search?date=gt2026-11-21T12:00:00Z", "patient=p", "Content-Type",
		"application/x-www-form-urlencoded; charset=utf-8"); short(srv.parse(text).ids()) != "spo2-last rhr-last" {
		t.Errorf("parameters in query and body: %s %s", resp.Status, text)
	}
}

// The link to the next page has neither the patient nor the device in it, and is of no use with
// other credentials.
func TestLinks(t *testing.T) {
	srv := serve(t, ward(t), fhir.Options{})
	_, text := srv.form("subject=Patient/p&_count=1")
	b := srv.parse(text)
	next := b.link("next")
	base, cursor, found := strings.Cut(next, "/fhir/Observation?_page=")
	if base != srv.URL || !found || len(cursor) < 40 {
		t.Fatalf("the next link is %s", next)
	}
	if self := b.link("self"); self != srv.URL+"/fhir/Observation?_count=1&subject=Patient%2Fp" {
		t.Errorf("self is %s", self)
	}
	second := srv.parse(srv.get(next))
	if second.link("self") != next || short(second.ids()) != "hr-cuff" || second.link("next") == next {
		t.Errorf("the second page is %+v", second)
	}
	if resp, text := srv.send("GET", next, "", "Authorization", "Bearer x"); resp.StatusCode != 400 {
		t.Errorf("with other credentials: %s %s", resp.Status, text)
	}
	for i := range len(cursor) {
		changed := []byte(cursor)
		changed[i] = map[bool]byte{true: 'B', false: 'A'}[changed[i] == 'A']
		if resp, _ := srv.send("GET", base+"/fhir/Observation?_page="+string(changed), ""); resp.StatusCode != 400 &&
			i < len(cursor)-1 {
			t.Errorf("with byte %d changed: %s", i, resp.Status)
		}
	}
	other := serve(t, ward(t), fhir.Options{Base: "https://ward.example/api/fhir"})
	b = other.parse(other.get("Observation?patient=p&_count=1"))
	for _, url := range []string{b.link("self"), b.link("next"), b.Entry[0].FullURL} {
		if !strings.HasPrefix(url, "https://ward.example/api/fhir/Observation") {
			t.Errorf("with another base: %s", url)
		}
	}
	other.get("Observation?" + b.link("next")[strings.Index(b.link("next"), "?")+1:])
}

// A model of a store with few devices, patients and times, so that most of them coincide.
type model struct {
	readings map[string]map[int64]vitals.Values
	assigned []storage.Assignment
}

func drawModel(rt *rapid.T) *model {
	m := &model{readings: map[string]map[int64]vitals.Values{}}
	for _, device := range []string{"a", "b", "c_1"} {
		m.readings[device] = map[int64]vitals.Values{}
		for range rapid.IntRange(5, 20).Draw(rt, "readings") {
			var v vitals.Values
			for i, signs := range [][]vitals.Sign{{vitals.Systolic, vitals.Diastolic}, {vitals.SpO2}, {vitals.HeartRate},
				{vitals.RestingHeartRate}} {
				if rapid.Bool().Draw(rt, "has") || i == 3 && v.IsZero() {
					for _, s := range signs {
						v.Set(s, 6000+vitals.Value(s))
					}
				}
			}
			m.readings[device][rapid.Int64Range(0, 15).Draw(rt, "time")] = v
		}
		n, err := vitals.ParseName(device)
		if err != nil {
			rt.Fatal(err)
		}
		from := int64(0)
		for range rapid.IntRange(0, 5).Draw(rt, "assignments") {
			from += rapid.Int64Range(0, 4).Draw(rt, "gap")
			to := from + rapid.Int64Range(1, 5).Draw(rt, "length")
			m.assigned = append(m.assigned, storage.Assignment{
				Device: n, Subject: rapid.SampledFrom([]storage.Subject{"p", "p", "q"}).Draw(rt, "subject"), FromUnixMs: from,
				ToUnixMs: to,
			})
			from = to
		}
	}
	return m
}

// want returns the ids of the Observations of p.
func (m *model) want(newest bool, fromUnixMs, toUnixMs int64, groups []string) (ids []string) {
	signs := map[string]vitals.Sign{"bp": vitals.Systolic, "spo2": vitals.SpO2, "hr": vitals.HeartRate,
		"rhr": vitals.RestingHeartRate}
	times := make([]int64, 16)
	for i := range times {
		times[i] = int64(i)
	}
	if newest {
		slices.Reverse(times)
	}
	for _, at := range times {
		for _, device := range slices.Sorted(maps.Keys(m.readings)) {
			worn := slices.ContainsFunc(m.assigned, func(a storage.Assignment) bool {
				return a.Device.String() == device && a.Subject == "p" && a.FromUnixMs <= at && at < a.ToUnixMs
			})
			values, ok := m.readings[device][at]
			if !ok || !worn || at < fromUnixMs || at >= toUnixMs {
				continue
			}
			for _, g := range []string{"bp", "spo2", "hr", "rhr"} {
				if values.Has(signs[g]) && slices.Contains(groups, g) {
					ids = append(ids, id(g, at, strings.ReplaceAll(device, "_", ".u")))
				}
			}
		}
	}
	return ids
}

// Pages of any length, joined, have the Observations of a patient in order: each once, and none
// of another patient or of nobody.
func TestPages(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := drawModel(rt)
		s := fill(t)
		for _, a := range m.assigned {
			try(t, s.Assign(t.Context(), a))
		}
		var group []*storage.Entry
		for device, readings := range m.readings {
			for at, values := range readings {
				group = append(group,
					&storage.Entry{Reading: &vitals.Reading{Device: name(t, device), TimeUnixMs: at, Values: values}})
			}
		}
		if err := s.Append(group); err != nil {
			rt.Fatal(err)
		}
		newest := rapid.Bool().Draw(rt, "newest")
		from, to := rapid.Int64Range(0, 16).Draw(rt, "from"), rapid.Int64Range(0, 16).Draw(rt, "to")
		groups, codes := []string{"bp", "spo2", "hr", "rhr"}, "85354-9,2708-6,8867-4"
		if rapid.Bool().Draw(rt, "some") {
			groups, codes = []string{"bp", "rhr"}, "85354-9,40443-4"
		}
		stamp := func(ms int64) string { return fmt.Sprintf("1970-01-01T00:00:00.%03dZ", ms) }
		q := params("patient", "p", "code", codes, "_count", fmt.Sprint(rapid.IntRange(1, 7).Draw(rt, "count")),
			"_sort", map[bool]string{true: "-date", false: "date"}[newest], "date", "ge"+stamp(from), "date", "lt"+stamp(to))
		srv := serve(t, s, fhir.Options{})
		defer srv.Close()
		want := m.want(newest, from, to, groups)
		if got, _ := srv.search(q); !slices.Equal(got, want) {
			rt.Fatalf("%s\ngot  %q\nwant %q", q, got, want)
		}
	})
}

// A page may be longer than what is read from the store at once, from one device or several.
func TestLongPage(t *testing.T) {
	if testing.Short() {
		t.Skip("sends much from one goroutine")
	}
	s := fill(t)
	var lines, want []string
	for i := range 5000 {
		device := []string{"a", "a", "b", "c"}[i%4]
		lines = append(lines, fmt.Sprintf(`{"device":%q,"time":%d,"spo2_pct":97}`, device, dayUnixMs+i))
		want = append(want, id("spo2", int64(dayUnixMs+i), device))
	}
	s.add(t, receivedUnixMs, lines...)
	for _, device := range []string{"a", "b", "c"} {
		s.assign(t, device, "p", 0, storage.OpenEnd)
	}
	srv := serve(t, s, fhir.Options{})
	for _, query := range []string{"", "&code=2708-6"} {
		if got, pages := srv.search("patient=p&_count=10000" + query); pages != 1 || !slices.Equal(got, want) {
			t.Errorf("%s: %d Observations on %d pages, in another order or others than those stored", query, len(got), pages)
		}
	}
	slices.Reverse(want)
	for _, query := range []string{"&_count=10000", "&_count=10000&code=2708-6", "&_count=3000"} {
		if got, _ := srv.search("patient=p&_sort=-date" + query); !slices.Equal(got, want) {
			t.Errorf("newest first, %s: %d Observations, in another order or others than those stored", query, len(got))
		}
	}
}
