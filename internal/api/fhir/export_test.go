package fhir_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// openStore opens an embedded store that keeps events.
func openStore(t testing.TB, fs vfs.FS) *pebblestore.Store {
	t.Helper()
	s, err := pebblestore.Open("data", pebblestore.Options{FS: fs, MinFreeBytes: -1, ChangesKeep: time.Hour * 24 * 7})
	try(t, err)
	return s
}

// A manifest is what the tests read of one.
type manifest struct {
	TransactionTime, Request string
	RequiresAccessToken      bool
	Output, Deleted, Error   []struct{ Type, URL string }
}

// kickOff starts an export and returns its status address.
func (s *server) kickOff(target string, fields ...string) string {
	s.t.Helper()
	resp, text := s.send("GET", target, "", append(fields, "Prefer", "respond-async")...)
	if resp.StatusCode != 202 || text != "" {
		s.t.Fatalf("%s: %s %s", target, resp.Status, text)
	}
	return resp.Header.Get("Content-Location")
}

// manifest returns the manifest of an export.
func (s *server) manifest(status string, fields ...string) (m manifest) {
	s.t.Helper()
	resp, text := s.send("GET", status, "", append(fields, "Accept", "application/json")...)
	if err := json.Unmarshal([]byte(text), &m); err != nil || resp.StatusCode != 200 ||
		resp.Header.Get("Content-Type") != "application/json" {
		s.t.Fatalf("%s: %s %s %s", status, resp.Status, resp.Header, text)
	}
	if expires, err := http.ParseTime(resp.Header.Get("Expires")); err != nil || time.Until(expires) > fhir.ExportKept {
		s.t.Errorf("the export expires at %s, %v", expires, err)
	}
	return m
}

// lines returns the resources in files of an export.
func (s *server) lines(files []struct{ Type, URL string }, fields ...string) (lines []string) {
	s.t.Helper()
	for _, f := range files {
		resp, text := s.send("GET", f.URL, "", append(fields, "Accept", "application/fhir+ndjson")...)
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/fhir+ndjson" {
			s.t.Fatalf("%s: %s %s %s", f.URL, resp.Status, resp.Header, text)
		}
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, `{"resourceType":"`+f.Type+`"`) {
				s.t.Errorf("a file of type %s has %s", f.Type, line)
			}
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// A resource is what a replica looks for in resources.
type resource struct {
	ResourceType, ID, EffectiveDateTime string
	Device, Subject                     struct{ Reference string }
	Code                                struct {
		Coding []struct{ System, Code string }
	}
	Entry []struct{ Request struct{ Method, URL string } }
	Issue []struct{ Severity, Code, Diagnostics string }
}

func parseResource(t testing.TB, text string) (r resource) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r
}

// matches reports whether an Observation is found by a search, as an OperationOutcome has it.
func matches(t testing.TB, r resource, search string) bool {
	t.Helper()
	_, text, _ := strings.Cut(search, "Observation?")
	measured, err := time.Parse(time.RFC3339, r.EffectiveDateTime)
	try(t, err)
	for param := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(param, "=")
		has := func() bool {
			return slices.ContainsFunc(r.Code.Coding, func(c struct{ System, Code string }) bool {
				return slices.Contains(strings.Split(value, ","), c.System+"|"+c.Code)
			})
		}
		matched := false
		switch name {
		case "device":
			matched = r.Device.Reference == value
		case "date":
			at, err := time.Parse(time.RFC3339, value[2:])
			try(t, err)
			matched = value[:2] == "ge" && !measured.Before(at) || value[:2] == "lt" && measured.Before(at)
		case "code":
			matched = has()
		case "code:not":
			matched = !has()
		default:
			t.Fatalf("the search is %s", search)
		}
		if !matched {
			return false
		}
	}
	return true
}

// A replica is a copy of what a client may see, which follows by exports.
type replica struct {
	name   string
	fields []string          // of the header
	search string            // for all Observations
	target string            // of the export
	since  string            // transactionTime of the last one
	have   map[string]string // Observations by id
	others map[string]string // other resources by reference
}

// follow applies an export.
func (c *replica) follow(s *server) {
	t := s.t
	t.Helper()
	query := params("_typeFilter", "Observation?status=final", "_outputFormat", "ndjson")
	if c.since != "" {
		query += "&" + params("_since", c.since)
	} else {
		c.have, c.others = map[string]string{}, map[string]string{}
	}
	m := s.manifest(s.kickOff(c.target+"?"+query, c.fields...), c.fields...)
	c.since = m.TransactionTime
	if c.others != nil { // all are in each export
		clear(c.others)
	}
	deleted := map[string]bool{}
	for _, line := range s.lines(m.Deleted, c.fields...) {
		for _, e := range parseResource(t, line).Entry {
			if e.Request.Method != "DELETE" {
				t.Errorf("deleted has %s", line)
			}
			deleted[e.Request.URL] = true
		}
	}
	for id, text := range c.have {
		if r := parseResource(t, text); deleted[r.Device.Reference] || deleted[r.Subject.Reference] {
			delete(c.have, id)
		}
	}
	for _, line := range s.lines(m.Error, c.fields...) {
		for _, issue := range parseResource(t, line).Issue {
			for id, text := range c.have {
				if matches(t, parseResource(t, text), issue.Diagnostics) {
					delete(c.have, id)
				}
			}
		}
	}
	for _, line := range s.lines(m.Output, c.fields...) {
		r := parseResource(t, line)
		if r.ResourceType == "Observation" {
			c.have[r.ID] = line
			continue
		}
		reference := r.ResourceType + "/" + r.ID
		if c.others[reference] != "" || deleted[reference] {
			t.Errorf("%s: %s is there twice, or deleted", c.name, reference)
		}
		c.others[reference] = line
	}
}

