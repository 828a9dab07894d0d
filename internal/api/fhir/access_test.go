package fhir_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// A keyring is a gate with a token for each purpose. The tokens are in the form of
// Authorization headers.
type keyring struct {
	*gatetest.Files
	gate *gate.Gate

	all, ppg, writer string
}

func newKeyring(t testing.TB) *keyring {
	t.Helper()
	f := gatetest.New(t)
	k := &keyring{
		Files: f, all: f.Token(t, "archive", "", token.Token{Rights: token.Read}),
		ppg:    f.Token(t, "ward-7", "ppg-", token.Token{Rights: token.Read}),
		writer: f.Token(t, "bed-7", "", token.Token{Rights: token.Write | token.Admin}),
	}
	k.gate = f.Open(t)
	return k
}

// revoke revokes all tokens.
func (k *keyring) revoke(t *testing.T) {
	t.Helper()
	k.Revoke(t, "")
	try(t, k.gate.Tokens.Reload())
}

// records returns the records of exports in the audit log, from the event on.
func (k *keyring) records(t *testing.T) (records []string) {
	t.Helper()
	for _, line := range k.Records(t, "exported") {
		rest, _, _ := strings.Cut(line, `,"peer"`)
		_, rest, _ = strings.Cut(rest, `"gateway":`)
		records = append(records, rest)
	}
	return records
}

// Every request for health data needs the read right, even if it is malformed.
func TestReadRight(t *testing.T) {
	k := newKeyring(t)
	srv := serve(t, ward(t), fhir.Options{Service: query.Service{Gate: k.gate}})
	for _, path := range []string{"Observation?patient=p", "Observation?patient=nobody", "Observation",
		"Observation?_format=xml", "Observation/" + wardIDs["spo2"], "Observation/x", "Device/ppg-1", "Device/x", "Patient/p",
		"Patient/x"} {
		for _, tt := range []struct {
			name   string
			header []string
			status int
			want   string
		}{
			{"no token", nil, 401, "unauthorized"},
			{"an invalid token", []string{"Authorization", "Bearer x"}, 401, "invalid-credentials"},
			{"a writer's token", []string{"Authorization", k.writer}, 403, "forbidden"},
		} {
			resp, text := srv.send("GET", path, "", tt.header...)
			if _, name := srv.diagnostics(text); resp.StatusCode != tt.status || name != tt.want ||
				!strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer realm=") {
				t.Errorf("%s, %s: %s %s %s, want %d %s", path, tt.name, resp.Status, resp.Header, text, tt.status, tt.want)
			}
		}
	}
	if resp, text := srv.form("patient=p"); resp.StatusCode != 401 {
		t.Errorf("POST: %s %s", resp.Status, text)
	}
	srv.get("metadata")
	if records := k.records(t); len(records) > 0 {
		t.Errorf("recorded %q", records)
	}
}

