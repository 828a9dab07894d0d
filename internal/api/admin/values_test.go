package admin_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestEraseValues sends requests to erase values, valid and not, to a store with six readings of a device: two of g1,
// one of g1 that g2 has completed, two of g2, and one without a gateway.
func TestEraseValues(t *testing.T) {
	store := storetest.NewMemory()
	add := func(gateway string, ms int64, signs ...vitals.Sign) {
		name, _ := vitals.ParseName("a")
		r := &vitals.Reading{Device: name, TimeUnixMs: ms}
		r.Gateway, _ = vitals.ParseName(gateway) // empty: none
		for _, s := range signs {
			r.Values.Set(s, 9000)
		}
		try(t, store.Append([]*storage.Entry{{Reading: r, ReceivedUnixMs: 1}}))
	}
	add("g1", 1000, vitals.HeartRate, vitals.SpO2)
	add("g1", 2000, vitals.HeartRate)
	add("g1", 3000, vitals.HeartRate)
	add("g2", 3000, vitals.SpO2)
	add("g2", 4000, vitals.SpO2)
	add("g2", 5000, vitals.HeartRate)
	add("", 6000, vitals.HeartRate)
	var recorded []audit.Record
	var recordErr error
	h := admin.NewHandler(admin.Options{
		EraseValues: func(e storage.Erasure, record func(storage.Erasure) error) (storage.Erasure, error) {
			e, err := store.EraseValues(e)
			if err == nil {
				err = record(e)
			}
			return e, err
		},
		Latest: store.Latest, Scan: store.Scan, Signs: store.Signs(), Subjects: store,
		Record: func(r audit.Record) error {
			recorded = append(recorded, r)
			return recordErr
		},
		Actor:    func(context.Context) string { return "somebody" },
		Problems: problem.New(),
		Log:      slog.New(slog.DiscardHandler),
	})
	const span = `"from":"1970-01-01T00:00:00Z","to":"1970-01-01T00:00:05Z"`
	const refused, ok, unknown = 400, 200, 404
	for _, tt := range []struct {
		body   string
		status int
		want   string // part of the answer
	}{
		{`{"device":"a","from":"1970-01-01T00:00:05Z","to":"1970-01-01T00:00:05Z"}`, refused,
			`"field":"to","reason":"it is not after from"`},
		{`{"device":"a","from":"1970-01-01T00:00:05Z","to":"1970-01-01T00:00:04Z"}`, refused, `"field":"to"`},
		{`{"device":"a","from":"1969-01-01T00:00:05Z","to":"1970-01-01T00:00:04Z"}`, refused, `"field":"from"`},
		{`{"device":"a","to":"1970-01-01T00:00:05Z"}`, refused, `"field":"from"`},
		{`{"device":"a","from":"1970-01-01T00:00:05Z"}`, refused, `"field":"to"`},
		{`{"device":"a","from":"1970-01-01","to":"1970-01-02"}`, refused, `"field":"from"`},
		{`{"device":"a","signs":["spo2_pct"]}`, refused, `"field":"from"`},
		{`{"device":"a","dry_run":true}`, refused, `"field":"from"`},
		{`{"device":"a",` + span + `,"signs":["spo2"]}`, refused, `"field":"signs","reason":"one of them is not a sign`},
		{`{"device":"a",` + span + `,"signs":["spo2_pct","diastolic_mmhg"]}`, refused,
			`"field":"signs","reason":"systolic_mmhg and diastolic_mmhg go together"`},
		{`{"device":"a",` + span + `,"gateway":"g 1"}`, refused, `"field":"gateway","reason":"it is not a valid name"`},
		{`{"device":"a",` + span + `,"shared":true}`, refused, `"field":"shared"`},
		{`{"device":"a","subject":"P",` + span + `}`, refused,
			`"field":"subject","reason":"it cannot be combined with from"`},
		{`{"subject":"P","gateway":"g1"}`, refused, `"field":"subject","reason":"it cannot be combined with gateway"`},
		{`{"subject":"P","dry_run":true}`, refused, `"field":"subject"`},
		{`{"device":"a b",` + span + `}`, refused, "The device is not a valid name."},
		{`{"device":"a",` + span + `,"by":"me"}`, refused, "#malformed-body"},
		{`{"device":"a","from":"","to":""}`, refused, `"field":"from","reason":"it is empty"`},
		{`{"device":"a","to":""}`, refused, `"field":"to","reason":"it is empty"`},
		{`{"device":"a","from":null}`, refused, `"field":"from","reason":"it is empty"`},
		{`{"device":"a","signs":[]}`, refused, `"field":"signs","reason":"it is empty"`},
		{`{"device":"a","gateway":""}`, refused, `"field":"gateway","reason":"it is empty"`},
		{`{"device":"a",` + span + `,"signs":[ ]}`, refused, `"field":"signs","reason":"it is empty"`},
		{`{"device":"a",` + span + `,"signs":null}`, refused, `"field":"signs","reason":"it is empty"`},
		{`{"device":"a",` + span + `,"signs":[""]}`, refused, `"field":"signs"`},
		{`{"device":"a",` + span + `,"gateway":""}`, refused, `"field":"gateway","reason":"it is empty"`},
		{`{"device":"a",` + span + `,"gateway":null}`, refused, `"field":"gateway","reason":"it is empty"`},
		{`{"subject":"P","from":""}`, refused, `"field":"from","reason":"it is empty"`},
		{`{"device":"b",` + span + `}`, unknown, "#unknown-device"},
		{`{"device":"b",` + span + `,"dry_run":true}`, unknown, "#unknown-device"},

		{`{"device":"a",` + span + `,"dry_run":true}`, ok,
			`{"device":"a","readings":4,"first":"1970-01-01T00:00:01.000Z","last":"1970-01-01T00:00:04.000Z",` +
				`"gateways":[{"gateway":"g1","readings":3,"first":"1970-01-01T00:00:01.000Z","last":"1970-01-01T00:00:03.000Z"},` +
				`{"gateway":"g2","readings":1,"first":"1970-01-01T00:00:04.000Z","last":"1970-01-01T00:00:04.000Z"}]}`},
		{`{"device":"a",` + span + `,"dry_run":true,"gateway":"g1","signs":["spo2_pct"]}`, ok,
			`"readings":1,"first":"1970-01-01T00:00:01.000Z","last":"1970-01-01T00:00:01.000Z","shared":1,`},
		{`{"device":"a",` + span + `,"dry_run":true,"gateway":"g1","shared":true}`, ok, `"readings":3,`},
		{`{"device":"a",` + span + `,"dry_run":true,"gateway":"nobody"}`, ok, `{"device":"a","readings":0,"gateways":[]}`},

		{`{"device":"a",` + span + `,"gateway":"g1","signs":["spo2_pct","heart_rate_bpm"]}`, ok,
			`{"device":"a","from":"1970-01-01T00:00:00.000Z","to":"1970-01-01T00:00:05.000Z","erased":2}`},
		{`{"device":"a",` + span + `,"gateway":"g1"}`, ok, `"erased":0}`},
		{`{"device":"a",` + span + `,"signs":["heart_rate_bpm"]}`, ok, `"erased":1}`},
		{`{"device":"a",` + span + `,"gateway":"g1","shared":true}`, ok, `"erased":1}`},
		{`{"device":"a",` + span + `}`, ok, `"erased":1}`},
	} {
		recorded = nil
		w := httptest.NewRecorder()
		h.Erase(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body)))
		text, _ := io.ReadAll(w.Result().Body)
		if w.Code != tt.status || !strings.Contains(string(text), tt.want) {
			t.Errorf("%s: %d %s, want %d with %q", tt.body, w.Code, text, tt.status, tt.want)
		}
		if erases := tt.status == ok && !strings.Contains(tt.body, "dry_run"); erases != (len(recorded) == 1) {
			t.Errorf("%s: recorded %v", tt.body, recorded)
		}
	}
	recordErr = errors.New("full")
	w := httptest.NewRecorder()
	h.Erase(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(
		`{"device":"a","from":"1970-01-01T00:00:06Z","to":"1970-01-01T00:00:07Z","signs":["heart_rate_bpm","spo2_pct"],`+
			`"gateway":"g1","shared":true}`)))
	if w.Code != 500 || !strings.Contains(w.Body.String(), "The values are erased, but that could not be recorded") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	want := audit.Record{Event: audit.Erased, Signs: "spo2_pct,heart_rate_bpm", Shared: true, From: time.UnixMilli(6000),
		To: time.UnixMilli(7000), Actor: "somebody"}
	got := recorded[len(recorded)-1]
	want.Device, want.Gateway, want.Peer = got.Device, got.Gateway, got.Peer
	if got != want || got.Device.String() != "a" || got.Gateway.String() != "g1" {
		t.Errorf("recorded %+v, want %+v", got, want)
	}
}

// Fields of signs that do not fit into a line of the audit log are counted.
func TestErasedSigns(t *testing.T) {
	e := storage.Erasure{ToUnixMs: 1, Signs: 1<<vitals.SpO2 | 1<<31}
	if got := admin.ErasedRecord(e, nil, audit.Record{}).Signs; got != "spo2_pct,sign-31" {
		t.Errorf("of a table without the sign: %q", got)
	}
	signs := vitals.NewSigns()
	for s := vitals.Sign(vitals.NumBuiltIn); s < vitals.MaxSigns; s++ {
		try(t, signs.Define([]vitals.Definition{{Field: "x" + strings.Repeat("y", 30) + string('a'+rune(s)-vitals.NumBuiltIn),
			Label: "x", Unit: "1", Accepted: vitals.Range{Max: 1}}}))
	}
	e.Signs = 1<<32 - 1
	if got := admin.ErasedRecord(e, signs, audit.Record{}).Signs; len(got) > audit.MaxSignsBytes ||
		!strings.Contains(got, ",+") {
		t.Errorf("of many: %q", got)
	}
}
