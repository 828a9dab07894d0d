package omh_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/omh"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
	"pgregory.net/rapid"
)

var receivedAt = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

func name(t testing.TB, text string) vitals.Name {
	t.Helper()
	n, err := vitals.ParseName(text)
	try(t, err)
	return n
}

// receive returns the handler of POST /v1/omh on a store in memory.
func receive(t testing.TB) (*storetest.Memory, http.Handler) {
	t.Helper()
	store := storetest.NewMemory()
	core, err := ingest.New(store, problem.New(), ingest.Config{Now: func() time.Time { return receivedAt }})
	try(t, err)
	t.Cleanup(func() { core.Close(context.Background()) })
	return store, core.Handler(omh.Form)
}

func send(h http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/omh", strings.NewReader(body)))
	return w
}

// records returns the stored records of a device.
func records(t testing.TB, store *storetest.Memory, device vitals.Name) []storage.Record {
	t.Helper()
	found := make([]storage.Record, 1000)
	n, err := store.Scan(context.Background(), storage.Range{Device: device, ToUnixMs: storage.OpenEnd}, found)
	try(t, err)
	return found[:n]
}

const header = `"header":{"uuid":"2a5b0b21-1c4f-4f4f-9b6f-0f6f6d9d1b11","schema_id":{"namespace":"omh",` +
	`"name":"heart-rate","version":"2.0"},"source_creation_date_time":"2026-11-21T10:00:00Z","modality":"sensed",` +
	`"external_datasheets":[{"datasheet_type":"hardware","datasheet_reference":"urn:pulsegate:device:d:1"}]}`

const body = `"body":{"heart_rate":{"value":72.5,"unit":"beats/min"},` +
	`"effective_time_frame":{"date_time":"2026-11-21T10:00:00.123+01:00"}}`

const point = "{" + header + "," + body + "}"

// TestNewSigns checks both directions of the signs after the first five, and that those without a schema
// are named.
func TestNewSigns(t *testing.T) {
	for _, tt := range []struct {
		schema, version, member, value, unit string
		field                                string // and value in a reading; the reason if it is refused
	}{
		{"respiratory-rate", "2.0", "respiratory_rate", "14.5", "breaths/min", `"respiratory_rate_bpm":14.5`},
		{"body-temperature", "4.0", "body_temperature", "36.65", "C", `"body_temperature_c":36.65`},
		{"body-weight", "3.0", "body_weight", "81.205", "kg", `"body_weight_kg":81.205`},
		{"blood-glucose", "4.0", "blood_glucose", "99", "mg/dL", `"glucose_mg_dl":99`},
		{"blood-glucose", "4.0", "blood_glucose", "5.5", "mmol/L", `"glucose_mmol_l":5.5`},
		{"body-temperature", "4.0", "body_temperature", "97.9", "F", "not the unit of the schema"},
		{"body-weight", "3.0", "body_weight", "81205", "g", "not the unit of the schema"},
		{"blood-glucose", "4.0", "blood_glucose", "5.5", "g/L", "not the unit of the schema"},
		{"body-weight", "3.0", "body_weight", "81.2055", "kg", "more than three decimals"},
		{"body-weight", "3.0", "body_temperature", "36", "C", "not a member of the schema"},
		{"body-weight", "2.0", "body_weight", "81", "kg", "not blood-pressure 4.0"},
		{"respiratory-rate", "2.0", "respiratory_rate", "151", "breaths/min", "outside the accepted range 1 to 150 /min"},
	} {
		store, h := receive(t)
		text := strings.NewReplacer(`"heart-rate"`, `"`+tt.schema+`"`, `"version":"2.0"`, `"version":"`+tt.version+`"`,
			`"heart_rate"`, `"`+tt.member+`"`,
			"72.5", tt.value, "beats/min", tt.unit).Replace(point)
		w := send(h, text)
		if !strings.HasPrefix(tt.field, `"`) {
			if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), tt.field) {
				t.Errorf("%s: %d %s, want %s", text, w.Code, w.Body, tt.field)
			}
			continue
		}
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", text, w.Code, w.Body)
			continue
		}
		record := records(t, store, name(t, "d:1"))[0]
		if got := string(store.Signs().AppendMembers(nil, &record.Values)); got != ","+tt.field {
			t.Errorf("%s is stored as %s, want %s", text, got, tt.field)
		}
		e := omh.NewEncoder(name(t, "d:1"), store.Signs())
		dst := e.AppendRecord(nil, &record, true)
		if want := text[strings.Index(text, `"body"`):]; !strings.HasSuffix(string(dst), want) || e.LeftOut() != "" {
			t.Errorf("exported as %s without %q, want %s", dst, e.LeftOut(), want)
		}
	}
	resting := strings.NewReplacer(`"heart-rate"`, `"respiratory-rate"`, `"heart_rate"`, `"respiratory_rate"`, "beats",
		"breaths", `"body":{`, `"body":{"temporal_relationship_to_physical_activity":"at rest",`).Replace(point)
	if _, h := receive(t); !strings.Contains(send(h, resting).Body.String(),
		"not stored; send the data point without it") {
		t.Error("a respiratory rate at rest is not refused")
	}

	signs := vitals.NewSigns()
	try(t, signs.Define([]vitals.Definition{{Field: "skin_delta_c", Label: "Difference", Unit: "Cel"}}))
	e := omh.NewEncoder(name(t, "d:1"), signs)
	var values vitals.Values
	values.Set(vitals.OwnSign(0), 0)
	values.Set(vitals.PulseRate, 71_00)
	if dst := e.AppendRecord(nil, &storage.Record{Values: values}, true); len(dst) > 0 {
		t.Errorf("exported as %s", dst)
	}
	values = vitals.Values{}
	values.Set(vitals.HeartRate, 71_00)
	if dst := e.AppendRecord(nil, &storage.Record{Values: values}, false); len(dst) == 0 || dst[0] == ',' {
		t.Errorf("exported as %s", dst)
	}
	if got, want := e.LeftOut(), "pulse_rate_bpm, skin_delta_c"; got != want {
		t.Errorf("left out %q, want %q", got, want)
	}
}

