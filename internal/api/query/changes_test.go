package query_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// serveChanges starts a server of the changes of m.
func serveChanges(t *testing.T, m *storetest.Memory, service query.Service) (*httptest.Server, *query.Feed) {
	t.Helper()
	service.Problems = problem.New()
	cfg := query.Options{Service: service, Flags: vitals.NewSigns().DefaultFlagLimits(),
		Limits: vitals.NewSigns().DefaultLimits()}
	feed := query.NewFeed(query.New(m, m, cfg), m)
	srv := httptest.NewServer(feed)
	t.Cleanup(srv.Close)
	t.Cleanup(feed.Drain)
	return srv, feed
}

// A feedPage is a page of changes as JSON.
type feedPage struct {
	Changes  []json.RawMessage `json:"changes"`
	Next     string            `json:"next"`
	CaughtUp bool              `json:"caught_up"`
	Behind   *int              `json:"behind_ms"`
}

// text returns the changes, without ids of copies.
func (p *feedPage) text() string {
	var all []string
	for _, c := range p.Changes {
		all = append(all, regexp.MustCompile(`"copy":"[0-9a-f]+"`).ReplaceAllString(string(c), `"copy":"…"`))
	}
	return strings.Join(all, "\n")
}

// page returns a page of changes.
func page(t *testing.T, srv *httptest.Server, params string, header ...string) (p feedPage) {
	t.Helper()
	resp, text := get(t, srv, "/v1/changes?"+params, header...)
	if err := json.Unmarshal([]byte(text), &p); resp.StatusCode != 200 || err != nil {
		t.Fatalf("%s: %d %s, %v", params, resp.StatusCode, text, err)
	}
	return p
}

func wantChanges(t *testing.T, what string, p feedPage, caughtUp bool, want ...string) {
	t.Helper()
	if got := p.text(); got != strings.Join(want, "\n") || p.CaughtUp != caughtUp || p.Next == "" {
		t.Errorf("%s: caught up %t, changes\n%s\nwant %t and\n%s", what, p.CaughtUp, got, caughtUp, strings.Join(want, "\n"))
	}
}

func name(t *testing.T, text string) vitals.Name {
	t.Helper()
	n, err := vitals.ParseName(text)
	try(t, err)
	return n
}

const (
	beginText    = `{"kind":"begin","copy":"…"}`
	completeText = `{"kind":"complete","copy":"…"}`
)

func readingText(device, second, more string) string {
	return `{"kind":"reading","device":"` + device + `","time":"1970-01-01T00:00:0` + second +
		`.000Z","received":"2027-01-15T08:00:00.000Z","changed":"2027-01-15T08:00:00.000Z"` + more + `}`
}