// A token for some devices does not learn whether a patient or a device that it may not read
// exists: the answers, the counters and the audit log are those for one that does not. Mutants:
// ofPatients allows patients without assignments; readableDevice ignores the beginning of the
// name of an unknown device.
func TestUnknownAsForeign(t *testing.T) {
	k := newKeyring(t)
	s := ward(t)
	const long = "cuff-0123456789-0123456789-0123456789-0123456789-01234"
	s.add(t, receivedUnixMs, fmt.Sprintf(`{"device":%q,"time":%d,"spo2_pct":99}`, long, dayUnixMs))
	s.assign(t, long, "r", dayUnixMs, storage.OpenEnd) // r wore no device of the token
	srv := serve(t, s, fhir.Options{Service: query.Service{Gate: k.gate}})
	observation := srv.parse(srv.get("Observation?patient=r", "Authorization", k.all)).ids()[0]
	hash := strings.SplitN(observation, "-", 3)[2]
	srv.get("Observation?patient=q", "Authorization", k.ppg) // the log has q already, for an hour
	noHash := hash[:2] + "aaaaaaaaaaaaaaaa" + hash[18:]
	for _, tt := range []struct{ form, foreign, unknown string }{
		{"Observation?patient=%s", "p", "n"},
		{"Observation?patient=%s", "r", "n"},
		{"Observation?subject=%s", "Patient/p", "Patient/n"},
		{"Observation?subject:Patient=%s", "r", "n"},
		{"Observation?patient=q,%s", "p", "n"},
		{"Observation?patient=%s&_summary=count", "p", "n"},
		{"Observation?patient=%s&_count=0", "r", "n"},
		{"Observation?patient=%s&device=ppg-1", "p", "n"},
		{"Observation?patient=%s&device=ppg-none", "r", "n"},
		{"Observation?patient=%s&date=2020", "p", "n"},
		{"Observation?patient=%s&code=8867-4&_lastUpdated=ge2030", "p", "n"},
		{"Observation?patient=%s&_sort=-date", "p", "n"},
		{"Observation?patient=%s&other=1", "p", "n"},
		{"Observation?patient.name=%s", "p", "n"},
		{"Observation?device=%s", "cuff-1", "cuff-9"},
		{"Observation?device=%s", hash, noHash},
		{"Observation?patient=q&device=%s", hash, noHash},
		{"Observation?patient=q&device=%s", "cuff-1", "cuff-9"},
		{"Patient/%s", "p", "n"},
		{"Patient/%s", "r", "n"},
		{"Device/%s", "cuff-1", "cuff-9"},
		{"Device/%s", hash, noHash},
		{"Observation/%s", wardIDs["bp"], id("bp", dayUnixMs, "cuff-9")},
		{"Observation/%s", wardIDs["bp"], id("spo2", dayUnixMs+1, "cuff-1")},
		{"Observation/%s", observation, id("spo2", dayUnixMs, noHash)},
	} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			_, query, isSearch := strings.Cut(tt.form, "?")
			if method == "POST" && !isSearch {
				continue
			}
			ask := func(id string) string {
				exported, refused := len(k.records(t)), k.gate.Refused(audit.NotCovered)
				var resp *http.Response
				var text string
				if method == "POST" {
					resp, text = srv.form(fmt.Sprintf(query, id), "Authorization", k.ppg)
				} else {
					resp, text = srv.send(method, fmt.Sprintf(tt.form, id), "", "Authorization", k.ppg)
				}
				resp.Header.Del("Date")
				text = strings.ReplaceAll(text, "device="+id, "device=ID")
				return fmt.Sprintln(resp.Status, resp.Header, text, len(k.records(t))-exported,
					k.gate.Refused(audit.NotCovered)-refused)
			}
			if unknown, foreign := ask(tt.unknown), ask(tt.foreign); unknown != foreign {
				t.Errorf("%s %s: unknown %s\nforeign %s", method, tt.form, unknown, foreign)
			}
		}
	}
}

// A token that is bound to patients reads what was measured while a device was assigned to one
// of them, and does not learn what else there is.
func TestBound(t *testing.T) {
	k := newKeyring(t)
	srv := serve(t, ward(t), fhir.Options{Service: query.Service{Gate: k.gate}})
	bound := func(patients ...string) string {
		subjects, err := token.MakeSubjects(patients)
		try(t, err)
		return k.Token(t, "app", "", token.Token{Rights: token.Read, Subjects: subjects})
	}
	p, q, both, other := bound("p"), bound("q"), bound("q", "p"), bound("r")
	try(t, k.gate.Tokens.Reload())
	const note = "Only Observations of the patients for whom the credentials are valid are served."
	for _, tt := range []struct {
		token, query, want string // want: "403", or Observations
		note               bool
	}{
		{p, "patient=p", allOfP, false},
		{p, "patient=q", "403", false},
		{p, "patient=p,q", "403", false},
		{p, "patient=nobody", "403", false},
		{p, "patient=q&device=ppg-1", "403", false},
		{both, "patient=p,q", allOfP + " spo2-q", false},
		{p, "device=ppg-1", "spo2 hr spo2-last rhr-last", true},
		{q, "device=ppg-1", "spo2-q", true},
		{q, "device=ppg-1&_sort=-date&_count=1", "spo2-q", true},
		{q, "device=ppg-1&date=lt2026-11-22", "", true},
		{both, "device=ppg-1", "spo2 hr spo2-last rhr-last spo2-q", true},
		{other, "device=ppg-1", "", true},
		{other, "device=none", "", true},
	} {
		resp, text := srv.send("GET", "Observation?"+tt.query, "", "Authorization", tt.token)
		if tt.want == "403" {
			if resp.StatusCode != 403 {
				t.Errorf("%s: %s %s", tt.query, resp.Status, text)
			}
			continue
		}
		if b := srv.parse(text); short(b.ids()) != tt.want || b.link("next") != "" ||
			(strings.Join(b.notes(), " ") == note) != tt.note || len(b.notes()) > 1 {
			t.Errorf("%s: %s, want %s", tt.query, text, tt.want)
		}
	}
	for _, tt := range []struct {
		path string
		may  []string
	}{
		{"Observation/" + wardIDs["spo2-last"], []string{p, both}},
		{"Observation/" + wardIDs["spo2-q"], []string{q, both}},
		{"Observation/" + id("spo2", dayUnixMs-1, "ppg-1"), nil}, // before the first assignment
		{"Device/ppg-1", []string{p, q, both}},
		{"Device/cuff-1", []string{p, both}},
		{"Device/none", nil},
		{"Patient/p", []string{p, both}},
		{"Patient/q", []string{q, both}},
	} {
		for _, token := range []string{p, q, both, other} {
			want := 404
			if slices.Contains(tt.may, token) {
				want = 200
			}
			if resp, text := srv.send("GET", tt.path, "", "Authorization", token); resp.StatusCode != want {
				t.Errorf("%s: %s %s, want %d", tt.path, resp.Status, text, want)
			}
		}
	}
}

