package ingest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// now is the server's time in these tests.
var now = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// An appender is a store whose Append can be replaced by a test.
type appender struct {
	ingest.Appender
	before func(group []*storage.Entry) error
}

func (a *appender) Append(group []*storage.Entry) error {
	if a.before != nil {
		if err := a.before(group); err != nil {
			return err
		}
	}
	return a.Appender.Append(group)
}

const good = `{"device":"ppg-000123","time":"2026-11-21T10:00:00.123Z","systolic_mmhg":121,"diastolic_mmhg":79,` +
	`"spo2_pct":97.5,"heart_rate_bpm":72,"resting_heart_rate_bpm":58}`

// with returns a single reading with member as its last member.
func with(member string) string { return `{"device":"d","time":1,` + member + `}` }

func TestAccepted(t *testing.T) { eachFront(t, testAccepted) }

func testAccepted(t *testing.T, serve serveFunc) {
	_, srv := serve(t, ingest.Config{}, nil)
	for _, tt := range []struct{ name, body, want string }{
		{"new", good, `{"status":"stored"}`},
		{"again", good, `{"status":"duplicate"}`},
		{"again by another gateway", strings.Replace(good, `{`, `{"gateway":"g2",`, 1), `{"status":"duplicate"}`},
		{"first part", with(`"heart_rate_bpm":60`), `{"status":"stored"}`},
		{"completing part", with(`"spo2_pct":97`), `{"status":"stored"}`},
		{"both parts again", with(`"spo2_pct":97,"heart_rate_bpm":60`), `{"status":"duplicate"}`},
		{"null", with(`"spo2_pct":97,"heart_rate_bpm":null,"gateway":null`), `{"status":"duplicate"}`},
		{"null in a batch", "\ufeff[" + with(`"spo2_pct":97,"heart_rate_bpm":null`) + `]`, `{"stored":0,"duplicate":1}`},
		{"empty array", `[]`, `{"stored":0,"duplicate":0}`},
		{"array of one", `[` + with(`"heart_rate_bpm":60`) + `]`, `{"stored":0,"duplicate":1}`},
		{"NDJSON", with(`"heart_rate_bpm":60`) + "\n" + strings.Replace(good, "0.123", "1", 1) + "\r\n",
			`{"stored":1,"duplicate":1}`},
		{"one line of NDJSON", with(`"heart_rate_bpm":60`) + "\n", `{"status":"duplicate"}`},
	} {
		resp, text := post(t, srv, tt.body, "")
		if resp.StatusCode != 200 || text != tt.want {
			t.Errorf("%s: %d %s, want 200 %s", tt.name, resp.StatusCode, text, tt.want)
		}
		if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("%s: content type %q", tt.name, ct)
		}
	}
}

// TestRefused checks every row of the contract that rejects a request, with its type, field and
// reason.
func TestRefused(t *testing.T) { eachFront(t, testRefused) }

