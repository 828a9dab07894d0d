package fhir_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// narrowWriter returns the Authorization of a token that may only write, for devices whose names
// begin with d-.
func narrowWriter(t *testing.T) (*gate.Gate, string) {
	t.Helper()
	k := newKeyring(t)
	narrow := k.Token(t, "bed-8", "d-", token.Token{Rights: token.Write})
	try(t, k.gate.Tokens.Reload())
	return k.gate, narrow
}

// TestNotCoveredRevealsNothing checks that a client learns nothing about the assignments of devices
// that it may not write to, nor about their patients: its answers do not depend on them.
func TestNotCoveredRevealsNothing(t *testing.T) {
	g, narrow := narrowWriter(t)
	assigned := receiveBy(t, g, "")
	none := receiveBy(t, g, "")
	other := receiveBy(t, g, "")
	third := storage.Assignment{Device: name(t, "d_2"), Subject: "p-1", FromUnixMs: unixMs(t, "2018-01-01T00:00:00Z"),
		ToUnixMs: storage.OpenEnd}
	for _, s := range []*receiving{none, other} {
		_, err := s.store.EraseAssignment(third)
		try(t, err)
	}
	third.Subject = "p-9"
	try(t, other.store.Assign(t.Context(), third))
	value, device := sentQuantity("97", "%"), `"device":{"reference":"Device/d_2"}`
	var b sentBundle
	b.post(sentSpO2, sentTime, device, value)
	b.post(sentSpO2, sentTime, device, value, sentP1)
	b.post(sentSpO2, sentTime, device, value, `"subject":{"reference":"Patient/p-9"}`)
	b.post(sentSpO2, `"effectiveDateTime":"2017-11-21T10:00:00Z"`, device, value)
	b.post(sentSpO2, sentTime, `"device":{"identifier":{"value":"d_2"}}`, value)
	b.post(`"contained":[{"resourceType":"Device","id":"x","identifier":[{"value":"d_2"},{"value":"d-1"}]}]`, sentSpO2,
		sentTime, `"device":{"reference":"#x"}`, value)
	b.add("", `{"resourceType":"Device","identifier":[{"value":"d_2"}]}`, "POST", "Device", "identifier=d_2")
	b.add("", `{"resourceType":"Patient","identifier":[{"value":"p-9"}]}`, "POST", "Patient", "identifier=p-9")
	want := []string{"403", "403", "403", "403", "403", "201", "403", "422"}
	for _, s := range []*receiving{assigned, none, other} {
		checkResponses(t, send(s.bundle, b.as("batch"), "Authorization", narrow).Body.Bytes(), "batch-response", want...)
	}
	if w := send(assigned.bundle, b.as("transaction"), "Authorization", narrow); w.Code != 403 {
		t.Errorf("transaction: %d %s, want 403", w.Code, w.Body)
	}
	if w := send(assigned.observation, sentObservation(sentSpO2, sentTime, device, value, sentP1), "Authorization",
		narrow); w.Code != 403 {
		t.Errorf("%d %s, want 403", w.Code, w.Body)
	}
}