// TestChanges reads a copy page by page, and what follows it.
func TestChanges(t *testing.T) {
	m := storetest.NewMemory()
	appendTo(t, m, `{"device":"a","time":"1970-01-01T01:00:01+01:00","heart_rate_bpm":54.9,"spo2_pct":69,"gateway":"g"}`,
		one("b"))
	assignTo(t, m, "a", "P-17", 500, storage.OpenEnd)
	srv, _ := serveChanges(t, m, query.Service{})
	const assigned = `{"kind":"assigned","device":"a","subject":"P-17","from":"1970-01-01T00:00:00.500Z"}`
	a := readingText("a", "1",
		`,"utc_offset_minutes":60,"gateway":"g","subject":"P-17","signs":{"spo2_pct":69,"heart_rate_bpm":54.9}`)
	b := readingText("b", "1", `,"signs":{"spo2_pct":97}`)
	wantChanges(t, "a copy", page(t, srv, ""), true, beginText, assigned, a, b, completeText)
	p := page(t, srv, "limit=3")
	wantChanges(t, "the first page", p, false, beginText, assigned, a)
	p = page(t, srv, "after="+p.Next)
	wantChanges(t, "the second page", p, true, b, completeText)
	if p.Behind == nil || *p.Behind != 0 {
		t.Errorf("behind_ms is %v, want 0", p.Behind)
	}
	appendTo(t, m, `{"device":"b","time":1000,"heart_rate_bpm":60}`, `{"device":"b","time":500,"heart_rate_bpm":61}`)
	late := strings.Replace(readingText("b", "0", `,"signs":{"heart_rate_bpm":61}`), ":00.000Z", ":00.500Z", 1)
	wantChanges(t, "what was changed", page(t, srv, "after="+p.Next), true, late,
		readingText("b", "1", `,"signs":{"spo2_pct":97,"heart_rate_bpm":60}`))
	before, err := m.EraseValues(storage.Erasure{
		Device: name(t, "a"), FromUnixMs: 500, ToUnixMs: 9000, Signs: 1 << vitals.SpO2, Gateway: name(t, "g")})
	if try(t, err); before.Readings != 1 {
		t.Errorf("%d readings are erased", before.Readings)
	}
	const erased = `{"kind":"erased","device":"a","subjects":["P-17"],"from":"1970-01-01T00:00:00.500Z",` +
		`"to":"1970-01-01T00:00:09.000Z","signs":["spo2_pct"]}`
	wantChanges(t, "erased values", page(t, srv, "after="+p.Next+"&limit=2"), false, erased,
		strings.Replace(a, `"spo2_pct":69,`, "", 1))
	_, err = m.Erase(name(t, "a"))
	try(t, err)
	_, err = m.Expire(context.Background(), 700, 10)
	try(t, err)
	now := page(t, srv, "start=now")
	wantChanges(t, "now", now, true)
	wantChanges(t, "removals", page(t, srv, "after="+p.Next), true, erased,
		`{"kind":"erased","device":"a","subjects":["P-17"]}`,
		`{"kind":"expired","before":"1970-01-01T00:00:00.700Z"}`,
		readingText("b", "1", `,"signs":{"spo2_pct":97,"heart_rate_bpm":60}`))
	appendTo(t, m, one("c"))
	wantChanges(t, "filtered", page(t, srv, "prefix=c&signs=spo2_pct"), true, beginText,
		`{"kind":"expired","before":"1970-01-01T00:00:00.700Z"}`,
		readingText("c", "1", `,"signs":{"spo2_pct":97}`), completeText)
	wantChanges(t, "since a time", page(t, srv, "start=2027-01-15&prefix=c"), true,
		`{"kind":"expired","before":"1970-01-01T00:00:00.700Z"}`,
		readingText("c", "1", `,"signs":{"spo2_pct":97}`))
	resp, text := get(t, srv, "/v1/changes?format=ndjson&after="+now.Next)
	if want := readingText("c", "1", `,"signs":{"spo2_pct":97}`) + "\n{\"next\":\""; !strings.HasPrefix(text, want) ||
		!strings.HasSuffix(text, `","caught_up":true,"behind_ms":0}`+"\n") {
		t.Errorf("as NDJSON: %d %q, want %q", resp.StatusCode, text, want)
	}
}

// TestChangesOfDevice reads the changes of one device. An answer that has caught up ends with what the client has
// chosen.
func TestChangesOfDevice(t *testing.T) {
	m := storetest.NewMemory()
	appendTo(t, m, one("a"), one("ab"), one("b"))
	srv, feed := serveChanges(t, m, query.Service{})
	a := readingText("a", "1", `,"signs":{"spo2_pct":97}`)
	p := page(t, srv, "device=a")
	wantChanges(t, "one device", p, true, beginText, a, completeText)
	appendTo(t, m, `{"device":"a","time":1000,"heart_rate_bpm":60}`, `{"device":"ab","time":1000,"heart_rate_bpm":60}`)
	wantChanges(t, "what was changed", page(t, srv, "device=a&after="+p.Next), true,
		readingText("a", "1", `,"signs":{"spo2_pct":97,"heart_rate_bpm":60}`))
	for _, bad := range []string{"prefix=a&after=" + p.Next, "after=" + p.Next, "device=a&prefix=a", "end=x",
		"format=sse&end=x", "format=csv&end=x%0ay"} {
		if resp, text := get(t, srv, "/v1/changes?"+bad); resp.StatusCode != 400 {
			t.Errorf("%s: %s %s", bad, resp.Status, text)
		}
	}
	for _, format := range []string{"ndjson", "csv", "parquet"} {
		params := "/v1/changes?start=2027-01-15&end=7f3a-end&format=" + format
		if resp, text := get(t, srv, params); resp.StatusCode != 200 || !strings.HasSuffix(text, "7f3a-end") {
			t.Errorf("%s: %s, %.40q", format, resp.Status, text)
		}
		if _, text := get(t, srv, params+"&limit=1"); strings.HasSuffix(text, "7f3a-end") {
			t.Errorf("%s: an answer that has not caught up has the end", format)
		}
	}
	feed.Drain()
	// A server that stops may still answer the whole.
	if _, text := get(t, srv, "/v1/changes?format=csv&end=7f3a-end"); strings.HasSuffix(text,
		"7f3a-end") != strings.Contains(text, "complete") {
		t.Errorf("an answer of a server that stops is %s", text)
	}
}

