package query_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// A keyring is a gate with a token for each purpose. The tokens are in the form of
// Authorization headers.
type keyring struct {
	*gatetest.Files
	gate *gate.Gate

	all, ppg, writer string
}

func newKeyring(t testing.TB) *keyring {
	t.Helper()
	f := gatetest.New(t)
	k := &keyring{
		Files: f, all: f.Token(t, "archive", "", token.Token{Rights: token.Read}),
		ppg:    f.Token(t, "ward-7", "ppg-", token.Token{Rights: token.Read}),
		writer: f.Token(t, "bed-7", "", token.Token{Rights: token.Write | token.Admin}),
	}
	k.gate = f.Open(t)
	return k
}

// one returns a reading of a device as JSON.
func one(device string) string { return fmt.Sprintf(`{"device":%q,"time":1000,"spo2_pct":97}`, device) }

// Every request needs the read right, even if it is malformed.
func TestReadRightRequired(t *testing.T) {
	k := newKeyring(t)
	srv := serveGated(t, fill(t, one("ppg-1")), k.gate, nil)
	for _, path := range []string{"/v1/devices", "/v1/devices/ppg-1", "/v1/devices/ppg-1/readings",
		"/v1/devices/ppg-1/aggregates?step=1h", "/v1/devices?sort=worst", "/v1/limits", "/v1/devices/a b",
		"/v1/devices?limit=x", "/v1/devices/none"} {
		path = strings.ReplaceAll(path, " ", "%20")
		for _, tt := range []struct {
			name   string
			header []string
			status int
			want   string
		}{
			{"no token", nil, 401, "#unauthorized"},
			{"an invalid token", []string{"Authorization", "Bearer x"}, 401, "#invalid-credentials"},
			{"two", []string{"Authorization", k.all, "Authorization", k.all}, 401, "#invalid-credentials"},
			{"a writer's token", []string{"Authorization", k.writer}, 403, "#forbidden"},
		} {
			resp, text := get(t, srv, path, tt.header...)
			if resp.StatusCode != tt.status || !strings.Contains(text, tt.want) ||
				!strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer realm=") {
				t.Errorf("%s, %s: %d %q %s, want %d %s", path, tt.name, resp.StatusCode, resp.Header.Get("WWW-Authenticate"), text,
					tt.status, tt.want)
			}
		}
	}
	if resp, text := get(t, srv, "/v1/devices/ppg-1", "Authorization", k.all); resp.StatusCode != 200 {
		t.Errorf("with the read right: %d %s", resp.StatusCode, text)
	}
}

// The response for a device that the token does not cover does not reveal whether the
// device exists.
func TestOtherDevices(t *testing.T) {
	k := newKeyring(t)
	srv := serveGated(t, fill(t, one("bed-1"), one("ppg-1")), k.gate, nil)
	for _, path := range []string{"/v1/devices/%s", "/v1/devices/%s/readings", "/v1/devices/%s/readings?format=csv"} {
		there, text := get(t, srv, fmt.Sprintf(path, "bed-1"), "Authorization", k.ppg)
		absent, text2 := get(t, srv, fmt.Sprintf(path, "bed-2"), "Authorization", k.ppg)
		for _, resp := range []*http.Response{there, absent} {
			resp.Header.Del("Date")
		}
		if there.StatusCode != 403 || absent.StatusCode != 403 || text != text2 ||
			fmt.Sprint(there.Header) != fmt.Sprint(absent.Header) {
			t.Errorf("%s: existing %d %v %s, absent %d %v %s; want the same 403", path, there.StatusCode, there.Header, text,
				absent.StatusCode, absent.Header, text2)
		}
		if resp, text := get(t, srv, fmt.Sprintf(path, "ppg-1"), "Authorization", k.ppg); resp.StatusCode != 200 {
			t.Errorf("%s: a device that the token covers: %d %s", path, resp.StatusCode, text)
		}
		if resp, text := get(t, srv, fmt.Sprintf(path, "ppg-2"), "Authorization", k.ppg); resp.StatusCode != 404 {
			t.Errorf("%s: an unknown device that the token covers: %d %s", path, resp.StatusCode, text)
		}
	}
	if n := k.gate.Refused(audit.NotCovered); n != 6 {
		t.Errorf("%d rejected requests counted, want 6", n)
	}
}

