package docs_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
)

// unseen lists the described statuses and problems that this test does not provoke, with
// the reason.
var unseen = map[string]string{
	"500":              "needs a disk that fails",
	"outcome-unknown":  "needs a disk that fails",
	"read-failed":      "needs a disk that fails",
	"store-failed":     "needs a disk that fails",
	"too-many-devices": "needs a store with as many devices as it may have",
	"store-damaged":    "needs a damaged file",
	"unreadable":       "needs a table of PostgreSQL that somebody has locked",
	"303":              "needs a provider, at which the tests of the page sign in",
	"draining":         "the time between the signal and the end of a connection is short",
}

// Every answer of servers with different options is described, and everything that is
// described is answered.
//
// Seen to fail with 503 busy described instead of 406, with a choice of order by another name,
// without the parameter counts, without the header field Pulsegate-Notice, with another name
// for the member count of Summary, and with maxima of the signs that are 1 too low.
func TestDescription(t *testing.T) {
	all := &seen{statuses: map[string]bool{}, problems: map[string]bool{}}
	t.Run("servers", func(t *testing.T) {
		for name, drive := range map[string]func(*testing.T, *seen){
			"open": driveOpen, "tokens": driveTokens, "limits": driveLimits, "pages": drivePages,
		} {
			t.Run(name, func(t *testing.T) { t.Parallel(); drive(t, all) })
		}
	})
	if t.Failed() {
		return
	}
	d := describe(t, serve(t).url, all)
	used := map[string]bool{}
	check := func(path, what string, ok bool) {
		switch {
		case ok && unseen[what] != "":
			t.Errorf("%s: %s was seen: remove it from unseen", path, what)
		case ok:
		// needs a provider, as above
		case path == "/v1/session/callback" && (what == "200" || what == "403" || what == "503"):
		case unseen[what] == "":
			t.Errorf("%s: %s is described, but was never answered", path, what)
		default:
			used[what] = true
		}
	}
	for path, item := range d.doc.Paths.Map() {
		for _, op := range item.Operations() {
			for status, resp := range op.Responses.Map() {
				check(path, status, all.statuses[path+" "+status])
				if media := resp.Value.Content["application/problem+json"]; media != nil {
					for name := range media.Examples {
						check(path, name, all.problems[path+" "+name])
					}
				}
			}
		}
	}
	for what, reason := range unseen {
		if !used[what] {
			t.Errorf("unseen has %q (%s), which is not described", what, reason)
		}
	}
}

// A client sends requests to a server.
type client struct {
	*description
	token string
}

// send sends a request and returns its answer. Fields are names and values of the header.
func (c client) send(method, target, body string, fields ...string) (int, string) {
	c.t.Helper()
	return c.sendContext(c.t.Context(), method, target, body, fields...)
}

// sendLax is send for a request that the server may reject although the document allows it.
func (c client) sendLax(method, target, body string, fields ...string) (int, string) {
	c.t.Helper()
	return c.sendContext(context.WithValue(c.t.Context(), lax{}, true), method, target, body, fields...)
}

func (c client) sendContext(ctx context.Context, method, target, body string, fields ...string) (int, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, c.url+target, strings.NewReader(body))
	try(c.t, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
		if fields[i] == "Host" {
			r.Host = fields[i+1]
		}
	}
	resp, err := c.RoundTrip(r)
	try(c.t, err)
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return resp.StatusCode, ""
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Errorf("%s %s: %v", method, target, err)
	}
	return resp.StatusCode, string(text)
}

// want is send, and fails unless the status is the wanted one.
func (c client) want(status int, method, target, body string, fields ...string) string {
	c.t.Helper()
	got, text := c.send(method, target, body, fields...)
	if got != status {
		c.t.Errorf("%s %s: %d %.300s, want %d", method, target, got, text, status)
	}
	return text
}

// limited sends a request until it exceeds the client's rate: some of that comes back between requests.
func (c client) limited(method, target, body string, fields ...string) {
	c.t.Helper()
	for range 100 {
		if status, _ := c.send(method, target, body, fields...); status == 429 {
			return
		}
	}
	c.t.Errorf("%s %s: never 429", method, target)
}

