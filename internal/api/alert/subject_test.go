package alert_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// evening is when the readings of these tests begin.
var evening = time.Date(2026, 11, 24, 22, 0, 0, 0, time.UTC)

func minute(n int) int64 { return evening.Add(time.Duration(n) * time.Minute).UnixMilli() }

// A wardStore has readings of two devices, which patients have worn in turn.
type wardStore struct {
	t testing.TB
	*storetest.Memory
}

func (s wardStore) device(text string) vitals.Name {
	name, err := vitals.ParseName(text)
	try(s.t, err)
	return name
}

// add stores a reading that arrives some time after it was measured.
func (s wardStore) add(device string, unixMs, lateMs int64, spo2 vitals.Value) {
	r := vitals.Reading{Device: s.device(device), TimeUnixMs: unixMs}
	r.Values.Set(vitals.SpO2, spo2)
	try(s.t, s.Append([]*storage.Entry{{Reading: &r, ReceivedUnixMs: unixMs + lateMs}}))
}

func (s wardStore) assign(device string, subject storage.Subject, fromUnixMs, toUnixMs int64) {
	try(s.t, s.Assign(s.t.Context(), storage.Assignment{
		Device: s.device(device), Subject: subject, FromUnixMs: fromUnixMs, ToUnixMs: toUnixMs}))
}

// asker returns what asks for the alerts of a device, and for those of a subject, at a time.
func (s wardStore) asker(service query.Service,
	now int64) (ofDevice func(query, auth string) *httptest.ResponseRecorder,
	ofSubject func(query, subject, auth string) *httptest.ResponseRecorder) {
	service.Problems, service.Subjects = problem.New(), s
	rules := []alert.Rule{
		{Name: "Low", Sign: vitals.SpO2, Met: vitals.Range{Min: vitals.MinValue, Max: 90_00}, Values: 1, MaxAge: time.Hour,
			Field: "spo2_pct", Condition: "spo2_pct below 90.01"},
		{Name: "Silent", Silent: 20 * time.Minute, Condition: "no reading for 20m"},
	}
	engine := alert.NewEngine(s, rules, alert.Options{Now: func() time.Time { return time.UnixMilli(now) }})
	h := alert.NewHandler(engine, service, &vitals.Limits{})
	post := h.OfSubject(query.NewSubjects(query.New(s, s, query.Options{Service: service}), s))
	ofDevice = func(query, auth string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", alert.Path+query, nil)
		r.Header.Set("Authorization", auth)
		h.ServeHTTP(w, r)
		return w
	}
	ofSubject = func(query, subject, auth string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", alert.SubjectPath+query, strings.NewReader(`{"subject":"`+subject+`"}`))
		r.Header.Set("Authorization", auth)
		post.ServeHTTP(w, r)
		return w
	}
	return ofDevice, ofSubject
}

