package alert_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A token sees the alerts of the devices that it covers. Neither a measured value nor a subject is in an
// answer.
func TestHandler(t *testing.T) {
	f := gatetest.New(t)
	all := f.Token(t, "archive", "", token.Token{Rights: token.Read})
	ward := f.Token(t, "ward-7", "ppg-", token.Token{Rights: token.Read})
	writer := f.Token(t, "bed-7", "", token.Token{Rights: token.Write})
	bound := f.Token(t, "ehr", "", token.Token{Rights: token.Read, Subjects: "P-17"})
	service := query.Service{Problems: problem.New(), Gate: f.Open(t)}
	store := storetest.NewMemory()
	rules := []alert.Rule{{
		Name: "Low", Sign: vitals.SpO2, Met: vitals.Range{Min: vitals.MinValue, Max: 90_00}, Values: 1, MaxAge: time.Hour,
		Field: "spo2_pct", Condition: "spo2_pct below 90.01", Labels: map[string]string{"severity": "page"},
	}}
	engine := alert.NewEngine(store, rules, alert.Options{Now: func() time.Time { return time.UnixMilli(10_000) }})
	var group []*storage.Entry
	for i, device := range []string{"ppg-1", "ppg-2", "x"} {
		name, err := vitals.ParseName(device)
		try(t, err)
		r := vitals.Reading{Device: name, TimeUnixMs: int64(i + 1)}
		r.Values.Set(vitals.SpO2, 85_25)
		group = append(group, &storage.Entry{Reading: &r, ReceivedUnixMs: 5})
	}
	try(t, store.Append(group))
	try(t, store.Assign(t.Context(), storage.Assignment{Device: group[0].Reading.Device, Subject: "P-17", FromUnixMs: 1,
		ToUnixMs: storage.OpenEnd}))
	h := alert.NewHandler(engine, service, &vitals.Limits{})
	get := func(h *alert.Handler, query, auth string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", alert.Path+query, nil)
		if auth != "" {
			r.Header.Set("Authorization", auth)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		for _, private := range []string{"85.25", "8525", "P-17", "P-200"} {
			if text := fmt.Sprint(w.Header(), w.Body); strings.Contains(text, private) {
				t.Errorf("%s is in %s", private, text)
			}
		}
		return w
	}
	const head = `{"notice":"` + alert.Notice + `","rules":1,"ready":`
	if got, want := get(h, "", all).Body.String(), head+`false,"alerts":[],"total":0,"unread":0}`+"\n"; got != want {
		t.Errorf("before the states are read: %s, want %s", got, want)
	}
	ready := engine.Changes(0).Next
	ctx, cancel := context.WithCancel(t.Context())
	var task sync.WaitGroup
	task.Go(func() { engine.Run(ctx) })
	defer task.Wait()
	defer cancel()
	for !engine.Changes(0).Ready {
		<-ready
		ready = engine.Changes(0).Next
	}
	if c := engine.Changes(0); c.N < 3 { // they begin when the engine is ready
		t.Fatalf("%d alerts have begun", c.N)
	}
	one := func(device, since string) string {
		return `{"name":"Low","device":"` + device +
			`","sign":"spo2_pct","condition":"spo2_pct below 90.01","labels":{"severity":"page"},` +
			`"since":"1970-01-01T00:00:00.00` + since + `Z"}`
	}
	first, second, other := one("ppg-1", "1"), one("ppg-2", "2"), one("x", "3")
	for _, tt := range []struct{ name, query, auth, total, want string }{
		{"all", "", all, "3", other + "," + second + "," + first},
		{"the newest", "?limit=2", all, "3", other + "," + second},
		{"one device", "?device=ppg-1", all, "1", first},
		{"some devices", "", ward, "2", second + "," + first},
		{"two devices", "?device=ppg-1&device=x", all, "2", other + "," + first},
		{"a device without any", "?device=ppg-3", ward, "0", ""},
	} {
		w := get(h, tt.query, tt.auth)
		if want := head + `true,"alerts":[` + tt.want + `],"total":` + tt.total + ",\"unread\":0}\n"; w.Code != 200 ||
			w.Body.String() != want || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s\nwant %s", tt.name, w.Code, w.Body, want)
		}
	}
	// A device is assigned anew: its alert goes on, and is listed as far as it lies in the present assignment.
	service.Subjects = store
	h = alert.NewHandler(engine, service, &vitals.Limits{})
	ppg1 := group[0].Reading.Device
	changed := func(err error) {
		t.Helper()
		try(t, err)
		if active, c := engine.State(0); len(active) != 3 || c.N != 3 {
			t.Errorf("after a change of an assignment %d alerts are active, and there were %d changes", len(active), c.N)
		}
	}
	list := func(want string) {
		t.Helper()
		if got := get(h, "", ward).Body.String(); !strings.HasPrefix(got, head+`true,"alerts":[`+want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	list(second + "," + first + `],"total":2,`)
	changed(store.EndAssignment(t.Context(), storage.Assignment{Device: ppg1, Subject: "P-17", FromUnixMs: 1,
		ToUnixMs: 4}))
	list(second + `],"total":1,`) // nothing was measured since then
	again := vitals.Reading{Device: ppg1, TimeUnixMs: 7}
	again.Values.Set(vitals.SpO2, 85_25)
	try(t, store.Append([]*storage.Entry{{Reading: &again, ReceivedUnixMs: 7}}))
	list(one("ppg-1", "4") + "," + second + `],"total":2,`)
	changed(store.Assign(t.Context(), storage.Assignment{Device: ppg1, Subject: "P-200", FromUnixMs: 6,
		ToUnixMs: storage.OpenEnd}))
	list(one("ppg-1", "6") + "," + second + `],"total":2,`)
	// The end of an alert is shown if a value of the present assignment belongs to it.
	followed := make(chan []alert.Alert, 10)
	task.Go(func() {
		alert.Follow(ctx, engine, &service, func(changed []alert.Alert, _ bool) { followed <- slices.Clone(changed) })
	})
	<-followed // the beginnings
	end := func(device vitals.Name, unixMs int64) string {
		t.Helper()
		r := vitals.Reading{Device: device, TimeUnixMs: unixMs}
		r.Values.Set(vitals.SpO2, 97_00)
		try(t, store.Append([]*storage.Entry{{Reading: &r, ReceivedUnixMs: unixMs}}))
		engine.Publish([]*storage.Entry{{Reading: &r, ReceivedUnixMs: unixMs, Outcome: storage.Stored}})
		var shown []string
		for _, a := range <-followed {
			shown = append(shown, fmt.Sprint(a.Device, " since ", a.SinceUnixMs))
		}
		return strings.Join(shown, ", ")
	}
	if got := end(ppg1, 8); got != "ppg-1 since 6" {
		t.Errorf("after a value of the present assignment, the end of %q was shown", got)
	}
	x := group[2].Reading.Device
	try(t, store.Assign(t.Context(), storage.Assignment{Device: x, Subject: "P-200", FromUnixMs: 5,
		ToUnixMs: storage.OpenEnd}))
	if got := end(x, 9); got != "" {
		t.Errorf("the end of an alert about another subject was shown: %s", got)
	}
	for _, tt := range []struct {
		name, query, auth string
		status            int
	}{
		{"no token", "", "", 401}, {"a writer's token", "", writer, 403}, {"a token bound to subjects", "", bound, 403},
		{"a device of others", "?device=x", ward, 403},
		{"a device of others beside one's own", "?device=ppg-1&device=x", ward, 403},
		{"many devices", "?" + strings.Repeat("device=x&", 101), all, 400},
		{"no limit", "?limit=0", all, 400}, {"too many", "?limit=1001", all, 400},
		{"an unknown parameter", "?since=now", all, 400},
	} {
		if w := get(h, tt.query, tt.auth); w.Code != tt.status || strings.Contains(w.Body.String(), "Low") {
			t.Errorf("%s: %d %s, want %d", tt.name, w.Code, w.Body, tt.status)
		}
	}
	if w := get(alert.NewHandler(nil, service, &vitals.Limits{}), "", all); w.Code != 200 ||
		!strings.Contains(w.Body.String(), `"alerts":[],"total":0`) {
		t.Errorf("without rules: %d %s", w.Code, w.Body)
	}
}

// Alerts of a range are divided by the assignments of the device, each with its subject. A token sees those of the
// devices that it covers. No measured value is in an answer.
func TestHandlerPast(t *testing.T) {
	f := gatetest.New(t)
	all := f.Token(t, "archive", "", token.Token{Rights: token.Read})
	ward := f.Token(t, "ward-7", "ppg-", token.Token{Rights: token.Read})
	writer := f.Token(t, "bed-7", "", token.Token{Rights: token.Write})
	bound := f.Token(t, "ehr", "", token.Token{Rights: token.Read, Subjects: "P-17"})
	store := storetest.NewMemory()
	service := query.Service{Problems: problem.New(), Gate: f.Open(t), Subjects: store}
	rules := []alert.Rule{
		{Name: "Low", Sign: vitals.SpO2, Met: vitals.Range{Min: vitals.MinValue, Max: 90_00}, Values: 1, MaxAge: time.Hour,
			Field: "spo2_pct", Condition: "spo2_pct below 90.01"},
		{Name: "Silent", Silent: 20 * time.Minute, Condition: "no reading for 20m", Devices: "ppg-"},
	}
	begin := time.Date(2026, 11, 24, 22, 0, 0, 0, time.UTC)
	at := func(minute int) time.Time { return begin.Add(time.Duration(minute) * time.Minute) }
	engine := alert.NewEngine(store, rules, alert.Options{Now: func() time.Time { return at(90) }})
	for _, device := range []string{"ppg-1", "x"} {
		for minute, spo2 := range map[int]vitals.Value{0: 97_00, 10: 85_25, 25: 85_25, 30: 97_00, 60: 85_25} {
			name, err := vitals.ParseName(device)
			try(t, err)
			r := vitals.Reading{Device: name, TimeUnixMs: at(minute).UnixMilli()}
			r.Values.Set(vitals.SpO2, spo2)
			try(t, store.Append([]*storage.Entry{{Reading: &r, ReceivedUnixMs: r.TimeUnixMs + 500}}))
			if minute == 0 {
				for i, subject := range []storage.Subject{"P-17", "P-200"} {
					try(t, store.Assign(t.Context(), storage.Assignment{Device: name, Subject: subject,
						FromUnixMs: at(i * 20).UnixMilli(), ToUnixMs: at(i*20 + 20).UnixMilli()}))
				}
			}
		}
	}
	h := alert.NewHandler(engine, service, &vitals.Limits{})
	get := func(query, auth string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", alert.Path+query, nil)
		r.Header.Set("Authorization", auth)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	low := func(device, subject, since, fired, ended string) string {
		text := `{"name":"Low","device":"` + device + `","sign":"spo2_pct","condition":"spo2_pct below 90.01"`
		if subject != "" {
			text += `,"subject":"` + subject + `"`
		}
		text += `,"since":"2026-11-24T` + since + `Z","fired":"2026-11-24T` + fired + `Z"`
		if ended != "" {
			text += `,"ended":"2026-11-24T` + ended + `Z"`
		}
		return text + "}"
	}
	silent := func(since, ended string) string {
		return `{"name":"Silent","device":"ppg-1","condition":"no reading for 20m","since":"2026-11-24T` + since +
			`Z","fired":"2026-11-24T` + since + `Z","ended":"2026-11-24T` + ended + `Z"}`
	}
	answer := func(from, to string, alerts ...string) string {
		return fmt.Sprintf(
			`{"notice":"%s","from":"2026-11-24T%sZ","to":"2026-11-24T%sZ","rules":2,"ready":true,"alerts":[%s],"total":%d,`+
				`"unread":0}`+"\n",
			alert.PastNotice, from, to, strings.Join(alerts, ","), len(alerts))
	}
	first := low("ppg-1", "P-17", "22:10:00.000", "22:10:00.500", "22:20:00.000")
	second := low("ppg-1", "P-200", "22:20:00.000", "22:20:00.000", "22:30:00.500")
	last, gone := low("ppg-1", "", "23:00:00.000", "23:00:00.500", ""), silent("22:50:00.000", "23:00:00.500")
	still := `{"name":"Silent","device":"ppg-1","condition":"no reading for 20m","since":"2026-11-24T23:20:00.000Z",` +
		`"fired":"2026-11-24T23:20:00.000Z"}`
	other := strings.NewReplacer("ppg-1", "x").Replace
	for _, tt := range []struct{ name, query, auth, want string }{
		{"until now", "?device=ppg-1&from=2026-11-24", ward, answer("00:00:00.000", "23:30:00.000", still, last, gone,
			second, first)},
		{"what began before", "?device=ppg-1&from=2026-11-24T22:25:00Z&to=2026-11-24T22:40:00Z", ward,
			answer("22:25:00.000", "22:40:00.000", second)},
		{"until it had not ended", "?device=ppg-1&from=2026-11-24T22:00:00Z&to=2026-11-24T22:30:00Z", all,
			answer("22:00:00.000", "22:30:00.000", strings.Replace(second, `,"ended":"2026-11-24T22:30:00.500Z"`, "", 1),
				first)},
		{"a date in a zone", "?device=ppg-1&from=2026-11-25&tz=Europe/Berlin", ward,
			answer("23:00:00.000", "23:30:00.000", still, last, gone)},
		{"nothing", "?device=ppg-1&from=2026-11-24T21:00:00Z&to=2026-11-24T22:00:00Z", ward,
			answer("21:00:00.000", "22:00:00.000")},
		{"what is to come", "?device=ppg-1&from=2026-11-24T23:40:00Z&to=2026-11-24T23:50:00Z", ward,
			answer("23:30:00.000", "23:30:00.000", still, last)},
		{"another device", "?device=x&from=-90m", all, answer("22:00:00.000", "23:30:00.000", other(last), other(second),
			other(first))},
		{"no such device", "?device=ppg-9&from=-24h", ward, answer("23:30:00.000", "23:30:00.000")},
	} {
		want := tt.want
		if tt.name == "no such device" {
			want = strings.Replace(want, `"from":"2026-11-24T23`, `"from":"2026-11-23T23`, 1)
		}
		w := get(tt.query, tt.auth)
		if w.Code != 200 || w.Body.String() != want || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s\nwant %s", tt.name, w.Code, w.Body, want)
		}
		if text := w.Body.String(); strings.Contains(text, "85.25") || strings.Contains(text, "8525") {
			t.Errorf("%s: a value is in %s", tt.name, text)
		}
	}
	if w := get("?device=ppg-1&from=2026-11-24&limit=2", ward); !strings.Contains(w.Body.String(),
		still+","+last+`],"total":5`) {
		t.Errorf("two of five: %s", w.Body)
	}
	for _, tt := range []struct {
		name, query, auth string
		status            int
		reason            string
	}{
		{"no token", "?device=ppg-1&from=-24h", "", 401, ""},
		{"a writer's token", "?device=ppg-1&from=-24h", writer, 403, ""},
		{"a token bound to subjects", "?device=ppg-1&from=-24h", bound, 403, ""},
		{"a device of others", "?device=x&from=-24h", ward, 403, ""},
		{"no device", "?from=-24h", all, 400, `"field":"device","reason":"with from and to, give one device"`},
		{"two devices", "?from=-24h&device=x&device=ppg-1", all, 400,
			`"field":"device","reason":"with from and to, give one device"`},
		{"no beginning", "?device=x&to=now", all, 400, `"field":"from","reason":"missing, or 1970"`},
		{"a zone alone", "?device=x&tz=UTC", all, 400, `"field":"from","reason":"missing, or 1970"`},
		{"no zone", "?device=x&from=-24h&tz=Nowhere", all, 400, `"field":"tz"`},
		{"a long range", "?device=x&from=-32d", all, 400,
			`"field":"from","reason":"more than 31 days before to, or before now"`},
		{"a range that ends before it begins", "?device=x&from=now&to=-24h", all, 400,
			`"field":"to","reason":"is before from"`},
		{"no time", "?device=x&from=yesterday", all, 400, `"field":"from","reason":"neither`},
		{"an unknown parameter", "?device=x&from=-24h&order=asc", all, 400, "known here: device, from, to, tz, limit"},
	} {
		if w := get(tt.query, tt.auth); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.reason) ||
			strings.Contains(w.Body.String(), "Low") {
			t.Errorf("%s: %d %s, want %d", tt.name, w.Code, w.Body, tt.status)
		}
	}
	none := alert.NewHandler(nil, service, &vitals.Limits{})
	h = none
	if w := get("?device=x&from=-24h", all); w.Code != 200 ||
		!strings.Contains(w.Body.String(), `"rules":0,"ready":true,"alerts":[],"total":0`) {
		t.Errorf("without rules: %d %s", w.Code, w.Body)
	}
}