// check compares the replica with what searches find.
func (c *replica) check(s *server, when string) {
	t := s.t
	t.Helper()
	want := map[string]string{}
	for next := "Observation?_count=1000&" + c.search; next != ""; {
		text := s.get(next, c.fields...)
		var b struct {
			Entry []struct {
				Resource json.RawMessage
				Search   struct{ Mode string }
			}
		}
		try(t, json.Unmarshal([]byte(text), &b))
		for _, e := range b.Entry {
			if e.Search.Mode == "match" {
				want[parseResource(t, string(e.Resource)).ID] = string(e.Resource)
			}
		}
		next = s.parse(text).link("next")
	}
	if !maps.Equal(c.have, want) {
		for id := range want {
			if c.have[id] != want[id] {
				t.Errorf("%s, %s: %s is %s, want %s", when, c.name, id, c.have[id], want[id])
			}
		}
		for id := range c.have {
			if want[id] == "" {
				t.Errorf("%s, %s: %s is there", when, c.name, id)
			}
		}
	}
	for reference, text := range c.others {
		if got := s.get(reference, c.fields...); got != text+"\n" {
			t.Errorf("%s, %s: %s is %s, want %s", when, c.name, reference, text, got)
		}
	}
}

// TestExportFollows follows a store by exports, each since the one before: one client may see everything, one the
// devices of a ward, and one a patient. Readings come late and are completed, devices change their patients, and
// devices, assignments, values and old readings are removed. After each export, a client has exactly the Observations
// that its searches find.
//
// Seen to fail when an assignment that was changed did not bring its readings; without the removal of spans that were
// unassigned, erased, or had expired; without what an erasure of a gateway's values had left; and with the time of the
// position as transactionTime.
func TestExportFollows(t *testing.T) {
	k := gatetest.New(t)
	read := token.Token{Rights: token.Read}
	all, ward := k.Token(t, "all", "", read), k.Token(t, "ward", "w-", read)
	own := k.Token(t, "own", "", token.Token{Rights: token.Read, Subjects: "P1"})
	gate := k.Open(t)
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewMem()
		db := openStore(t, fs)
		open := func() *server {
			return serve(t, db, fhir.Options{Service: query.Service{Gate: gate}, Changes: db})
		}
		srv := open()
		names := []string{"w-1", "w-2", "x.1"}
		replicas := []*replica{
			{name: "all", fields: []string{"Authorization", all}, search: "device=w-1,w-2,x..1", target: "$export"},
			{name: "ward", fields: []string{"Authorization", ward}, search: "device=w-1,w-2", target: "Group/w-/$export"},
			{name: "patient", fields: []string{"Authorization", own}, search: "patient=P1", target: "Patient/$export"},
		}
		clock := time.Now().Add(time.Hour).UnixMilli()
		try(t, db.Assign(t.Context(), storage.Assignment{ // without any event, a restart may be one of a store that kept none
			Device: name(t, "y-1"), Subject: "P4", ToUnixMs: 1, ChangedUnixMs: clock,
		}))
		for step := range 160 {
			clock += rng.Int64N(2)
			device, from := names[rng.IntN(len(names))], rng.Int64N(40)
			did := ""
			switch n := rng.IntN(20); {
			case n < 8:
				sign := []string{`"spo2_pct":97`, `"heart_rate_bpm":60`, `"systolic_mmhg":120,"diastolic_mmhg":80`}[rng.IntN(3)]
				did = fmt.Sprintf(`{"device":%q,"time":%d,"gateway":"g%d",%s}`, device, 1000*from, rng.IntN(2), sign)
				add(t, db, clock, did)
			case n < 11:
				a := storage.Assignment{
					Device: name(t, device), Subject: storage.Subject(fmt.Sprintf("P%d", 1+rng.IntN(3))),
					FromUnixMs: 1000 * from, ToUnixMs: 1000 * (from + 1 + rng.Int64N(20)), ChangedUnixMs: clock,
				}
				did = fmt.Sprintf("assign %v: %v", a, db.Assign(t.Context(), a))
			case n < 13:
				if found := assigned(t, db, rng); found != nil {
					found.ToUnixMs, found.ChangedUnixMs = found.FromUnixMs+1+rng.Int64N(20_000), clock
					did = fmt.Sprintf("end %v: %v", *found, db.EndAssignment(t.Context(), *found))
				}
			case n == 13 && rng.IntN(3) == 0:
				_, err := db.Erase(name(t, device))
				did = fmt.Sprintf("erase %s: %v", device, err)
			case n == 13:
				some := []uint32{0, 1 << vitals.SpO2, 1<<vitals.Systolic | 1<<vitals.Diastolic}[rng.IntN(3)]
				e := storage.Erasure{
					Device: name(t, device), FromUnixMs: 1000 * from, ToUnixMs: 1000 * (from + 1 + rng.Int64N(20)),
					Signs: some, Shared: rng.IntN(2) == 0,
				}
				if rng.IntN(4) > 0 {
					e.Gateway = name(t, fmt.Sprintf("g%d", rng.IntN(2)))
				}
				e, err := db.EraseValues(e)
				did = fmt.Sprintf("erase %+v: %v", e, err)
			case n == 14:
				if found := assigned(t, db, rng); found != nil {
					_, err := db.EraseAssignment(*found)
					did = fmt.Sprintf("erase %v: %v", *found, err)
				}
			case n == 15 && rng.IntN(2) == 0:
				before := 1000 * rng.Int64N(20)
				e, err := db.Expire(t.Context(), before, 1000)
				did = fmt.Sprintf("expire before %d: %v %v", before, e, err)
			case n == 16 && rng.IntN(3) == 0:
				try(t, db.Close())
				db = openStore(t, fs)
				srv = open()
			case n > 15:
				c := replicas[rng.IntN(len(replicas))]
				c.follow(srv)
				c.check(srv, fmt.Sprintf("seed %d, step %d", seed, step))
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d at %d", seed, step, clock)
			}
			t.Log(step, clock, did)
		}
		try(t, db.Close())
	}
}