// Exports are in the audit log before their first byte is sent; small pages are not. An
// export that cannot be recorded is not sent.
func TestExportsAreRecorded(t *testing.T) {
	k := newKeyring(t)
	var failures []error
	srv := serveGated(t, fill(t, one("ppg-1"), one("ppg-2"), one("ppg-3"), one("ppg-4")), k.gate,
		func(err error) { failures = append(failures, err) })
	recorded := 0
	for _, tt := range []struct {
		device, query, accept string
		export                bool
		want                  string
	}{
		{"ppg-1", "", "", false, ""},
		{"ppg-1", "?limit=1000", "", false, ""},
		{"ppg-1", "?format=csv&limit=x", "", false, ""},
		{"ppg-1", "?limit=1001", "", true, `"device":"ppg-1","peer":"127.0.0.1"`},
		{"ppg-2", "?format=csv", "", true, `"gateway":"ward-7","device":"ppg-2"`},
		{"ppg-3", "", "application/x-ndjson", true, `"device":"ppg-3"`},
		{"ppg-4", "?format=ndjson&from=500&to=2000", "", true,
			`"device":"ppg-4","from":"1970-01-01T00:00:00.500Z","to":"1970-01-01T00:00:02.000Z"`},
		{"ppg-4", "?format=csv&from=500&to=1000", "", false, ""}, // covered by an earlier record
		{"ppg-4", "?format=csv", "", true, `"device":"ppg-4","peer"`},
	} {
		header := []string{"Authorization", k.ppg}
		if tt.accept != "" {
			header = append(header, "Accept", tt.accept)
		}
		get(t, srv, "/v1/devices/"+tt.device+"/readings"+tt.query, header...)
		if tt.export {
			recorded++
		}
		records := k.Records(t, "exported")
		if len(records) != recorded || tt.export && !strings.Contains(records[recorded-1], tt.want) {
			t.Fatalf("%s: %d records, want %d, the last with %s: %q", tt.query, len(records), recorded, tt.want, records)
		}
	}
	get(t, srv, "/v1/devices/ppg-9/readings?format=csv", "Authorization", k.ppg)
	get(t, srv, "/v1/devices/bed-1/readings?format=csv", "Authorization", k.ppg)
	req, err := http.NewRequest(http.MethodHead, srv.URL+"/v1/devices/ppg-1/readings?format=csv", nil)
	try(t, err)
	req.Header.Set("Authorization", k.ppg)
	resp, err := srv.Client().Do(req)
	try(t, err)
	resp.Body.Close()
	if records := k.Records(t, "exported"); len(records) != recorded {
		t.Errorf("recorded although nothing was sent: %q", records[recorded:])
	}
	try(t, k.gate.Audit.Close())
	resp, text := get(t, srv, "/v1/devices/ppg-1/readings?format=csv", "Authorization", k.ppg)
	if resp.StatusCode != 500 || !strings.Contains(text, "#read-failed") || strings.Contains(text, "97") ||
		len(failures) != 1 {
		t.Errorf("without an audit log: %d %s, %v", resp.StatusCode, text, failures)
	}
	if resp, text := get(t, srv, "/v1/devices/ppg-1/readings", "Authorization", k.ppg); resp.StatusCode != 200 {
		t.Errorf("a small page: %d %s", resp.StatusCode, text)
	}
}