// TestChangesRejected sends requests that are answered with a problem.
func TestChangesRejected(t *testing.T) {
	m := storetest.NewMemory()
	appendTo(t, m, one("a"))
	srv, _ := serveChanges(t, m, query.Service{})
	other, _ := serveChanges(t, storetest.NewMemory(), query.Service{})
	next := page(t, srv, "").Next
	for params, want := range map[string]string{
		"after=x": "#bad-parameter", "after=" + next + "&prefix=a": "#bad-parameter", "after=" + next +
			"&signs=spo2_pct": "#bad-parameter",
		"after=" + next + "&start=now": "#bad-parameter", "start=x": "#bad-parameter", "wait=61s": "#bad-parameter",
		"wait=1":  "#bad-parameter",
		"limit=0": "#bad-parameter", "format=omh": "#bad-parameter", "signs=x": "#bad-parameter",
		"cursor=x": "#bad-parameter", "after=" + next[:6]: "#bad-parameter",
		"format=sse&limit=1": "#bad-parameter",
	} {
		if resp, text := get(t, srv, "/v1/changes?"+params); resp.StatusCode != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s, want 400 %s", params, resp.StatusCode, text, want)
		}
	}
	for _, format := range query.FeedFormats {
		if resp, text := get(t, other, "/v1/changes?format="+format+"&after="+next); resp.StatusCode != 410 ||
			!strings.Contains(text, "#cursor-unknown") {
			t.Errorf("a cursor of another store, as %s: %d %s, want 410", format, resp.StatusCode, text)
		}
	}
	without :=
		httptest.NewServer(query.NewFeed(query.New(m, m, query.Options{Service: query.Service{Problems: problem.New()}}),
			nil))
	defer without.Close()
	if resp, text := get(t, without, "/v1/changes"); resp.StatusCode != 501 || !strings.Contains(text, "#not-kept") {
		t.Errorf("a store without changes: %d %s, want 501", resp.StatusCode, text)
	}
}

// TestChangesSealed ends a page within devices that the token does not cover: the cursor does not show their names. It
// is no position once it was changed.
func TestChangesSealed(t *testing.T) {
	f := gatetest.New(t)
	ppg := f.Token(t, "ward-7", "ppg-", token.Token{Rights: token.Read})
	m := storetest.NewMemory()
	appendTo(t, m, one("a-foreign"), one("ppg-1"))
	srv, _ := serveChanges(t, m, query.Service{Gate: f.Open(t)})
	for params := "limit=1"; ; {
		p := page(t, srv, params, "Authorization", ppg)
		cursor, err := base64.RawURLEncoding.DecodeString(p.Next)
		if try(t, err); bytes.Contains(cursor, []byte("foreign")) || bytes.Contains(cursor, []byte("ppg-1")) {
			t.Errorf("a cursor shows the name of a device: %q", cursor)
		}
		for i := range cursor {
			cursor[i] ^= 1
			want := 410
			if i < 5 { // of another list
				want = 400
			}
			changed := base64.RawURLEncoding.EncodeToString(cursor)
			if resp, text := get(t, srv, "/v1/changes?after="+changed, "Authorization", ppg); resp.StatusCode != want {
				t.Fatalf("byte %d of a cursor was changed: %d %s, want %d", i, resp.StatusCode, text, want)
			}
			cursor[i] ^= 1
		}
		if params = "limit=1&after=" + p.Next; p.CaughtUp {
			break
		}
	}
}

