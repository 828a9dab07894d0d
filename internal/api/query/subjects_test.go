package query_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// subjectPaths are the addresses of subjects.
var subjectPaths = []string{"/v1/subjects/readings", "/v1/subjects/aggregates?step=1h", "/v1/subjects/latest"}

// twoWards returns a store in which P-1 wore a-1 and then b-1, P-2 a-1 after P-1, and P-3 b-2.
func twoWards(t *testing.T) *storetest.Memory {
	t.Helper()
	m := fill(t,
		`{"device":"a-1","time":1000,"heart_rate_bpm":61,"spo2_pct":97}`,
		`{"device":"a-1","time":2000,"heart_rate_bpm":62}`,
		`{"device":"b-1","time":2000,"heart_rate_bpm":63}`,
		`{"device":"b-1","time":4000,"heart_rate_bpm":140,"gateway":"g"}`,
		`{"device":"a-1","time":5000,"heart_rate_bpm":65,"spo2_pct":88}`,
		`{"device":"b-2","time":5000,"heart_rate_bpm":66}`,
	)
	assignTo(t, m, "a-1", "P-1", 1500, 3000)
	assignTo(t, m, "b-1", "P-1", 1000, storage.OpenEnd)
	assignTo(t, m, "a-1", "P-2", 3000, storage.OpenEnd)
	assignTo(t, m, "b-2", "P-3", 3000, 4000)
	return m
}

func serveSubjects(t *testing.T, m *storetest.Memory, service query.Service) *httptest.Server {
	t.Helper()
	service.Subjects = m
	return serveOptions(t, m, query.Options{Service: service}, unchanged)
}

// TestSubjects reads what was measured of subjects, in each format.
func TestSubjects(t *testing.T) {
	m := twoWards(t)
	srv := serveSubjects(t, m, query.Service{})
	want := func(path, body, want string) {
		t.Helper()
		_, got := post(t, srv, path, body)
		got = strings.NewReplacer("1970-01-01T00:00:0", "", "2027-01-15T08:00:00.000Z", "R",
			`,"flags_notice":"`+vitals.FlagNotice+`"`, "").Replace(got)
		if got != want {
			t.Errorf("%s %s: got\n%s\nwant\n%s", path, body, got, want)
		}
	}
	first := func(time, v string) string {
		return `"first":{"time":"` + time + `","value":` + v + `},"last":`
	}
	const p1, p2, p3, nobody = `{"subject":"P-1"}`, `{"subject":"P-2"}`, `{"subject":"P-3"}`, `{"subject":"P-9"}`
	want("/v1/subjects/readings", p1, "{\"readings\":[\n"+
		`{"device":"a-1","time":"2.000Z","heart_rate_bpm":62,"subject":"P-1","received":"R"},`+"\n"+
		`{"device":"b-1","time":"2.000Z","heart_rate_bpm":63,"subject":"P-1","received":"R"},`+"\n"+
		`{"device":"b-1","time":"4.000Z","heart_rate_bpm":140,"gateway":"g","subject":"P-1","received":"R",`+
		`"flags":["heart_rate_bpm high"]}`+"\n]}\n")
	want("/v1/subjects/readings?flags=false&order=desc&from=1000&to=4000", p1, "{\"readings\":[\n"+
		`{"device":"a-1","time":"2.000Z","heart_rate_bpm":62,"subject":"P-1","received":"R"},`+"\n"+
		`{"device":"b-1","time":"2.000Z","heart_rate_bpm":63,"subject":"P-1","received":"R"}`+"\n]}\n")
	want("/v1/subjects/readings", p3, "{\"readings\":[\n]}\n")
	want("/v1/subjects/readings?format=ndjson&end=E", nobody, "E")
	want("/v1/subjects/aggregates?step=1h&tz=%2B01:00", p1, `{"subject":"P-1","step":"1h","tz":"+01:00","buckets":[`+
		"\n"+`{"from":"1970-01-01T01:00:00+01:00","to":"1970-01-01T02:00:00+01:00","subject":"P-1",`+
		`"signs":{"heart_rate_bpm":{"count":3,"min":62,"max":140,"mean":88.33,`+
		first("1970-01-01T01:00:02.000+01:00", "62")+`{"time":"1970-01-01T01:00:04.000+01:00","value":140}}}}`+"\n]}\n")
	want("/v1/subjects/aggregates?step=3s&format=ndjson", p2,
		`{"from":"3Z","to":"6Z","subject":"P-2","sign":"spo2_pct","count":1,"min":88.0,"max":88.0,"mean":88.0,`+
			first("5.000Z", "88.0")+`{"time":"5.000Z","value":88.0}}`+"\n"+
			`{"from":"3Z","to":"6Z","subject":"P-2","sign":"heart_rate_bpm","count":1,"min":65.0,"max":65.0,"mean":65.0,`+
			first("5.000Z", "65.0")+`{"time":"5.000Z","value":65.0}}`+"\n")
	want("/v1/subjects/latest", p1, `{"subject":"P-1","latest":{`+
		`"heart_rate_bpm":{"value":140,"time":"4.000Z","device":"b-1","flags":["heart_rate_bpm high"]}},`+
		`"assignments":[{"device":"a-1","from":"1.500Z","to":"3.000Z"},{"device":"b-1","from":"1.000Z"}]}`+"\n")
	want("/v1/subjects/latest", p2, `{"subject":"P-2","latest":{`+
		`"spo2_pct":{"value":88,"time":"5.000Z","device":"a-1","flags":["spo2_pct low"]},`+
		`"heart_rate_bpm":{"value":65,"time":"5.000Z","device":"a-1"}},`+
		`"assignments":[{"device":"a-1","from":"3.000Z"}]}`+"\n")
	want("/v1/subjects/latest", p3, `{"subject":"P-3","latest":{},`+
		`"assignments":[{"device":"b-2","from":"3.000Z","to":"4.000Z"}]}`+"\n")
	want("/v1/subjects/latest", nobody, `{"subject":"P-9","latest":{},"assignments":[]}`+"\n")
	for _, coding := range []string{"zstd", "gzip"} {
		resp, _ := post(t, srv, "/v1/subjects/readings?format=csv", p1, "Accept-Encoding", coding)
		if got := resp.Header.Get("Content-Encoding"); got != coding {
			t.Errorf("Accept-Encoding %s: the answer has %q", coding, got)
		}
	}
}

