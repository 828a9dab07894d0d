package fhir_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// receivedUnixMs is when the readings of fill were received: 2027-01-15T08:00:00Z.
const receivedUnixMs = 1_800_000_000_000

// A store has readings and assignments.
type store struct{ *storetest.Memory }

func (s *store) assign(t testing.TB, device string, subject storage.Subject, fromUnixMs, toUnixMs int64) {
	t.Helper()
	try(t, s.Assign(t.Context(), storage.Assignment{Device: name(t, device), Subject: subject, FromUnixMs: fromUnixMs,
		ToUnixMs: toUnixMs}))
}

func name(t testing.TB, text string) vitals.Name {
	t.Helper()
	n, err := vitals.ParseName(text)
	try(t, err)
	return n
}

// withOwnSigns returns an empty store with three signs of the user's own, numbers 11 to 13: with a code of
// LOINC, with one that a built-in sign has too, and without any.
func withOwnSigns(t testing.TB) *storetest.Memory {
	t.Helper()
	s := storetest.NewMemory()
	usual := vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}
	if err := s.Signs().Define([]vitals.Definition{
		{Field: "hrv_rmssd_ms", Label: "RMSSD", Unit: "ms", Decimals: 1, LOINC: []string{"80404-7"},
			Accepted: vitals.Range{Max: 500_0}, Usual: usual},
		{Field: "ecg_rate_bpm", Label: "Rate, ECG", Unit: "/min", Decimals: 0, LOINC: []string{"76282-3", "8867-4"},
			Accepted: vitals.Range{Min: 20, Max: 300}, Usual: usual},
		{Field: "skin_delta_c", Label: "Difference", Unit: "Cel", Decimals: 3,
			Accepted: vitals.Range{Min: -5_000, Max: 5_000}, Usual: usual},
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// fill returns a store with readings given as JSON.
func fill(t testing.TB, lines ...string) *store {
	t.Helper()
	s := &store{withOwnSigns(t)}
	s.add(t, receivedUnixMs, lines...)
	return s
}

func (s *store) add(t testing.TB, receivedUnixMs int64, lines ...string) {
	t.Helper()
	add(t, s, receivedUnixMs, lines...)
}

// add stores readings given as JSON.
func add(t testing.TB, s storage.Store, receivedUnixMs int64, lines ...string) {
	t.Helper()
	if len(lines) == 0 {
		return
	}
	limits := s.Signs().DefaultLimits()
	limits.OldestUnixMs = 0 // times in the tests are small numbers
	rules, err := vitals.NewValidator(limits)
	try(t, err)
	var batch vitals.Batch
	try(t, vitals.NewDecoder(rules, vitals.DecoderOptions{}).Decode([]byte(strings.Join(lines, "\n")),
		vitals.MaxTimeUnixMs, &batch))
	if len(batch.Refused) > 0 {
		t.Fatal(&batch.Refused[0])
	}
	var group []*storage.Entry
	for i := range batch.Readings {
		group = append(group, &storage.Entry{Reading: &batch.Readings[i], ReceivedUnixMs: receivedUnixMs})
	}
	try(t, s.Append(group))
}

// A server serves FHIR from a store.
type server struct {
	*httptest.Server
	t testing.TB
}

func serve(t testing.TB, s interface {
	fhir.Reader
	fhir.Subjects
}, opt fhir.Options) *server {
	t.Helper()
	opt.Problems, opt.Param, opt.Version = problem.New(), (*http.Request).PathValue, "test"
	h := fhir.New(s, s, opt)
	mux := http.NewServeMux()
	handle := func(method string) func(string, http.Handler) {
		return func(template string, h http.Handler) { mux.Handle(method+" "+template, h) }
	}
	unused := func(string, http.Handler) {}
	h.Mount(handle("GET"), handle("POST"), handle("POST"), unused, handle("DELETE"),
		func(ingest.Form) http.Handler { return http.NotFoundHandler() })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return &server{srv, t}
}

// send sends a request and returns the response with its text. Fields are names and values of
// the header.
func (s *server) send(method, target, body string, fields ...string) (*http.Response, string) {
	s.t.Helper()
	if !strings.HasPrefix(target, "http") {
		target = s.URL + "/fhir/" + target
	}
	req, err := http.NewRequest(method, target, strings.NewReader(body))
	try(s.t, err)
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	resp, err := s.Client().Do(req)
	try(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	try(s.t, err)
	if n := len(text); n > 0 && (text[n-1] != '\n' || strings.HasSuffix(string(text), "\n\n")) {
		s.t.Errorf("%s %s: %q does not end with one newline", method, target, text[max(0, n-20):])
	}
	return resp, string(text)
}

// get returns the text of a 200.
func (s *server) get(target string, fields ...string) string {
	s.t.Helper()
	resp, text := s.send("GET", target, "", fields...)
	if resp.StatusCode != 200 {
		s.t.Errorf("GET %s: %s %s", target, resp.Status, text)
	}
	return text
}

// form searches by POST.
func (s *server) form(body string, fields ...string) (*http.Response, string) {
	s.t.Helper()
	return s.send("POST", "Observation/_search", body,
		append(fields, "Content-Type", "application/x-www-form-urlencoded")...)
}

// A bundle is what the tests read of a searchset.
type bundle struct {
	ResourceType, Type string
	Total              *int
	Link               []struct{ Relation, URL string }
	Entry              []struct {
		FullURL  string
		Resource struct {
			ResourceType, ID  string
			EffectiveDateTime string
			Subject           struct{ Reference string }
			Issue             []struct{ Severity, Code, Diagnostics string }
		}
		Search struct{ Mode string }
	}
}

func (s *server) parse(text string) (b bundle) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	if b.ResourceType != "Bundle" || b.Type != "searchset" {
		s.t.Fatalf("not a searchset: %s", text)
	}
	return b
}

// link returns the URL of a link, or "".
func (b bundle) link(relation string) string {
	for _, l := range b.Link {
		if l.Relation == relation {
			return l.URL
		}
	}
	return ""
}

// ids returns the ids of the Observations.
func (b bundle) ids() (ids []string) {
	for _, e := range b.Entry {
		if e.Search.Mode == "match" {
			ids = append(ids, e.Resource.ID)
		}
	}
	return ids
}

// notes returns the texts of the outcome.
func (b bundle) notes() (notes []string) {
	for _, e := range b.Entry {
		for _, issue := range e.Resource.Issue {
			notes = append(notes, issue.Diagnostics)
		}
	}
	return notes
}

// search returns the ids that all pages of a search have, and the number of pages.
func (s *server) search(query string, fields ...string) (ids []string, pages int) {
	s.t.Helper()
	for next := "Observation?" + query; next != ""; pages++ {
		b := s.parse(s.get(next, fields...))
		ids = append(ids, b.ids()...)
		next = b.link("next")
	}
	return ids, pages
}

// diagnostics returns the diagnostics of an OperationOutcome with one issue, and the name of
// its problem.
func (s *server) diagnostics(text string) (diagnostics, problem string) {
	s.t.Helper()
	var o struct {
		ResourceType string
		Issue        []struct {
			Severity, Code, Diagnostics string
			Details                     struct {
				Text   string
				Coding []struct{ System, Code string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil || o.ResourceType != "OperationOutcome" || len(o.Issue) != 1 ||
		len(o.Issue[0].Details.Coding) != 1 {
		s.t.Fatalf("not an OperationOutcome: %v %s", err, text)
	}
	return o.Issue[0].Diagnostics, o.Issue[0].Details.Coding[0].Code
}

func params(pairs ...string) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values.Encode()
}

var try = polltest.Try
