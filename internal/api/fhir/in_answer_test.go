package fhir_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/codes"
)

// at sends a request for the Observation with an id.
func at(h http.Handler, method, id, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/fhir/Observation/"+id, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestRepresentation checks what a client gets for what it has stored: by default what reading returns, if it may read;
// otherwise nothing that it has not sent.
func TestRepresentation(t *testing.T) {
	const id = "hr-mwq6g83f-d-1"
	k := newKeyring(t)
	writer := k.Token(t, "bed-8", "d-", token.Token{Rights: token.Write})
	both := k.Token(t, "bed-9", "d-", token.Token{Rights: token.Read | token.Write})
	try(t, k.gate.Tokens.Reload())
	sent := sentObservation(sentRate, strings.Replace(sentTime, "10:00:00.123+01:00", "09:00:00.123Z", 1), sentD1,
		sentQuantity("72", "/min"))
	for _, tt := range []struct {
		name   string
		before string // stored before
		status int
	}{
		{"new", "", 201},
		{"duplicate", sentObservation(sentRate, sentTime, sentD1, sentQuantity("72", "/min")), 200},
		{"completed", sentObservation(sentSpO2, sentTime, sentD1, sentQuantity("97", "%")), 201},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, prefer := range []string{"", "return=representation", "return=minimal", "return=OperationOutcome"} {
				for _, token := range []string{both, writer} {
					s := receiveBy(t, k.gate, "https://ward.example/fhir")
					if tt.before != "" {
						send(s.observation, tt.before, "Authorization", both)
					}
					w := send(s.observation, sent, "Authorization", token, "Prefer", prefer)
					if location := w.Header().Get("Location"); w.Code != tt.status ||
						location != "https://ward.example/fhir/Observation/"+id {
						t.Errorf("%q: %d %s, want %d", prefer, w.Code, location, tt.status)
					}
					read := at(s.read, "GET", id, "", "Authorization", both).Body.String()
					if !strings.HasPrefix(read, `{"resourceType":"Observation"`) {
						t.Fatal(read)
					}
					switch got := w.Body.String(); {
					case prefer == "return=minimal":
						if got != "" {
							t.Errorf("minimal: %s", got)
						}
					case prefer == "return=OperationOutcome":
						if !strings.HasPrefix(got, `{"resourceType":"OperationOutcome","issue":[{"severity":"information"`) {
							t.Errorf("outcome: %s", got)
						}
					case token == both:
						if got != read {
							t.Errorf("%q: got\n%swant\n%s", prefer, got, read)
						}
					default:
						for _, hidden := range []string{"p-1", "lastUpdated", "+01:00", "meta"} {
							if strings.Contains(got, hidden) {
								t.Errorf("a client that may only write sees %s: %s", hidden, got)
							}
						}
						if !json.Valid([]byte(got)) || !strings.Contains(got, `"id":"`+id+`"`) ||
							!strings.Contains(got, `"effectiveDateTime":"2026-11-21T09:00:00.123Z"`) {
							t.Errorf("%s", got)
						}
					}
				}
			}
		})
	}
	s := receiveBy(t, k.gate, "")
	named := strings.Replace(sent, `"device"`, sentP1+`,"device"`, 1)
	if w := send(s.observation, named, "Authorization", writer); !strings.Contains(w.Body.String(),
		`"subject":{"reference":"Patient/p-1"}`) {
		t.Errorf("a client that names the patient: %s", w.Body)
	}
}

// TestRepresentationRecorded checks that a client gets nothing back that was stored before unless the audit log has a
// line about it, as if the client had read it.
func TestRepresentationRecorded(t *testing.T) {
	const id = "hr-mwq6g83f-d-1"
	sent := sentObservation(sentRate, sentTime, sentD1, sentQuantity("72", "/min"))
	const line = `"bed-9","device":"d-1","subject":"p-1","from":"2026-11-21T09:00:00.123Z","to":"2026-11-21T09:00:00.124Z"`
	var bundle sentBundle
	bundle.post(sentRate, sentTime, sentD1, sentQuantity("72", "/min"))
	for _, tt := range []struct {
		name   string
		before bool // it was stored before
		rights token.Rights
		prefer string
		put    bool
		bundle bool
		want   string
	}{
		{name: "new", rights: token.Read | token.Write},
		{name: "duplicate", before: true, rights: token.Read | token.Write, want: line},
		{name: "PUT", before: true, rights: token.Read | token.Write, put: true, want: line},
		{name: "Bundle", before: true, rights: token.Read | token.Write, bundle: true, want: line},
		{name: "minimal", before: true, rights: token.Read | token.Write, prefer: "return=minimal"},
		{name: "outcome", before: true, rights: token.Read | token.Write, prefer: "return=OperationOutcome"},
		{name: "only write", before: true, rights: token.Write},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKeyring(t)
			auth := k.Token(t, "bed-9", "d-", token.Token{Rights: tt.rights})
			try(t, k.gate.Tokens.Reload())
			s := receiveBy(t, k.gate, "")
			if tt.before {
				send(s.observation, sent, "Authorization", k.writer)
			}
			ask := func() *httptest.ResponseRecorder {
				switch header := []string{"Authorization", auth, "Prefer", tt.prefer}; {
				case tt.put:
					return at(s.update, "PUT", id, strings.Replace(sent, "{", `{"id":"`+id+`",`, 1), header...)
				case tt.bundle:
					return send(s.bundle, bundle.as("batch"), header...)
				default:
					return send(s.observation, sent, header...)
				}
			}
			if w := ask(); w.Code > 201 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if got := strings.Join(k.records(t), " "); got != tt.want {
				t.Errorf("recorded %s, want %s", got, tt.want)
			}
			if tt.want == "" {
				return
			}
			try(t, k.gate.Audit.Close())
			if w := ask(); w.Code != 200 || strings.Contains(w.Body.String(), `"resourceType":"Observation"`) {
				t.Errorf("without an audit log: %d %s", w.Code, w.Body)
			}
		})
	}
}

