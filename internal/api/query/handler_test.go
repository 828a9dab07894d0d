package query_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// fill returns a store with readings given as JSON.
func fill(t testing.TB, lines ...string) *storetest.Memory {
	t.Helper()
	m := storetest.NewMemory()
	appendTo(t, m, lines...)
	return m
}

func appendTo(t testing.TB, m *storetest.Memory, lines ...string) {
	t.Helper()
	limits := m.Signs().DefaultLimits()
	limits.OldestUnixMs = 0 // times in the tests are small numbers
	rules, err := vitals.NewValidator(limits)
	try(t, err)
	var batch vitals.Batch
	body := strings.Join(lines, "\n")
	try(t, vitals.NewDecoder(rules, vitals.DecoderOptions{}).Decode([]byte(body), vitals.MaxTimeUnixMs, &batch))
	if len(batch.Refused) > 0 {
		t.Fatal(&batch.Refused[0])
	}
	var group []*storage.Entry
	for i := range batch.Readings {
		group = append(group, &storage.Entry{Reading: &batch.Readings[i], ReceivedUnixMs: 1_800_000_000_000})
	}
	try(t, m.Append(group))
}

// A source is the store of a server.
type source interface {
	query.Reader
	query.Lister
}

// serve starts a server that reads from src.
func serve(t *testing.T, src source) *httptest.Server {
	t.Helper()
	return serveGated(t, src, nil, nil)
}

// serveGated is like serve, with a gate. failed is called with errors.
func serveGated(t *testing.T, src source, g *gate.Gate, failed func(error)) *httptest.Server {
	t.Helper()
	return serveOptions(t, src, query.Options{Service: query.Service{Gate: g, OnError: failed}}, unchanged)
}

// serveOptions starts a server with the given options. wrap wraps its handler.
func serveOptions(t *testing.T, src source, cfg query.Options, wrap func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	cfg.Problems, cfg.Flags, cfg.Param = problem.New(), vitals.NewSigns().DefaultFlagLimits(), (*http.Request).PathValue
	if cfg.Limits.Signs == nil {
		cfg.Limits = vitals.NewSigns().DefaultLimits()
		cfg.Limits.OldestUnixMs = 0 // times in the tests are small numbers
	}
	h := query.New(src, src, cfg)
	mux := http.NewServeMux()
	h.Mount(func(template string, h http.Handler) { mux.Handle("GET "+template, h) })
	if store, ok := src.(query.SubjectAssigner); ok {
		query.NewSubjects(h, store).Mount(func(template string, h http.Handler) { mux.Handle("POST "+template, h) })
	}
	srv := httptest.NewServer(wrap(mux))
	t.Cleanup(srv.Close)
	return srv
}

// get sends a request and returns the response with its text.
func get(t *testing.T, srv *httptest.Server, path string, header ...string) (*http.Response, string) {
	t.Helper()
	return send(t, srv, http.MethodGet, path, "", header...)
}

// post sends a request with a body and returns the response with its text.
func post(t *testing.T, srv *httptest.Server, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	return send(t, srv, http.MethodPost, path, body, header...)
}

