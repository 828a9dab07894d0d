package fhir_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// TestWithdraw updates Observations with the status entered-in-error. With the right to erase, exactly the values of
// the Observation are erased. All other updates are decoded as before, with their whole body.
//
// Seen to fail when every client with a token might erase.
func TestWithdraw(t *testing.T) {
	k := gatetest.New(t)
	admin := k.Token(t, "ops", "", token.Token{Rights: token.Admin | token.Read})
	ward := k.Token(t, "ward", "", token.Token{Rights: token.Read | token.Write})
	db := openStore(t, vfs.NewMem())
	t.Cleanup(func() { _ = db.Close() })
	var erased []string
	var eraseErr error
	opt := fhir.Options{
		Service: query.Service{Gate: k.Open(t), Problems: problem.New(), Param: (*http.Request).PathValue},
		Erase: func(_ *http.Request, by *gate.Access, e storage.Erasure) (storage.Erasure, error) {
			if eraseErr != nil {
				return e, eraseErr
			}
			e, err := db.EraseValues(e)
			erased = append(erased, fmt.Sprintf("%s %s %d-%d %b: %d", by.Gateway(), e.Device, e.FromUnixMs, e.ToUnixMs,
				e.Signs, e.Readings))
			return e, err
		},
	}
	add(t, db, 1,
		`{"device":"w-1","time":1000,"spo2_pct":97,"heart_rate_bpm":60}`, `{"device":"w-1","time":2000,"spo2_pct":96}`,
		`{"device":"w-1","time":3000,"systolic_mmhg":120,"diastolic_mmhg":80}`, `{"device":"w-2","time":1000,"spo2_pct":97}`,
	)
	try(t, db.Assign(t.Context(), storage.Assignment{Device: name(t, "w-1"), Subject: "P1", ToUnixMs: 9000,
		ChangedUnixMs: 1}))
	srv := serve(t, db, opt)
	ids := srv.parse(srv.get("Observation?device=w-1&_sort=date", "Authorization", admin)).ids()
	find := func(start string, n int) string {
		for _, id := range ids {
			if strings.HasPrefix(id, start) {
				if n--; n < 0 {
					return id
				}
			}
		}
		t.Fatalf("no %s in %v", start, ids)
		return ""
	}
	spo2, pressure := find("spo2-", 0), find("bp-", 0)
	mux := http.NewServeMux()
	unused := func(string, http.Handler) {}
	put := func(template string, h http.Handler) { mux.Handle("PUT "+template, h) }
	const decoded = http.StatusTeapot
	fhir.New(db, db, opt).Mount(unused, unused, unused, put, unused, func(ingest.Form) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(decoded)
			_, err := io.Copy(w, r.Body)
			try(t, err)
		})
	})
	body := func(id, status string) string {
		return `{"resourceType":"Observation","id":"` + id + `","status":"` + status + `","valueQuantity":{"value":97}}`
	}
	const wrong = "entered-in-error"
	for _, tt := range []struct {
		what, id, body, auth string
		err                  error
		status               int
		want                 string // what is erased
	}{
		{what: "no token", id: spo2, body: body(spo2, wrong), status: decoded},
		{what: "unknown token", id: spo2, body: body(spo2, wrong), auth: "Bearer x", status: decoded},
		{what: "without the right", id: spo2, body: body(spo2, wrong), auth: ward, status: decoded},
		{what: "final", id: spo2, body: body(spo2, "final"), auth: admin, status: decoded},
		{what: "no JSON", id: spo2, body: body(spo2, wrong) + "{", auth: admin, status: decoded},
		{what: "no Observation", id: spo2, body: `{"resourceType":"Patient","status":"entered-in-error"}`, auth: admin,
			status: decoded},
		{what: "long", id: spo2, body: body(spo2, wrong) + strings.Repeat(" ", 100<<10), auth: admin, status: decoded},
		{what: "another id", id: spo2, body: body(pressure, wrong), auth: admin, status: 400},
		{what: "no id", id: spo2, body: body("x", wrong), auth: admin, status: 400},
		{what: "unknown sign", id: "x-mwq6g83f-w-1", body: body("x-mwq6g83f-w-1", wrong), auth: admin, status: 404},
		{what: "unknown time", id: "spo2-mwq6g83f-w-1", body: body("spo2-mwq6g83f-w-1", wrong), auth: admin, status: 404},
		{what: "nobody's", id: strings.Replace(spo2, "w-1", "w-2", 1), body: body(strings.Replace(spo2, "w-1", "w-2", 1),
			wrong), auth: admin, status: 404},
		{what: "unfinished", id: spo2, body: body(spo2, wrong), auth: admin, err: storage.ErrUnfinished, status: 500},
		{what: "failed", id: spo2, body: body(spo2, wrong), auth: admin, err: errors.New("broken"), status: 500},
		{what: "one value", id: spo2, body: body(spo2, wrong), auth: admin, status: 200, want: "ops w-1 1000-1001 100: 1"},
		{what: "again", id: spo2, body: body(spo2, wrong), auth: admin, status: 404},
		{what: "both pressures", id: pressure, body: body(pressure, wrong), auth: admin, status: 200,
			want: "ops w-1 3000-3001 11: 1"},
	} {
		erased, eraseErr = nil, tt.err
		w := at(mux, "PUT", tt.id, tt.body, "Authorization", tt.auth)
		if got := strings.Join(erased, ","); w.Code != tt.status || got != tt.want ||
			tt.status == decoded && w.Body.String() != tt.body {
			t.Errorf("%s: %d %.200s, erased %s, want %d %s", tt.what, w.Code, w.Body, got, tt.status, tt.want)
		}
		if tt.status != decoded && !strings.Contains(w.Body.String(), "OperationOutcome") {
			t.Errorf("%s: %s", tt.what, w.Body)
		}
	}
	if left := srv.parse(srv.get("Observation?device=w-1&_sort=date", "Authorization", admin)).
		ids(); len(left) != len(ids)-2 {
		t.Errorf("%v are left of %v", left, ids)
	}

	opt.Gate = nil
	open := http.NewServeMux()
	put = func(template string, h http.Handler) { open.Handle("PUT "+template, h) }
	fhir.New(db, db, opt).Mount(unused, unused, unused, put, unused,
		func(ingest.Form) http.Handler { return http.NotFoundHandler() })
	id := find("spo2-", 1)
	if w := at(open, "PUT", id, body(id, wrong), "Authorization", admin); w.Code != 404 || len(erased) > 1 {
		t.Errorf("without tokens: %d %s", w.Code, w.Body)
	}
}