// TestRepresentationInBundle checks that entries have what reading returns, unless there are too many.
func TestRepresentationInBundle(t *testing.T) {
	for _, n := range []int{1, 101} {
		s := receive(t)
		var b sentBundle
		for i := range n {
			b.post(sentRate, sentAt(i%60), sentD1, sentQuantity("72", "/min"))
		}
		var got struct {
			Entry []struct {
				FullURL  string `json:"fullUrl"`
				Resource json.RawMessage
				Response struct{ Location string }
			}
		}
		try(t, json.Unmarshal(send(s.bundle, b.as("batch")).Body.Bytes(), &got))
		e := got.Entry[0]
		want := strings.TrimSpace(at(s.read, "GET", e.Response.Location[strings.LastIndexByte(e.Response.Location, '/')+1:],
			"").Body.String())
		if n > 100 {
			want = ""
		}
		if string(e.Resource) != want || want != "" && e.FullURL != e.Response.Location {
			t.Errorf("%d entries: got %s %s, want %s", n, e.FullURL, e.Resource, want)
		}
	}
}

// TestUpdate checks that PUT stores an Observation under its own id only, and never changes one.
func TestUpdate(t *testing.T) {
	s := receive(t)
	const id = "hr-mwq6g83f-d-1"
	body := func(id, value string) string {
		return sentObservation(`"id":"`+id+`"`, sentRate, sentTime, sentD1, sentQuantity(value, "/min"))
	}
	for _, tt := range []struct {
		url, body string
		status    int
	}{
		{id, body("hr-mwq6g83g-d-1", "72"), 400},
		{id, sentObservation(sentRate, sentTime, sentD1, sentQuantity("72", "/min")), 400},
		{"hr-mwq6g83g-d-1", body("hr-mwq6g83g-d-1", "72"), 422},
		{id, body(id, "72"), 201},
		{id, body(id, "72"), 200},
		{id, body(id, "73"), 409},
	} {
		w := at(s.update, "PUT", tt.url, tt.body)
		if w.Code != tt.status {
			t.Errorf("%s %s: %d %s, want %d", tt.url, tt.body, w.Code, w.Body, tt.status)
		}
		if tt.status == 200 { // what was answered can be sent again
			if w = at(s.update, "PUT", tt.url, w.Body.String()); w.Code != 200 {
				t.Errorf("again: %d %s", w.Code, w.Body)
			}
		}
		if (tt.status == 400 || tt.status == 422) && s.stored() != "" {
			t.Errorf("stored %s", s.stored())
		}
	}
	var b sentBundle
	b.add("", body(id, "72"), "PUT", "Observation/"+id, "")
	b.add("", body("x", "72"), "PUT", "Observation/x", "")
	checkResponses(t, send(s.bundle, b.as("batch")).Body.Bytes(), "batch-response", "200 Observation/"+id,
		"422 not the id of this")
}