// What is read of a patient is in the audit log, and nothing is read that is not. The link to
// the next page is authorized again.
func TestRecorded(t *testing.T) {
	k := newKeyring(t)
	s := ward(t)
	var failed []error
	srv := serve(t, s,
		fhir.Options{Service: query.Service{Gate: k.gate, OnError: func(err error) { failed = append(failed, err) }}})
	const day = `"from":"2026-11-21T00:00:00.000Z","to":"2026-11-22T00:00:00.000Z"`
	for _, tt := range []struct{ path, want string }{
		{"Observation?patient=p&_count=1", `"archive","subject":"p"`},
		{"Observation?patient=p&date=2026-11-21", ""}, // the first record has all times
		{"Observation?patient=nobody&date=2026-11-21", `"archive","subject":"nobody",` + day},
		{"Observation?device=ppg-1&date=2026-11-21", `"archive","device":"ppg-1","subject":"p",` + day},
		{"Observation?patient=q&_summary=count", `"archive","subject":"q"`},
		{"Observation?device=none", ""},
		{"Observation/" + wardIDs["bp"],
			`"archive","device":"cuff-1","subject":"p","from":"2026-11-21T00:00:00.000Z","to":"2026-11-21T00:00:00.001Z"`},
		{"Device/ppg-1", ""}, {"Patient/p", ""}, {"metadata", ""},
	} {
		before := len(k.records(t))
		srv.get(tt.path, "Authorization", k.all)
		if got := strings.Join(k.records(t)[before:], " "); got != tt.want {
			t.Errorf("%s: recorded %s, want %s", tt.path, got, tt.want)
		}
	}
	next := srv.parse(srv.get("Observation?patient=q&device=ppg-1", "Authorization", k.all))
	if len(next.ids()) != 1 {
		t.Fatalf("%+v", next)
	}
	b := srv.parse(srv.get("Observation?device=ppg-1&_count=1", "Authorization", k.ppg))
	srv.get(b.link("next"), "Authorization", strings.Replace(k.ppg, "Bearer", "bearer ", 1))
	if resp, text := srv.send("GET", b.link("next"), "", "Authorization", k.all); resp.StatusCode != 400 {
		t.Errorf("the next page with another token: %s %s", resp.Status, text)
	}
	s.add(t, receivedUnixMs, fmt.Sprintf(`{"device":"ppg-1","time":%d,"spo2_pct":99}`, dayUnixMs+2*dayMs))
	b = srv.parse(srv.get("Observation?patient=q&_count=1", "Authorization", k.ppg))
	s.assign(t, "cuff-2", "q", 0, 1)
	if resp, text := srv.send("GET", b.link("next"), "", "Authorization", k.ppg); resp.StatusCode != 403 {
		t.Errorf("the next page after the patient wore another device: %s %s", resp.Status, text)
	}

	try(t, k.gate.Audit.Close())
	for _, path := range []string{"Observation?patient=p", "Observation?patient=p&_summary=count",
		"Observation/" + wardIDs["bp"]} {
		resp, text := srv.send("GET", path, "", "Authorization", k.all)
		if _, name := srv.diagnostics(text); resp.StatusCode != 500 || name != "read-failed" || len(failed) == 0 {
			t.Errorf("%s without an audit log: %s %s %v", path, resp.Status, text, failed)
		}
		failed = nil
	}
}