// newList returns the beginning of the cursors of a list.
func newList(kind byte, with ...string) []byte {
	return binary.BigEndian.AppendUint32([]byte{kind}, crc32.ChecksumIEEE([]byte(strings.Join(with, "\x00"))))
}

// TestSubjectsRejected sends requests that are answered with a problem.
func TestSubjectsRejected(t *testing.T) {
	srv := serveSubjects(t, twoWards(t), query.Service{})
	const p1 = `{"subject":"P-1"}`
	resp, text := post(t, srv, "/v1/subjects/readings?limit=1&format=csv", p1)
	cursor := resp.Trailer.Get("Pulsegate-Next-Cursor")
	if cursor == "" || strings.Contains(text, "63") {
		t.Fatalf("a page of one: %q, %s", cursor, text)
	}
	next := func(subject string) string { return fmt.Sprintf(`{"subject":%q,"cursor":%q}`, subject, cursor) }
	// Made up, with the last time that there is: the time after it is no time.
	list := newList(0x09, "P-1", "", " ")
	last := fmt.Sprintf(`{"subject":"P-1","cursor":%q}`, base64.RawURLEncoding.EncodeToString(
		append(binary.BigEndian.AppendUint64(list, math.MaxInt64), 'a')))
	for _, tt := range []struct{ path, body, want string }{
		{"readings?limit=1", next("P-1"), ""},
		{"readings?limit=1", next("P-2"), "#bad-parameter"},
		{"readings?order=desc", next("P-1"), "#bad-parameter"},
		{"readings?flag=any", next("P-1"), "#bad-parameter"},
		{"readings?order=desc", last, "#bad-parameter"},
		{"aggregates?step=1h", next("P-1"), "#bad-parameter"},
		{"readings", `{"subject":"P-1","cursor":"x"}`, "#bad-parameter"},
		{"readings?cursor=" + cursor, p1, "#bad-parameter"},
		{"readings?subject=P-1", p1, "#bad-parameter"},
		{"readings?format=omh", p1, "#bad-parameter"},
		{"readings?from=x", p1, "#bad-parameter"},
		{"aggregates", p1, "#bad-parameter"},
		{"aggregates?step=7s", p1, "#bad-parameter"},
		{"aggregates?step=1h&format=parquet", p1, "#bad-parameter"},
		{"latest?from=0", p1, "#bad-parameter"},
		{"latest", next("P-1"), "#malformed-body"},
		{"latest", ``, "#malformed-body"},
		{"readings", `{}`, "#malformed-body"},
		{"readings", `{"subject":"P 1"}`, "#malformed-body"},
		{"readings", `{"subject":"P-1","device":"a-1"}`, "#malformed-body"},
		{"readings", `{"subject":"P-1"}{}`, "#malformed-body"},
		{"readings", `{"subject":"P-1","subject":"P-2"}`, "#malformed-body"},
		{"readings", `{"subject":"P-1"` + strings.Repeat(" ", 1024) + `}`, "#malformed-body"},
	} {
		resp, text := post(t, srv, "/v1/subjects/"+tt.path, tt.body)
		status := 400
		if tt.want == "" {
			status = 200
		}
		shown := status != 200 && strings.Contains(text, "P-")
		if resp.StatusCode != status || !strings.Contains(text, tt.want) || shown {
			t.Errorf("%s %.60s: %d %s, want %d %s", tt.path, tt.body, resp.StatusCode, text, status, tt.want)
		}
	}
	if resp, text := post(t, srv, "/v1/subjects/readings", p1, "Accept", "image/png"); resp.StatusCode != 406 {
		t.Errorf("as an image: %d %s", resp.StatusCode, text)
	}
}

