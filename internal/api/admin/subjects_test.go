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

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestAssignmentRequests sends requests about assignments, valid and not. Each change is recorded
// before it is made, and nothing is changed that cannot be recorded.
func TestAssignmentRequests(t *testing.T) {
	store := storetest.NewMemory()
	var recorded []audit.Record
	var recordErr error
	var log strings.Builder
	h := admin.NewHandler(admin.Options{
		Subjects: store,
		EraseAssignment: func(a storage.Assignment, record func(storage.Erasure) error) (storage.Erasure, error) {
			e, err := store.EraseAssignment(a)
			if err == nil {
				err = record(e)
			}
			return e, err
		},
		Record: func(r audit.Record) error {
			if recordErr == nil {
				recorded = append(recorded, r)
			}
			return recordErr
		},
		Actor:    func(context.Context) string { return "somebody" },
		Problems: problem.New(),
		Log:      slog.New(slog.NewTextHandler(&log, nil)),
	})
	const (
		first  = `{"device":"a","subject":"P-1","from":"1970-01-01T00:00:00.010Z","to":"1970-01-01T00:00:00.020Z"}`
		second = `{"device":"a","subject":"P-2","from":"1970-01-01T00:00:00.020Z"}`
		third  = `{"device":"b","subject":"P-7","from":"1970-01-01T00:00:01.000Z"}`
	)
	byHand := func(text string) string { return strings.Replace(text, "}", `,"by":"hand"}`, 1) }
	for _, tt := range []struct {
		name     string
		do       http.HandlerFunc
		body     string
		fails    error // of the record
		status   int
		contains string
		events   []audit.Event
	}{
		{"not recorded", h.Assign, first, errors.New("full"), 500, "Nothing was changed", nil},
		{"nothing was changed", h.List, `{}`, nil, 200, `{"assignments":[],"more":false}`, nil},
		{"first", h.Assign, first, nil, 200, `"to":"1970-01-01T00:00:00.020Z"`, []audit.Event{audit.SubjectAssigned}},
		{"again", h.Assign, first, nil, 200, byHand(first), []audit.Event{audit.SubjectAssigned}},
		{"touching", h.Assign, second, nil, 200, byHand(second), []audit.Event{audit.SubjectAssigned}},
		{"overlapping", h.Assign, strings.Replace(second, ".020Z", ".019Z", 1), nil, 409, "#assigned",
			[]audit.Event{audit.SubjectAssigned, audit.SubjectFailed}},
		{"finer than a millisecond", h.Assign, strings.Replace(third, ".000Z", ".0001Z", 1), nil, 200,
			`"from":"1970-01-01T00:00:01.001Z"`, []audit.Event{audit.SubjectAssigned}},
		{"no device", h.Assign, strings.Replace(first, `"a"`, `""`, 1), nil, 400, `"field":"device"`, nil},
		{"no subject", h.Assign, strings.Replace(first, "P-1", "", 1), nil, 400, `"field":"subject"`, nil},
		{"bad subject", h.Assign, strings.Replace(first, "P-1", "P_1", 1), nil, 400,
			`"field":"subject","reason":"it is not 1 to 64 of`, nil},
		{"bad from", h.Assign, strings.Replace(first, "1970-01-01T00:00:00.010Z", "1970-01-01", 1), nil, 400,
			`"field":"from"`, nil},
		{"from before 1970", h.Assign, strings.Replace(first, "1970-01-01T00:00:00.010Z", "1969-12-31T23:59:59Z", 1), nil,
			400, `"field":"from"`, nil},
		{"bad to", h.Assign, strings.Replace(first, ".020Z", ".010Z", 1), nil, 400, `"field":"to"`, nil},
		{"unknown member", h.Assign, `{"device":"a","patient":"P-1"}`, nil, 400, "#malformed-body", nil},
		{"no JSON", h.Assign, `P-1`, nil, 400, "#malformed-body", nil},
		{"end, no to", h.End, `{"device":"a","from":"1970-01-01T00:00:00.020Z"}`, nil, 400, `"field":"to"`, nil},
		{"end, unknown", h.End, `{"device":"a","from":"1970-01-01T00:00:00.011Z","to":"1970-01-01T00:00:00.030Z"}`, nil, 404,
			"#not-assigned", nil},
		{"end, overlapping", h.End, `{"device":"a","from":"1970-01-01T00:00:00.010Z","to":"1970-01-01T00:00:00.021Z"}`, nil,
			409, "#assigned", nil},
		{"end", h.End, `{"device":"a","from":"1970-01-01T00:00:00.020Z","to":"1970-01-01T00:00:00.030Z"}`, nil, 200,
			`"subject":"P-2"`, []audit.Event{audit.SubjectEnded}},
		{"list of a device", h.List, `{"device":"a"}`, nil, 200, byHand(first) + ",", nil},
		{"list of a subject", h.List, `{"subject":"P-1"}`, nil, 200, `{"assignments":[` + byHand(first) + `],"more":false}`,
			nil},
		{"a maker", h.Assign, byHand(first), nil, 400, `"field":"by"`, nil},
		{"list after", h.List, `{"after":` + byHand(first) + `}`, nil, 200, `{"assignments":[{"device":"a","subject":"P-2"`,
			nil},
		{"list of both", h.List, `{"device":"a","subject":"P-1"}`, nil, 400, "#bad-parameter", nil},
		{"erase, both", h.Erase, `{"device":"a","subject":"P-1"}`, nil, 400, "#bad-parameter", nil},
		{"erase, unknown", h.Erase, `{"subject":"P-3"}`, nil, 404, "#not-assigned", nil},
		{"erase", h.Erase, `{"subject":"P-1"}`, nil, 200, `{"subject":"P-1","assignments":1,"erased":0}`,
			[]audit.Event{audit.Erased}},
	} {
		recorded, recordErr = nil, tt.fails
		w := httptest.NewRecorder()
		tt.do(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body)))
		text, _ := io.ReadAll(w.Result().Body)
		if w.Code != tt.status || !strings.Contains(string(text), tt.contains) {
			t.Errorf("%s: %d %s, want %d with %q", tt.name, w.Code, text, tt.status, tt.contains)
		}
		if w.Code != 200 && strings.Contains(string(text), "P-") {
			t.Errorf("%s: the error names the subject: %s", tt.name, text)
		}
		var events []audit.Event
		for _, r := range recorded {
			events = append(events, r.Event)
			if r.Device.IsZero() || r.Subject == "" || r.Actor != "somebody" || r.From.IsZero() {
				t.Errorf("%s: recorded %+v", tt.name, r)
			}
		}
		if len(events) != len(tt.events) || len(events) > 0 && events[len(events)-1] != tt.events[len(events)-1] {
			t.Errorf("%s: recorded %v, want %v", tt.name, events, tt.events)
		}
	}
	if strings.Contains(log.String(), "P-") {
		t.Errorf("the log names a subject: %s", log.String())
	}
}