// raw sends a request that http.Transport would not send, and returns the status.
func (c client) raw(text string) int {
	c.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
	try(c.t, err)
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		c.t.Fatal(err)
	}
	method, rest, _ := strings.Cut(text, " ")
	r, err := http.NewRequestWithContext(context.WithValue(c.t.Context(), lax{}, true), method,
		c.url+strings.Fields(rest)[0], nil)
	try(c.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	try(c.t, err)
	body, err := io.ReadAll(resp.Body)
	try(c.t, err)
	for _, err := range c.compare(r, resp, body) {
		c.t.Errorf("%s\nanswered %s %s: %v", text, resp.Status, body, err)
	}
	return resp.StatusCode
}

// operations calls visit with all operations, HEAD and OPTIONS included, and a path without
// variables.
func (d *description) operations(visit func(method, path string, op *openapi3.Operation)) {
	for path, item := range d.doc.Paths.Map() {
		for method, op := range item.Operations() {
			visit(method, fill(path), op)
		}
		if item.Get != nil {
			visit(http.MethodHead, fill(path), item.Get)
		}
		visit(http.MethodOptions, fill(path), &openapi3.Operation{Responses: openapi3.NewResponsesWithCapacity(0)})
	}
}

// fill replaces the variables of a path.
func fill(path string) string {
	return strings.NewReplacer("{device}", "ppg-1", "{version}", "1", "{file}", "none.js", "{name}", "m").Replace(path)
}

const reading = `{"device":"ppg-1","time":"2026-01-21T10:00:00.123+02:00","spo2_pct":97.5,"systolic_mmhg":121,` +
	`"diastolic_mmhg":79,"heart_rate_bpm":%d}`

// point returns an SpO2 as a data point of Open mHealth, measured some ms after 2026-01-22.
func point(device string, ms, value int) string {
	at := time.UnixMilli(1_769_040_000_000 + int64(ms)).UTC().Format("2006-01-02T15:04:05.000Z")
	return fmt.Sprintf(
		`{"header":{"uuid":"2a5b0b21-1c4f-4f4f-9b6f-0f6f6d9d1b11","schema_id":{"namespace":"omh",`+
			`"name":"oxygen-saturation","version":"2.0"},"source_creation_date_time":%q,`+
			`"external_datasheets":[{"datasheet_reference":"urn:pulsegate:device:%s"}]},`+
			`"body":{"oxygen_saturation":{"value":%d,"unit":"%%"},"effective_time_frame":{"date_time":%q}}}`, at,
		device, value, at)
}

var influxPaths = []string{"/write", "/api/v2/write"}

// beat returns a heart rate as a line of InfluxDB's protocol, measured some ms after 2026-01-22.
func beat(ms int) string {
	return fmt.Sprintf("v,device=ppg-1 heart_rate_bpm=72i %d", 1_769_040_000_000+ms)
}

// mapped is the flag of a mapping that has the name m, and band one of its payloads, measured some ms after 2026-01-23.
const mapped = "--mapping=testdata/mapping.toml"

func band(device string, ms, bpm int) string {
	return fmt.Sprintf(`{"id":%q,"at":%d,"bpm":%d}`, device, 1_769_126_400_000+ms, bpm)
}

