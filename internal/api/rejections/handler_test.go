package rejections_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/vitals"
)

func name(t *testing.T, text string) vitals.Name {
	t.Helper()
	n, err := vitals.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// get sends a request to a handler, with the value of an Authorization header unless that is "".
func get(h http.Handler, query, auth string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", rejections.Path+query, nil)
	if auth != "" {
		r.Header.Set("Authorization", auth)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A token sees the rejections of the devices that it covers; one for all devices also sees those of
// unknown devices and the total.
func TestHandler(t *testing.T) {
	f := gatetest.New(t)
	all := f.Token(t, "archive", "", token.Token{Rights: token.Read})
	ward := f.Token(t, "ward-7", "ppg-", token.Token{Rights: token.Read})
	writer := f.Token(t, "bed-7", "", token.Token{Rights: token.Write})
	bound := f.Token(t, "ehr", "", token.Token{Rights: token.Read, Subjects: "P-17"})
	g := f.Open(t)
	l := rejections.New(10)
	h := rejections.NewHandler(l, query.Service{Problems: problem.New(), Gate: g})
	if w := get(h, "", all); w.Body.String() != `{"rejections":[],"total":0}`+"\n" {
		t.Errorf("an empty list: %s", w.Body)
	}
	l.Add(rejections.Rejection{UnixMs: 1, Input: "mqtt", Reason: "not a topic"})
	l.Add(rejections.Rejection{UnixMs: 2, Input: "mqtt", Gateway: name(t, "bed-7"), Device: name(t, "ppg-1"),
		Field: "spo2_pct", Reason: "no signal"})
	l.Add(rejections.Rejection{UnixMs: 3, Input: "mqtt", Device: name(t, "ppg-2"), Field: "time", Reason: "missing"})
	l.Add(rejections.Rejection{UnixMs: 4, Input: "mqtt", Device: name(t, "x"), Reason: `a "<b>`})
	l.Add(rejections.Rejection{UnixMs: 5, Input: "mqtt", Device: name(t, "ppg-1"), Foreign: true,
		Reason: "not for this device"})
	const (
		unknown = `{"time":"1970-01-01T00:00:00.001Z","input":"mqtt","field":"","reason":"not a topic"}`
		first   = `{"time":"1970-01-01T00:00:00.002Z","input":"mqtt","gateway":"bed-7","device":"ppg-1","field":"spo2_pct",` +
			`"reason":"no signal"}`
		second  = `{"time":"1970-01-01T00:00:00.003Z","input":"mqtt","device":"ppg-2","field":"time","reason":"missing"}`
		other   = `{"time":"1970-01-01T00:00:00.004Z","input":"mqtt","device":"x","field":"","reason":"a \"\u003cb\u003e"}`
		foreign = `{"time":"1970-01-01T00:00:00.005Z","input":"mqtt","device":"ppg-1","field":"","reason":"not for ` +
			`this device"}`
	)
	for _, tt := range []struct {
		name, query, auth string
		total             string
		want              []string
	}{
		{"all", "", all, `,"total":5`, []string{foreign, other, second, first, unknown}},
		{"the newest", "?limit=2", all, `,"total":5`, []string{foreign, other}},
		{"one device", "?device=ppg-1&limit=1000", all, `,"total":5`, []string{foreign, first}},
		{"two devices", "?device=x&device=ppg-2", all, `,"total":5`, []string{other, second}},
		{"a device without any", "?device=y", all, `,"total":5`, nil},
		{"some devices", "", ward, "", []string{second, first}},
		{"some devices, the newest", "?limit=1", ward, "", []string{second}},
		{"one of some devices", "?device=ppg-1", ward, "", []string{first}},
	} {
		w := get(h, tt.query, tt.auth)
		if want := `{"rejections":[` + strings.Join(tt.want, ",") + "]" + tt.total + "}\n"; w.Code != 200 ||
			w.Body.String() != want {
			t.Errorf("%s: %d %s\nwant %s", tt.name, w.Code, w.Body, want)
		}
		if got := w.Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control is %q", tt.name, got)
		}
	}
	for _, tt := range []struct {
		name, query, auth string
		status            int
		want              string
	}{
		{"no token", "", "", 401, "#unauthorized"},
		{"a writer's token", "", writer, 403, "#forbidden"},
		{"a token bound to subjects", "", bound, 403, "bound to subjects"},
		{"a device of others", "?device=x", ward, 403, "not for this device"},
		{"no limit", "?limit=0", all, 400, "from 1 to 1000"},
		{"too many", "?limit=1001", all, 400, "from 1 to 1000"},
		{"no name", "?device=", all, 400, "device"},
		{"many devices", "?" + strings.Repeat("device=x&", 101), all, 400, "more than 100 times"},
		{"a device of others beside one's own", "?device=ppg-1&device=x", ward, 403, "not for this device"},
		{"an unknown parameter", "?from=now", all, 400, "known here: device, limit"},
	} {
		if w := get(h, tt.query, tt.auth); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) ||
			strings.Contains(w.Body.String(), "mqtt") {
			t.Errorf("%s: %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.want)
		}
	}
	if got, want := g.Refused(audit.NotCovered), uint64(2); got != want {
		t.Errorf("%d requests for a device that is not covered are recorded, want %d", got, want)
	}
}

// Requests take places of readers.
func TestPlaces(t *testing.T) {
	bound := query.NewBound(1)
	h := rejections.NewHandler(rejections.New(1), query.Service{Problems: problem.New(), Bound: bound})
	for range 3 { // each returns its place
		if w := get(h, "", ""); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if !bound.Enter(t.Context(), nil) {
		t.Fatal("no place")
	}
	defer bound.Leave(nil)
	if w := get(h, "", ""); w.Code != 503 || w.Header().Get("Retry-After") == "" ||
		!strings.Contains(w.Body.String(), fmt.Sprintf("%q", "Too many read requests are in progress.")) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
