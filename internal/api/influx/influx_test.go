package influx_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/influx"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

var receivedAt = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

// A service is a Handler on a store in memory.
type service struct {
	*storetest.Memory
	http.ServeMux
	core *ingest.Core
}

// serve returns a service with a configuration and options, of which it sets what they lack.
func serve(t testing.TB, cfg ingest.Config, opt influx.Options) *service {
	t.Helper()
	s := &service{Memory: storetest.NewMemory()}
	s.mount(t, s.Memory, cfg, opt)
	return s
}

func (s *service) mount(t testing.TB, store ingest.Appender, cfg ingest.Config, opt influx.Options) {
	problems := problem.New()
	cfg.Now, cfg.IgnoreUnknown = func() time.Time { return receivedAt }, opt.IgnoreUnknown
	cfg.Limits, cfg.MaxSingleBytes = s.Signs().DefaultLimits(), 1000
	var err error
	if s.core, err = ingest.New(store, problems, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.core.Close(context.Background()) }) // a test may have closed it
	if opt.DeviceTag == "" {
		opt.DeviceTag = influx.DefaultDeviceTag
	}
	if opt.Ready == nil {
		opt.Ready = func() bool { return true }
	}
	opt.Problems, opt.Signs, opt.MaxLineBytes, opt.Version = problems, s.Signs(), 1000, "0.1.0"
	influx.New(opt).Mount(
		func(template string, h http.Handler) { s.Handle("GET "+template, h) },
		func(template string, h http.Handler) { s.Handle("POST "+template, h) },
		func(form ingest.Form, crossSite http.Handler) http.Handler {
			protection := http.NewCrossOriginProtection()
			protection.SetDenyHandler(crossSite)
			return protection.Handler(s.core.Handler(form))
		}, "Made by a page.")
}