// A token for subjects reads its own and nothing else, and one for some devices only subjects who have never worn
// another: whether there are others, it does not learn. Each request is in the audit log before its answer.
func TestSubjectsRights(t *testing.T) {
	f := gatetest.New(t)
	all := f.Token(t, "archive", "", token.Token{Rights: token.Read})
	wardA := f.Token(t, "a", "a-", token.Token{Rights: token.Read})
	wardB := f.Token(t, "b", "b-", token.Token{Rights: token.Read})
	p1 := f.Token(t, "p1", "", token.Token{Rights: token.Read, Subjects: "P-1"})
	both := f.Token(t, "both", "", token.Token{Rights: token.Read, Subjects: "P-2,P-9"})
	writer := f.Token(t, "bed-7", "", token.Token{Rights: token.Write | token.Admin})
	gate := f.Open(t)
	srv := serveSubjects(t, twoWards(t), query.Service{Gate: gate})
	forbidden := ""
	for _, tt := range []struct {
		name, token string
		may         string // subjects
	}{
		{"a token for all", all, "P-1 P-2 P-3 P-9"}, {"for a-", wardA, "P-2"}, {"for b-", wardB, "P-3"},
		{"for P-1", p1, "P-1"}, {"for two subjects", both, "P-2 P-9"},
	} {
		for _, path := range subjectPaths {
			for _, subject := range []string{"P-1", "P-2", "P-3", "P-9"} {
				may := strings.Contains(tt.may, subject)
				resp, text := post(t, srv, path, `{"subject":"`+subject+`"}`, "Authorization", tt.token)
				if may {
					if resp.StatusCode != 200 {
						t.Errorf("%s, %s of %s: %d %s", tt.name, path, subject, resp.StatusCode, text)
					}
					continue
				}
				forbidden = cmp.Or(forbidden, text) // the same for any subject
				if resp.StatusCode != 403 || !strings.Contains(text, "#forbidden") || text != forbidden {
					t.Errorf("%s, %s of %s: %d %s", tt.name, path, subject, resp.StatusCode, text)
				}
			}
		}
	}
	want := len(subjectPaths) * (4*5 - 9)
	if n := gate.Refused(audit.NotCovered); int(n) != want {
		t.Errorf("%d refusals are counted, want %d", n, want)
	}
	// A line of the audit log within the hour covers the same request again, and those for less.
	records := f.Records(t, "exported")
	if len(records) != 9 || !strings.Contains(records[0], `"subject":"P-1","peer"`) {
		t.Errorf("the audit log has %d records: %q", len(records), records)
	}
	for auth, status := range map[string]int{"": 401, "Bearer x": 401, writer: 403} {
		for _, path := range subjectPaths {
			var header []string
			if auth != "" {
				header = []string{"Authorization", auth}
			}
			resp, text := post(t, srv, path, `{"subject":"P-1"}`, header...)
			if resp.StatusCode != status || strings.Contains(text, "P-1") {
				t.Errorf("%s: %d %s, want %d", path, resp.StatusCode, text, status)
			}
		}
	}
	try(t, gate.Audit.Close())
	for _, path := range subjectPaths {
		resp, text := post(t, srv, path, `{"subject":"P-1"}`, "Authorization", all)
		if resp.StatusCode != 500 || strings.Contains(text, "62") {
			t.Errorf("%s without an audit log: %d %s", path, resp.StatusCode, text)
		}
	}
}

// A session of the page may read subjects, from its own origin only.
func TestSubjectsInSession(t *testing.T) {
	f := gatetest.New(t)
	wardB := f.Token(t, "b", "b-", token.Token{Rights: token.Read})
	g := f.Open(t)
	srv := serveSubjects(t, twoWards(t), query.Service{Gate: g})
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/session", nil)
	g.SignIn(w, r, strings.TrimPrefix(wardB, "Bearer "), time.Now())
	cookie := w.Result().Cookies()[0]
	for _, path := range subjectPaths {
		for _, tt := range []struct {
			subject, site string
			want          int
		}{
			{"P-3", "same-origin", 200}, {"P-1", "same-origin", 403}, {"P-3", "same-site", 401}, {"P-3", "cross-site", 401},
		} {
			resp, text := post(t, srv, path, `{"subject":"`+tt.subject+`"}`,
				"Cookie", cookie.Name+"="+cookie.Value, "Sec-Fetch-Site", tt.site)
			if resp.StatusCode != tt.want {
				t.Errorf("%s of %s, %s: %d %s, want %d", path, tt.subject, tt.site, resp.StatusCode, text, tt.want)
			}
		}
	}
}