// TestChangesRights reads with tokens for devices and for subjects.
func TestChangesRights(t *testing.T) {
	f := gatetest.New(t)
	ppg := f.Token(t, "ward-7", "ppg-", token.Token{Rights: token.Read})
	p := f.Token(t, "study", "", token.Token{Rights: token.Read, Subjects: "P"})
	writer := f.Token(t, "bed-7", "", token.Token{Rights: token.Write})
	all := f.Token(t, "archive", "", token.Token{Rights: token.Read})
	m := storetest.NewMemory()
	appendTo(t, m, one("a"), one("ppg-1"))
	srv, _ := serveChanges(t, m, query.Service{Gate: f.Open(t)})
	of := func(token string) []string { return []string{"Authorization", token} }
	ofPPG := page(t, srv, "", of(ppg)...)
	wantChanges(t, "a token for devices", ofPPG, true, beginText, readingText("ppg-1", "1", `,"signs":{"spo2_pct":97}`),
		completeText)
	ofP := page(t, srv, "", of(p)...)
	wantChanges(t, "a token for a subject", ofP, true, beginText, completeText)
	assignTo(t, m, "a", "P", 500, 2000)
	assignTo(t, m, "a", "Q", 2000, 3000)
	const assigned = `{"kind":"assigned","device":"a","subject":"P","from":"1970-01-01T00:00:00.500Z",` +
		`"to":"1970-01-01T00:00:02.000Z"}`
	reading := readingText("a", "1", `,"subject":"P","signs":{"spo2_pct":97}`)
	wantChanges(t, "what an assignment makes visible", page(t, srv, "after="+ofP.Next, of(p)...), true, assigned, reading)
	wantChanges(t, "other devices", page(t, srv, "after="+ofPPG.Next, of(ppg)...), true)
	_, err := m.Erase(name(t, "a"))
	try(t, err)
	erased := page(t, srv, "after="+ofP.Next, of(p)...)
	if want := assigned + "\n" + `{"kind":"erased","device":"a","subjects":["P"]}`; erased.text() != want {
		t.Errorf("an erasure: %s, want %s", erased.text(), want)
	}
	wantChanges(t, "an erasure of another device", page(t, srv, "after="+ofPPG.Next, of(ppg)...), true)
	if resp, text := get(t, srv, "/v1/changes", of(writer)...); resp.StatusCode != 403 {
		t.Errorf("without the read right: %d %s, want 403", resp.StatusCode, text)
	}
	post := func(query, token, body string) (int, string) {
		req, err := http.NewRequest(http.MethodPost, srv.URL+"/v1/changes"+query, strings.NewReader(body))
		try(t, err)
		req.Header.Set("Authorization", token)
		resp, err := srv.Client().Do(req)
		try(t, err)
		defer resp.Body.Close()
		var text strings.Builder
		_, err = bufio.NewReader(resp.Body).WriteTo(&text)
		try(t, err)
		return resp.StatusCode, text.String()
	}
	for _, tt := range []struct {
		token, body string
		want        int
	}{
		{p, `{"subject":"P"}`, 200}, {p, `{"subject":"Q"}`, 403}, {ppg, `{"subject":"Q"}`, 200}, {p, `{"subject":""}`, 400},
		{p, `{}`, 400},
		{p, `{"subject":"P","x":1}`, 400}, {p, strings.Repeat(" ", 2000), 400},
	} {
		if got, text := post("", tt.token, tt.body); got != tt.want {
			t.Errorf("%.20s: %d %s, want %d", tt.body, got, text, tt.want)
		}
	}

	// A cursor is in addresses. It is of one subject, which nobody who sees it can guess.
	heads := map[string]bool{}
	for _, subject := range []string{"P", "Q", "R"} {
		_, text := post("", all, `{"subject":"`+subject+`"}`)
		var p feedPage
		try(t, json.Unmarshal([]byte(text), &p))
		cursor, err := base64.RawURLEncoding.DecodeString(p.Next)
		try(t, err)
		heads[string(cursor[:5])] = true // what follows is encrypted
	}
	if len(heads) != 1 {
		t.Errorf("cursors of three subjects begin in %d ways", len(heads))
	}
	_, text := post("", p, `{"subject":"P"}`)
	var first feedPage
	try(t, json.Unmarshal([]byte(text), &first))
	for subject, want := range map[string]int{"P": 200, "Q": 400} {
		if got, text := post("?after="+first.Next, all, `{"subject":"`+subject+`"}`); got != want {
			t.Errorf("a cursor of P with the subject %s: %d %s, want %d", subject, got, text, want)
		}
	}
}

// TestChangesWait waits for a change, for none, and for the end of the server.
func TestChangesWait(t *testing.T) {
	m := storetest.NewMemory()
	srv, feed := serveChanges(t, m, query.Service{})
	next := page(t, srv, "").Next
	wantChanges(t, "no change", page(t, srv, "wait=10ms&after="+next), true)
	during := func(change func()) feedPage {
		var changing sync.WaitGroup
		changing.Go(change)
		defer changing.Wait()
		return page(t, srv, "wait=60s&after="+next)
	}
	p := during(func() { appendTo(t, m, one("a")) })
	wantChanges(t, "a change", p, true, readingText("a", "1", `,"signs":{"spo2_pct":97}`))
	next = p.Next
	for range 10 { // the first when the server stops, the others when it has stopped
		p = during(feed.Drain)
		wantChanges(t, "a server that stops", p, p.CaughtUp)
	}
}