// A hooked store calls a function before it is scanned.
type hooked struct {
	*store
	before func()
}

func (h *hooked) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	h.before()
	return h.store.Scan(ctx, r, dst)
}

// A search whose right ends before the answer begins is rejected, and not recorded; one that
// ends later is cut off.
func TestRevoked(t *testing.T) {
	for _, at := range []int{1, 2} { // the scan before which the right ends
		k := newKeyring(t)
		s := ward(t)
		var lines []string
		for i := range 4000 {
			lines = append(lines, fmt.Sprintf(`{"device":"ppg-1","time":%d,"spo2_pct":97}`, dayUnixMs+dayMs+1+i))
		}
		s.add(t, receivedUnixMs, lines...)
		scans := 0
		h := fhir.New(&hooked{s, func() {
			if scans++; scans == at {
				k.revoke(t)
			}
		}}, s, fhir.Options{Service: query.Service{Problems: problem.New(), Param: (*http.Request).PathValue, Gate: k.gate}})
		srv := httptest.NewServer(http.HandlerFunc(h.Search))
		req, err := http.NewRequest("GET", srv.URL+"/?patient=q&_count=4000", nil)
		try(t, err)
		req.Header.Set("Authorization", k.ppg)
		resp, err := srv.Client().Do(req)
		if at == 1 {
			try(t, err)
		} else if err != nil { // it was cut off before its first bytes were sent
			resp = &http.Response{StatusCode: 200, Body: http.NoBody}
		}
		text, cut := io.ReadAll(resp.Body)
		err = cmp.Or(err, cut)
		resp.Body.Close()
		srv.Close()
		if early := at == 1; early && (resp.StatusCode != 401 || err != nil || len(k.records(t)) > 0) ||
			!early && (resp.StatusCode != 200 || err == nil || len(k.records(t)) != 1) {
			t.Errorf("before scan %d: %s, %d bytes, %v, recorded %q", at, resp.Status, len(text), err, k.records(t))
		}
	}
}