// TestRefuse checks every reason for which a data point is refused.
func TestRefuse(t *testing.T) {
	for _, tt := range []struct {
		name, old, new string // a change of point
		status         int
		field, reason  string
	}{
		{"not JSON", "}}}", "", 400, "", "cut off"},
		{"a member twice", `"value":72.5`, `"value":72.5,"value":72.5`, 400, "", "twice"},
		{"a text", point, `"x"`, 422, "", "not a JSON object"},
		{"no header", header + ",", "", 422, "header.schema_id", "not blood-pressure"},
		{"another schema", "heart-rate", "step-count", 422, "header.schema_id", "not blood-pressure"},
		{"another version", "2.0", "1.0", 422, "header.schema_id", "not blood-pressure"},
		{"another namespace", `"omh"`, `"ieee"`, 422, "header.schema_id", "not blood-pressure"},
		{"no uuid", `"uuid":"2a5b0b21-1c4f-4f4f-9b6f-0f6f6d9d1b11",`, "", 422, "header.uuid", "missing"},
		{"no creation time", `"source_creation_date_time":"2026-11-21T10:00:00Z",`, "", 422,
			"header.source_creation_date_time", "missing"},
		{"self-reported", "sensed", "self-reported", 422, "header.modality", "not sensed"},
		{"a rate", `"modality"`, `"acquisition_rate":{},"modality"`, 422, "header", "not stored"},
		{"no device", "urn:pulsegate:device:d:1", "urn:pulsegate:gateway:g", 422, "header.external_datasheets",
			"no datasheet_reference"},
		{"another datasheet", "urn:pulsegate:device:d:1", "https://example.org/x", 422, "header.external_datasheets",
			"not stored"},
		{"a bad name", "urn:pulsegate:device:d:1", "urn:pulsegate:device:d 1", 422, "header.external_datasheets", "1 to 64"},
		{"two devices", `[{"datasheet_type":"hardware"`,
			`[{"datasheet_reference":"urn:pulsegate:device:x"},{"datasheet_type":"hardware"`, 422, "header.external_datasheets",
			"given twice"},
		{"no value", `"value":72.5,`, "", 422, "body.heart_rate.value", "missing"},
		{"no heart rate", `"heart_rate":{"value":72.5,"unit":"beats/min"},`, "", 422, "body.heart_rate", "missing"},
		{"a value that is null", "72.5", "null", 422, "body.heart_rate.value", "missing"},
		{"a heart rate that is null", `"heart_rate":{"value":72.5,"unit":"beats/min"}`, `"heart_rate":null`, 422,
			"body.heart_rate", "missing"},
		{"a text as a value", "72.5", `"72.5"`, 422, "", "wrong type"},
		{"too precise", "72.5", "72.555", 422, "body.heart_rate.value", "two decimals"},
		{"out of range", "72.5", "301", 422, "heart_rate_bpm", "outside"},
		{"no signal", "72.5", "0", 422, "heart_rate_bpm", "no signal"},
		{"another unit", "beats/min", "Hz", 422, "body.heart_rate.unit", "not the unit"},
		{"an average", `"body":{`, `"body":{"descriptive_statistic":"average",`, 422, "body", "not stored"},
		{"another sign", `"body":{`, `"body":{"oxygen_saturation":{"value":97,"unit":"%"},`, 422, "body.oxygen_saturation",
			"not a member"},
		{"of another sign", `"body":{`, `"body":{"system":"peripheral capillary",`, 422, "body", "not a member"},
		{"active", `"body":{`, `"body":{"temporal_relationship_to_physical_activity":"active",`, 422,
			"body.temporal_relationship_to_physical_activity", "not at rest"},
		{"an interval", `"date_time":"2026-11-21T10:00:00.123+01:00"`, `"time_interval":{}`, 422, "body.effective_time_frame",
			"intervals"},
		{"no time", `"date_time":"2026-11-21T10:00:00.123+01:00"`, ``, 422, "body.effective_time_frame.date_time", "missing"},
		{"no zone", "+01:00", "", 422, "body.effective_time_frame.date_time", "zone"},
		{"the future", "2026-11-21T10:00:00.123", "2027-11-21T10:00:00.123", 422, "time", "ahead"},
		{"something else", `"body":{`, `"x":1,"body":{`, 422, "", "not stored"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store, h := receive(t)
			text := strings.Replace(point, tt.old, tt.new, 1)
			if text == point {
				t.Fatal("the data point is not changed")
			}
			w := send(h, text)
			field := ""
			if tt.field != "" {
				field = `"field":"` + tt.field + `"`
			}
			if got := w.Body.String(); w.Code != tt.status || !strings.Contains(got, field) ||
				!strings.Contains(got, tt.reason) {
				t.Errorf("%d %s, want %d %s %s", w.Code, got, tt.status, tt.field, tt.reason)
			}
			if n := len(records(t, store, name(t, "d:1"))); n != 0 {
				t.Errorf("%d records are stored", n)
			}
			if tt.status != 422 {
				return
			}
			w = send(h, "["+text+","+point+"]") // the other one of an array is stored
			if got := w.Body.String(); w.Code != 207 ||
				!strings.Contains(got, `{"stored":1,"duplicate":0,"rejected":[{"index":0,"field":"`+tt.field+`"`) {
				t.Errorf("array: %d %s", w.Code, got)
			}
		})
	}
}