// TestChangesStream follows a stream, and continues it with the id of its last event.
func TestChangesStream(t *testing.T) {
	m := storetest.NewMemory()
	appendTo(t, m, one("a"))
	srv, _ := serveChanges(t, m, query.Service{})
	follow := func(lastID string, want ...string) (id string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet,
			srv.URL+"/v1/changes?"+url.Values{"format": {"sse"}}.Encode(), nil)
		try(t, err)
		req.Header.Set("Last-Event-ID", lastID)
		resp, err := srv.Client().Do(req)
		try(t, err)
		defer resp.Body.Close()
		if resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("Content-Type is %q", resp.Header.Get("Content-Type"))
		}
		lines := bufio.NewScanner(resp.Body)
		for _, text := range want {
			for lines.Scan() && !strings.Contains(lines.Text(), text) {
				if strings.HasPrefix(lines.Text(), "data: ") {
					t.Fatalf("line %q, want one with %q", lines.Text(), text)
				}
			}
			id = strings.TrimPrefix(lines.Text(), "id: ")
		}
		try(t, lines.Err())
		return id
	}
	id := follow("", `"kind":"begin"`, `"device":"a"`, `"kind":"complete"`, "id: ")
	appendTo(t, m, one("b"))
	follow(id, `"device":"b"`, `"caught_up":true`)
}

// changeRows reads a table of changes in Parquet as text.
func changeRows(t *testing.T, file string) (rows [][]string) {
	t.Helper()
	f, err := parquet.OpenFile(strings.NewReader(file), int64(len(file)))
	try(t, err)
	var header []string
	for _, field := range f.Schema().Fields() {
		header = append(header, field.Name())
	}
	rows = append(rows, header)
	r := parquet.NewReader(f)
	buffer := make([]parquet.Row, 8)
	for {
		n, err := r.ReadRows(buffer)
		for _, row := range buffer[:n] {
			var cells []string
			for i, v := range row {
				text := ""
				switch {
				case v.IsNull():
				case v.Kind() == parquet.Int64:
					text = time.UnixMilli(v.Int64()).UTC().Format("2006-01-02T15:04:05.000Z")
				case v.Kind() == parquet.Double && !strings.Contains(v.String(), ".") && header[i] != "steps":
					text = v.String() + ".0" // as CSV has signs with decimals
				default:
					text = v.String()
				}
				cells = append(cells, text)
			}
			rows = append(rows, cells)
		}
		if err == io.EOF {
			return rows
		}
		try(t, err)
	}
}