// driveOpen drives a server without tokens.
func driveOpen(t *testing.T, seen *seen) {
	c := client{description: describe(t, serve(t, mapped).url, seen)}
	first, second := fmt.Sprintf(reading, 140), fmt.Sprintf(reading, 141)
	c.want(200, "POST", "/v1/readings", first)
	c.want(200, "POST", "/v1/readings", first)
	c.want(409, "POST", "/v1/readings", second)
	c.want(200, "POST", "/v1/readings", "["+first+"]")
	c.want(207, "POST", "/v1/readings", "["+first+","+second+`,{"device":"x"}]`)
	c.want(200, "POST", "/v1/readings", first+"\n"+first+"\n", "Content-Type", "application/x-ndjson")
	c.want(400, "POST", "/v1/readings", `{"device":`)
	c.want(422, "POST", "/v1/readings", `{"device":"ppg-1","time":1}`)
	c.want(413, "POST", "/v1/readings", strings.Repeat(" ", 1<<20)+`{"device":"ppg-1"}`)
	c.want(415, "POST", "/v1/readings", first, "Content-Encoding", "br")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, first)
	z.Close()
	if status, _ := c.sendLax("POST", "/v1/readings", zipped.String(), "Content-Encoding", "gzip"); status != 200 {
		t.Errorf("gzip: %d", status)
	}
	if status := c.raw("POST /v1/readings HTTP/1.1\r\nHost: localhost\r\n\r\n"); status != 411 {
		t.Errorf("without a length: %d", status)
	}
	c.want(200, "POST", "/v1/omh", point("ppg-1", 1, 90))
	c.want(409, "POST", "/v1/omh", point("ppg-1", 1, 91))
	c.want(207, "POST", "/v1/omh", "["+point("ppg-1", 1, 90)+","+point("ppg-1", 2, 0)+"]")
	c.want(400, "POST", "/v1/omh", `{"header":`)
	c.want(422, "POST", "/v1/omh", `{"header":{}}`)
	c.want(413, "POST", "/v1/omh", strings.Repeat(" ", 1<<20)+point("ppg-1", 1, 90))
	c.want(415, "POST", "/v1/omh", point("ppg-1", 1, 90), "Content-Encoding", "br")
	c.want(200, "POST", "/v1/mapped/m", band("ppg-1", 1, 90))
	c.want(409, "POST", "/v1/mapped/m", band("ppg-1", 1, 91))
	c.want(207, "POST", "/v1/mapped/m", band("ppg-1", 1, 90)+"\n"+band("ppg-1", 2, 0))
	c.want(400, "POST", "/v1/mapped/m", `{"id":`)
	c.want(404, "POST", "/v1/mapped/none", `{}`)
	c.want(422, "POST", "/v1/mapped/m", `true`)
	c.want(413, "POST", "/v1/mapped/m", strings.Repeat(" ", 1<<20)+band("ppg-1", 1, 90))
	c.want(415, "POST", "/v1/mapped/m", band("ppg-1", 1, 90), "Content-Encoding", "br")
	if status := c.raw("POST /v1/mapped/m HTTP/1.1\r\nHost: localhost\r\n\r\n"); status != 411 {
		t.Errorf("payloads without a length: %d", status)
	}
	for _, path := range influxPaths {
		c.want(204, "POST", path+"?precision=ms", beat(1), "Content-Type", "text/plain")
		c.want(400, "POST", path, "v\n", "Content-Type", "text/plain")
		c.want(413, "POST", path, strings.Repeat(" ", 1<<20)+beat(1), "Content-Type", "text/plain")
		c.want(415, "POST", path, beat(1), "Content-Type", "text/plain", "Content-Encoding", "br")
		if status := c.raw("POST " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"); status != 411 {
			t.Errorf("without a length: %d", status)
		}
	}
	c.want(200, "GET", "/v1/changes?limit=2", "")
	c.want(200, "GET", "/v1/changes?format=ndjson&prefix=ppg-", "")
	c.want(200, "POST", "/v1/changes", `{"subject":"P-17"}`)
	if status := c.raw("GET /v1/changes?format=ndjson HTTP/1.0\r\nHost: localhost\r\n\r\n"); status != 426 {
		t.Errorf("changes over HTTP/1.0: %d", status)
	}
	var page struct {
		Next string `json:"next"`
	}
	try(t, json.Unmarshal([]byte(c.want(200, "GET", "/v1/changes", "")), &page))
	other := client{description: describe(t, serve(t, "--changes-keep=0s").url, seen)}
	other.want(501, "GET", "/v1/changes", "")
	other = client{description: describe(t, serve(t).url, seen)}
	other.want(410, "GET", "/v1/changes?after="+page.Next, "")
	driveAlerts(t, seen)
	c.want(400, "POST", "/v1/changes", `{"subject":1}`)
	const ofSubject = `{"subject":"P-17"}`
	for _, rest := range []string{"readings?limit=1", "aggregates?step=1h", "latest", "alerts?from=-1h"} {
		path := "/v1/subjects/" + rest
		c.want(200, "POST", path, ofSubject)
		c.want(400, "POST", path, `{"subject":1}`)
		name, _, _ := strings.Cut(rest, "?")
		if status, text := c.sendLax("POST", "/v1/subjects/"+name+"?nonsense=1", ofSubject); status != 400 {
			t.Errorf("an unknown parameter: %d %s", status, text)
		}
		if name == "latest" || name == "alerts" {
			continue
		}
		c.want(200, "POST", path+"&format=ndjson", ofSubject)
		c.want(406, "POST", path, ofSubject, "Accept", "image/png")
		const header = "Host: localhost\r\nAccept: text/csv\r\nContent-Length: 18\r\n\r\n"
		if status := c.raw("POST " + path + " HTTP/1.0\r\n" + header + ofSubject); status != 426 {
			t.Errorf("HTTP/1.0: %d", status)
		}
	}
	c.want(204, "GET", "/ping", "")
	c.want(200, "GET", "/v1/devices/ppg-1/readings?format=omh", "")
	if status := c.raw("POST /v1/omh HTTP/1.1\r\nHost: localhost\r\n\r\n"); status != 411 {
		t.Errorf("without a length: %d", status)
	}
	for _, target := range []string{"/index.html", "/v1", "/v1/", "/v1/devices/", "/v1/devices/ppg-1/", "//livez",
		"/openapi.yaml", "/metrics", "/v1/devices/a/b"} {
		c.want(404, "GET", target, "")
		c.want(404, "HEAD", target, "")
	}
	c.operations(func(method, path string, op *openapi3.Operation) {
		c.want(403, method, path, "", "Host", "evil.example")
		if method == "GET" && op.Responses.Value("400") != nil {
			c.compareParameters(path, op)
		}
	})
	for path := range c.doc.Paths.Map() {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "QUERY"} {
			if item := c.doc.Paths.Value(path); item.GetOperation(method) == nil && (method != "HEAD" || item.Get == nil) {
				c.want(405, method, fill(path), "")
			}
		}
	}
	for _, rest := range []string{"", "/readings", "/aggregates?step=1h"} {
		c.want(404, "GET", "/v1/devices/unknown"+rest, "")
		c.want(404, "HEAD", "/v1/devices/unknown"+rest, "")
		c.want(200, "GET", "/v1/devices/ppg-1"+rest, "")
		if rest != "" {
			c.want(406, "GET", "/v1/devices/ppg-1"+rest, "", "Accept", "image/png")
			if status := c.raw("GET /v1/devices/ppg-1" + rest +
				" HTTP/1.0\r\nHost: localhost\r\nAccept: text/csv\r\n\r\n"); status != 426 {
				t.Errorf("HTTP/1.0: %d", status)
			}
		}
	}
	c.want(200, "GET", "/openapi.json", "", "Accept-Encoding", "gzip")
	resp, err := http.Head(c.url + "/openapi.json")
	try(t, err)
	resp.Body.Close()
	c.want(304, "GET", "/openapi.json", "", "If-None-Match", resp.Header.Get("ETag"))
	for _, path := range []string{"/livez", "/healthz", "/readyz", "/health", "/v1/limits", "/v1/rejections", "/v1/alerts",
		"/v1/system", "/v1/session"} {
		c.want(200, "GET", path, "")
	}
	c.want(204, "DELETE", "/v1/session", "")
	c.want(404, "POST", "/v1/session", `{"token":"x"}`)
	c.files()
	c.follow()
	c.fillReads()
}