// TestNull checks that a member that is null is none, and that a byte order mark is ignored.
func TestNull(t *testing.T) {
	_, h := receive(t)
	text := strings.Replace(point, `"body":{`, `"body":{"system":null,"temporal_relationship_to_physical_activity":null,`,
		1)
	if w := send(h, "\ufeff"+text); w.Code != http.StatusOK {
		t.Errorf("%s: %d %s", text, w.Code, w.Body)
	}
	if w := send(h, "\ufeff{}}"); w.Code != 400 || !strings.Contains(w.Body.String(), "byte 5") {
		t.Errorf("%d %s, want the offset in the body, with its mark", w.Code, w.Body)
	}
}

// TestAnswers checks that the answers are those of POST /v1/readings.
func TestAnswers(t *testing.T) {
	_, h := receive(t)
	for _, tt := range []struct {
		body   string
		status int
		want   string
	}{
		{point, 200, `{"status":"stored"}`},
		{point, 200, `{"status":"duplicate"}`},
		{"[" + point + "]", 200, `{"stored":0,"duplicate":1}`},
		{"[]", 200, `{"stored":0,"duplicate":0}`},
		{strings.Replace(point, "72.5", "73", 1), 409, `"field":"heart_rate_bpm"`},
	} {
		if w := send(h, tt.body); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%d %s, want %d %s", w.Code, w.Body, tt.status, tt.want)
		}
	}
}