// TestChangesTable reads changes of all kinds as CSV and Parquet, which have the same cells and cursors. A sign that is
// defined while an answer is sent has no column there: it ends the answer, and the next one has it.
func TestChangesTable(t *testing.T) {
	m := storetest.NewMemory()
	steps := vitals.Definition{Field: "steps", Label: "Steps, counted", Unit: "1", Accepted: vitals.Range{Max: 100_000},
		Usual: vitals.Range{Max: 100_000}}
	try(t, m.Signs().Define([]vitals.Definition{steps}))
	appendTo(t, m, `{"device":"a","time":"1970-01-01T01:00:01+01:00","heart_rate_bpm":54.9,"spo2_pct":69,"gateway":"g"}`,
		`{"device":"b","time":1000,"steps":7}`)
	assignTo(t, m, "a", "P-17", 500, 9000)
	srv, _ := serveChanges(t, m, query.Service{})
	table := func(params string) (rows [][]string, next, caughtUp string) {
		t.Helper()
		resp, text := get(t, srv, "/v1/changes?format=csv&"+params)
		rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		try(t, err)
		file, body := get(t, srv, "/v1/changes?format=parquet&"+params)
		if got := changeRows(t, body); !reflect.DeepEqual(got, rows) && !strings.Contains(params, "start=oldest") {
			t.Errorf("%s: Parquet has\n%q\nCSV has\n%q", params, got, rows)
		}
		for _, name := range []string{"Pulsegate-Next-Cursor", "Pulsegate-Caught-Up"} {
			if resp.Trailer.Get(name) == "" ||
				name == "Pulsegate-Caught-Up" && resp.Trailer.Get(name) != file.Trailer.Get(name) {
				t.Errorf("%s: the trailers are %v and %v", params, resp.Trailer, file.Trailer)
			}
		}
		return rows, resp.Trailer.Get("Pulsegate-Next-Cursor"), resp.Trailer.Get("Pulsegate-Caught-Up")
	}
	lines := func(rows [][]string) string {
		var all []string
		for _, row := range rows[1:] {
			row[11] = strings.Repeat("copy", min(len(row[11]), 1)) // its id is random
			all = append(all, strings.TrimRight(strings.Join(row, "|"), "|"))
		}
		return strings.Join(all, "\n")
	}
	rows, _, _ := table("start=oldest")
	const at = "1970-01-01T00:00:0"
	want := "begin|||||||||||copy\nsign||||||||||steps||" +
		`{"field":"steps","label":"Steps, counted","unit":"1","decimals":0,"accepted":{"min":0,"max":100000},` +
		`"usual":{"min":0,"max":100000}}` +
		"\nassigned|a||||||P-17|" + at + "0.500Z|" + at + "9.000Z\n" +
		"reading|a|" + at + "1.000Z|2027-01-15T08:00:00.000Z|2027-01-15T08:00:00.000Z|60|g|P-17||||||||69.0|54.9\n" +
		"reading|b|" + at +
		"1.000Z|2027-01-15T08:00:00.000Z|2027-01-15T08:00:00.000Z||||||||||||||||||||||7\ncomplete|||||||||||copy"
	if got := lines(rows); got != want {
		t.Errorf("a copy is\n%s\nwant\n%s", got, want)
	}
	appendTo(t, m, `{"device":"b","time":600,"spo2_pct":97}`)
	start := page(t, srv, "start=now").Next
	_, err := m.EraseAssignment(storage.Assignment{Device: name(t, "a"), Subject: "P-17", FromUnixMs: 500})
	try(t, err)
	_, err = m.Expire(t.Context(), 700, 10)
	try(t, err)
	rows, next, caughtUp := table("after=" + start)
	want = "erased|a||||||P-17|" + at + "0.500Z|" + at + "9.000Z\nexpired|||||||||" + at + "0.700Z"
	if got := lines(rows); got != want || caughtUp != "true" {
		t.Errorf("removals are\n%s\nwant\n%s; caught up: %s", got, want, caughtUp)
	}
	if rows, again, _ := table("limit=1&after=" + start); len(rows) != 2 || again == next {
		t.Errorf("a page with a limit has %d rows", len(rows))
	}
	// The answer waits, with the columns of its beginning.
	more := vitals.Definition{Field: "etco2_mmhg", Label: "etCO2", Unit: "mm[Hg]", Decimals: 1,
		Accepted: vitals.Range{Max: 1000}, Usual: vitals.Range{Max: 1000}}
	defined := make(chan error, 1)
	go func() {
		time.Sleep(50 * time.Millisecond) // or the answer has the column already
		defined <- m.Signs().Define([]vitals.Definition{steps, more})
		appendTo(t, m, `{"device":"c","time":1000,"etco2_mmhg":30}`)
	}()
	resp, text := get(t, srv, "/v1/changes?format=csv&wait=30s&after="+next)
	try(t, <-defined)
	if resp.Trailer.Get("Pulsegate-Caught-Up") != strconv.FormatBool(strings.Contains(text, ",etco2_mmhg")) {
		t.Errorf("caught up: %s\n%s", resp.Trailer.Get("Pulsegate-Caught-Up"), text)
	}
	if rows, _, caughtUp = table("after=" + next); caughtUp != "true" || rows[len(rows)-1][1] != "c" {
		t.Errorf("what follows is %q; caught up: %s", rows[1:], caughtUp)
	}
}

// TestChangesCodings reads NDJSON with content codings.
func TestChangesCodings(t *testing.T) {
	m := storetest.NewMemory()
	for i := range 3000 {
		appendTo(t, m, fmt.Sprintf(`{"device":"a","time":%d,"spo2_pct":97}`, 1000+i))
	}
	srv, _ := serveChanges(t, m, query.Service{})
	for _, coding := range []string{"zstd", "gzip"} {
		for _, format := range []string{"ndjson", "csv"} {
			resp, body := get(t, srv, "/v1/changes?start=1970-01-02&format="+format, "Accept-Encoding", coding)
			text := string(decodedBody(t, coding, []byte(body)))
			if resp.Header.Get("Content-Encoding") != coding || strings.Count(text, "\n") != 3001 || len(body) > len(text)/4 {
				t.Errorf("%s as %s: %v, %d bytes of %d", format, coding, resp.Header, len(body), len(text))
			}
		}
	}
}