func testRefused(t *testing.T, serve serveFunc) {
	_, srv := serve(t, ingest.Config{MaxBatchBytes: 1 << 20}, nil)
	post(t, srv, good, "")
	for _, tt := range []struct {
		name, body, encoding string
		status               int
		typ, field, reason   string // reason: a part of the reason or the detail
	}{
		{"empty", "", "", 400, "malformed-body", "", "empty body"},
		{"not JSON", "hello", "", 400, "malformed-body", "", "byte 0"},
		{"cut off", good[:40], "", 400, "malformed-body", "", "cut off"},
		{"trailing data", good + " x", "", 400, "malformed-body", "", "data after"},
		{"two objects on one line", good + good, "", 400, "malformed-body", "", "data after"},
		{"duplicate key", with(`"spo2_pct":97,"spo2_pct":98`), "", 400, "malformed-body", "", "twice"},
		{"invalid UTF-8", with("\"x\":\"\xff\""), "", 400, "malformed-body", "", "UTF-8"},
		{"NaN", with(`"spo2_pct":NaN`), "", 400, "malformed-body", "", "not JSON"},
		{"one bad line", good + "\n{", "", 400, "malformed-body", "", "cut off"},
		{"nested too deeply", strings.Repeat("[", 20_000), "", 400, "malformed-body", "", "deep"},
		{"not gzip", good, "gzip", 400, "malformed-body", "", "compressed"},
		{"not zstd", good, "zstd", 400, "malformed-body", "", "compressed"},

		{"contradiction", strings.Replace(good, "97.5", "97.6", 1), "", 409, "conflict", "spo2_pct", "contradicts"},

		{"large single", with(`"gateway":"` + strings.Repeat("x", 17<<10) + `"`), "", 413, "too-large", "", "16384"},
		{"large batch", `[` + strings.Repeat(good+",", 7000) + good + `]`, "", 413, "too-large", "", "1048576"},
		{"unknown encoding", good, "br", 415, "unknown-encoding", "", "gzip"},
		{"two encodings", good, "gzip, zstd", 415, "unknown-encoding", "", "gzip"},

		{"no object", `42`, "", 422, "invalid-reading", "", "object"},
		{"no device", `{"time":1,"spo2_pct":97}`, "", 422, "invalid-reading", "device", "missing"},
		{"no time", `{"device":"d","spo2_pct":97}`, "", 422, "invalid-reading", "time", "missing"},
		{"no sign", `{"device":"d","time":1}`, "", 422, "invalid-reading", "", "no vital sign"},
		{"bad device", `{"device":"d d","time":1,"spo2_pct":97}`, "", 422, "invalid-reading", "device", "64 bytes"},
		{"unknown field", with(`"sp02_pct":97`), "", 422, "invalid-reading", "sp02_pct", "unknown"},
		{"wrong type", with(`"spo2_pct":"97"`), "", 422, "invalid-reading", "spo2_pct", "number"},
		{"only null", with(`"spo2_pct":null`), "", 422, "invalid-reading", "", "no vital sign"},
		{"a fraction", with(`"spo2_pct":1`), "", 422, "invalid-reading", "spo2_pct", "a fraction? send per cent"},
		{"out of range", with(`"spo2_pct":100.01`), "", 422, "invalid-reading", "spo2_pct", "2 to 100 %"},
		{"SFLOAT special", with(`"heart_rate_bpm":2047`), "", 422, "invalid-reading", "heart_rate_bpm", "range"},
		{"no signal", with(`"heart_rate_bpm":0`), "", 422, "invalid-reading", "heart_rate_bpm", "no signal"},
		{"too many decimals", with(`"spo2_pct":97.555`), "", 422, "invalid-reading", "spo2_pct", "decimals"},
		{"half a pair", with(`"systolic_mmhg":120`), "", 422, "invalid-reading", "diastolic_mmhg", "together"},
		{"pressures swapped", with(`"systolic_mmhg":80,"diastolic_mmhg":120`), "", 422, "invalid-reading",
			"systolic_mmhg", "above"},
		{"no zone", `{"device":"d","time":"2026-11-21T10:00:00","spo2_pct":97}`, "", 422, "invalid-reading", "time", "zone"},
		{"before 1970", `{"device":"d","time":-1,"spo2_pct":97}`, "", 422, "invalid-reading", "time", "1970"},
		{"future", `{"device":"d","time":"2026-11-21T10:05:00.001Z","spo2_pct":97}`, "", 422, "invalid-reading",
			"time", "ahead"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, text := post(t, srv, tt.body, tt.encoding)
			if resp.StatusCode != tt.status {
				t.Fatalf("status %d, want %d: %s", resp.StatusCode, tt.status, text)
			}
			var p struct {
				Type, Title, Detail, Field, Reason string
				Status                             int
			}
			if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
				t.Errorf("content type %q", ct)
			}
			if err := json.Unmarshal([]byte(text), &p); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if !strings.HasSuffix(p.Type, "#"+tt.typ) || p.Status != tt.status || p.Title == "" {
				t.Errorf("type %q, status %d, title %q; want type %q, status %d and a title", p.Type, p.Status, p.Title,
					tt.typ, tt.status)
			}
			if p.Field != tt.field || !strings.Contains(p.Reason+p.Detail, tt.reason) {
				t.Errorf("field %q, reason %q, detail %q; want field %q, and %q in a text", p.Field, p.Reason, p.Detail,
					tt.field, tt.reason)
			}
			if retry := resp.Header.Get("Retry-After"); retry != "" {
				t.Errorf("Retry-After %q with a %d", retry, tt.status)
			}
		})
	}
	// None of these was stored.
	if _, text := post(t, srv, `[`+with(`"spo2_pct":96`)+`]`, ""); text != `{"stored":1,"duplicate":0}` {
		t.Errorf("after the refusals a first reading is answered %s", text)
	}
}

// raw sends a raw request, for requests that a client library does not send. The server may
// answer and close the connection before it has read all.
func raw(t *testing.T, srv *server, request string) (*http.Response, string) {
	t.Helper()
	conn := dial(t, srv)
	defer conn.Close()
	_, _ = io.WriteString(conn, request)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	try(t, err)
	text, err := io.ReadAll(resp.Body)
	try(t, err)
	return resp, strings.TrimSuffix(string(text), "\n")
}

func TestRawRequests(t *testing.T) { eachFront(t, testRawRequests) }

func testRawRequests(t *testing.T, serve serveFunc) {
	_, srv := serve(t, ingest.Config{}, nil)
	const head = "POST /v1/readings HTTP/1.1\r\nHost: x\r\n"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(good), good)
	for _, tt := range []struct {
		name, request string
		status        int
		want          string
	}{
		{"no length", head + "\r\n", 411, "length-required"},
		{"HTTP/1.0 without length", "POST /v1/readings HTTP/1.0\r\n\r\n" + good, 411, "length-required"},
		{"length of zero", head + "Content-Length: 0\r\n\r\n", 400, "empty body"},
		{"chunked", head + "Transfer-Encoding: chunked\r\n\r\n" + chunked, 200, "stored"},
		{"odd Content-Type", head + "Content-Type: image/png\r\nContent-Length: " + fmt.Sprint(len(good)) + "\r\n\r\n" + good,
			200, "duplicate"},
		{"announced too large", head + "Content-Length: 40000000\r\n\r\n", 413, "too-large"},
		{"announced absurdly large", head + "Content-Length: 9000000000000000000\r\n\r\n", 413, "too-large"},
		{"bad chunk", head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "malformed-body"},
	} {
		resp, text := raw(t, srv, tt.request)
		if resp.StatusCode != tt.status || !strings.Contains(text, tt.want) {
			t.Errorf("%s: %d %s, want %d with %q", tt.name, resp.StatusCode, text, tt.status, tt.want)
		}
	}
}