func send(t *testing.T, srv *httptest.Server, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, srv.URL+path, strings.NewReader(body))
	try(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := srv.Client().Do(req)
	try(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	try(t, err)
	return resp, string(text)
}

func TestFormats(t *testing.T) {
	srv := serve(t, fill(t,
		`{"device":"a","time":1000,"heart_rate_bpm":54.9,"spo2_pct":69,"gateway":"g"}`,
		`{"device":"a","time":2000,"systolic_mmhg":120,"diastolic_mmhg":80,"resting_heart_rate_bpm":58}`,
	))
	const received = `"received":"2027-01-15T08:00:00.000Z"`
	first := `{"device":"a","time":"1970-01-01T00:00:01.000Z","spo2_pct":69,"heart_rate_bpm":54.9,"gateway":"g",` +
		received
	second :=
		`{"device":"a","time":"1970-01-01T00:00:02.000Z","systolic_mmhg":120,"diastolic_mmhg":80,` +
			`"resting_heart_rate_bpm":58,` + received + `}`
	flags := `,"flags":["spo2_pct outside validated range","spo2_pct low"]}`
	const columns = "device,time,utc_offset_minutes,systolic_mmhg,diastolic_mmhg,spo2_pct,heart_rate_bpm,resting_heart_r" +
		"ate_bpm,respiratory_rate_bpm,body_temperature_c,body_weight_kg,glucose_mg_dl,glucose_mmol_l,pulse_rate_bpm,interst" +
		"itial_glucose_mg_dl,interstitial_glucose_mmol_l,gateway,subject,received"
	// In NDJSON and CSV, a sign with decimals has at least one.
	decimals := strings.NewReplacer(`:69,`, `:69.0,`, `:120,`, `:120.0,`, `:80,`, `:80.0,`, `:58,`, `:58.0,`)
	firstLine, secondLine := decimals.Replace(first), decimals.Replace(second)
	for _, tt := range []struct{ name, query, accept, wantType, want string }{
		{"JSON", "", "", "application/json", "{\"readings\":[\n" + first + flags + ",\n" + second +
			"\n],\"flags_notice\":\"" + vitals.FlagNotice + "\"}\n"},
		{"JSON without flags", "?flags=false", "", "application/json", "{\"readings\":[\n" + first + "},\n" +
			second + "\n]}\n"},
		{"NDJSON", "?format=ndjson", "", "application/x-ndjson", firstLine + flags + "\n" + secondLine + "\n"},
		{"NDJSON by Accept", "", "application/x-ndjson", "application/x-ndjson", firstLine + flags + "\n" +
			secondLine + "\n"},
		{"CSV by Accept", "?flags=false", "text/csv;q=0.9, text/html", "text/csv; charset=utf-8; header=present",
			columns + "\r\na,1970-01-01T00:00:01.000Z,,,,69.0,54.9,,,,,,,,,,g,,2027-01-15T08:00:00.000Z\r\n" +
				"a,1970-01-01T00:00:02.000Z,,120.0,80.0,,,58.0,,,,,,,,,,,2027-01-15T08:00:00.000Z\r\n"},
		{"CSV", "?format=csv&to=2000", "application/json", "text/csv; charset=utf-8; header=present",
			columns +
				",flags\r\na,1970-01-01T00:00:01.000Z,,,,69.0,54.9,,,,,,,,,,g,,2027-01-15T08:00:00.000Z,spo2_pct outside " +
				"validated range;spo2_pct low\r\n"},
		{"descending", "?order=desc&limit=1&format=ndjson", "", "application/x-ndjson", secondLine + "\n"},
		{"from is inclusive", "?from=2000&format=ndjson", "", "application/x-ndjson", secondLine + "\n"},
		{"to is exclusive", "?to=1970-01-01T01:00:02%2B01:00&flags=false&format=ndjson", "", "application/x-ndjson",
			firstLine + "}\n"},
		{"an unescaped plus", "?to=1970-01-01T01:00:02+01:00&flags=false&format=ndjson", "", "application/x-ndjson",
			firstLine + "}\n"},
		{"empty range", "?from=1500&to=1600&flags=false", "", "application/json", "{\"readings\":[\n]}\n"},
		{"empty range as NDJSON", "?from=1500&to=1600&format=ndjson", "", "application/x-ndjson", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var header []string
			if tt.accept != "" {
				header = []string{"Accept", tt.accept}
			}
			resp, got := get(t, srv, "/v1/devices/a/readings"+tt.query, header...)
			if ct := resp.Header.Get("Content-Type"); ct != tt.wantType {
				t.Errorf("content type %q, want %q", ct, tt.wantType)
			}
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if !strings.Contains(resp.Header.Get("Vary"), "Accept") {
				t.Errorf("Vary is %q", resp.Header.Get("Vary"))
			}
			if strings.Contains(got, "low") && !strings.Contains(got+resp.Header.Get("Pulsegate-Notice"), vitals.FlagNotice) {
				t.Error("flags are shown without the notice")
			}
		})
	}
}