// post sends a body to an address, with names and values of header fields.
func (s *service) post(target, body string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// stored returns the readings of a device, as texts.
func (s *service) stored(t testing.TB, device string) (texts []string) {
	t.Helper()
	name, err := vitals.ParseName(device)
	if err != nil {
		t.Fatal(err)
	}
	found := make([]storage.Record, 100)
	n, err := s.Scan(t.Context(), storage.Range{Device: name, ToUnixMs: storage.OpenEnd}, found)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range found[:n] {
		text := fmt.Appendf(nil, "%d", r.TimeUnixMs)
		text = s.Signs().AppendMembers(text, &r.Values)
		if r.Gateway != nil {
			text = fmt.Appendf(text, ",gateway %s", r.Gateway)
		}
		texts = append(texts, string(text))
	}
	return texts
}

// What is accepted is stored exactly as it was sent, whatever its spelling.
func TestAccepted(t *testing.T) {
	for _, tt := range []struct{ name, precision, lines, want string }{
		{"a line", "s", "vitals,device=d heart_rate_bpm=72 1795341600", `1795341600000,"heart_rate_bpm":72`},
		{"all tags and several fields", "s",
			"v,a=b,device=d,gateway=g,host=x systolic_mmhg=121i,diastolic_mmhg=79u,spo2_pct=97.5 1795341600\n",
			`1795341600000,"systolic_mmhg":121,"diastolic_mmhg":79,"spo2_pct":97.5,gateway g`},
		{"a decimal that no float64 has", "s", "v,device=d body_temperature_c=36.60 1795341600",
			`1795341600000,"body_temperature_c":36.6`},
		{"no digit before the point", "s", "v,device=d glucose_mmol_l=.5e1 1795341600", `1795341600000,"glucose_mmol_l":5`},
		{"no digit after the point", "s", "v,device=d glucose_mmol_l=5. 1795341600", `1795341600000,"glucose_mmol_l":5`},
		{"no digit after the point, and an exponent", "s", "v,device=d heart_rate_bpm=7.e+1 1795341600",
			`1795341600000,"heart_rate_bpm":70`},
		{"zeros in front", "s", "v,device=d heart_rate_bpm=0072,pulse_rate_bpm=0071i 1795341600",
			`1795341600000,"heart_rate_bpm":72,"pulse_rate_bpm":71`},
		{"nanoseconds by default", "", "v,device=d heart_rate_bpm=72 1795341600123000000",
			`1795341600123,"heart_rate_bpm":72`},
		{"n", "n", "v,device=d heart_rate_bpm=72 1795341600123000000", `1795341600123,"heart_rate_bpm":72`},
		{"u", "u", "v,device=d heart_rate_bpm=72 1795341600123000", `1795341600123,"heart_rate_bpm":72`},
		{"us", "us", "v,device=d heart_rate_bpm=72 1795341600123000", `1795341600123,"heart_rate_bpm":72`},
		{"ms", "ms", "v,device=d heart_rate_bpm=72 1795341600123", `1795341600123,"heart_rate_bpm":72`},
		{"m", "m", "v,device=d heart_rate_bpm=72 29922360", `1795341600000,"heart_rate_bpm":72`},
		{"h", "h", "v,device=d heart_rate_bpm=72 498706", `1795341600000,"heart_rate_bpm":72`},
		{"escapes", "s", `a\,b\ c=d,k\ \,\=="v\,\ \=\\\x",device=d heart_rate_bpm=72 1795341600`,
			`1795341600000,"heart_rate_bpm":72`},
		{"an escaped name", "s", `v,device=a\=b heart_rate_bpm=72 1795341600` + "\nv,device=d heart_rate_bpm=72 1795341600",
			""},
		{"blank lines, comments, CRLF and spaces", "s",
			"\r\n  # a comment\n\n  v,device=d   heart_rate_bpm=72   1795341600  \r\n#", `1795341600000,"heart_rate_bpm":72`},
		{"signs of the same time in two lines", "s",
			"v,device=d heart_rate_bpm=72 1795341600\nw,device=d spo2_pct=97 1795341600",
			`1795341600000,"spo2_pct":97,"heart_rate_bpm":72`},
	} {
		s := serve(t, ingest.Config{}, influx.Options{})
		w := s.post("/api/v2/write?org=o&bucket=b&precision="+tt.precision, tt.lines)
		if tt.want == "" {
			if w.Code != 400 || len(s.stored(t, "d")) != 1 {
				t.Errorf("%s: %d %s %q", tt.name, w.Code, w.Body, s.stored(t, "d"))
			}
			continue
		}
		if got := s.stored(t, "d"); w.Code != http.StatusNoContent || w.Body.Len() != 0 || len(got) != 1 ||
			got[0] != tt.want {
			t.Errorf("%s: %d %s, stored %q, want %q", tt.name, w.Code, w.Body, got, tt.want)
		}
		if w := s.post("/write?db=x&precision="+tt.precision, tt.lines); w.Code != http.StatusNoContent ||
			len(s.stored(t, "d")) != 1 {
			t.Errorf("%s, again: %d %s", tt.name, w.Code, w.Body)
		}
	}
}

// Each bad line is rejected with its number, the field and the reason, never with a value.
func TestRejectedLines(t *testing.T) {
	const good = "v,device=d heart_rate_bpm=72 1795341600"
	for _, tt := range []struct{ line, want string }{
		{"v,device=d heart_rate_bpm=72", "time: missing; without a timestamp, each retry would be a new reading"},
		{"v heart_rate_bpm=72 1795341600", "device: missing"},
		{"v,device=ö heart_rate_bpm=72 1795341600", "device: not a name of 1 to 64 bytes of A-Z a-z 0-9 . _ : -"},
		{"v,device=d,device=e heart_rate_bpm=72 1795341600", "device: given twice"},
		{"v,device=d,gateway=/ heart_rate_bpm=72 1795341600", "gateway: not a name of 1 to 64 bytes of A-Z a-z 0-9 . _ : -"},
		{"v,device=d,gateway=g,gateway=g heart_rate_bpm=72 1795341600", "gateway: given twice"},
		{"v,device=d,spo2_pct=97 heart_rate_bpm=72 1795341600", "spo2_pct: a tag, where a field is needed"},
		{"v,device=d heart_rate_bpm=72,sp02_pct=97 1795341600", "sp02_pct: unknown field"},
		{`v,device=d heart_rate_bpm=72,a\ b=97 1795341600`, "unknown field"},
		{"v,device=d heart_rate_bpm=72,device=97 1795341600", "device: unknown field"},
		{"v,device=d heart_rate_bpm=72,heart_rate_bpm=72 1795341600", "heart_rate_bpm: given twice"},
		{`v,device=d heart_rate_bpm="72" 1795341600`, "heart_rate_bpm: a string, not a number"},
		{"v,device=d heart_rate_bpm=true 1795341600", "heart_rate_bpm: a boolean, not a number"},
		{"v,device=d heart_rate_bpm=NaN 1795341600", "heart_rate_bpm: not a number"},
		{"v,device=d heart_rate_bpm=-Inf 1795341600", "heart_rate_bpm: not a number"},
		{"v,device=d heart_rate_bpm=0x48 1795341600", "heart_rate_bpm: not a number"},
		{"v,device=d heart_rate_bpm=+72 1795341600", "heart_rate_bpm: not a number"},
		{"v,device=d heart_rate_bpm=7.2e 1795341600", "heart_rate_bpm: not a number"},
		{"v,device=d heart_rate_bpm=72.5i 1795341600", "heart_rate_bpm: not a number"},
		{"v,device=d heart_rate_bpm=-72u 1795341600", "heart_rate_bpm: not a number"},
		{"v,device=d heart_rate_bpm=. 1795341600", "heart_rate_bpm: not a number"},
		{"v,device=d heart_rate_bpm= 1795341600", "heart_rate_bpm: not a number"},
		{"v,device=d heart_rate_bpm=i 1795341600", "heart_rate_bpm: not a number"},
		{"v,device=d heart_rate_bpm=-i 1795341600", "heart_rate_bpm: not a number"},
		{"v,device=d heart_rate_bpm=0 1795341600", "heart_rate_bpm: no signal"},
		{"v,device=d heart_rate_bpm=-72i 1795341600", "heart_rate_bpm: outside the accepted range 20 to 300 /min"},
		{"v,device=d heart_rate_bpm=18446744073709551615u 1795341600", "heart_rate_bpm: outside the accepted range"},
		{"v,device=d body_temperature_c=36.599998 1795341600", "body_temperature_c: more than two decimals"},
		{"v,device=d systolic_mmhg=121i 1795341600", "diastolic_mmhg: systolic and diastolic go together"},
		{"v,device=d systolic_mmhg=79,diastolic_mmhg=121 1795341600", "systolic_mmhg: systolic is not above diastolic"},
		{"v,device=d heart_rate_bpm=72 1795341600123", "time: too far ahead of the server's clock"},
		{"v,device=d heart_rate_bpm=72 1795342000", "time: more than 5m0s ahead of the server's clock"},
		{"v,device=d heart_rate_bpm=72 99999999999999999999", "time: too far ahead of the server's clock"},
		{"v,device=d heart_rate_bpm=72 -1", "time: before 1970"},
		{"v,device=d heart_rate_bpm=72 -99999999999999", "time: before 1970"},
		{"v,device=d heart_rate_bpm=72 0", "time: before 2001-01-01T00:00:00.000Z, the oldest time that this server accepts"},
		{"v,device=d heart_rate_bpm=72 1-2", "time: not an integer"},
		{"v,device=d heart_rate_bpm=72 now", "byte 30 of the line: the timestamp is not an integer at the end of the line"},
		{"v,device=d heart_rate_bpm=72 1795341600 1",
			"byte 41 of the line: the timestamp is not an integer at the end of the line"},
		{"v,device=d", "byte 11 of the line: neither a tag nor a space and a field"},
		{"v", "byte 2 of the line: neither a tag nor a space and a field"},
		{"v ", "byte 3 of the line: no field with = and a value"},
		{",device=d heart_rate_bpm=72 1795341600", "byte 1 of the line: no measurement"},
		{"\x01", "byte 1 of the line: no measurement"},
		{"v, heart_rate_bpm=72 1795341600", "byte 3 of the line: a comma without a tag"},
		{"v,device= heart_rate_bpm=72 1795341600", "byte 10 of the line: a tag has no value"},
		{"v,device=\xff heart_rate_bpm=72 1795341600", "byte 11 of the line: not UTF-8"},
		{"v,device=d heart_rate_bpm 1795341600", "byte 26 of the line: no field with = and a value"},
		{"v,device=d heart_rate_bpm=72, 1795341600", "byte 30 of the line: no field with = and a value"},
		{`v,device=d heart_rate_bpm="72"x 1795341600`, "byte 31 of the line: neither a comma nor a space after a field"},
	} {
		for _, path := range []string{"/write", "/api/v2/write"} {
			s := serve(t, ingest.Config{}, influx.Options{})
			w := s.post(path+"?precision=s", good+"\n# a comment\n"+tt.line+"\n"+strings.Replace(good, "600", "599", 1))
			message := "partial write: line 3: " + tt.want + "; dropped=1"
			want := fmt.Sprintf(`{"error":%q}`, message)
			if path != "/write" {
				want = fmt.Sprintf(`{"code":"invalid","message":%q}`, message)
			}
			if w.Code != http.StatusBadRequest || w.Header().Get("Content-Type") != "application/json" ||
				w.Body.String() != want+"\n" {
				t.Errorf("%s: %q: %d %s, want %s", path, tt.line, w.Code, w.Body, want)
			}
			if got := s.stored(t, "d"); len(got) != 2 {
				t.Errorf("%q: stored %q, want the two others", tt.line, got)
			}
		}
	}
	// Times are cut to the millisecond. Two readings of one device in one millisecond contradict each other.
	t.Run("a fraction of a millisecond", func(t *testing.T) {
		for precision, timestamp := range map[string]string{"": "1795341600123000001", "ns": "1795341600123999999",
			"us": "1795341600123001", "u": "1795341600123999"} {
			s := serve(t, ingest.Config{}, influx.Options{})
			w := s.post("/write?precision="+precision, "v,device=d heart_rate_bpm=72 "+timestamp)
			if got := s.stored(t, "d"); w.Code != 204 || len(got) != 1 || !strings.HasPrefix(got[0], "1795341600123,") {
				t.Errorf("%s: %d %s, stored %q", precision, w.Code, w.Body, got)
			}
		}
		s := serve(t, ingest.Config{}, influx.Options{})
		w := s.post("/write", "v,device=d heart_rate_bpm=72 -1")
		if want := "time: before 1970"; w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	})
	t.Run("a string without an end", func(t *testing.T) {
		s := serve(t, ingest.Config{}, influx.Options{})
		w := s.post("/write?precision=s", good+"\n"+`v,device=d heart_rate_bpm="72 1795341601`+"\n"+good)
		const want = `{"error":"partial write: line 2: byte 81 of the line: a string without an end, which all that ` +
			`follows belongs to; dropped=1"}` + "\n"
		if w.Code != 400 || w.Body.String() != want {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	})
	t.Run("a string of several lines", func(t *testing.T) {
		s := serve(t, ingest.Config{}, influx.Options{IgnoreUnknown: true})
		w := s.post("/write?precision=s", `v,device=d x="\"`+"\n\n"+`\\",heart_rate_bpm=72 1795341600`+"\nv,device=d y=1 2")
		const want = `{"error":"partial write: line 4: time: before 2001-01-01T00:00:00.000Z, the oldest time that this ` +
			`server accepts; dropped=1"}` + "\n"
		if w.Code != 400 || w.Body.String() != want || len(s.stored(t, "d")) != 1 {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	})
	t.Run("many", func(t *testing.T) {
		s := serve(t, ingest.Config{}, influx.Options{})
		w := s.post("/write", strings.Repeat("x\n", 250))
		if got := w.Body.String(); strings.Count(got, "; line ") != 99 ||
			!strings.HasSuffix(got, `; and 150 further lines; dropped=250"}`+"\n") {
			t.Error(got)
		}
	})
}

// Unknown fields are ignored if the options say so, whatever their values; another tag may name the device.
func TestOptions(t *testing.T) {
	s := serve(t, ingest.Config{}, influx.Options{IgnoreUnknown: true, DeviceTag: "mac"})
	w := s.post("/write?precision=s", `v,mac=d,device=x heart_rate_bpm=72,rssi=-70i,name="a b",ok=t 1795341600`)
	if got := s.stored(t, "d"); w.Code != 204 || len(got) != 1 {
		t.Errorf("%d %s %q", w.Code, w.Body, got)
	}
	w = s.post("/write?precision=s", `v,mac=d rssi=-70i 1795341600`+"\n"+`v,device=d heart_rate_bpm=72 1795341600`)
	const want = `{"error":"partial write: line 1: no vital sign given; line 2: mac: missing; dropped=2"}` + "\n"
	if w.Code != 400 || w.Body.String() != want {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
	for tag, want := range map[string]bool{"device": true, "a b": true, "": false, "gateway": false} {
		if influx.CheckDeviceTag(tag) != want {
			t.Errorf("the tag %q: want %t", tag, want)
		}
	}
}

// Requests that are rejected as a whole get the answers of either API.
func TestRejectedRequests(t *testing.T) {
	const line = "v,device=d heart_rate_bpm=72 1795341600"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(line))
	_ = z.Close()
	s := serve(t, ingest.Config{MaxBatchBytes: 10_000, MaxReadings: 10}, influx.Options{})
	for _, tt := range []struct {
		name, query, body string
		fields            []string
		status            int
		code, message     string
	}{
		{"gzip", "", packed.String(), []string{"Content-Encoding", "gzip"}, 204, "", ""},
		{"damaged gzip", "", packed.String()[:30], []string{"Content-Encoding", "gzip"}, 400, "invalid",
			"The compressed body is damaged or cut off."},
		{"another encoding", "", line, []string{"Content-Encoding", "br"}, 415, "invalid",
			"Send gzip, zstd, or no Content-Encoding."},
		{"an unknown precision", "precision=d", line, nil, 400, "invalid",
			"The precision must be one of ns, us, ms, s, n, u, m and h."},
		{"two precisions", "precision=ms", line, nil, 400, "invalid",
			"The precision must be one of ns, us, ms, s, n, u, m and h."},
		{"a query that is none", "a=%", line, nil, 400, "invalid", "The query is not valid."},
		{"nothing", "", "", nil, 411, "invalid", "Send a Content-Length, or a chunked body."},
		{"too many lines", "", strings.Repeat("x\n", 11), nil, 413, "request too large", "A batch may have 10 readings."},
		{"too long a line", "", "v,x=" + strings.Repeat("y", 1000) + ",device=d heart_rate_bpm=72 1795341600", nil, 413,
			"request too large", "A reading may have 1000 bytes."},
		{"too large", "", strings.Repeat("\n", 10_001), nil, 413, "request too large",
			"A batch may have 10000 bytes, decompressed."},
		{"a page of another site", "", line, []string{"Sec-Fetch-Site", "cross-site"}, 403, "forbidden", "Made by a page."},
	} {
		for _, path := range []string{"/write", "/api/v2/write"} {
			w := s.post(path+"?precision=s&"+tt.query, tt.body, tt.fields...)
			want := fmt.Sprintf(`{"error":%q}`+"\n", tt.message)
			switch {
			case tt.status == 204:
				want = ""
			case path != "/write":
				want = fmt.Sprintf(`{"code":%q,"message":%q}`+"\n", tt.code, tt.message)
			}
			if w.Code != tt.status || w.Body.String() != want {
				t.Errorf("%s: %s: %d %s, want %d %s", tt.name, path, w.Code, w.Body, tt.status, want)
			}
		}
	}
	s.core.Drain()
	for path, want := range map[string]string{
		"/write":        `{"error":"The server is about to stop"}`,
		"/api/v2/write": `{"code":"unavailable","message":"The server is about to stop"}`,
	} {
		if w := s.post(path, line); w.Code != 503 || w.Body.String() != want+"\n" || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d %s %v, want %s", path, w.Code, w.Body, w.Header(), want)
		}
	}
}

// Clients present a token in any of the ways of InfluxDB's, or as a bearer token, but in one only. Neither answers nor
// the audit log contain it.
func TestTokens(t *testing.T) {
	files := gatetest.New(t)
	bearer := files.Token(t, "bed-7", "d", token.Token{Rights: token.Write})
	reader := files.Token(t, "ward", "", token.Token{Rights: token.Read})
	slow := files.Token(t, "bed-8", "", token.Token{Rights: token.Write, Limit: token.Limit{PerSecond: 1, Burst: 1}})
	gate := files.Open(t)
	s := serve(t, ingest.Config{Gate: gate}, influx.Options{})
	text := strings.TrimPrefix(bearer, "Bearer ")
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	const line = "v,device=d heart_rate_bpm=72 1795341600"
	var answers strings.Builder
	for _, tt := range []struct {
		name, query string
		auth        []string
		body        string
		status      int
		want        string // the message
	}{
		{"bearer", "", []string{bearer}, line, 204, ""},
		{"Token", "", []string{"Token " + text}, line, 204, ""},
		{"token", "", []string{"token " + text}, line, 204, ""},
		{"Token with a user's name", "", []string{"Token root:" + text}, line, 204, ""},
		{"Basic", "", []string{basic("root", text)}, line, 204, ""},
		{"Basic without a name", "", []string{basic("", text)}, line, 204, ""},
		{"u and p", "u=root&p=" + url.QueryEscape(text), nil, line, 204, ""},
		{"p", "p=" + text, nil, line, 204, ""},
		{"none", "", nil, line, 401, "Credentials are needed"},
		{"u", "u=root", nil, line, 401, "Credentials are needed"},
		{"not base64", "", []string{"Basic !"}, line, 401, "The credentials are not valid"},
		{"no password", "", []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(text))}, line, 401,
			"The credentials are not valid"},
		{"another token", "", []string{"Token my-token"}, line, 401, "The credentials are not valid"},
		{"another scheme", "", []string{"Digest " + text}, line, 401, "The credentials are not valid"},
		{"two ways", "p=" + text, []string{"Token " + text}, line, 401, "The credentials are not valid"},
		{"p twice", "p=" + text + "&p=another", nil, line, 401, "The credentials are not valid"},
		{"two headers", "", []string{"Token " + text, bearer}, line, 401, "The credentials are not valid"},
		{"a reader", "", []string{"Token " + strings.TrimPrefix(reader, "Bearer ")}, line, 403,
			"The right write is needed, and a client certificate must name the token's gateway."},
		{"another device", "", []string{"Token " + text}, "v,device=x heart_rate_bpm=72 1795341600", 400,
			"partial write: line 1: device: the token is not for this device; dropped=1"},
		{"another gateway", "", []string{"Token " + text}, "v,device=d,gateway=g heart_rate_bpm=72 1795341600", 400,
			"partial write: line 1: gateway: not the gateway that the credentials name; dropped=1"},
		{"the whole rate", "", []string{"Token " + strings.TrimPrefix(slow, "Bearer ")},
			"v,device=e heart_rate_bpm=72 1795341600", 204, ""},
	} {
		for _, path := range []string{"/write", "/api/v2/write"} {
			var fields []string
			for _, value := range tt.auth {
				fields = append(fields, "Authorization", value)
			}
			if path != "/write" && tt.name == "the whole rate" {
				continue
			}
			w := s.post(path+"?precision=s&"+tt.query, tt.body, fields...)
			var doc struct{ Error, Code, Message string }
			if w.Code != 204 {
				if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
			}
			if w.Code != tt.status || doc.Error+doc.Message != tt.want ||
				(doc.Error == "") != (w.Code == 204 || path != "/write") ||
				w.Code == 401 && w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("%s: %s: %d %s %v, want %d %s", tt.name, path, w.Code, w.Body, w.Header(), tt.status, tt.want)
			}
			fmt.Fprint(&answers, w.Body, w.Header())
		}
	}
	// Telegraf's output for InfluxDB 1 would drop the lines after 429.
	for path, want := range map[string]int{"/write": 503, "/api/v2/write": 429} {
		w := s.post(path+"?precision=s", "v,device=e heart_rate_bpm=72 1795341601", "Authorization", slow)
		if w.Code != want || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d %s %v, want %d and a Retry-After", path, w.Code, w.Body, w.Header(), want)
		}
	}
	if got := s.stored(t, "d"); len(got) != 1 || got[0] != `1795341600000,"heart_rate_bpm":72,gateway bed-7` {
		t.Errorf("stored %q", got)
	}
	gate.Audit.Close()
	log, err := os.ReadFile(files.Log)
	if err != nil || !strings.Contains(string(log), `"reason":"no-right"`) {
		t.Errorf("the audit log has %s, %v", log, err)
	}
	if strings.Contains(string(log)+answers.String(), text[8:]) {
		t.Error("the token is in an answer or in the audit log")
	}
}