// The alerts of a subject are the parts that lie in its assignments, of all devices. Each request is in the audit log,
// with the subject, and nobody else's id or measured value is in an answer.
func TestHandlerOfSubject(t *testing.T) {
	f := gatetest.New(t)
	all := f.Token(t, "archive", "", token.Token{Rights: token.Read})
	ward := f.Token(t, "ward-7", "ppg-", token.Token{Rights: token.Read})
	writer := f.Token(t, "bed-7", "", token.Token{Rights: token.Write})
	bound := f.Token(t, "ehr", "", token.Token{Rights: token.Read, Subjects: "P-17"})
	s := wardStore{t, storetest.NewMemory()}
	for i, device := range []string{"ppg-1", "x"} {
		for _, r := range []struct {
			minute int
			spo2   vitals.Value
		}{{0, 97_00}, {10, 85_25}, {25, 85_25}, {30, 97_00}, {60, 85_25}} {
			s.add(device, minute(r.minute+i), 500, r.spo2)
		}
	}
	s.assign("ppg-1", "P-17", minute(0), minute(20))
	s.assign("x", "P-17", minute(20), minute(40))
	s.assign("ppg-1", "P-200", minute(20), minute(50))
	path := filepath.Join(t.TempDir(), "audit")
	log, err := audit.Open(t.Context(), path, audit.Options{})
	try(t, err)
	g := f.Open(t)
	g.Audit = log
	_, ask := s.asker(query.Service{Gate: g}, minute(90))

	part := func(device, since, fired, ended string) string {
		return `{"name":"Low","device":"` + device +
			`","sign":"spo2_pct","condition":"spo2_pct below 90.01","subject":"P-17",` +
			`"since":"2026-11-24T` + since + `Z","fired":"2026-11-24T` + fired + `Z","ended":"2026-11-24T` + ended + `Z"}`
	}
	later := part("x", "22:20:00.000", "22:20:00.000", "22:31:00.500")
	want := fmt.Sprintf(`{"notice":"%s","from":"2026-11-24T21:30:00.000Z","to":"2026-11-24T23:30:00.000Z","rules":2,`+
		`"ready":true,"alerts":[%s,%s],"total":2,"unread":0}`+"\n", alert.PastNotice, later,
		part("ppg-1", "22:10:00.000", "22:10:00.500", "22:20:00.000"))
	for _, auth := range []string{all, bound} {
		if w := ask("?from=-2h", "P-17", auth); w.Code != 200 || w.Body.String() != want ||
			w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%d %s\nwant %s", w.Code, w.Body, want)
		}
	}
	if w := ask("?from=-2h&limit=1", "P-17", all); !strings.Contains(w.Body.String(), `"alerts":[`+later+`],"total":2`) {
		t.Errorf("one of two: %s", w.Body)
	}
	for _, tt := range []struct {
		name, query, subject, auth string
		status                     int
		want                       string
	}{
		{"nobody of this id", "?from=-2h", "P-9", all, 200, `"alerts":[],"total":0`},
		{"a range without alerts", "?from=2026-11-24T22:45:00Z", "P-17", all, 200, `"alerts":[],"total":0`},
		{"no token", "?from=-2h", "P-17", "", 401, ""},
		{"a writer's token", "?from=-2h", "P-17", writer, 403, ""},
		{"a token for some of the devices", "?from=-2h", "P-17", ward, 403, ""},
		{"a token bound to another subject", "?from=-2h", "P-200", bound, 403, ""},
		{"no beginning", "", "P-17", all, 400, `"field":"from","reason":"missing, or 1970"`},
		{"a long range", "?from=-32d", "P-17", all, 400, `"field":"from","reason":"more than 31 days before to`},
		{"a device", "?from=-2h&device=x", "P-17", all, 400, "known here: from, to, tz, limit"},
		{"no subject", "?from=-2h", `","x":"`, all, 400, "malformed-body"},
	} {
		w := ask(tt.query, tt.subject, tt.auth)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) || strings.Contains(w.Body.String(), "Low") {
			t.Errorf("%s: %d %s, want %d", tt.name, w.Code, w.Body, tt.status)
		}
	}
	try(t, log.Close())
	text, err := os.ReadFile(path)
	try(t, err)
	for line, n := range map[string]int{
		`"subject":"P-17","from":"2026-11-24T21:30:00.000Z","to":"2026-11-24T23:30:00.000Z"`: 2, // the other ones are counted
		`"subject":"P-9","from":`: 1,
		`"subject":"P-200"`:       0,
	} {
		if got := strings.Count(string(text), line); got != n {
			t.Errorf("the audit log has %s %d times, want %d:\n%s", line, got, n, text)
		}
	}
}

// The alerts of a subject are those of each of its devices, as GET lists them, with the subject's name, in any history:
// late readings, clocks of devices that are wrong, assignments back and forth.
func TestAlertsOfSubjectModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := wardStore{t, storetest.NewMemory()}
		for _, device := range []string{"a", "b"} {
			shift := rapid.SampledFrom([]int64{0, 0, 90 * 60_000, -90 * 60_000}).Draw(rt, "error of the clock")
			for i, n := 0, rapid.IntRange(1, 30).Draw(rt, "readings"); i < n; i++ {
				at := minute(rapid.IntRange(0, 600).Draw(rt, "minute"))
				late := int64(rapid.SampledFrom([]int{0, 1, 40, 200}).Draw(rt, "late")) * 60_000
				value := rapid.SampledFrom([]vitals.Value{97_00, 85_00}).Draw(rt, "value")
				r := vitals.Reading{Device: s.device(device), TimeUnixMs: at + shift}
				r.Values.Set(vitals.SpO2, value)
				try(t, s.Append([]*storage.Entry{{Reading: &r, ReceivedUnixMs: at + late}}))
			}
			for at := 0; at < 700; {
				to := at + rapid.IntRange(1, 300).Draw(rt, "worn")
				if subject := rapid.SampledFrom([]storage.Subject{"", "P-1", "P-2"}).Draw(rt, "subject"); subject != "" {
					s.assign(device, subject, minute(at), minute(to))
				}
				at = to
			}
		}
		ofDevice, ofSubject := s.asker(query.Service{}, minute(rapid.IntRange(0, 800).Draw(rt, "now")))
		from := rapid.IntRange(-60, 700).Draw(rt, "from")
		in := fmt.Sprintf("from=%d&to=%d&limit=1000", minute(from), minute(from+rapid.IntRange(1, 800).Draw(rt, "range")))
		type answer struct {
			Alerts []map[string]any `json:"alerts"`
		}
		read := func(w *httptest.ResponseRecorder) (lines []string) {
			var a answer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 200 {
				rt.Fatalf("%d %s", w.Code, w.Body)
			}
			for _, one := range a.Alerts {
				if one["subject"] == "P-1" {
					lines = append(lines, fmt.Sprint(one))
				}
			}
			slices.Sort(lines)
			return lines
		}
		want := append(read(ofDevice("?device=a&"+in, "")), read(ofDevice("?device=b&"+in, ""))...)
		slices.Sort(want)
		w := ofSubject("?"+in, "P-1", "")
		if got := read(w); !slices.Equal(got, want) || strings.Contains(w.Body.String(), "P-2") {
			rt.Errorf("alerts of P-1: %s\nwant %s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), w.Body)
		}
	})
}