// Spans of nobody are not listed, even if the store has more of them than a page before the first assignment.
func TestListWithoutSpans(t *testing.T) {
	store := storetest.NewMemory()
	assign := func(device string, subject storage.Subject, fromUnixMs int64) {
		t.Helper()
		name, err := vitals.ParseName(device)
		try(t, err)
		try(t, store.Assign(t.Context(), storage.Assignment{Device: name, Subject: subject, FromUnixMs: fromUnixMs,
			ToUnixMs: fromUnixMs + 1, By: storage.ByHL7}))
	}
	for ms := range int64(600) {
		assign("a", "", ms)
		assign("b", "", ms)
	}
	assign("c", "P-1", 0)
	assign("c", "", 1)
	h := admin.NewHandler(admin.Options{Subjects: store, Problems: problem.New(), Log: slog.New(slog.DiscardHandler)})
	const c = `"device":"c","subject":"P-1","from":"1970-01-01T00:00:00.000Z","to":"1970-01-01T00:00:00.001Z","by":"hl7"`
	for _, tt := range []struct{ body, want string }{
		{`{}`, `{"assignments":[{` + c + `}],"more":false}`},
		{`{"device":"a"}`, `{"assignments":[],"more":false}`},
		{`{"after":{"device":"c","from":"1970-01-01T00:00:00.000Z"}}`, `{"assignments":[],"more":false}`},
	} {
		w := httptest.NewRecorder()
		h.List(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body)))
		if got := strings.TrimSpace(w.Body.String()); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.body, got, tt.want)
		}
	}
}

// If an assignment is replaced by one of another subject between the look-up of its subject and
// the change of its end, nothing is ended, and the record of the change names nobody else.
func TestEndOfReplaced(t *testing.T) {
	device, err := vitals.ParseName("a")
	try(t, err)
	store := storetest.NewMemory()
	assign := func(subject storage.Subject) {
		try(t, store.Assign(t.Context(), storage.Assignment{Device: device, Subject: subject, FromUnixMs: 10,
			ToUnixMs: storage.OpenEnd}))
	}
	assign("P-1")
	var recorded []audit.Record
	h := admin.NewHandler(admin.Options{
		Subjects: store,
		Record: func(r audit.Record) error {
			if recorded = append(recorded, r); len(recorded) == 1 {
				if _, err := store.EraseAssignment(storage.Assignment{Device: r.Device, Subject: "P-1",
					FromUnixMs: 10}); err != nil {
					t.Fatal(err)
				}
				assign("P-2")
			}
			return nil
		},
		Actor:    func(context.Context) string { return "somebody" },
		Problems: problem.New(),
		Log:      slog.New(slog.DiscardHandler),
	})
	w := httptest.NewRecorder()
	h.End(w, httptest.NewRequest(http.MethodPost, "/",
		strings.NewReader(`{"device":"a","from":"1970-01-01T00:00:00.010Z","to":"1970-01-01T00:00:00.020Z"}`)))
	if w.Code != 404 || !strings.Contains(w.Body.String(), "#not-assigned") {
		t.Errorf("%d %s, want 404", w.Code, w.Body)
	}
	if len(recorded) != 2 || recorded[0].Event != audit.SubjectEnded || recorded[1].Event != audit.SubjectFailed ||
		recorded[1].Subject != "P-1" {
		t.Errorf("recorded %+v", recorded)
	}
	if all, err := store.DeviceAssignments(t.Context(), device); err != nil || len(all) != 1 || all[0].Subject != "P-2" ||
		all[0].ToUnixMs != storage.OpenEnd {
		t.Errorf("then there are %v, %v", all, err)
	}
}