// driveAlerts drives a server with rules, and a device whose patient was changed during an alert.
func driveAlerts(t *testing.T, seen *seen) {
	rules := filepath.Join(t.TempDir(), "alerts.toml")
	try(t, os.WriteFile(rules,
		[]byte("[[alert]]\nname = \"Low\"\nsign = \"spo2_pct\"\nbelow = 90\nlabels = { severity = \"page\" }\n"), 0o600))
	s := serve(t, "--insecure", "--alerts="+rules)
	c := client{description: describe(t, s.url, seen)}
	now := time.Now()
	ago := func(seconds int) string {
		return now.Add(time.Duration(-seconds) * time.Second).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	for _, seconds := range []int{4, 2} {
		c.want(200, "POST", "/v1/readings", fmt.Sprintf(`{"device":"ppg-1","time":%q,"spo2_pct":80}`, ago(seconds)))
	}
	// The first one has ended before the alert is reported.
	first := fmt.Sprintf(`{"device":"ppg-1","subject":"P-1","from":%q,"to":%q}`, ago(5), ago(3))
	second := fmt.Sprintf(`{"device":"ppg-1","subject":"P-2","from":%q}`, ago(3))
	for _, body := range []string{first, second} {
		resp, err := http.Post(s.admin+"/admin/subject/assign", "application/json", strings.NewReader(body))
		try(t, err)
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			t.Fatal(resp.Status)
		}
	}
	text := ""
	for !strings.Contains(text, `"total":2`) { // what has arrived in this millisecond is not known
		text = c.want(200, "GET", "/v1/alerts?device=ppg-1&from=-1h&to=now&tz=Europe/Berlin&limit=10", "")
		if t.Failed() || time.Since(now) > time.Minute {
			t.Fatal(text)
		}
	}
	for _, part := range []string{`"subject":"P-1","since"`, `"subject":"P-2","since"`, `"fired"`, `"ended"`,
		`"severity"`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}
	text = c.want(200, "POST", "/v1/subjects/alerts?from=-1h&to=now&tz=Europe/Berlin&limit=10", `{"subject":"P-2"}`)
	if !strings.Contains(text, `"subject":"P-2","since"`) || strings.Contains(text, "P-1") {
		t.Errorf("the alerts of one subject are %s", text)
	}
}