func compress(t *testing.T, encoding, text string) string {
	t.Helper()
	compressed, err := compressed(encoding, text)
	try(t, err)
	return compressed
}

func compressed(encoding, text string) (string, error) {
	var buf bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&buf)
	if encoding == "zstd" {
		z, err := zstd.NewWriter(&buf, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<10))
		if err != nil {
			return "", err
		}
		w = z
	}
	_, err := io.WriteString(w, text)
	err = errors.Join(err, w.Close())
	return buf.String(), err
}

// bombs are small bodies that grow to 10 MiB.
var bombs = map[string]func() (string, error){"gzip": bomb("gzip"), "zstd": bomb("zstd")}

func bomb(encoding string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		return compressed(encoding, strings.Repeat(" ", 10<<20))
	})
}

func TestCompressed(t *testing.T) { eachFront(t, testCompressed) }

func testCompressed(t *testing.T, serve serveFunc) {
	_, srv := serve(t, ingest.Config{MaxBatchBytes: 1 << 20}, nil)
	for _, encoding := range []string{"gzip", "zstd"} {
		whole := compress(t, encoding, `[`+strings.ReplaceAll(good, "ppg", encoding)+`]`)
		resp, text := post(t, srv, whole, encoding)
		if resp.StatusCode != 200 || text != `{"stored":1,"duplicate":0}` {
			t.Errorf("%s: %d %s", encoding, resp.StatusCode, text)
		}
		resp, text = post(t, srv, whole[:len(whole)-5], encoding)
		if resp.StatusCode != 400 {
			t.Errorf("%s, cut off: %d %s, want 400", encoding, resp.StatusCode, text)
		}
		bomb, err := bombs[encoding]()
		try(t, err)
		resp, text = post(t, srv, bomb, encoding)
		if resp.StatusCode != 413 || !strings.Contains(text, "too-large") {
			t.Errorf("%s, bomb of %d bytes: %d %s, want 413", encoding, len(bomb), resp.StatusCode, text)
		}
		// The decoders are reused after each of these.
		resp, text = post(t, srv, whole, encoding)
		if resp.StatusCode != 200 || text != `{"stored":0,"duplicate":1}` {
			t.Errorf("%s, again: %d %s", encoding, resp.StatusCode, text)
		}
	}
}

func TestMixedBatch(t *testing.T) { eachFront(t, testMixedBatch) }

func testMixedBatch(t *testing.T, serve serveFunc) {
	_, srv := serve(t, ingest.Config{}, nil)
	post(t, srv, good, "")
	body := strings.Join([]string{
		with(`"spo2_pct":97`),                    // 0 stored
		`7`,                                      // 1
		strings.Replace(good, "97.5", "97.6", 1), // 2 conflict
		good,                                     // 3 duplicate
		with(`"spo2_pct":0`),                     // 4
		with(`"spo2_pct":98`),                    // 5 conflict with 0
		strings.Replace(good, "0.123Z", "2Z", 1), // 6 stored
		with(`"heart_rate_bpm":61`),              // 7 completes 0
		with(`"heart_rate_bpm":61,"spo2_pct":97`), // 8 duplicate
		with(`"x":1`), // 9
	}, ",")
	const want = `{"stored":3,"duplicate":2,"rejected":[` +
		`{"index":1,"field":"","reason":"not a JSON object"},` +
		`{"index":2,"field":"spo2_pct","reason":"contradicts the stored value"},` +
		`{"index":4,"field":"spo2_pct","reason":"no signal"},` +
		`{"index":5,"field":"spo2_pct","reason":"contradicts the stored value"},` +
		`{"index":9,"field":"x","reason":"unknown field"}]}`
	resp, text := post(t, srv, "["+body+"]", "")
	if resp.StatusCode != 207 || text != want {
		t.Errorf("got %d\n%s\nwant 207\n%s", resp.StatusCode, text, want)
	}
}

func TestIgnoreUnknown(t *testing.T) { eachFront(t, testIgnoreUnknown) }

func testIgnoreUnknown(t *testing.T, serve serveFunc) {
	_, srv := serve(t, ingest.Config{IgnoreUnknown: true}, nil)
	if resp, text := post(t, srv, with(`"spo2_pct":97,"battery_pct":[50,{"a":null}]`), ""); resp.StatusCode != 200 {
		t.Errorf("unknown field: %d %s, want 200", resp.StatusCode, text)
	}
}

var try = polltest.Try