func TestRejected(t *testing.T) {
	srv := serve(t, fill(t, `{"device":"a","time":1000,"heart_rate_bpm":54.9}`))
	for _, tt := range []struct {
		path          string
		status        int
		typ, field    string
		wantInReason  string
		acceptInstead string
	}{
		{"/v1/devices/none", 404, "unknown-device", "", "", ""},
		{"/v1/devices/none/readings", 404, "unknown-device", "", "", ""},
		{"/v1/devices/a%20b", 400, "bad-parameter", "device", "64 bytes", ""},
		{"/v1/devices/a%20b/readings", 400, "bad-parameter", "device", "64 bytes", ""},
		{"/v1/devices/a?x=1", 400, "bad-parameter", "", "unknown", ""},
		{"/v1/devices/a/readings?form=1", 400, "bad-parameter", "", "from, to, tz, limit", ""},
		{"/v1/devices/a/readings?%zz", 400, "bad-parameter", "", "well formed", ""},
		{"/v1/devices/a/readings?from=1&from=2", 400, "bad-parameter", "from", "more than once", ""},
		{"/v1/devices/a/readings?from=yesterday", 400, "bad-parameter", "from", "RFC 3339", ""},
		{"/v1/devices/a/readings?from=2026-01-01T00:00:00", 400, "bad-parameter", "from", "zone", ""},
		{"/v1/devices/a/readings?from=2000&to=1000", 400, "bad-parameter", "to", "before from", ""},
		{"/v1/devices/a/readings?limit=0", 400, "bad-parameter", "limit", "from 1 to", ""},
		{"/v1/devices/a/readings?limit=1000001", 400, "bad-parameter", "limit", "from 1 to", ""},
		{"/v1/devices/a/readings?limit=x", 400, "bad-parameter", "limit", "from 1 to", ""},
		{"/v1/devices/a/readings?order=up", 400, "bad-parameter", "order", "asc, desc", ""},
		{"/v1/devices/a/readings?limit=a&order=up", 400, "bad-parameter", "order", "asc, desc", ""},
		{"/v1/devices?sort=x&state=x", 400, "bad-parameter", "state", "fresh, stale", ""},
		{"/v1/devices/a/readings?format=xml", 400, "bad-parameter", "format", "json, ndjson, csv", ""},
		{"/v1/devices/a/readings?tz=Europe/Nowhere", 400, "bad-parameter", "tz", "IANA", ""},
		{"/v1/devices/a/readings?from=-24y", 400, "bad-parameter", "from", "-24h", ""},
		{"/v1/devices/a/readings?to=2026-02-29", 400, "bad-parameter", "to", "a date such as", ""},
		{"/v1/devices/a/readings?to=-1h&from=now", 400, "bad-parameter", "to", "before from", ""},
		{"/v1/devices/a/readings?flag=", 400, "bad-parameter", "flag", "any, systolic_mmhg low", ""},
		{"/v1/devices/a/readings?flag=high", 400, "bad-parameter", "flag", "any, systolic_mmhg low", ""},
		{"/v1/devices/a/readings?flags=1", 400, "bad-parameter", "flags", "true, false", ""},
		{"/v1/devices/a/readings?cursor=x", 400, "bad-parameter", "cursor", "cursor", ""},
		{"/v1/devices/a/readings", 406, "not-acceptable", "", "", "image/png"},
		{"/v1/devices/none/aggregates?step=1h", 404, "unknown-device", "", "", ""},
		{"/v1/devices/a/aggregates", 400, "bad-parameter", "step", "such as 15m", ""},
		{"/v1/devices/a/aggregates?step=7m", 400, "bad-parameter", "step", "divisor of a day", ""},
		{"/v1/devices/a/aggregates?step=1mo", 400, "bad-parameter", "step", "divisor of a day", ""},
		{"/v1/devices/a/aggregates?step=1h&tz=CEST", 400, "bad-parameter", "tz", "IANA", ""},
		{"/v1/devices/a/aggregates?step=1h&limit=10001", 400, "bad-parameter", "limit", "from 1 to 10000", ""},
		{"/v1/devices/a/aggregates?step=1h&order=desc", 400, "bad-parameter", "", "unknown parameter", ""},
		{"/v1/devices/a/aggregates?step=1h&cursor=AQAAAAAAAAPo", 400, "bad-parameter", "cursor",
			"not a cursor of this list", ""},
		{"/v1/devices/a/aggregates?step=1h&from=-1h&to=-2h", 400, "bad-parameter", "to", "before from", ""},
		{"/v1/devices?limit=1001", 400, "bad-parameter", "limit", "from 1 to 1000", ""},
		{"/v1/devices?cursor=AQ", 400, "bad-parameter", "cursor", "cursor", ""},
	} {
		var header []string
		if tt.acceptInstead != "" {
			header = []string{"Accept", tt.acceptInstead}
		}
		resp, text := get(t, srv, tt.path, header...)
		var p struct{ Type, Field, Reason string }
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Errorf("%s: %v: %s", tt.path, err, text)
			continue
		}
		if resp.StatusCode != tt.status || !strings.HasSuffix(p.Type, "#"+tt.typ) || p.Field != tt.field ||
			!strings.Contains(p.Reason, tt.wantInReason) {
			t.Errorf("%s: %d %s; want %d %s field %q reason %q", tt.path, resp.StatusCode, text, tt.status, tt.typ, tt.field,
				tt.wantInReason)
		}
	}
}