// files fetches the page and all its files.
func (c client) files() {
	fetch := func(target string) string {
		text := c.want(200, "GET", target, "")
		c.want(200, "GET", target, "", "Accept-Encoding", "gzip")
		c.want(304, "GET", target, "", "If-None-Match", "*")
		return text
	}
	index := fetch("/")
	for _, name := range regexp.MustCompile(`assets/[^"]+`).FindAllString(index, -1) {
		fetch("/" + name)
	}
	c.want(404, "GET", "/assets/1/none.js", "")
}

// compareParameters compares the parameters and their choices with what the server says of
// them when it rejects others.
func (c client) compareParameters(path string, op *openapi3.Operation) {
	reason := func(query string) string {
		var p problem
		if err := json.Unmarshal([]byte(c.want(400, "GET", path+"?"+query, "")), &p); err != nil {
			c.t.Error(err)
		}
		return p.Reason
	}
	var names []string
	for _, p := range op.Parameters {
		if p.Value.In != "query" {
			continue
		}
		names = append(names, p.Value.Name)
		if p.Value.Schema.Value.Enum == nil {
			continue
		}
		var choices []string
		for _, v := range p.Value.Schema.Value.Enum {
			choices = append(choices, v.(string))
		}
		if got, want := reason("step=1h&"+p.Value.Name+"=none"),
			"not one of "+strings.Join(choices, ", "); op.Parameters.GetByInAndName("query", "step") != nil && got != want {
			c.t.Errorf("%s, parameter %s: %q, want %q", path, p.Value.Name, got, want)
		} else if got := reason(p.Value.Name + "=none"); op.Parameters.GetByInAndName("query", "step") == nil && got != want {
			c.t.Errorf("%s, parameter %s: %q, want %q", path, p.Value.Name, got, want)
		}
	}
	got := strings.Split(strings.TrimPrefix(reason("nonsense=1"), "unknown parameter; known here: "), ", ")
	if got[0] == "" {
		got = nil
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		c.t.Errorf("%s has the parameters %q, described are %q", path, got, names)
	}
}