// Requests beyond the bound are rejected, and errors of the store are reported.
func TestErrors(t *testing.T) {
	var failed []error
	bound := query.NewBound(1)
	s := ward(t)
	srv := serve(t, s,
		fhir.Options{Service: query.Service{Bound: bound, OnError: func(err error) { failed = append(failed, err) }}})
	if !bound.Enter(t.Context(), nil) {
		t.Fatal("the bound is exhausted")
	}
	for _, path := range []string{"Observation?patient=p", "Device/ppg-1"} {
		resp, text := srv.send("GET", path, "")
		if _, name := srv.diagnostics(text); resp.StatusCode != 503 || name != "overloaded" ||
			resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
	}
	bound.Leave(nil)
	try(t, s.Close())
	for _, path := range []string{"Observation?patient=p", "Observation?device=ppg-1",
		"Observation?patient=p&_summary=count", "Observation/" + wardIDs["bp"], "Device/ppg-1"} {
		resp, text := srv.send("GET", path, "")
		if _, name := srv.diagnostics(text); resp.StatusCode != 503 || name != "draining" {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
	}
	if len(failed) > 0 {
		t.Errorf("reported %v", failed)
	}
}

// Resources are served in JSON only.
func TestNegotiation(t *testing.T) {
	srv := serve(t, ward(t), fhir.Options{})
	for _, tt := range []struct{ format, accept, want string }{
		{"", "", "application/fhir+json"},
		{"", "*/*", "application/fhir+json"},
		{"", "application/fhir+json;fhirVersion=4.0", "application/fhir+json"},
		{"", "application/fhir+json; fhirVersion=4.0; q=0.5, text/html", "application/fhir+json"},
		{"", "application/fhir+json;fhirVersion=3.0", ""},
		{"", "application/json", "application/json"},
		{"", "application/json, application/fhir+json;q=0.9", "application/fhir+json"},
		{"", "application/fhir+xml, application/xml;q=0.9", ""},
		{"", "application/fhir+xml, */*;q=0.1", "application/fhir+json"},
		{"", "application/fhir+json;q=0, application/fhir+xml", ""},
		{"", "application/fhir+json;q=0.000", ""},
		{"", "text/turtle", ""},
		{"", ";", ""},
		{"json", "application/fhir+xml", "application/fhir+json"},
		{"application/fhir+json", "", "application/fhir+json"},
		{"application/fhir%2bjson%3BfhirVersion=4.0", "", "application/fhir+json"},
		{"application/json", "", "application/fhir+json"},
		{"xml", "application/fhir+json", ""},
		{"application/fhir+xml", "", ""},
		{"html", "", ""},
	} {
		for _, path := range []string{"metadata?", "Patient/p?", "Observation?patient=p&", "Patient/nobody?"} {
			if tt.format != "" {
				path += "_format=" + tt.format
			}
			var fields []string
			if tt.accept != "" {
				fields = []string{"Accept", tt.accept}
			}
			resp, text := srv.send("GET", path, "", fields...)
			typ := resp.Header.Get("Content-Type")
			switch {
			case tt.want == "" || strings.HasPrefix(path, "Patient/nobody"):
				status := 406
				if tt.want != "" {
					status = 404
				}
				if srv.diagnostics(text); resp.StatusCode != status || typ != "application/fhir+json" {
					t.Errorf("%s %q: %s %s, want %d", path, tt.accept, resp.Status, typ, status)
				}
			case resp.StatusCode != 200 || typ != tt.want || !strings.Contains(strings.Join(resp.Header["Vary"], ","), "Accept"):
				t.Errorf("%s %q: %s %s %s, want %s", path, tt.accept, resp.Status, typ, text, tt.want)
			}
		}
	}
}

// Another format of FHIR than JSON is not read, and what is sent by a client that does not accept
// JSON is not stored. Mutant: only the type application/fhir+xml is rejected.
func TestSendNegotiation(t *testing.T) {
	h := fhir.New(ward(t), ward(t), fhir.Options{Service: query.Service{Problems: problem.New()}})
	for _, tt := range []struct {
		target, accept, contentType string
		status                      int // 0: served
	}{
		{"/fhir", "", "", 0}, {"/fhir", "application/fhir+json", "", 0}, {"/fhir", "application/json", "", 0},
		{"/fhir?_format=json", "application/fhir+xml", "", 0},
		{"/fhir", "application/fhir+xml", "", 406}, {"/fhir?_format=xml", "", "", 406},
		{"/fhir", "application/fhir+xml", "application/fhir+json", 406},
		{"/fhir", "", "application/fhir+json; charset=utf-8", 0}, {"/fhir", "", "application/json", 0},
		{"/fhir", "", "application/json+fhir", 0},
		{"/fhir", "", "application/x-www-form-urlencoded", 0}, {"/fhir", "", "text/plain", 0}, {"/fhir", "", ";", 0},
		{"/fhir", "", "application/fhir+xml", 415}, {"/fhir", "", "application/fhir+xml; charset=utf-8", 415},
		{"/fhir", "", "Application/FHIR+XML;", 415},
		{"/fhir", "", "application/xml+fhir", 415}, {"/fhir", "", "application/xml", 415},
		{"/fhir", "", "text/xml;charset=\"utf-8\"", 415}, {"/fhir", "", "text/xml; charset", 415},
		{"/fhir", "", "text/turtle", 415}, {"/fhir", "", "application/fhir+turtle", 415},
		{"/fhir", "application/fhir+json", "application/fhir+xml", 415},
	} {
		served := false
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", tt.target, nil)
		if tt.accept != "" {
			r.Header.Set("Accept", tt.accept)
		}
		if tt.contentType != "" {
			r.Header.Set("Content-Type", tt.contentType)
		}
		h.JSON(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })).ServeHTTP(w, r)
		problem := map[int]string{406: `"code":"not-acceptable"`, 415: `"code":"unsupported-type"`}[tt.status]
		if served != (tt.status == 0) ||
			!served && (w.Code != tt.status || !strings.Contains(w.Body.String(), `"OperationOutcome"`) ||
				!strings.Contains(w.Body.String(), problem)) {
			t.Errorf("%s, Accept %q, Content-Type %q: served: %v, %d %s, want %d", tt.target, tt.accept, tt.contentType, served,
				w.Code, w.Body, tt.status)
		}
	}
}