// A store calls a hook before each scan.
type hookedStore struct {
	*storetest.Memory
	scan func()
}

func (h *hookedStore) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	h.scan()
	return h.Memory.Scan(ctx, r, dst)
}

// A request during which an assignment is made to end earlier is rejected: it shows nothing that was measured since.
func TestSubjectsReassigned(t *testing.T) {
	for _, path := range subjectPaths {
		var lines []string
		for i := range 5000 {
			lines = append(lines, fmt.Sprintf(`{"device":"a-1","time":%d,"heart_rate_bpm":60}`, 1000+i))
		}
		m := fill(t, append(lines, `{"device":"a-1","time":900000,"spo2_pct":80}`)...)
		assignTo(t, m, "a-1", "P-1", 0, 800_000)
		scans := 0
		h := &hookedStore{m, func() {
			if scans++; scans == 1 {
				a := storage.Assignment{Device: name(t, "a-1"), Subject: "P-1", ToUnixMs: 2000}
				if err := m.EndAssignment(context.Background(), a); err != nil {
					t.Error(err)
				}
			}
		}}
		failed := func(err error) { t.Errorf("reported %v", err) }
		srv := serveOptions(t, h, query.Options{Service: query.Service{OnError: failed}}, unchanged)
		resp, text := post(t, srv, path, `{"subject":"P-1"}`)
		busy := resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != ""
		if !busy || strings.Contains(text, "60") {
			t.Errorf("%s: %d %.200s", path, resp.StatusCode, text)
		}
		if resp, text := post(t, srv, path, `{"subject":"P-1"}`); resp.StatusCode != 200 {
			t.Errorf("%s again: %d %.200s", path, resp.StatusCode, text)
		}
	}
}

// A subject to whom very many devices are assigned at one time cannot be read at that time: no part of such an answer is
// sent.
func TestTooManyWorn(t *testing.T) {
	m := storetest.NewMemory()
	for d := range query.MaxWorn + 1 {
		device := fmt.Sprint("d", d)
		appendTo(t, m, one(device))
		assignTo(t, m, device, "P-1", int64(min(d, 10)), 2000)
	}
	srv := serveSubjects(t, m, query.Service{OnError: func(err error) { t.Errorf("reported %v", err) }})
	for path, want := range map[string]int{
		"readings": 400, "readings?format=csv": 400, "aggregates?step=1h": 400, "readings?from=10": 400,
		"readings?to=10": 200, "readings?from=2000": 200, "latest": 200,
	} {
		resp, text := post(t, srv, "/v1/subjects/"+path, `{"subject":"P-1"}`)
		if resp.StatusCode != want || want == 400 && !strings.Contains(text, "#bad-parameter") {
			t.Errorf("%s: %d %.300s, want %d", path, resp.StatusCode, text, want)
		}
	}
}

// A request for latest values whose token is revoked while it reads has none.
//
// Seen to fail with the access that was decided at first.
func TestSubjectsLatestRevoked(t *testing.T) {
	var lines []string
	for i := range 5000 {
		lines = append(lines, fmt.Sprintf(`{"device":"a-1","time":%d,"heart_rate_bpm":60}`, 1000+i))
	}
	m := fill(t, append(lines, `{"device":"a-1","time":900000,"spo2_pct":80}`)...)
	assignTo(t, m, "a-1", "P-1", 0, 800_000)
	for at := 1; at <= 3; at++ { // the scan before which the token is revoked; there are three
		f := gatetest.New(t)
		header := f.Token(t, "study", "", token.Token{Rights: token.Read, Subjects: "P-1"})
		g := f.Open(t)
		scans := 0
		h := &hookedStore{m, func() {
			if scans++; scans == at {
				f.Revoke(t, "study")
				if err := g.Tokens.Reload(); err != nil {
					t.Error(err)
				}
			}
		}}
		srv := serveOptions(t, h, query.Options{Service: query.Service{Gate: g}}, unchanged)
		resp, text := post(t, srv, "/v1/subjects/latest", `{"subject":"P-1"}`, "Authorization", header)
		if resp.StatusCode != http.StatusUnauthorized || strings.Contains(text, "60") {
			t.Errorf("before scan %d: %d %s", at, resp.StatusCode, text)
		}
		if scans > at {
			t.Errorf("%d scans, although the token was revoked before scan %d", scans, at)
		}
	}
}