// TestSmallResourcesMemory checks that elements of few bytes do not take much memory.
func TestSmallResourcesMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("sends much from one goroutine")
	}
	many := func(element string) string {
		return strings.TrimSuffix(strings.Repeat(element+",", 1<<20/len(element)), ",")
	}
	names := func() string {
		var b strings.Builder
		for i := range 100_000 {
			fmt.Fprintf(&b, `"%x":1,`, i)
		}
		return b.String()
	}
	s := receive(t)
	for _, tt := range []struct{ name, members string }{
		{"contained", `"contained":[` + many("{}") + `]`},
		{"components", `"component":[` + many("{}") + `]`},
		{"identifiers", `"identifier":[` + many(`{"value":""}`) + `]`},
		{"members", names() + `"x":1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := sentObservation(sentRate, sentTime, sentD1, sentQuantity("72", "/min"), tt.members)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			send(s.observation, body)
			runtime.ReadMemStats(&after)
			if got, most := after.TotalAlloc-before.TotalAlloc, uint64(10*len(body)); got > most {
				t.Errorf("a body of %d bytes allocates %d, want at most %d", len(body), got, most)
			}
		})
	}
}

// TestManyIdentifiers checks that neither assignments are read nor names compared for each of very
// many identifiers.
func TestManyIdentifiers(t *testing.T) {
	s := receive(t)
	var ids []string
	for i := range 17 {
		ids = append(ids, fmt.Sprintf(`{"value":"x-%d"}`, i))
	}
	ids[3] = `{"value":"d-1"}`
	contained := func(n int) string {
		return `"contained":[{"resourceType":"Device","id":"x","identifier":[` + strings.Join(ids[:n], ",") + `]}]`
	}
	sent := []string{sentRate, sentTime, `"device":{"reference":"#x"}`, sentQuantity("72", "/min")}
	if w := send(s.observation, sentObservation(append(sent, contained(16))...)); w.Code != http.StatusCreated {
		t.Errorf("16 identifiers: %d %s", w.Code, w.Body)
	}
	w := send(s.observation, sentObservation(append(sent, contained(17))...))
	checkIssue(t, w.Body.Bytes(), "Observation.device", "does not name a device")
	w = send(s.observation, sentObservation(sentRate, sentTime, sentD1, sentQuantity("72", "/min"),
		`"contained":[`+strings.Repeat("{},", 16)+`{}]`))
	checkIssue(t, w.Body.Bytes(), "Observation.contained", "more than 16")
}

// TestSameFullURL checks that an Observation is not stored for one of two Devices with the same
// fullUrl.
func TestSameFullURL(t *testing.T) {
	s := receive(t)
	var b sentBundle
	b.add("urn:uuid:1", `{"resourceType":"Device","identifier":[{"value":"d-1"}]}`, "POST", "Device", "identifier=d-1")
	b.add("urn:uuid:1", `{"resourceType":"Device","identifier":[{"value":"d_2"}]}`, "POST", "Device", "identifier=d_2")
	b.post(sentRate, sentTime, `"device":{"reference":"urn:uuid:1"}`, sentQuantity("72", "/min"))
	w := send(s.bundle, b.as("batch"))
	checkIssue(t, w.Body.Bytes(), "entry[1].fullUrl", "another entry")
	if got := s.stored(); got != "" {
		t.Errorf("stored %s", got)
	}
}

// TestRefusedSamples checks that samples of refused Observations count too, because to convert
// them takes time.
func TestRefusedSamples(t *testing.T) {
	if testing.Short() {
		t.Skip("sends much from one goroutine")
	}
	s := receive(t)
	for entries, status := range map[int]int{64: http.StatusOK, 65: http.StatusRequestEntityTooLarge} {
		var b sentBundle
		for range entries {
			b.post(sentRate, sentTime, sentD1,
				`"valueSampledData":{"origin":{"value":0,"system":"http://unitsofmeasure.org","code":"/min"},"period":1,`+
					`"dimensions":1,"data":"`+strings.Repeat("60 ", 4095)+`x"}`)
		}
		if w := send(s.bundle, b.as("batch")); w.Code != status {
			t.Errorf("%d entries: %d %.300s, want %d", entries, w.Code, w.Body, status)
		}
	}
}

// TestUnbalanced checks that brackets without a partner are malformed, and that members are counted
// by object.
func TestUnbalanced(t *testing.T) {
	s := receive(t)
	members := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"m%d":":"`, i)
		}
		return b.String()[1:]
	}
	nested := `"extension":[{` + members(999) + `},{` + members(1000) + `}]`
	for body, status := range map[string]int{
		`]}]}{"a":1}`:             400,
		`{"a":1}}}}`:              400,
		`:::`:                     400,
		`{` + members(1001) + `}`: 400,
		`{` + members(1000) + `}`: 422, // not an Observation
		sentObservation(sentRate, sentTime, sentD1, sentQuantity("72", "/min"), nested): 201,
	} {
		if w := send(s.observation, body); w.Code != status {
			t.Errorf("%.60s: %d %.300s, want %d", body, w.Code, w.Body, status)
		}
	}
}