// follow follows the stream of live readings until it has two events.
func (c client) follow() {
	r, err := http.NewRequestWithContext(c.t.Context(), "GET", c.url+"/v1/live?prefix=live-", nil)
	try(c.t, err)
	resp, err := c.RoundTrip(r)
	// until the server has seen that an earlier stream has ended
	for err == nil && resp.StatusCode == http.StatusServiceUnavailable {
		resp.Body.Close()
		time.Sleep(10 * time.Millisecond)
		resp, err = c.RoundTrip(r)
	}
	try(c.t, err)
	defer resp.Body.Close()
	for more := http.StatusOK; more == http.StatusOK; { // an address may have half of 2,048 streams
		r, err := http.NewRequestWithContext(c.t.Context(), "GET", c.url+"/v1/live", nil)
		try(c.t, err)
		resp, err := http.DefaultClient.Do(r)
		try(c.t, err)
		defer resp.Body.Close()
		more = resp.StatusCode
	}
	c.want(503, "GET", "/v1/live", "")
	lines := bufio.NewScanner(resp.Body)
	for i := range 2 {
		c.want(200, "POST", "/v1/readings",
			fmt.Sprintf(`{"device":"live-%d","time":"2026-01-01T00:00:00Z","spo2_pct":80}`, i))
		for lines.Scan() && !strings.HasPrefix(lines.Text(), `data: {"device"`) {
		}
	}
	if lines.Err() != nil || !strings.Contains(lines.Text(), `"device":"live-1"`) {
		c.t.Errorf("the stream has %q, %v", lines.Text(), lines.Err())
	}
}

// fillReads provokes 503 of the queries: clients that do not read keep all places.
func (c client) fillReads() {
	var batch strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&batch, `{"device":"long","time":%d,"spo2_pct":97,"heart_rate_bpm":60}`+"\n", 1_760_000_000_000+i)
	}
	c.want(200, "POST", "/v1/readings", batch.String(), "Content-Type", "application/x-ndjson")
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		})
	}}
	for status := "200"; status == "200"; {
		conn, err := dialer.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
		try(c.t, err)
		defer conn.Close()
		fmt.Fprint(conn, "GET /v1/devices/long/readings?format=ndjson HTTP/1.1\r\nHost: localhost\r\n\r\n")
		answer := make([]byte, len("HTTP/1.1 200"))
		_, err = io.ReadFull(conn, answer)
		try(c.t, err)
		status = strings.TrimPrefix(string(answer), "HTTP/1.1 ")
	}
	done := make(chan bool)
	targets := []string{"/v1/subjects/readings", "/v1/subjects/aggregates?step=1h", "/v1/subjects/latest",
		"/v1/subjects/alerts?from=-1h", "/v1/limits", "/v1/rejections", "/v1/alerts", "/v1/alerts?device=long&from=-1d",
		"/v1/devices", "/v1/devices/long",
		"/v1/devices/long/readings", "/v1/devices/long/aggregates?step=1h"}
	for _, target := range targets {
		go func() {
			defer func() { done <- true }()
			method, body := "GET", ""
			if strings.HasPrefix(target, "/v1/subjects") {
				method, body = "POST", `{"subject":"P-17"}`
			}
			if status, text := c.send(method, target, body); status != 503 {
				c.t.Errorf("%s: %d %.100s, want 503", target, status, text)
			}
		}()
	}
	for range targets {
		<-done
	}
}