// A batch with readings that may be accepted later is answered so that it is sent again, whatever else is rejected.
func TestRetry(t *testing.T) {
	for _, tt := range []struct {
		outcome  storage.Outcome
		path     string
		status   int
		wantCode string
	}{
		{storage.Withheld, "/write", 503, `{"error":`},
		{storage.Withheld, "/api/v2/write", 429, `{"code":"too many requests",`},
		{storage.Unreadable, "/write", 503, `{"error":`},
		{storage.Unreadable, "/api/v2/write", 503, `{"code":"unavailable",`},
	} {
		files := gatetest.New(t)
		auth := files.Token(t, "g", "", token.Token{Rights: token.Write})
		s := &service{Memory: storetest.NewMemory()}
		s.mount(t, appendFunc(func(group []*storage.Entry) error {
			group[0].Outcome, group[1].Outcome = tt.outcome, storage.Stored
			return nil
		}), ingest.Config{Gate: files.Open(t)}, influx.Options{})
		w := s.post(tt.path+"?precision=s",
			"v,device=d heart_rate_bpm=72 1795341600\nv,device=d heart_rate_bpm=72 1795341601\nx", "Authorization", auth)
		if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.wantCode) ||
			!strings.HasSuffix(w.Body.String(), `dropped=2"}`+"\n") || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d %s %v", tt.path, w.Code, w.Body, w.Header())
		}
	}
}