// assigned returns one of the assignments, or nil.
func assigned(t testing.TB, db *pebblestore.Store, rng *rand.Rand) *storage.Assignment {
	t.Helper()
	page := make([]storage.Assignment, 100)
	n, err := db.Assignments(t.Context(), storage.AssignmentKey{}, page)
	try(t, err)
	if page = storage.Worn(page[:n]); len(page) == 0 {
		return nil
	}
	return &page[rng.IntN(len(page))]
}

// exported returns the export of a store whose clock is controlled, and a time after which it has changed nothing.
func exported(t testing.TB, opt fhir.Options) (*server, *pebblestore.Store, int64) {
	t.Helper()
	db := openStore(t, vfs.NewMem())
	t.Cleanup(func() { _ = db.Close() })
	clock := time.Now().Add(time.Hour).UnixMilli()
	add(t, db, clock,
		`{"device":"w-1","time":1000,"spo2_pct":97}`, `{"device":"w-1","time":2000,"spo2_pct":96}`,
		`{"device":"x.1","time":1000,"spo2_pct":95}`, `{"device":"x.1","time":9000,"spo2_pct":95}`,
	)
	for _, a := range []storage.Assignment{
		{Device: name(t, "w-1"), Subject: "P1", ToUnixMs: 2000},
		{Device: name(t, "w-1"), Subject: "P2", FromUnixMs: 2000, ToUnixMs: 5000},
		{Device: name(t, "x.1"), Subject: "P1", ToUnixMs: 5000},
	} {
		a.ChangedUnixMs = clock
		try(t, db.Assign(t.Context(), a))
	}
	opt.Changes = db
	return serve(t, db, opt), db, clock
}

// ids returns the types and ids of resources.
func (s *server) ids(lines []string) string {
	var ids []string
	for _, line := range lines {
		r := parseResource(s.t, line)
		ids = append(ids, r.ResourceType+"/"+r.ID)
	}
	return strings.Join(ids, " ")
}