// Reading many readings in small pages counts as an export: above the budget each page
// is recorded, or not sent if it cannot be. Only readings that a page actually has
// count, and clients do not share a budget.
//
// Seen to fail with the mutant skip-page-count.
func TestPagesAreExports(t *testing.T) {
	k := newKeyring(t)
	set, err := token.Open(k.Tokens, token.Options{Every: -1, Hourly: token.Hourly{Reads: 2500}})
	try(t, err)
	k.gate.Tokens.Close()
	t.Cleanup(set.Close)
	k.gate.Tokens = set
	srv := serveGated(t, &endless{readings: 20_000}, k.gate, nil)
	page := func(auth, query string) (readings int, cursor string) {
		t.Helper()
		resp, text := get(t, srv, "/v1/devices/ppg-1/readings?"+query, "Authorization", auth)
		var p struct {
			Readings []struct{}
			Next     string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(text), &p); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d %s: %v", resp.StatusCode, text, err)
		}
		return len(p.Readings), p.Next
	}
	for range 50 {
		if n, _ := page(k.ppg, "from=19990"); n != 10 { // 500 readings in total, in pages of up to 1000
			t.Fatalf("a page of %d, want 10", n)
		}
	}
	cursor, unrecorded := "", 0
	for i := range 20 {
		query := "limit=1000"
		if cursor != "" {
			query += "&cursor=" + cursor
		}
		var n int
		n, cursor = page(k.ppg, query)
		if len(k.Records(t, "exported")) == 0 {
			unrecorded += n
		} else if i < 2 {
			t.Errorf("page %d is recorded", i)
		}
	}
	if unrecorded < 2000 || unrecorded > 3000 {
		t.Errorf("%d readings were read without a record, want about 2000", unrecorded)
	}
	page(k.all, "limit=1000")
	records := k.Records(t, "exported")
	if len(records) == 0 ||
		!strings.Contains(records[0], `"gateway":"ward-7","device":"ppg-1","from":"1970-01-01T00:00:0`) {
		t.Errorf("the first record is not about a page: %q", records)
	}
	for _, r := range records {
		if strings.Contains(r, "archive") {
			t.Errorf("a page of another token is recorded: %s", r)
		}
	}
	try(t, k.gate.Audit.Close())
	if resp, text := get(t, srv, "/v1/devices/ppg-1/readings", "Authorization", k.all); resp.StatusCode != 200 {
		t.Errorf("without an audit log, below the budget: %d %.100s, want 200", resp.StatusCode, text)
	}
	// On a slow machine, the budget is there again for a page.
	for pages := 1; ; pages++ {
		resp, text := get(t, srv, "/v1/devices/ppg-1/readings", "Authorization", k.ppg)
		if resp.StatusCode == 500 {
			break
		}
		if resp.StatusCode != 200 || pages == 25 { // of 100 readings
			t.Fatalf("without an audit log, above the budget, page %d: %d %.100s, want 500", pages, resp.StatusCode, text)
		}
	}
}

// A held store blocks look-ups of one device until it is released.
type held struct {
	source
	asked   atomic.Int64
	release chan struct{}
}

func (h *held) Latest(ctx context.Context, device vitals.Name) (storage.Device, error) {
	if device.String() == "held" {
		h.asked.Add(1)
		<-h.release
	}
	return h.source.Latest(ctx, device)
}

// Unauthorized requests are rejected at once while all places are taken.
//
// Seen to fail when the bound comes before the gate.
func TestUnauthorizedTakeNoPlace(t *testing.T) {
	k := newKeyring(t)
	src := &held{source: fill(t, one("ppg-1"), one("held")), release: make(chan struct{})}
	srv := serveOptions(t, src, query.Options{Service: query.Service{Gate: k.gate, Bound: query.NewBound(1)}}, unchanged)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(src.release) // first
	wg.Go(func() { get(t, srv, "/v1/devices/held", "Authorization", k.all) })
	polltest.Until(t, "the only place is taken", func() bool { return src.asked.Load() == 1 })
	for auth, want := range map[string]int{k.writer: 403, k.ppg: 503} {
		if resp, text := get(t, srv, "/v1/devices/ppg-1", "Authorization", auth); resp.StatusCode != want {
			t.Errorf("answered %d %s, want %d", resp.StatusCode, text, want)
		}
	}
}

// 80 concurrent slow requests with one token do not block another token: one token gets
// at most half of 64 places.
//
// Seen to fail with the mutant unfair-shares.
func TestOneReaderDoesNotBlockOthers(t *testing.T) {
	k := newKeyring(t)
	src := &held{source: fill(t, one("ppg-1"), one("held")), release: make(chan struct{})}
	srv := serveOptions(t, src,
		query.Options{Service: query.Service{Gate: k.gate, Bound: query.NewBound(64), Holders: new(share.Holders)}},
		unchanged)
	release := sync.OnceFunc(func() { close(src.release) })
	defer release() // first, or srv would wait for the held requests
	var wg sync.WaitGroup
	var answered [600]atomic.Int64 // by status
	ask := func(auth string) {
		wg.Go(func() {
			resp, _ := get(t, srv, "/v1/devices/held", "Authorization", auth)
			answered[resp.StatusCode].Add(1)
		})
	}
	for range 80 {
		ask(k.all)
		ask(k.writer)
	}
	polltest.Until(t, "the other requests are rejected", func() bool {
		return answered[403].Load() == 80 &&
			answered[503].Load() == 48
	})
	if n := src.asked.Load(); n != 32 {
		t.Errorf("one token has %d places of 64, want 32", n)
	}
	for range 3 {
		if resp, text := get(t, srv, "/v1/devices/ppg-1", "Authorization", k.ppg); resp.StatusCode != 200 {
			t.Errorf("another token gets %d %s", resp.StatusCode, text)
		}
	}
	release()
	wg.Wait()
	if n := answered[200].Load(); n != 32 {
		t.Errorf("%d of the slow requests succeeded, want 32", n)
	}
}