// driveTokens drives a server with tokens.
func driveTokens(t *testing.T, seen *seen) {
	k := tokens{t.TempDir()}
	writer, other := k.create(t, "bed-7"), k.create(t, "bed-8")
	reader := k.create(t, "ward", "--rights=read", "--devices=ppg-")
	slow := k.create(t, "slow", "--rate=1", "--burst=1")
	rules := filepath.Join(t.TempDir(), "access.toml")
	try(t, os.WriteFile(rules, []byte("[[rule]]\nclaim = \"groups\"\nvalue = \"staff\"\nrights = [\"read\"]\n"), 0o600))
	c := client{description: describe(t, serve(t, append(k.flags(), "--max-contradictions=1", mapped,
		"--oidc-issuer=http://127.0.0.1:1", "--oidc-client-id=pulsegate", "--access-rules="+rules,
		"--public-url=http://127.0.0.1:8080/")...).url, seen)}
	const jwt = "eyJhbGciOiJFUzI1NiJ9.e30.AAAA" // nobody knows the key
	as := func(token string) client { return client{c.description, token} }
	as(writer).want(200, "POST", "/v1/readings", fmt.Sprintf(reading, 60))
	as(reader).want(403, "POST", "/v1/readings", fmt.Sprintf(reading, 60))
	as("x").want(401, "POST", "/v1/readings", fmt.Sprintf(reading, 60))
	as(writer).want(403, "POST", "/v1/readings", fmt.Sprintf(reading, 60), "Sec-Fetch-Site", "cross-site")
	as(slow).want(200, "POST", "/v1/readings", `{"device":"a","time":1790000000000,"spo2_pct":90}`)
	as(slow).limited("POST", "/v1/readings", `{"device":"a","time":1790000000001,"spo2_pct":90}`)
	as(other).want(409, "POST", "/v1/readings", fmt.Sprintf(reading, 61))
	as(other).want(429, "POST", "/v1/readings", fmt.Sprintf(reading, 61))
	as(writer).want(200, "POST", "/v1/omh", point("ppg-1", 1, 90))
	as(reader).want(403, "POST", "/v1/omh", point("ppg-1", 1, 90))
	as(writer).want(403, "POST", "/v1/omh", point("ppg-1", 1, 90), "Sec-Fetch-Site", "cross-site")
	as(slow).limited("POST", "/v1/omh", point("a", 1, 90))
	as(other).want(429, "POST", "/v1/omh", point("ppg-1", 1, 91))
	as(writer).want(200, "POST", "/v1/mapped/m", band("ppg-1", 1, 90))
	as(reader).want(403, "POST", "/v1/mapped/m", band("ppg-1", 1, 90))
	as(writer).want(403, "POST", "/v1/mapped/m", band("ppg-1", 1, 90), "Sec-Fetch-Site", "cross-site")
	as(slow).limited("POST", "/v1/mapped/m", band("a", 1, 90))
	as(other).want(429, "POST", "/v1/mapped/m", band("ppg-1", 1, 91))
	as(slow).limited("POST", "/api/v2/write?precision=ms", beat(2), "Content-Type", "text/plain")
	c.operations(func(method, path string, op *openapi3.Operation) {
		if op.Responses.Value("401") == nil || strings.HasPrefix(path, "/v1/session") {
			return
		}
		c.want(401, method, path, "")
		as("x").want(401, method, path, "")
		as(jwt).want(503, method, path, "")
		if method == "POST" {
			return
		}
		as(writer).want(403, method, path, "")
		if strings.Contains(path, "ppg-1") {
			as(reader).want(403, method, strings.ReplaceAll(path, "ppg-1", "other"), "")
			as(reader).want(200, method, path+map[bool]string{true: "?step=1h"}[strings.HasSuffix(path, "aggregates")], "")
		}
	})
	for _, path := range []string{"readings", "aggregates?step=1h", "latest", "alerts?from=-1h"} {
		as(reader).want(403, "POST", "/v1/subjects/"+path, `{"subject":"P-17"}`)
	}
	as(reader).want(403, "GET", "/v1/live?device=other", "")
	c.want(503, "GET", "/v1/session/begin", "")
	c.want(401, "GET", "/v1/session/callback?code=c&state=s", "")
	c.want(204, "POST", "/v1/session", fmt.Sprintf(`{"token":%q}`, reader))
	c.session(reader)
	c.want(400, "POST", "/v1/session", `{`)
	c.want(401, "POST", "/v1/session", `{"token":"x"}`)
	c.want(403, "POST", "/v1/session", fmt.Sprintf(`{"token":%q}`, writer))
	as(reader).want(200, "GET", "/v1/live?prefix=ppg-", "", "Last-Event-ID", "1")
}