// times collects the times of all pages of readings, in ms.
func times(t *testing.T, srv *httptest.Server, params string, between func()) (all []int64) {
	t.Helper()
	cursor := ""
	for {
		_, text := get(t, srv, "/v1/devices/a/readings?"+params+cursor)
		var page struct {
			Readings []struct{ Time string }
			Next     string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, r := range page.Readings {
			ms, _, err := vitals.ParseTime(r.Time)
			try(t, err)
			all = append(all, ms)
		}
		if page.Next == "" {
			return all
		}
		cursor = "&cursor=" + page.Next
		if between != nil {
			between()
		}
	}
}

// Readings that exist when the first page is read are returned exactly once, in order,
// regardless of concurrent writes.
func TestPagesAreStable(t *testing.T) {
	for _, order := range []string{"asc", "desc"} {
		m := storetest.NewMemory()
		var was []int64
		for i := range int64(50) {
			appendTo(t, m, fmt.Sprintf(`{"device":"a","time":%d,"spo2_pct":97}`, 1000*(i+1)))
			was = append(was, 1000*(i+1))
		}
		srv := serve(t, m)
		step := int64(0)
		got := times(t, srv, "limit=7&order="+order, func() {
			if step++; step > 5 {
				return
			}
			for i := range int64(50) { // between the existing readings and at both ends
				appendTo(t, m, fmt.Sprintf(`{"device":"a","time":%d,"spo2_pct":96}`, 1000*i+step))
			}
		})
		seen := map[int64]int{}
		for i, ms := range got {
			seen[ms]++
			if i > 0 && (got[i-1] < ms) != (order == "asc") {
				t.Errorf("%s: %d comes after %d", order, ms, got[i-1])
			}
		}
		for _, ms := range was {
			if seen[ms] != 1 {
				t.Errorf("%s: the reading of %d was returned %d times", order, ms, seen[ms])
			}
		}
		for ms, n := range seen {
			if n > 1 {
				t.Errorf("%s: the reading of %d was returned %d times", order, ms, n)
			}
		}
	}
}

// An endless is a store with any number of readings that can fail at some point.
type endless struct {
	source
	gateways [3]*vitals.Name
	readings int
	err      error
}

func (e *endless) Latest(context.Context, vitals.Name) (storage.Device, error) {
	return storage.Device{}, nil
}

func (e *endless) Scan(_ context.Context, r storage.Range, dst []storage.Record) (int, error) {
	n := 0
	for ms := r.FromUnixMs; n < len(dst) && ms < int64(e.readings); ms++ {
		dst[n] = storage.Record{TimeUnixMs: ms, Gateway: e.gateways[ms%3], UTCOffset: vitals.MakeUTCOffset(int(ms % 1439))}
		n++
	}
	if n < len(dst) && e.err != nil {
		return 0, e.err
	}
	return n, nil
}

// A response that is cut off is detectably incomplete.
func TestCutOff(t *testing.T) {
	for _, format := range []string{"json", "ndjson", "csv"} {
		srv := serve(t, &endless{readings: 5000, err: errors.New("checksum mismatch")})
		srv.Config.ErrorLog = nil
		resp, err := srv.Client().Get(srv.URL + "/v1/devices/a/readings?limit=1000000&format=" + format)
		try(t, err)
		if _, err = io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: the response looks complete", format)
		}
		resp.Body.Close()
	}
}