type appendFunc func(group []*storage.Entry) error

func (f appendFunc) Append(group []*storage.Entry) error { return f(group) }

// 204 is sent only when the store's Append has returned.
func TestAfterSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := &service{Memory: storetest.NewMemory()}, make(chan bool)
		s.mount(t, appendFunc(func(group []*storage.Entry) error {
			<-release
			return s.Append(group)
		}), ingest.Config{}, influx.Options{})
		answered := make(chan int, 1)
		go func() { answered <- s.post("/write?precision=s", "v,device=d heart_rate_bpm=72 1795341600").Code }()
		synctest.Wait()
		select {
		case status := <-answered:
			t.Errorf("answered %d before the append has returned", status)
		default:
		}
		close(release)
		if status := <-answered; status != 204 {
			t.Errorf("answered %d, want 204", status)
		}
		if err := s.core.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Clients ask for the version and the health first.
func TestPingAndHealth(t *testing.T) {
	ready := true
	s := serve(t, ingest.Config{}, influx.Options{Ready: func() bool { return ready }})
	get := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w
	}
	for _, method := range []string{"GET", "HEAD"} {
		if w := get(method, "/ping"); w.Code != 204 || w.Body.Len() > 0 || w.Header().Get("X-Influxdb-Version") != "0.1.0" ||
			w.Header().Get("X-Influxdb-Build") != "Pulsegate" {
			t.Errorf("%s /ping: %d %s %v", method, w.Code, w.Body, w.Header())
		}
	}
	for _, want := range []struct {
		status int
		body   string
	}{
		{200, `{"checks":[],"message":"ready to store readings","name":"pulsegate","status":"pass","version":"0.1.0"}`},
		{503, `{"checks":[],"message":"cannot store readings now","name":"pulsegate","status":"fail","version":"0.1.0"}`},
	} {
		ready = want.status == 200
		if w := get("GET", "/health"); w.Code != want.status || strings.TrimSpace(w.Body.String()) != want.body {
			t.Errorf("/health: %d %s, want %v", w.Code, w.Body, want)
		}
	}
}