// TestExportRemoved looks at what exports say of removals.
func TestExportRemoved(t *testing.T) {
	srv, db, clock := exported(t, fhir.Options{})
	later := func() string {
		clock += 10
		since := time.UnixMilli(clock - 5).UTC().Format("2006-01-02T15:04:05.000Z")
		add(t, db, clock, fmt.Sprintf(`{"device":"y-1","time":%d,"spo2_pct":97}`, clock%1_000_000)) // sets the clock
		return since
	}
	want := func(what, query string, want ...string) {
		t.Helper()
		m := srv.manifest(srv.kickOff("$export?"+query, "Prefer", "handling=lenient"))
		var got []string
		for _, line := range srv.lines(m.Deleted) {
			for _, e := range parseResource(t, line).Entry {
				got = append(got, e.Request.Method+" "+e.Request.URL)
			}
		}
		for _, line := range srv.lines(m.Error) {
			for _, issue := range parseResource(t, line).Issue {
				got = append(got, issue.Severity+" "+issue.Code+" "+issue.Diagnostics)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	since := later()
	p2 := storage.Assignment{Device: name(t, "w-1"), Subject: "P2", FromUnixMs: 2000, ToUnixMs: 3000, ChangedUnixMs: clock}
	try(t, db.EndAssignment(t.Context(), p2))
	const ended = "warning deleted " +
		"Observation?device=Device/w-1&date=ge1970-01-01T00:00:03.000Z&date=lt1970-01-01T00:00:05.000Z"
	want("an assignment that ended earlier", "_since="+since, ended)
	want("without _since", "")
	want("other types", "_type=Patient&_since="+since)
	sinceErased := later()
	_, err := db.EraseAssignment(p2)
	try(t, err)
	const erased = "warning deleted " +
		"Observation?device=Device/w-1&date=ge1970-01-01T00:00:02.000Z&date=lt1970-01-01T00:00:03.000Z"
	want("an assignment that was erased", "_since="+since, "DELETE Patient/P2", ended, erased)
	want("later", "_since="+sinceErased, "DELETE Patient/P2", erased)
	want("only Observations", "_type=Observation&_since="+sinceErased, erased)
	since = later()
	_, err = db.Erase(name(t, "x.1"))
	try(t, err)
	const ofX = "warning deleted Observation?device=Device/x..1"
	want("a device", "_since="+since, "DELETE Device/x..1", ofX)
	want("a device, only Observations", "_type=Observation&_since="+since, ofX)
	again := srv.manifest(srv.kickOff("$export?_since=" + since))
	add(t, db, clock, `{"device":"x.1","time":3000,"spo2_pct":95}`)
	if got := strings.Join(srv.lines(again.Error), ""); !strings.Contains(got, "Device/x..1") {
		t.Errorf("a device that is there again when files are read: error has %q", got)
	}
	want("a device that is there again", "_since="+since, ofX)
	since = later()
	_, err = db.Erase(name(t, "w-1"))
	try(t, err)
	// The event names P2, too, who wore it before.
	want("the last device of a patient", "_since="+since, "DELETE Device/w-1", "DELETE Patient/P1", "DELETE Patient/P2",
		"warning deleted Observation?device=Device/w-1")
	since = later()
	_, err = db.Expire(t.Context(), 4000, 10)
	try(t, err)
	want("expired", "_since="+since, "warning deleted Observation?date=lt1970-01-01T00:00:04.000Z")
	want("ignored", "_elements=id", "information informational Parameters that are not supported were ignored.")
}

// TestExport looks at the resources of each kind of export.
func TestExport(t *testing.T) {
	srv, _, clock := exported(t, fhir.Options{})
	const patients, devices = "Patient/P1 Patient/P2", "Device/w-1 Device/x..1"
	const ward, x = "Observation/spo2-rs-w-1 Observation/spo2-1jk-w-1", "Observation/spo2-rs-x..1"
	at := time.UnixMilli(clock).UTC().Format("2006-01-02T15:04:05.000Z")
	before, plain := time.UnixMilli(clock-1).UTC().Format("2006-01-02T15:04:05.000Z"), patients+" "+devices+" "+ward+" "+x
	for _, tt := range []struct{ target, want string }{
		{"$export", plain},
		{"$export?_outputFormat=application/fhir%2Bndjson", plain},
		{"$export?_outputFormat=application/fhir+ndjson&_since=2200-01-01", patients + " " + devices},
		{"$export?_outputFormat=application/ndjson&_format=json", plain},
		{"Patient/$export", plain},
		{"Group/w-/$export", patients + " Device/w-1 " + ward},
		{"Group/x..1/$export", "Patient/P1 Device/x..1 " + x},
		{"Group/y/$export", ""},
		{"$export?_type=Observation", ward + " " + x},
		{"$export?_type=Patient,Device", patients + " " + devices},
		{"$export?_type=Patient&_type=Device", patients + " " + devices},
		{"$export?_type=Observation&_since=" + before, ward + " " + x},
		{"$export?_type=Observation&_since=" + before[:23] + "999%2B00:00", ward + " " + x},
		{"$export?_type=Observation&_since=" + at, ""},
		{"$export?_type=Observation&_typeFilter=Observation%3Fdate%3Dge1970-01-01T00:00:02Z", "Observation/spo2-1jk-w-1"},
		{"$export?_type=Observation&_typeFilter=Observation%3Fcategory%3Dlaboratory%252Csurvey,Observation%3Fcode%3D59408-5" +
			"%26date%3Dlt1970-01-01T00:00:02Z", "Observation/spo2-rs-w-1 " + x},
		{"$export?_type=Observation&_typeFilter=Observation%3Fcode%3D8867-4", ""},
	} {
		m := srv.manifest(srv.kickOff(tt.target))
		got, request := srv.ids(srv.lines(m.Output)), srv.URL+"/fhir/"+tt.target
		if got != tt.want || len(srv.lines(m.Deleted))+len(srv.lines(m.Error)) > 0 || m.Request != request ||
			m.RequiresAccessToken {
			t.Errorf("%s: %+v has %s, want %s", tt.target, m, got, tt.want)
		}
		if m.TransactionTime != before { // the store's time, before which nothing is stored later
			t.Errorf("%s: transactionTime is %s, want %s", tt.target, m.TransactionTime, before)
		}
	}
	status := srv.kickOff("$export?_type=Observation")
	file := srv.manifest(status).Output[0].URL
	resp, text := srv.send("HEAD", file, "")
	if resp.StatusCode != 200 || text != "" {
		t.Errorf("HEAD: %s %s", resp.Status, text)
	}
	if resp, text := srv.send("DELETE", status, ""); resp.StatusCode != 202 ||
		!strings.Contains(text, "OperationOutcome") {
		t.Errorf("DELETE: %s %s", resp.Status, text)
	}
	other := status[:len(status)-1] + string(status[len(status)-1]^1) // base64 may have bits beyond the last byte
	for _, address := range []string{status, file, other} {
		if resp, text := srv.send("GET", address, ""); resp.StatusCode != 404 || !strings.Contains(text, "OperationOutcome") {
			t.Errorf("after DELETE: %s %s", resp.Status, text)
		}
	}
	if resp, text := srv.send("DELETE", status, ""); resp.StatusCode != 404 {
		t.Errorf("DELETE again: %s %s", resp.Status, text)
	}
	if resp, text := srv.send("GET", srv.kickOff("$export?_type=Observation"), ""); resp.StatusCode != 200 {
		t.Errorf("another export after DELETE: %s %s", resp.Status, text)
	}
	const body = `{"resourceType":"Parameters","parameter":[{"name":"_type","valueString":"Patient"},` +
		`{"valueString":"Device","name":"_type"}]}`
	resp, _ = srv.send("POST", "$export", body, "Content-Type", "application/fhir+json")
	m := srv.manifest(resp.Header.Get("Content-Location"))
	if srv.ids(srv.lines(m.Output)) != patients+" "+devices || m.Request != srv.URL+"/fhir/$export" {
		t.Errorf("POST: %+v", m)
	}
	resp, _ = srv.send("POST", "$export?_type=Patient", "")
	m = srv.manifest(resp.Header.Get("Content-Location"))
	if srv.ids(srv.lines(m.Output)) != patients || m.Request != srv.URL+"/fhir/$export?_type=Patient" {
		t.Errorf("POST with a query: %+v", m)
	}
}

// TestExportRejected sends requests that an export rejects, and those of them that it accepts leniently.
func TestExportRejected(t *testing.T) {
	srv, db, _ := exported(t, fhir.Options{})
	const (
		noInstant = "_since: not an instant of FHIR such as 2026-11-21T10:00:00.123Z"
		noFilter  = "_typeFilter: not searches of Observation such as Observation?code=8867-4, in which a comma is %2C"
		noParam   = "a parameter is not one of _outputFormat, _since, _type and _typeFilter"
		noExport  = "These credentials have no such export, or it has expired."
		noBody    = "The body must be a resource of type Parameters, in JSON."
		other     = "_typeFilter: a search has another parameter than code, category, date, status and _lastUpdated"
		patient   = `{"resourceType":"Parameters","parameter":[{"name":"patient",` +
			`"valueReference":{"reference":"Patient/P1"}}]}`
	)
	for _, tt := range []struct {
		method, target, body string
		status               int
		problem, diagnostics string
		lenient              bool
	}{
		{"GET", "$export?_outputFormat=text/csv", "", 400, "bad-parameter", "_outputFormat: not application/fhir+ndjson",
			true},
		{"GET", "$export?_since=yesterday", "", 400, "bad-parameter", noInstant, false},
		{"GET", "$export?_since=2026-11-21T10:00:00.5", "", 400, "bad-parameter", noInstant, false},
		{"GET", "$export?_since=2200-01-01&_since=2200-01-02", "", 400, "bad-parameter", "_since: more than one", false},
		{"GET", "$export?_type=Condition,Observation", "", 400, "bad-parameter", "_type: not of Patient, Device, Observation",
			true},
		{"GET", "$export?_elements=id", "", 400, "bad-parameter", noParam, true},
		{"GET", "$export?_typeFilter=Patient%3Factive%3Dtrue", "", 400, "bad-parameter", noFilter, true},
		{"GET", "$export?_typeFilter=Observation%3Fpatient%3DP1", "", 400, "bad-parameter", other, true},
		{"GET", "$export?_typeFilter=Observation%3Fdate%3Dx", "", 400, "bad-parameter", "", true},
		{"GET", "$export?_type=" + strings.Repeat("Observation,", 100), "", 400, "bad-parameter",
			"the parameters are too long", false},
		{"GET", "$export?_type=%", "", 400, "bad-parameter", "the query is not well formed", false},
		{"GET", "$export?_pretty=\xff", "", 400, "bad-parameter", "the query is not well formed", false},
		{"GET", "Group/a_b/$export", "", 404, "not-found", "", false},
		{"GET", "Group/" + strings.Repeat("a", 65) + "/$export", "", 404, "not-found", "", false},
		{"POST", "$export", `{"resourceType":"Bundle"}`, 400, "malformed-body", noBody, false},
		{"POST", "$export", patient, 400, "bad-parameter", noParam, true},
		{"GET", "$export?_format=xml", "", 406, "not-acceptable", "", false},
		{"GET", "$export/x", "", 404, "not-found", noExport, false},
		{"DELETE", "$export/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "", 404, "not-found", noExport, false},
		{"GET", "$export/x/Observation", "", 404, "not-found", noExport, false},
	} {
		resp, text := srv.send(tt.method, tt.target, tt.body)
		diagnostics, problem := srv.diagnostics(text)
		if resp.StatusCode != tt.status || problem != tt.problem || tt.diagnostics != "" && diagnostics != tt.diagnostics {
			t.Errorf("%s %.80s: %s %s", tt.method, tt.target, resp.Status, text)
		}
		if tt.status == 404 && tt.diagnostics != "" || problem == "not-acceptable" {
			continue
		}
		resp, text = srv.send(tt.method, tt.target, tt.body, "Prefer", "respond-async, handling=lenient")
		if tt.lenient != (resp.StatusCode == 202) {
			t.Errorf("leniently, %s %.80s: %s %s", tt.method, tt.target, resp.Status, text)
		}
	}
	status := srv.kickOff("$export")
	if resp, text := srv.send("GET", status+"/Condition", ""); resp.StatusCode != 404 {
		t.Errorf("an unknown file: %s %s", resp.Status, text)
	}
	middle := status[:len(status)-10] + string(status[len(status)-10]^1) + status[len(status)-9:]
	if resp, text := srv.send("GET", middle, ""); resp.StatusCode != 404 {
		t.Errorf("a changed address: %s %s", resp.Status, text)
	}

	forgetful := serve(t, db, fhir.Options{Changes: forgets{db}})
	since := "$export?_type=Patient&_since=2020-01-01T00:00:00Z"
	if resp, text := forgetful.send("GET", since, ""); resp.StatusCode != 410 ||
		!strings.Contains(text, "handling=lenient") {
		t.Errorf("events were removed: %s %s", resp.Status, text)
	}
	m := forgetful.manifest(forgetful.kickOff(since, "Prefer", "handling=lenient"))
	got := strings.Join(forgetful.lines(m.Error), "")
	if !strings.Contains(got, `"severity":"warning","code":"incomplete"`) || len(m.Output) != 1 {
		t.Errorf("events were removed, leniently: %+v %s", m, got)
	}
	without := serve(t, db, fhir.Options{})
	if resp, text := without.send("GET", since, ""); resp.StatusCode != 501 {
		t.Errorf("no changes: %s %s", resp.Status, text)
	}
	m = without.manifest(without.kickOff("$export?_type=Observation"))
	if got := without.lines(m.Output); len(got) != 3 {
		t.Errorf("no changes: %+v %q", m, got)
	}
}

// forgets are changes of which events were removed.
type forgets struct{ *pebblestore.Store }

func (forgets) KeptSince(context.Context) (int64, error) { return time.Now().UnixMilli(), nil }

// TestExportGroupBeside exports a group beside a device whose name sorts right before those of the group, and that was
// assigned.
func TestExportGroupBeside(t *testing.T) {
	srv, db, clock := exported(t, fhir.Options{})
	for _, device := range []string{"w", "w-", "w-1", "w."} {
		add(t, db, clock, fmt.Sprintf(`{"device":%q,"time":9000,"spo2_pct":97}`, device))
		try(t, db.Assign(t.Context(), storage.Assignment{
			Device: name(t, device), Subject: "P9", FromUnixMs: 9000, ToUnixMs: 9001, ChangedUnixMs: clock,
		}))
	}
	const devices = "Device/w- Device/w-1"
	m := srv.manifest(srv.kickOff("Group/w-/$export?_type=Device"))
	if got := srv.ids(srv.lines(m.Output)); got != devices {
		t.Errorf("the export has %s, want %s", got, devices)
	}
}

// TestExportQuiet removes the last event of a store in which nothing changes. What was exported before is too old, and
// what is exported afterwards is not.
func TestExportQuiet(t *testing.T) {
	db, err := pebblestore.Open("data", pebblestore.Options{FS: vfs.NewMem(), MinFreeBytes: -1, ChangesKeep: 1})
	try(t, err)
	defer func() { try(t, db.Close()) }()
	clock := time.Now().Add(-time.Hour).UnixMilli()
	add(t, db, clock, `{"device":"w-1","time":2000,"spo2_pct":97}`)
	try(t, db.Assign(t.Context(), storage.Assignment{Device: name(t, "w-1"), Subject: "P1", ToUnixMs: 9000,
		ChangedUnixMs: clock}))
	srv := serve(t, db, fhir.Options{Changes: db})
	for _, forget := range []func() error{func() error { return nil }, db.ForgetEvents, db.ForgetEvents} {
		before := srv.manifest(srv.kickOff("$export"))
		try(t, forget())
		after := srv.manifest(srv.kickOff("$export"))
		for _, m := range []manifest{before, after} {
			want := 202
			if m.TransactionTime < after.TransactionTime {
				want = 410
			}
			if resp, text := srv.send("GET", "$export?_since="+m.TransactionTime, ""); resp.StatusCode != want {
				t.Errorf("since %s: %s %s, want %d", m.TransactionTime, resp.Status, text, want)
			}
		}
	}
	if resp, text := srv.send("GET", "$export?_since=2020-01-01", ""); resp.StatusCode != 410 {
		t.Errorf("since before the store: %s %s", resp.Status, text)
	}
}

// counted is a store that counts how often it looks up the assignments of a patient, and waits before it lists others.
type counted struct {
	*pebblestore.Store
	lookups int
	list    func(context.Context)
}

func (c *counted) SubjectAssignments(ctx context.Context, s storage.Subject) ([]storage.Assignment, error) {
	c.lookups++
	return c.Store.SubjectAssignments(ctx, s)
}

func (c *counted) Assignments(ctx context.Context, after storage.AssignmentKey, page []storage.Assignment) (int,
	error) {
	if c.list != nil {
		c.list(ctx)
	}
	return c.Store.Assignments(ctx, after, page)
}

// TestExportBeside ends an assignment while the Observations of an export are read, after the assignments were: the
// readings that were changed since are among them, once.
func TestExportBeside(t *testing.T) {
	for _, later := range []int64{0, 10} { // the time of the change is that of the last one before it, or later
		_, db, clock := exported(t, fhir.Options{})
		since := time.UnixMilli(clock).UTC().Format("2006-01-02T15:04:05.000Z")
		clock += 10
		add(t, db, clock, `{"device":"w-1","time":2500,"spo2_pct":97}`)
		hooked := &positions{Store: db}
		srv := serve(t, db, fhir.Options{Changes: hooked})
		m := srv.manifest(srv.kickOff("$export?_type=Observation&_since=" + since))
		hooked.calls = 0
		hooked.call = func() {
			if hooked.calls++; hooked.calls == 2 { // one when the file is begun
				try(t, db.EndAssignment(t.Context(), storage.Assignment{
					Device: name(t, "w-1"), Subject: "P2", FromUnixMs: 2000, ToUnixMs: 3000, ChangedUnixMs: clock + later,
				}))
			}
		}
		const want = "Observation/spo2-1xg-w-1"
		if got := srv.ids(srv.lines(m.Output)); got != want || hooked.calls < 2 {
			t.Errorf("changed %d ms later, after %d calls: %s, want %s", later, hooked.calls, got, want)
		}
		next := srv.manifest(srv.kickOff("$export?_type=Observation&_since=" + m.TransactionTime))
		if got := srv.ids(srv.lines(next.Output)); !strings.Contains(got, want) {
			t.Errorf("the next export has %s", got)
		}
	}
}

// positions are changes that call a function before they return a position.
type positions struct {
	*pebblestore.Store
	calls int
	call  func()
}

func (p *positions) Position(ctx context.Context) (storage.Position, <-chan struct{}, error) {
	if p.call != nil {
		p.call()
	}
	return p.Store.Position(ctx)
}

// TestExportPatients looks up the assignments of each patient once, however many he has, and emits a patient of whom
// one was made meanwhile, before those that he had. It ends when the client has disconnected.
func TestExportPatients(t *testing.T) {
	_, db, clock := exported(t, fhir.Options{})
	assign := func(device, subject string, from int64) {
		try(t, db.Assign(t.Context(), storage.Assignment{
			Device: name(t, device), Subject: storage.Subject(subject), FromUnixMs: from, ToUnixMs: from + 1,
			ChangedUnixMs: clock,
		}))
	}
	for i := range int64(100) {
		assign("m", fmt.Sprintf("Q%d", i%3), 10*i)
		assign("n", fmt.Sprintf("Q%d", i%4), 10*i)
	}
	c := &counted{Store: db}
	srv := serve(t, c, fhir.Options{Changes: db})
	file := srv.kickOff("$export?_type=Patient") + "/Patient"
	_, text := srv.send("GET", file, "")
	if n := strings.Count(text, "\n"); n != 6 || c.lookups != n {
		t.Errorf("%d patients, %d look-ups, want 6", n, c.lookups)
	}
	pages := 0
	c.list = func(context.Context) {
		if pages++; pages == 2 { // the devices before m have been read
			assign("a", "Q3", 1)
		}
	}
	if _, text := srv.send("GET", file, ""); !strings.Contains(text, `"id":"Q3"`) {
		t.Errorf("a patient is missing from %s", text)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	c.list = func(ctx context.Context) {
		cancel()
		<-ctx.Done()
		close(ended)
	}
	req, err := http.NewRequestWithContext(ctx, "GET", file, nil)
	try(t, err)
	if resp, err := srv.Client().Do(req); err == nil {
		_ = resp.Body.Close()
		t.Errorf("the file was read: %s", resp.Status)
	}
	<-ended
}

// TestExportForgotten removes the events that an export is about when it has been started: before its manifest is read,
// before a file is, and while a file is read. The client learns it each time.
func TestExportForgotten(t *testing.T) {
	_, db, clock := exported(t, fhir.Options{})
	changes := &keptSince{Store: db, calls: math.MaxInt}
	srv := serve(t, db, fhir.Options{Changes: changes})
	since := "$export?_since=" + time.UnixMilli(clock-1).UTC().Format("2006-01-02T15:04:05.000Z")
	_, err := db.Erase(name(t, "x.1"))
	try(t, err)
	status := srv.kickOff(since)
	m := srv.manifest(status)
	if deleted, removed := srv.lines(m.Deleted), srv.lines(m.Error); len(deleted) != 1 || len(removed) != 1 {
		t.Errorf("nothing is forgotten: %q %q", deleted, removed)
	}
	for _, calls := range []int{0, 1} { // one when the address is opened, and one when events were read
		for _, address := range []string{m.Deleted[0].URL, m.Error[0].URL, status} {
			changes.calls = calls
			resp, text := srv.send("GET", address, "")
			if resp.StatusCode != 410 && (calls == 0 || address != status) {
				t.Errorf("forgotten after %d calls: %s %s %s", calls, address, resp.Status, text)
			}
		}
	}
	changes.calls = math.MaxInt
	m = srv.manifest(srv.kickOff(since, "Prefer", "handling=lenient"))
	for _, calls := range []int{0, 1} {
		changes.calls = calls
		if got := strings.Join(srv.lines(m.Error), ""); strings.Contains(got, `"incomplete"`) != (calls == 0) {
			t.Errorf("leniently, forgotten after %d calls: %s", calls, got)
		}
	}
}

// keptSince are changes of which all events count as removed after some calls of KeptSince.
type keptSince struct {
	*pebblestore.Store
	calls int
}

func (k *keptSince) KeptSince(ctx context.Context) (int64, error) {
	if k.calls--; k.calls < 0 {
		return math.MaxInt64, nil
	}
	return k.Store.KeptSince(ctx)
}

// TestExportAccess exports with tokens for everything, for a ward and for a patient. Another token does not read an
// export, what a token may read is decided at each request, and each file with what patients wore is recorded.
func TestExportAccess(t *testing.T) {
	k := newKeyring(t)
	own := k.Token(t, "own", "", token.Token{Rights: token.Read, Subjects: "P2"})
	ward := k.Token(t, "ward", "w-", token.Token{Rights: token.Read})
	k.gate = k.Open(t)
	srv, _, _ := exported(t, fhir.Options{Service: query.Service{Gate: k.gate}})
	const first, second = "Observation/spo2-rs-w-1", "Observation/spo2-1jk-w-1"
	for _, tt := range []struct{ token, target, want string }{
		{k.all, "$export", "Patient/P1 Patient/P2 Device/w-1 Device/x..1 " + first + " " + second +
			" Observation/spo2-rs-x..1"},
		{ward, "$export", "Patient/P2 Device/w-1 " + first + " " + second}, // P1 wore another device, too
		{ward, "Group/x/$export", ""},
		{own, "$export", "Patient/P2 Device/w-1 " + second},
		{own, "Group/x/$export", ""},
		{k.ppg, "$export", ""},
	} {
		auth := []string{"Authorization", tt.token}
		status := srv.kickOff(tt.target, auth...)
		m := srv.manifest(status, auth...)
		if got := srv.ids(srv.lines(m.Output, auth...)); got != tt.want || !m.RequiresAccessToken {
			t.Errorf("%s: %+v has %s, want %s", tt.target, m, got, tt.want)
		}
		others := map[string]int{k.all: 404, ward: 404, own: 404, k.ppg: 404, k.writer: 403, "": 401, "Bearer x": 401}
		for other, want := range others {
			for _, address := range []string{status, status + "/Observation"} {
				if other == tt.token {
					continue
				}
				fields := []string{"Authorization", other}
				if other == "" {
					fields = nil
				}
				if resp, text := srv.send("GET", address, "", fields...); resp.StatusCode != want {
					t.Errorf("another token: %s %s, want %d", resp.Status, text, want)
				}
			}
		}
	}
	// Of each token, the first file is recorded; those of the next hour are counted.
	if got := k.records(t); len(got) != 3 || strings.Contains(strings.Join(got, ""), "P") {
		t.Errorf("recorded %q", got)
	}
	status := srv.kickOff("$export", "Authorization", k.all)
	k.revoke(t)
	for _, address := range []string{status, status + "/Observation"} {
		if resp, text := srv.send("GET", address, "", "Authorization", k.all); resp.StatusCode != 401 {
			t.Errorf("revoked: %s %s", resp.Status, text)
		}
	}
}