func TestStoreFails(t *testing.T) {
	srv := serve(t, &endless{err: errors.New("checksum mismatch")})
	resp, text := get(t, srv, "/v1/devices/a/readings")
	if resp.StatusCode != 500 || !strings.Contains(text, "#read-failed") || strings.Contains(text, "checksum") {
		t.Errorf("%d %s, want 500 read-failed without the cause", resp.StatusCode, text)
	}
}

var try = polltest.Try

// A cursor belongs to the list that it comes from: with another device, filter, order or division into buckets, it is
// rejected. Another limit, format or range is another part of the same list.
func TestForeignCursors(t *testing.T) {
	var lines []string
	for i := range 10 {
		lines = append(lines, fmt.Sprintf(`{"device":"a-%d","time":%d,"spo2_pct":60}`, i%5, 1000+i*5_000_000))
	}
	srv := serve(t, fill(t, lines...))
	for _, tt := range []struct{ from, to, want string }{
		{"devices/a-1/aggregates?limit=1&step=1h", "devices/a-1/aggregates?step=1d",
			"with this step, tz and time of receipt"},
		{"devices/a-1/aggregates?limit=1&step=1h", "devices/a-1/aggregates?step=1h&tz=Asia/Kolkata",
			"with this step, tz and time of receipt"},
		{"devices/a-1/aggregates?limit=1&step=1h&tz=Europe/Berlin", "devices/a-1/aggregates?step=1h",
			"with this step, tz and time of receipt"},
		{"devices/a-1/aggregates?limit=1&step=1h", "devices/a-2/aggregates?step=1h", "not a cursor"},
		{"devices/a-1/aggregates?limit=1&step=1h", "devices/a-1/readings?", "not a cursor"},
		{"devices/a-1/aggregates?limit=1&step=1h", "devices/a-1/aggregates?limit=7&step=60m&format=csv&from=0&to=now", ""},
		{"devices/a-1/readings?limit=1", "devices/a-2/readings?", "not a cursor"},
		{"devices/a-1/readings?limit=1", "devices/a-1/readings?flag=any", "with this order, flag and time of receipt"},
		{"devices/a-1/readings?limit=1&flag=any", "devices/a-1/readings?", "with this order, flag and time of receipt"},
		{"devices/a-1/readings?limit=1", "devices/a-1/readings?order=desc", "with this order, flag and time of receipt"},
		{"devices/a-1/readings?limit=1", "devices/a-1/readings?limit=2&format=ndjson&flags=false&to=now", ""},
		{"devices?limit=1", "devices?prefix=a-", "with this sort, prefix, match, group and state"},
		{"devices?limit=1&state=stale", "devices?", "with this sort, prefix, match, group and state"},
		{"devices?limit=1", "devices?sort=age", "with this sort, prefix, match, group and state"},
		{"devices?limit=1&prefix=a-&sort=worst", "devices?prefix=a-&sort=worst&limit=3&counts=true", ""},
	} {
		_, text := get(t, srv, "/v1/"+tt.from)
		var page struct {
			Cursor string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil || page.Cursor == "" {
			t.Fatalf("%s: %v, %s", tt.from, err, text)
		}
		resp, text := get(t, srv, "/v1/"+tt.to+"&cursor="+page.Cursor)
		if want := map[bool]int{true: 200, false: 400}[tt.want == ""]; resp.StatusCode != want ||
			!strings.Contains(text, tt.want) {
			t.Errorf("%s with the cursor of %s: %s %s, want %q", tt.to, tt.from, resp.Status, text, tt.want)
		}
	}
}