// A device that is assigned to another patient while a page is read, from a time in the past on,
// shows the page's reader nothing that was measured since. What was sent before stays sent.
func TestReassignedMeanwhile(t *testing.T) {
	var lines []string
	for i := range 4000 {
		lines = append(lines, fmt.Sprintf(`{"device":"d","time":%d,"spo2_pct":97}`, i))
	}
	for _, at := range []int{1, 2} { // the scan before which the device is assigned anew
		for _, search := range []string{"patient=old&_count=10000", "device=d&_count=10000",
			"patient=old&_sort=-date&_count=10000", "patient=old&_summary=count"} {
			s := fill(t, lines...)
			s.assign(t, "d", "old", 0, storage.OpenEnd)
			scans := 0
			var failed []error
			h := fhir.New(&hooked{s, func() {
				if scans++; scans == at {
					if err := s.EndAssignment(t.Context(), storage.Assignment{Device: name(t, "d"), Subject: "old",
						ToUnixMs: 500}); err != nil {
						t.Error(err) // not Fatal: another goroutine calls this
					}
					s.assign(t, "d", "new", 500, storage.OpenEnd)
					s.add(t, receivedUnixMs, `{"device":"d","time":3999999,"spo2_pct":80}`,
						`{"device":"d","time":501,"heart_rate_bpm":80}`)
				}
			}}, s, fhir.Options{Service: query.Service{Problems: problem.New(), Param: (*http.Request).PathValue,
				OnError: func(err error) { failed = append(failed, err) }}})
			srv := httptest.NewServer(http.HandlerFunc(h.Search))
			resp, err := srv.Client().Get(srv.URL + "/?" + search)
			try(t, err)
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			begun := at == 2 && !strings.Contains(search, "summary")
			rejected := resp.StatusCode == 503 && resp.Header.Get("Retry-After") != ""
			right := at == 1 && resp.StatusCode == 200 && err == nil // what was read is before the change
			if begun != (err != nil) || !begun && !rejected && !right || strings.Contains(string(text), `"value":80`) {
				t.Errorf("%s, before scan %d: %s, %d bytes, %v", search, at, resp.Status, len(text), err)
			}
			if len(failed) > 0 {
				t.Errorf("%s: reported %v", search, failed)
			}
			resp, err = srv.Client().Get(srv.URL + "/?patient=old&_summary=count")
			try(t, err)
			if text, _ = io.ReadAll(resp.Body); !strings.Contains(string(text), `"total":500,`) {
				t.Errorf("%s: then %s", search, text)
			}
			resp.Body.Close()
			srv.Close()
		}
	}
}

// A page during which its readings are removed is rejected, or cut off.
func TestRemovedMeanwhile(t *testing.T) {
	var lines []string
	for i := range 4000 {
		lines = append(lines, fmt.Sprintf(`{"device":"d","time":%d,"spo2_pct":97}`, i))
	}
	for _, search := range []string{"patient=p&_count=10000", "device=d&_count=10000",
		"patient=p&_sort=-date&_count=10000", "patient=p&_summary=count"} {
		s := fill(t, lines...)
		s.assign(t, "d", "p", 0, storage.OpenEnd)
		scans := 0
		h := fhir.New(&hooked{s, func() {
			if scans++; scans == 2 {
				if _, err := s.Erase(name(t, "d")); err != nil {
					t.Error(err)
				}
			}
		}}, s, fhir.Options{Service: query.Service{Problems: problem.New(), Param: (*http.Request).PathValue,
			OnError: func(err error) { t.Errorf("reported %v", err) }}})
		srv := httptest.NewServer(http.HandlerFunc(h.Search))
		resp, err := srv.Client().Get(srv.URL + "/?" + search)
		try(t, err)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if isCount := strings.Contains(search, "summary"); isCount != (err == nil) || isCount && resp.StatusCode != 500 {
			t.Errorf("%s: %s, %d bytes, %v", search, resp.Status, len(text), err)
		}
		srv.Close()
	}
}