// TestRoundTrip checks that stored readings, exported as Open mHealth and sent to another server,
// are stored there with equal values, times, offsets and gateways.
func TestRoundTrip(t *testing.T) {
	device := name(t, "d_2:x")
	rapid.Check(t, func(rt *rapid.T) {
		first := storetest.NewMemory()
		var group []*storage.Entry
		for range rapid.IntRange(1, 20).Draw(rt, "readings") {
			r := vitals.Reading{Device: device, TimeUnixMs: rapid.Int64Range(vitals.DefaultOldestUnixMs, receivedAt.UnixMilli()).
				Draw(rt, "time")}
			if rapid.Bool().Draw(rt, "known offset") {
				r.UTCOffset = vitals.MakeUTCOffset(rapid.IntRange(vitals.MinUTCOffsetMinutes, vitals.MaxUTCOffsetMinutes).
					Draw(rt, "offset"))
			}
			if rapid.Bool().Draw(rt, "has a gateway") {
				r.Gateway = name(t, fmt.Sprint("g", rapid.IntRange(1, 3).Draw(rt, "gateway")))
			}
			set := func(s vitals.Sign, accepted vitals.Range) {
				r.Values.Set(s,
					vitals.Value(rapid.Int32Range(int32(accepted.Min), int32(accepted.Max)).Draw(rt, first.Signs().Field(s))))
			}
			given := rapid.Uint32Range(1, 1<<9-1).Draw(rt, "signs")
			if given&1 > 0 {
				set(vitals.Systolic, vitals.Range{Min: 151_00, Max: 300_00})
				set(vitals.Diastolic, vitals.Range{Min: 20_00, Max: 150_00})
			}
			for s, d := range first.Signs().All() {
				if s > vitals.Diastolic && s != vitals.PulseRate && given>>(s-1)&1 > 0 {
					set(s, d.Accepted)
				}
			}
			if r.Values.IsZero() {
				set(vitals.SpO2, vitals.Range{Min: 1_00, Max: 100_00})
			}
			group = append(group, &storage.Entry{Reading: &r, ReceivedUnixMs: 1})
		}
		if err := first.Append(group); err != nil {
			rt.Fatal(err)
		}
		var exported bytes.Buffer
		if _, err := query.WriteReadings(context.Background(), &exported, first,
			query.Selection{Range: storage.Range{Device: device, ToUnixMs: storage.OpenEnd}, Format: query.OMH},
			vitals.NewSigns(), nil); err != nil {
			rt.Fatal(err)
		}
		second, h := receive(t)
		if w := send(h, exported.String()); w.Code != http.StatusOK {
			rt.Fatalf("%d %s", w.Code, w.Body)
		}
		want, got := records(t, first, device), records(t, second, device)
		if len(got) != len(want) {
			rt.Fatalf("%d records, want %d", len(got), len(want))
		}
		for i := range got {
			g, w := got[i], want[i]
			if g.TimeUnixMs != w.TimeUnixMs || g.Values != w.Values || g.UTCOffset != w.UTCOffset ||
				(g.Gateway == nil) != (w.Gateway == nil) || g.Gateway != nil && *g.Gateway != *w.Gateway {
				rt.Fatalf("record %+v, want %+v", g, w)
			}
		}
	})
}

// FuzzDecode checks that any body has an answer, and stores nothing more when it is sent again.
func FuzzDecode(f *testing.F) {
	f.Add(point)
	f.Add("[" + point + "," + strings.Replace(point, "72.5", "1e1", 1) + "]")
	f.Add(`{"header":{"uuid":"x\u0061","external_datasheets":[]},"body":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		_, h := receive(t)
		first, second := send(h, text), send(h, text)
		if second.Code != first.Code || strings.Contains(second.Body.String(), `"stored"}`) {
			t.Errorf("%d %s, then %d %s", first.Code, first.Body, second.Code, second.Body)
		}
	})
}

var try = polltest.Try