// TestLeftOut checks what devices disown: it is neither stored nor an error.
func TestLeftOut(t *testing.T) {
	ok := sentQuantity("97", "%")
	status := func(code string) string {
		return `"interpretation":[{"coding":[{"system":"http://hl7.org/fhir/uv/pocd/CodeSystem/measurement-status","code":"` +
			code + `"}]}]`
	}
	absent := func(code string) string { return `"dataAbsentReason":{"coding":[{"code":"` + code + `"}]}` }
	diastolic := `{"code":{"coding":[{"system":"http://loinc.org","code":"8462-4"}]},`
	for _, tt := range []struct {
		name, body string
		want       codes.Doubt // 0 means that it is stored
		field      string
	}{
		{"questionable", sentObservation(sentSpO2, sentTime, sentD1, ok, status("questionable")),
			codes.Questionable, "spo2_pct"},
		{"early", sentObservation(sentSpO2, sentTime, sentD1, ok, status("early-indication")), codes.Early, "spo2_pct"},
		{"busy", sentObservation(sentSpO2, sentTime, sentD1, ok, status("msmt-ongoing")), codes.Busy, "spo2_pct"},
		{"calibrating", sentObservation(sentSpO2, sentTime, sentD1, ok, status("calibration-ongoing")),
			codes.Calibrating, "spo2_pct"},
		{"alarm", sentObservation(sentSpO2, sentTime, sentD1, ok, status("in-alarm")), 0, ""},
		{"validated", sentObservation(sentSpO2, sentTime, sentD1, ok, status("validated-data")), 0, ""},
		{"test", sentObservation(sentSpO2, sentTime, sentD1, ok, `"meta":{"security":[{"code":"HTEST"}]}`),
			codes.Test, "spo2_pct"},
		{"absent", sentObservation(sentSpO2, sentTime, sentD1, `"dataAbsentReason":{}`), codes.NotAvailable, "spo2_pct"},
		{"error", sentObservation(sentSpO2, sentTime, sentD1, absent("error")), codes.Invalid, "spo2_pct"},
		{"not a number", sentObservation(sentSpO2, sentTime, sentD1, absent("not-a-number")), codes.NotAvailable, "spo2_pct"},
		{"one pressure",
			sentObservation(sentBP, sentTime, sentD1,
				`"component":[`+sentPart("8480-6", "120")+`,`+diastolic+absent("error")+`}]`), codes.Invalid,
			"systolic_mmhg diastolic_mmhg"},
		{"one questionable pressure",
			sentObservation(sentBP, sentTime, sentD1, `"component":[`+sentPart("8480-6", "120")+`,`+diastolic+sentQuantity("80",
				"mm[Hg]")+`,`+status("questionable")+`}]`), codes.Questionable, "systolic_mmhg diastolic_mmhg"},
		{"samples",
			sentObservation(sentRate, sentTime, sentD1,
				`"valueSampledData":{"origin":{"value":50,"system":"http://unitsofmeasure.org","code":"/min"},"period":1,`+
					`"dimensions":1,"data":"E U L"}`), codes.NotAvailable, "heart_rate_bpm"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := receive(t)
			w := send(s.observation, tt.body)
			if tt.want == 0 {
				if w.Code != 201 || s.stored() == "" || len(s.left) > 0 {
					t.Errorf("%d %s, left out %v", w.Code, w.Body, s.left)
				}
				return
			}
			var o issueList
			if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil || w.Code != 200 || w.Header().Get("Location") != "" ||
				len(o.Issue) != 1 ||
				o.Issue[0].Severity != "warning" || o.Issue[0].Diagnostics != tt.want.Reason() {
				t.Errorf("%d %s %v, want a warning: %s", w.Code, w.Body, err, tt.want.Reason())
			}
			var fields []string
			for _, l := range s.left {
				if fields = append(fields, l.Field); l.Device != name(t, "d-1") || l.Why != tt.want {
					t.Errorf("left out %+v", l)
				}
			}
			if got := strings.Join(fields, " "); got != tt.field || s.stored() != "" {
				t.Errorf("left out %s, want %s; stored %s", got, tt.field, s.stored())
			}
			if w := send(s.observation, tt.body, "Prefer", "return=minimal"); w.Code != 200 || w.Body.Len() > 0 {
				t.Errorf("minimal: %d %s", w.Code, w.Body)
			}
			var b sentBundle
			b.add("", tt.body, "POST", "Observation", "")
			b.post(sentRate, sentAt(9), sentD1, sentQuantity("72", "/min"))
			checkResponses(t, send(s.bundle, b.as("transaction")).Body.Bytes(), "transaction-response", "200 "+tt.want.Reason(),
				"201 Observation/hr-")
		})
	}
	// What is wrong stays an error.
	s := receive(t)
	for _, body := range []string{
		strings.Replace(sentObservation(sentSpO2, sentTime, sentD1, absent("error")), "final", "entered-in-error", 1),
		sentObservation(sentSpO2, sentTime, sentD1, ok, status("other")),
		sentObservation(sentSpO2, sentTime, `"device":{"reference":"Device/other"}`, absent("error")),
		sentObservation(sentTime, sentD1, absent("error")),
	} {
		if w := send(s.observation, body); w.Code != 422 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	if len(s.left) > 0 || slices.Contains([]byte(s.stored()), '{') {
		t.Errorf("left out %v, stored %s", s.left, s.stored())
	}
}