// session reads with the cookie of a session, whose name the document has.
func (c client) session(token string) {
	resp, err := http.Post(c.url+"/v1/session", "application/json", strings.NewReader(fmt.Sprintf(`{"token":%q}`, token)))
	try(c.t, err)
	resp.Body.Close()
	scheme := c.doc.Components.SecuritySchemes["session"].Value
	cookies := resp.Cookies()
	if len(cookies) != 2 || cookies[1].MaxAge >= 0 || cookies[0].Name != scheme.Name {
		c.t.Fatalf("the cookies are %v, described is %s", cookies, scheme.Name)
	}
	c.want(200, "GET", "/v1/devices", "", "Cookie", cookies[0].Name+"="+cookies[0].Value)
}

// driveLimits drives servers that have reached a limit.
func driveLimits(t *testing.T, seen *seen) {
	full := client{description: describe(t, serve(t, "--min-free-bytes=1000000000000000", "--read-timeout=2s", mapped).url,
		seen)}
	full.want(503, "POST", "/v1/readings", fmt.Sprintf(reading, 60))
	full.want(503, "POST", "/v1/omh", point("ppg-1", 1, 90))
	full.want(503, "POST", "/v1/mapped/m", band("ppg-1", 1, 90))
	if status := full.raw("POST /v1/mapped/m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"); status != 408 {
		t.Errorf("payloads that do not arrive: %d", status)
	}
	full.want(503, "GET", "/readyz", "")
	full.want(503, "GET", "/health", "")
	for _, path := range influxPaths {
		full.want(503, "POST", path+"?precision=ms", beat(1), "Content-Type", "text/plain")
	}
	if status := full.raw("POST /v1/omh HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"); status != 408 {
		t.Errorf("data points that do not arrive: %d", status)
	}
	if status := full.raw("POST /v1/readings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"); status != 408 {
		t.Errorf("a body that does not arrive: %d", status)
	}
	s := serve(t, "--max-conns=1", mapped)
	crowded := client{description: describe(t, s.url, seen)}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() // with which describe has fetched the document
	for status := ""; status != "HTTP/1.1 200"; {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		try(t, err)
		defer conn.Close() // the last one keeps the only place
		fmt.Fprint(conn, "GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
		text := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(conn, text); err != nil {
			t.Fatal(err)
		}
		status = string(text)
	}
	crowded.want(503, "POST", "/v1/readings", fmt.Sprintf(reading, 60))
	crowded.want(503, "POST", "/v1/omh", point("ppg-1", 1, 90))
	crowded.want(503, "POST", "/v1/mapped/m", band("ppg-1", 1, 90))
	crowded.want(503, "GET", "/v1/live", "")
	crowded.want(503, "GET", "/v1/changes", "")
}

// drivePages drives a server from pages of other origins.
func drivePages(t *testing.T, seen *seen) {
	const origin = "https://ward.example"
	c := client{description: describe(t, serve(t, "--cors-origin="+origin).url, seen)}
	c.want(200, "POST", "/v1/readings", fmt.Sprintf(reading, 60))
	c.want(403, "POST", "/v1/readings", fmt.Sprintf(reading, 60), "Origin", origin, "Sec-Fetch-Site", "cross-site")
	c.operations(func(method, path string, _ *openapi3.Operation) {
		if method == "POST" {
			return
		}
		c.want(403, method, path, "", "Origin", "https://evil.example")
		if status, _ := c.sendLax(method, path, "", "Origin", origin); status >= 500 {
			t.Errorf("%s %s: %d", method, path, status)
		}
		c.send(method, path+"?step=1h", "", "Origin", origin)
	})
}
