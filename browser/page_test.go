package browser_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// fewReadings is a small fleet: flagged, silent and fresh.
func fewReadings(s *server) {
	s.post(
		reading("ppg-fresh", 20*time.Second, `"heart_rate_bpm":72,"spo2_pct":97.5`),
		reading("ppg-flagged", 2*time.Minute, `"heart_rate_bpm":140.25,"systolic_mmhg":121,"diastolic_mmhg":79`),
		reading("ppg-silent", 3*time.Hour, `"resting_heart_rate_bpm":58`),
	)
}

// cells returns the texts of the fleet's rows.
const cells = `[...document.querySelectorAll("table.fleet tbody tr")].map((tr) => [...tr.children].map((c) => ` +
	`c.innerText.replaceAll(/\s+/g, " ").trim()))`

// The fleet shows the worst device first, and the values, flags and counts that are stored. A server without rules
// shows nothing about alerts.
func TestFleet(t *testing.T) {
	s := serve(t)
	fewReadings(s)
	p := open(t, s.url+"/")
	p.until(`document.querySelectorAll("table.fleet tbody tr").length === 3`)
	rows := eval[[][]string](p, cells)
	var got []string
	for _, row := range rows {
		got = append(got, row[0]+"|"+row[1]+"|"+strings.Join(row[3:], "|"))
	}
	want := []string{
		"ppg-flagged|◆ flagged|121/79|–|140.25 ▲ high|–",
		"ppg-silent|○ silent|–|–|–|58",
		"ppg-fresh|● fresh|–|97.5|72|–",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if rows[0][2] != "2 min ago" || rows[1][2] != "3 h 0 min ago" {
		t.Errorf("the ages are %q and %q", rows[0][2], rows[1][2])
	}
	p.shows("Worst: ppg-flagged – Heart rate 140.25 /min ▲ high")
	p.until(`performance.getEntriesByType("resource").some((e) => e.name.includes("v1/alerts") && e.responseEnd > 0)`)
	if text := p.text(); strings.Contains(strings.ToLower(text), "alert") {
		t.Errorf("the page shows\n%s", text)
	}
	p.shows("not an alarm system")
	if got := eval[string](p, `document.querySelector(".counts").innerText.replaceAll(/\s+/g, " ").trim()`); got !=
		"3 All 1 Flagged 1 Silent 2 Fresh" {
		t.Errorf("the counts are %q", got)
	}
	p.click(`button[data-state=stale]`)
	p.until(`document.querySelectorAll("table.fleet tbody tr").length === 1`)
	p.shows("ppg-silent")
	p.click(`button[data-state=""]`)
	p.enter("#match", "G-FR")
	p.until(`[...document.querySelectorAll("table.fleet tbody th")].map((e) => e.innerText).join() === "ppg-fresh"`)
}

// The columns of the fleet can be chosen and are remembered. Built-in signs are in their order, and the user's own
// after them in the order of their definition. Values have all their decimals.
func TestColumns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "signs.toml")
	define := func(field, label string) string {
		return fmt.Sprintf(
			"[[sign]]\nfield = %q\nlabel = %q\nunit = \"mV\"\ndecimals = 3\naccepted = { min = -9, max = 9 }\n", field, label)
	}
	try(t, os.WriteFile(file, []byte(define("zeta_mv", "Zeta")+define("alpha_mv", "Alpha")), 0o600))
	s := serve(t, "--signs="+file)
	s.post(reading("d-1", time.Second, `"heart_rate_bpm":72,"body_weight_kg":3.125,"zeta_mv":-0.375,"alpha_mv":0`))
	p := open(t, s.url+"/")
	shows := func(heads, row string) {
		t.Helper()
		p.until(`document.querySelectorAll("table.fleet tbody tr").length === 1`)
		const texts = `(() => { const of = (query) => [...document.querySelectorAll(query)].slice(3).map((c) => c.innerText.replaceAll(/\s+/g, " ").trim()).join("|");
			return [of("table.fleet thead th"), of("table.fleet tbody tr > *")]; })()`
		if got := eval[[]string](p, texts); got[0] != heads || got[1] != row {
			t.Errorf("the fleet shows %q, want %q and %q", got, heads, row)
		}
	}
	choose := func(signs ...string) {
		t.Helper()
		p.click("details.columns summary")
		for _, sign := range signs {
			p.click("input[data-sign=" + sign + "]")
		}
	}
	shows("Blood pressure mmHg|SpO₂ %|Heart rate /min|Resting heart rate /min", "–|–|72|–")
	choose("alpha_mv", "spo2_pct", "zeta_mv", "body_weight_kg", "systolic_mmhg", "resting_heart_rate_bpm")
	const heads, row = "Heart rate /min|Body weight kg|Zeta mV|Alpha mV", "72|3.125|-0.375|0"
	shows(heads, row)
	p.js("window.before = true")
	p.run(chromedp.Navigate(s.url + "/"))
	p.until("window.before === undefined")
	shows(heads, row)
	choose("zeta_mv")
	shows("Heart rate /min|Body weight kg|Alpha mV", "72|3.125|0")
}

// Where flags are shown, the page says without scrolling that it is not an alarm system.
func TestNotice(t *testing.T) {
	s := serve(t)
	var readings []string
	for i := range 60 {
		readings = append(readings, reading(fmt.Sprintf("d-%03d", i), time.Minute,
			`"heart_rate_bpm":140,"spo2_pct":80,"systolic_mmhg":121,"diastolic_mmhg":79`))
	}
	s.post(readings...)
	p := open(t, s.url+"/")
	p.screen(1280, 800)
	p.shows("1 to 50 of 60")
	const seen = `(() => { const n = document.querySelector(".notice"); return n !== null && n.innerText.includes("not ` +
		`an alarm system") && n.getBoundingClientRect().bottom < innerHeight; })()`
	if !eval[bool](p, seen) {
		t.Error("fleet: the notice is not on the screen")
	}
	p.goTo("#device?device=d-000&range=1h")
	p.drawn()
	if !eval[bool](p, seen) {
		t.Error("device: the notice is not on the screen")
	}
}

// A row on the screen shows what is stored after the page was opened, without a new request for the list. A page whose
// tab is hidden has no stream, and opens one when it is seen again.
func TestFleetLive(t *testing.T) {
	s := serve(t)
	fewReadings(s)
	p := open(t, s.url+"/")
	p.shows("ppg-fresh")
	following(p, s)
	s.post(reading("ppg-fresh", 0, `"heart_rate_bpm":133.5`))
	p.shows("133.5")
	p.until(`document.querySelector("tr[data-device=ppg-fresh]").innerText.includes("▲ high")`)
	hide := func(hidden bool) {
		p.js(fmt.Sprintf(
			`Object.defineProperty(document, "hidden", { configurable: true, value: %v }); document.dispatchEvent(new `+
				`Event("visibilitychange"))`, hidden))
	}
	for _, view := range []string{"#fleet", "#device?device=ppg-fresh&range=1h"} {
		p.goTo(view)
		p.shows("ppg-fresh")
		following(p, s)
		hide(true)
		subscribers(p, s, 0)
		hide(false)
		following(p, s)
	}
}

// following waits until the page's stream of live readings is open.
func following(p *tab, s *server) {
	p.t.Helper()
	subscribers(p, s, 1)
}

// subscribers waits until n streams of live readings are open.
func subscribers(p *tab, s *server, n int) {
	p.t.Helper()
	want := fmt.Sprintf("\npulsegate_live_subscribers %d\n", n)
	for deadline := time.Now().Add(patience); !strings.Contains(s.do("GET", s.admin+"/metrics", nil), want); {
		if time.Now().After(deadline) {
			p.t.Fatalf("there are not %d streams of live readings", n)
		}
		eval[int](p, `new Promise((done) => requestAnimationFrame(() => done(0)))`)
	}
}

// dataOf returns the rows of a chart's table of data.
func dataOf(p *tab, chart string) [][]string {
	p.t.Helper()
	figure := fmt.Sprintf("figure[data-chart=%q]", chart)
	p.until(fmt.Sprintf("document.querySelector(%q) !== null", figure))
	return eval[[][]string](p, fmt.Sprintf(`(async () => {
		const f = document.querySelector(%q), d = f.querySelector("details");
		if (!d.open) await new Promise((done) => { d.addEventListener("toggle", done, { once: true }); d.open = true; });
		return [...f.querySelectorAll("tbody tr")].map((tr) => [...tr.children].map((c) => c.innerText.trim()));
	})()`, figure))
}

// The charts' data are the stored readings, value by value and in UTC.
func TestDeviceShowsWhatIsStored(t *testing.T) {
	s := serve(t)
	var readings []string
	for i := range 40 {
		readings = append(readings, reading("ppg-1", time.Duration(50-i)*time.Minute,
			fmt.Sprintf(`"heart_rate_bpm":%d.25,"spo2_pct":%d,"systolic_mmhg":%d,"diastolic_mmhg":70.5`, 100+i, 60+i, 110+i)))
	}
	s.post(readings...)
	p := open(t, s.url+"/#device?device=ppg-1&range=1h")
	p.drawn()
	p.js(`document.querySelector("#zone").value = "utc"; document.querySelector("#zone").dispatchEvent(new ` +
		`Event("change"))`)
	p.shows(" UTC, 40 readings")

	rows, err := csv.NewReader(strings.NewReader(s.do("GET", s.url+"/v1/devices/ppg-1/readings?format=csv", nil))).
		ReadAll()
	try(t, err)
	column := func(name string) int { return slices.Index(rows[0], name) }
	for _, tt := range []struct {
		chart  string
		fields []string
	}{
		{"Heart rate", []string{"heart_rate_bpm"}},
		{"SpO₂", []string{"spo2_pct"}},
		{"Blood pressure", []string{"systolic_mmhg", "diastolic_mmhg"}},
	} {
		shown := dataOf(p, tt.chart)
		if len(shown) != len(rows)-1 {
			t.Errorf("%s: %d rows are shown, %d are stored", tt.chart, len(shown), len(rows)-1)
			continue
		}
		for i, row := range rows[1:] {
			want := []string{strings.Replace(row[column("time")][:19], "T", " ", 1)}
			for _, f := range tt.fields {
				want = append(want, strings.TrimSuffix(row[column(f)], ".0")) // as people write it
			}
			if !slices.Equal(shown[i][:len(want)], want) {
				t.Errorf("%s: shown %q, stored %q", tt.chart, shown[i], want)
			}
			flagged := strings.Contains(row[column("flags")], tt.fields[0])
			if got := shown[i][len(want)] != ""; got != flagged {
				t.Errorf("%s at %s: flagged is %v, want %v", tt.chart, want[0], got, flagged)
			}
		}
	}
	p.shows("Heart rate: 40 values from 100.25 to 139.25 /min, mean 119.8. No gaps, 1 flagged range.")
}

// Many readings are shown as aggregates: the same as those of the API.
func TestDeviceShowsAggregates(t *testing.T) {
	s := serve(t)
	var readings []string
	for i := range 3000 {
		v := 60 + i%40
		if i == 1500 {
			v = 190 // a spike that no mean shows
		}
		readings = append(readings, reading("ppg-1", time.Duration(3000-i)*time.Minute,
			fmt.Sprintf(`"heart_rate_bpm":%d`, v)))
	}
	s.post(readings...)
	p := open(t, s.url+"/#device?device=ppg-1&range=7d")
	p.drawn()
	count, low, high, flagged := 0, 1000.0, 0.0, 0
	for _, row := range dataOf(p, "Heart rate") {
		n, err := strconv.Atoi(row[4])
		try(t, err)
		count += n
		a, _ := strconv.ParseFloat(row[2], 64)
		b, _ := strconv.ParseFloat(row[3], 64)
		low, high = min(low, a), max(high, b)
		if row[5] != "" {
			flagged++
		}
	}
	if count != 3000 || low != 60 || high != 190 || flagged != 1 {
		t.Errorf("%d values from %v to %v, %d rows flagged; want 3000 from 60 to 190, 1 row", count, low, high, flagged)
	}
}

// A device opens on its newest day with readings, and on the last 24 h again once it sends. A range
// that the reader has chosen stays, even if it is empty.
func TestNewestDay(t *testing.T) {
	s := serve(t)
	var readings []string
	for i := range 30 {
		readings = append(readings, reading("ppg-old", 40*24*time.Hour+time.Duration(i)*time.Hour,
			fmt.Sprintf(`"heart_rate_bpm":%d`, 60+i)))
	}
	s.post(readings...)
	p := open(t, s.url+"/#device?device=ppg-old")
	p.drawn()
	p.shows("No readings in the last 24 h: this is the newest day that has some.")
	if got := summary(p, "Heart rate"); !strings.HasPrefix(got, "Heart rate: 23 values from 60 to 82 ") &&
		!strings.HasPrefix(got, "Heart rate: 24 values from 60 to 83 ") {
		t.Errorf("the summary is %q", got)
	}
	p.press("24 h")
	p.shows("No readings in this range.")
	if got := eval[int](p, `document.querySelectorAll("figure").length`); got != 0 {
		t.Errorf("%d charts of an empty range", got)
	}
	p.press("7 d")
	p.until(`location.hash.includes("7d")`)
	p.run(chromedp.Reload())
	p.shows("No readings in this range.")
	p.run(chromedp.Click(chromedp.Search(`//button[starts-with(text(), "Show the newest")]`)))
	p.drawn()
	if got := summary(p, "Heart rate"); !strings.Contains(got, " values from 60 to ") {
		t.Errorf("the summary of the newest readings is %q", got)
	}

	p.goTo("#device?device=ppg-old")
	p.shows("No readings in the last 24 h")
	s.post(reading("ppg-old", 0, `"heart_rate_bpm":99`))
	p.until(`document.querySelector("button[data-range='24h']").getAttribute("aria-pressed") === "true"`)
	p.shows("Heart rate: 1 value, 99 /min")
}

// Days begin at midnight of the clock that the reader has chosen, here the device's.
func TestDeviceDays(t *testing.T) {
	s := serve(t)
	var readings []string
	zone := time.FixedZone("", 9*3600+1800) // as in Adelaide
	for i := range 2000 {                   // 500 days
		at := time.Now().Add(-time.Duration(i) * 6 * time.Hour).In(zone)
		readings = append(readings, fmt.Sprintf(`{"device":"ppg-1","time":%q,"heart_rate_bpm":%d}`,
			at.Format(time.RFC3339), 60+i%40))
	}
	s.post(readings...)
	p := open(t, s.url+"/#device?device=ppg-1&range=all")
	p.drawn()
	p.js(`document.querySelector("#zone").value = "device"; document.querySelector("#zone").dispatchEvent(new ` +
		`Event("change"))`)
	p.shows("UTC+9:30, buckets of 2 d")
	// At first the page shows the buckets of the zone before.
	for deadline := time.Now().Add(patience); ; time.Sleep(30 * time.Millisecond) {
		rows := dataOf(p, "Heart rate")
		odd := slices.IndexFunc(rows, func(row []string) bool { return !strings.HasSuffix(row[0], " 00:00:00") })
		if len(rows) > 0 && odd < 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("of %d buckets, the one at %d does not begin at midnight: %s", len(rows), odd, rows)
		}
	}
}

// The device view follows the device, and says when it was erased.
func TestDeviceLiveAndErased(t *testing.T) {
	s := serve(t)
	s.post(reading("ppg-1", time.Minute, `"heart_rate_bpm":70`), reading("ppg-10", time.Minute, `"heart_rate_bpm":80`))
	p := open(t, s.url+"/#device?device=ppg-1&range=1h")
	p.drawn()
	following(p, s)
	s.post(reading("ppg-1", 0, `"heart_rate_bpm":71.5`))
	p.shows("2 readings")
	p.shows("71.5")
	s.do("POST", s.admin+"/admin/erase", strings.NewReader(`{"device":"ppg-1"}`))
	p.shows("No readings are stored for this device.")
	if text := p.text(); strings.Contains(text, "71.5") || strings.Contains(text, "80") {
		t.Errorf("after the erasure the page shows\n%s", text)
	}
	p.allowProblem("404 (Not Found) " + s.url + "/v1/devices/ppg-1") // it may have been erased after the page had found it
}

// With tokens the page asks for one, keeps it nowhere, and reads until the reader signs out
// or the token is revoked.
func TestSignIn(t *testing.T) {
	s, file, reader := withTokens(t)
	fewReadings(s)
	p := open(t, s.url+"/")
	p.enter("#token", "pgt_wrong"+kb.Enter)
	p.shows("This is not a valid token.")
	p.expectProblem("401")
	p.enter("#token", reader+kb.Enter)
	p.shows("ppg-flagged")
	kept := eval[string](p,
		`JSON.stringify([location.href, document.cookie, {...localStorage}, {...sessionStorage}, `+
			`document.documentElement.outerHTML])`)
	if strings.Contains(kept, reader) || eval[string](p, "document.cookie") != "" {
		t.Error("the page keeps the token or can read the cookie")
	}
	p.run(chromedp.Reload())
	p.shows("ppg-flagged")
	p.goTo("#device?device=ppg-flagged")
	p.drawn()
	p.goTo("#system")
	p.shows("Disk free")
	p.press("Sign out")
	p.until(`document.querySelector("#token") !== null`)
	if got := eval[int](p, `fetch("v1/devices").then((r) => r.status)`); got != http.StatusUnauthorized {
		t.Errorf("after sign-out: status %d", got)
	}
	p.expectProblem("401")

	// Another address changes the view to come, and leaves the form with what was typed into it.
	p.enter("#token", reader[:8])
	eval[bool](p, `new Promise((shown) => {
		addEventListener("hashchange", async () => {
			for (let i = 0; i < 3; i++) await fetch("v1/session");
			shown(true);
		}, { once: true });
		location.hash = "#fleet";
	})`)
	p.key(reader[8:] + kb.Enter)
	p.shows("ppg-flagged")
	if got := eval[int](p, `fetch("v1/readings", { method: "POST", body: "{}" }).then((r) => r.status)`); got !=
		http.StatusUnauthorized {
		t.Errorf("a write with the session: status %d", got)
	}
	p.expectProblem("401")
	if out, err := exec.Command(built.program, "token", "revoke", "--file="+file, "--audit="+file+".log",
		"--gateway=screen").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.shows("Your session has ended.")
	p.expectProblem("401")
}

// The links of a device have the readings of the range that is shown, and the session is
// enough for them.
func TestExportLinks(t *testing.T) {
	s, _, reader := withTokens(t)
	s.post(reading("ppg-1", 3*time.Hour, `"heart_rate_bpm":61.5`),
		reading("ppg-1", 30*time.Minute, `"heart_rate_bpm":62.5`), reading("ppg-1", 20*time.Minute, `"heart_rate_bpm":63.5`))
	p := open(t, s.url+"/")
	p.enter("#token", reader+kb.Enter)
	p.shows("ppg-1")
	p.goTo("#device?device=ppg-1&range=1h")
	p.drawn()
	texts := eval[[]string](p,
		`Promise.all([...document.querySelectorAll(".exports a")].map((a) => fetch(a.href).then((r) => r.text())))`)
	if len(texts) != 3 {
		t.Fatalf("there are %d links, want 3", len(texts))
	}
	for i, text := range texts[:2] {
		if strings.Contains(text, "61.5") || !strings.Contains(text, "62.5") || !strings.Contains(text, "63.5") {
			t.Errorf("link %d has\n%s", i, text)
		}
	}
	if parquet := texts[2]; !strings.HasPrefix(parquet, "PAR1") || !strings.HasSuffix(parquet, "PAR1") {
		t.Error("the third link is no file in Parquet")
	}
	if got := eval[string](p, `[...document.querySelectorAll(".exports a")].map((a) => a.download).join()`); got !=
		"ppg-1.csv,ppg-1.ndjson,ppg-1.parquet" {
		t.Errorf("the files are %s", got)
	}
}

// The subject to whom a device is assigned now is shown to those who may read the device, and to
// nobody else.
func TestSubject(t *testing.T) {
	s, file, few := withTokens(t, "--devices=ppg-f")
	all := newToken(t, file, "office", "read")
	fewReadings(s)
	for device, subject := range map[string]string{"ppg-flagged": "P-17", "ppg-silent": "P-18"} {
		s.do("POST", s.admin+"/admin/subject/assign",
			strings.NewReader(fmt.Sprintf(`{"device":%q,"subject":%q,"from":"2020-01-01T00:00:00Z"}`, device, subject)))
	}
	p := open(t, s.url+"/#device?device=ppg-flagged")
	p.enter("#token", few+kb.Enter)
	p.shows("Subject P-17")
	p.goTo("#device?device=ppg-silent")
	p.shows("No readings are stored for this device.")
	if strings.Contains(p.text(), "P-1") {
		t.Errorf("the page shows\n%s", p.text())
	}
	if got := eval[string](p,
		`fetch("v1/devices/ppg-silent").then(async (r) => r.status + await r.text())`); !strings.HasPrefix(got, "403") ||
		strings.Contains(got, "P-18") {
		t.Errorf("another device is answered with %s", got)
	}
	p.expectProblem("403")
	p.goTo("#fleet")
	p.press("Sign out")
	p.enter("#token", all+kb.Enter)
	p.shows("ppg-silent")
	p.goTo("#device?device=ppg-silent")
	p.shows("Subject P-18 since")

	s.do("POST", s.admin+"/admin/subject/end",
		strings.NewReader(fmt.Sprintf(`{"device":"ppg-silent","from":"2020-01-01T00:00:00Z","to":%q}`, stamp(time.Minute))))
	p.shows("Nobody since")
	if strings.Contains(p.text(), "Subject P-18") {
		t.Errorf("after the assignment has ended, the page shows\n%s", p.text())
	}
}

// A device that is assigned anew: its page shows no value, range or alert under the name of a subject who did not
// wear it then, and marks each change. It follows changes while it is open.
func TestAssignedAnew(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "alerts.toml")
	try(t, os.WriteFile(rules, []byte("[[alert]]\nname = \"LowSpO2\"\nsign = \"spo2_pct\"\nbelow = 90\n"), 0o600))
	s := serve(t, "--alerts="+rules)
	change := func(do, subject, from, to string) {
		t.Helper()
		body := fmt.Sprintf(`{"device":"ward-2","from":%q`, from)
		for member, value := range map[string]string{"subject": subject, "to": to} {
			if value != "" {
				body += fmt.Sprintf(`,%q:%q`, member, value)
			}
		}
		s.do("POST", s.admin+"/admin/subject/"+do, strings.NewReader(body+"}"))
	}
	began := time.Now()
	before := func(ago time.Duration) string { return stamp(ago + time.Since(began)) }
	first, end, second := before(50*time.Minute), before(20*time.Minute), before(time.Minute)
	change("assign", "P-102", first, "")
	var readings []string
	for i := range 576 { // 360 of them on P-102
		at := before(50*time.Minute - 2*time.Second - time.Duration(i)*5*time.Second)
		readings = append(readings, fmt.Sprintf(`{"device":"ward-2","time":%q,"heart_rate_bpm":%d,"spo2_pct":85}`,
			at, 131+i%3))
	}
	s.post(readings...)
	p := open(t, s.url+"/#device?device=ward-2&range=1h")
	p.drawn()
	p.shows("Subject P-102 since")
	p.shows("1 active alert")
	const cards = `[...document.querySelectorAll("dl.latest > div")].map((e) => e.innerText.replaceAll(/\s+/g, " ` +
		`").replace(/\d+ (s|min) ago.*/, "AGO")).join("|")`
	if got := eval[string](p, cards); got != "SpO₂ 85 % ▼ low AGO|Heart rate 133 /min ▲ high AGO" {
		t.Errorf("the cards are %s", got)
	}

	// While the page is open, the assignment ends, and then another begins.
	change("end", "", first, end)
	p.shows("Nobody since")
	p.until(`document.querySelector("figure[data-chart='Heart rate'] .summary").innerText.includes("nobody, from")`)
	change("assign", "P-200", second, "")
	p.shows("Subject P-200 since")
	p.until(cards + ` === "SpO₂ – (before P-200)|Heart rate – (before P-200)"`)
	p.shows("No active alert")
	p.until(`document.querySelector("figure[data-chart='Heart rate'] .summary").innerText.includes("P-200, from")`)
	const want = "P-102, from T, Heart rate: 360 values from 131 to 133 /min, mean 132. nobody, from T, Heart rate: 216 " +
		"values from 131 to 133 /min, mean 132. P-200, from T, Heart rate: "
	figures := func(ending string) {
		t.Helper()
		if got := regexp.MustCompile(`20[0-9-]+ [0-9:]+`).ReplaceAllString(summary(p, "Heart rate"),
			"T"); !strings.HasPrefix(got, want+ending) {
			t.Errorf("the summary is\n%s\nwant\n%s", got, want+ending)
		}
	}
	figures("no values.")

	// What is measured on P-200 is shown under that name, in the cards, the charts and the list of alerts.
	following(p, s)
	s.post(reading("ward-2", time.Second, `"heart_rate_bpm":70,"spo2_pct":89`))
	p.until(cards + ` === "SpO₂ 89 % ▼ low AGO|Heart rate 70 /min AGO"`)
	p.shows("1 active alert")
	p.until(`document.querySelector("figure[data-chart='Heart rate'] .summary").innerText.includes("Heart rate: 1 ` +
		`value, 70 /min")`)
	if got := eval[string](p, `fetch("v1/alerts").then((r) => r.json()).then((r) => r.alerts[0].since)`); got != second {
		t.Errorf("the alert is active since %s, want the beginning of the assignment, %s", got, second)
	}
	p.goTo("#device?device=ward-2&range=24h")
	p.shows("buckets of 5 min") // none has values of two
	p.drawn()
	figures("1 value, 70 /min.")
	p.js(`document.querySelector("figure[data-chart='Heart rate'] details").open = true`)
	p.until(`document.querySelector("figure[data-chart='Heart rate'] tbody tr:last-child td:last-child")?.innerText ` +
		`=== "P-200"`)

	// The lines have the subjects on both sides, also where they are close to each other and to the edge.
	p.js(`window.written = []; const write = CanvasRenderingContext2D.prototype.fillText; ` +
		`CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { written.push(text); write.call(this, ` +
		`text, ...at); }`)
	for _, span := range []string{"1h", "6h"} {
		p.js(`written = []`)
		p.goTo("#device?device=ward-2&range=" + span)
		p.until(`["nobody → P-102", "P-102 → nobody", "nobody → P-200"].every((text) => written.filter((w) => w === ` +
			`text).length >= 2)`)
	}

	// Nothing is drawn under the name of P-200 that was measured on nobody, before the page can read who wears the device.
	p.goTo("#device?device=ward-2&range=1h")
	p.run(chromedp.Reload())
	p.drawn()
	p.until(`document.querySelector("figure[data-chart='Heart rate'] .summary").innerText.includes("Heart rate: 1 ` +
		`value, 70 /min")`)
	following(p, s)
	p.js(`window.seen = []; const real = fetch; fetch = (path, ...rest) => {
		if (!path.startsWith("v1/devices")) return real(path, ...rest);
		seen.push(document.querySelector("figure[data-chart='Heart rate'] .summary").innerText);
		return new Promise(() => {});
	}`)
	change("end", "", second, stamp(0))
	s.post(reading("ward-2", 0, `"heart_rate_bpm":75,"spo2_pct":98`))
	p.until(`seen.length > 2`)
	if got := eval[string](p, `seen.find((text) => text.includes("70 to 75")) ?? ""`); got != "" {
		t.Errorf("what was measured on nobody is drawn as\n%s", got)
	}
}

// Whoever signs out while a view is loading sees neither its errors nor that the session has
// ended, and no request of the view fails for lack of a session.
func TestSignOutWhileLoading(t *testing.T) {
	s, _, token := withTokens(t)
	fewReadings(s)
	p := open(t, s.url+"/")
	p.enter("#token", token+kb.Enter)
	p.shows("ppg-flagged")
	// What views request reaches the server after the end of the session.
	p.js(`
		const send = fetch, session = Promise.withResolvers();
		window.waiting = 0;
		window.waited = false;
		window.fetch = async (path, options) => {
			if (options.method === "DELETE") return send(path, options).finally(session.resolve);
			if (path.startsWith("v1/session")) return send(path, options);
			window.waiting++;
			window.waited = true;
			await session.promise;
			return send(path, options).finally(() => window.waiting--);
		}`)
	p.goTo("#device?device=ppg-flagged")
	p.until("window.waited")
	p.press("Sign out")
	p.shows("Token with the right to read")
	p.until("window.waiting === 0")
	p.shows("Token with the right to read")
	if text := p.text(); strings.Contains(text, "ended") {
		t.Errorf("the page shows\n%s", text)
	}
}

// Everything works with the keyboard alone.
func TestKeyboard(t *testing.T) {
	s := serve(t)
	fewReadings(s)
	s.post(reading("ppg-flagged", 10*time.Minute, `"heart_rate_bpm":90`),
		reading("ppg-flagged", 5*time.Minute, `"heart_rate_bpm":91`))
	p := open(t, s.url+"/")
	p.shows("ppg-flagged")
	tabTo(p, `document.activeElement.innerText === "ppg-flagged" && document.activeElement.closest("table") !== null`)
	p.key(kb.Enter)
	p.drawn()
	tabTo(p, `document.activeElement.matches("figure[data-chart='Heart rate'] [role=slider]")`)
	point := func() string {
		return eval[string](p, `document.activeElement.getAttribute("aria-valuetext")`)
	}
	for _, tt := range []struct{ key, want string }{
		{kb.Home, "Heart rate 90 /min"}, {kb.ArrowRight, "Heart rate 91 /min"},
		{kb.ArrowRight, "Heart rate 140.25 /min, flagged: high"},
		{kb.ArrowRight, "Heart rate 140.25"}, {kb.ArrowLeft, "Heart rate 91"}, {kb.End, "140.25"},
		{kb.Escape, "no point chosen"},
	} {
		p.key(tt.key)
		if got := point(); !strings.Contains(got, tt.want) {
			t.Errorf("the cursor is at %q, want %q", got, tt.want)
		}
	}
	p.js(`document.activeElement.blur()`)
	tabTo(p, `document.activeElement.innerText === "1 h"`)
	p.key(" ")
	p.until(`location.hash.includes("range=1h") && ` +
		`document.querySelector("button[data-range='1h']").getAttribute("aria-pressed") === "true"`)
	tabTo(p, `document.activeElement.getAttribute("aria-label") === "Zoom in"`)
	p.key(kb.Enter)
	p.until(`location.hash.includes("from=")`)
}

// tabTo presses the tab key until a condition on the focused element is true.
func tabTo(p *tab, condition string) {
	p.t.Helper()
	for range 80 {
		p.key(kb.Tab)
		if eval[bool](p, condition) {
			return
		}
	}
	p.t.Fatalf("the tab key does not reach %s", condition)
}

// No page has a violation that axe-core finds, in light and in dark, and none is wider than
// the screen of a phone, a tablet or a desktop.
func TestAccessible(t *testing.T) {
	axe, err := os.ReadFile("testdata/axe.min.js")
	try(t, err)
	s, _, reader := withTokens(t)
	fewReadings(s)
	var readings []string
	for i := range 1500 {
		readings = append(readings, reading("ppg-many", time.Duration(1500-i)*time.Minute,
			fmt.Sprintf(`"heart_rate_bpm":%d,"spo2_pct":%d,"systolic_mmhg":%d,"diastolic_mmhg":70`, 60+i%80, 88+i%12, 110+i%20)))
	}
	s.post(readings...)
	p := open(t, s.url+"/")
	p.until(`document.querySelector("#token") !== null`)
	check := func(page string) {
		t.Helper()
		for _, scheme := range []string{"light", "dark"} {
			p.scheme(scheme)
			for _, width := range []int64{1280, 1024, 768, 360} {
				p.screen(width, 800)
				if got := eval[int64](p, `document.documentElement.scrollWidth`); got > width {
					t.Errorf("%s: %d px wide on a screen of %d", page, got, width)
				}
				if width == 1024 || width == 768 { // between two widths that axe checks
					continue
				}
				rules := `["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]`
				if scheme == "dark" { // the schemes differ in colours only, which do not depend on the width
					if width < 1280 {
						continue
					}
					rules = `{ type: "rule", values: ["color-contrast", "link-in-text-block"] }`
				}
				found := eval[string](p,
					fmt.Sprintf(`(async () => { const r = await axe.run({ runOnly: %s, resultTypes: ["violations"] });
					return r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html + " " + n.failureSummary).join("\n  ")).join("\n"); })()`, rules))
				if found != "" {
					t.Errorf("%s, %s, %d px: %s", page, scheme, width, found)
				}
			}
		}
		p.screen(1280, 900)
	}
	p.js(string(axe))
	check("sign-in")
	p.enter("#token", reader+kb.Enter)
	p.shows("ppg-flagged")
	check("fleet")
	for _, view := range []string{"device=ppg-flagged&range=1h", "device=ppg-many&range=7d", "device=ppg-silent&range=1h",
		"device=no-such"} {
		p.goTo("#device?" + view)
		if strings.Contains(view, "1h") || strings.Contains(view, "7d") {
			p.until(fmt.Sprintf(`location.hash.includes(%q) && (document.querySelector(".shown")?.innerText ?? "") !== ""`,
				view))
		} else {
			p.shows("No readings are stored for this device.")
		}
		p.js(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`)
		check("device " + view)
	}
	p.goTo("#system")
	p.drawn()
	check("system")
}

// The system view draws the numbers of /metrics, and begins with what the server has counted before the page was
// opened.
func TestSystem(t *testing.T) {
	s := serve(t)
	fewReadings(s)
	p := open(t, s.url+"/")
	p.shows("ppg-fresh")
	p.until(`fetch("v1/system").then((r) => r.json()).then((b) => b.history?.stored_per_second.some((v) => v > 0))`)
	// The view has one answer only.
	p.js(`
		const send = fetch;
		let asked = false;
		window.fetch = (path, options) => {
			if (path !== "v1/system") return send(path, options);
			if (asked) return new Promise(() => {});
			asked = true;
			return send(path, options);
		}`)
	p.goTo("#system")
	p.drawn()
	if rows := dataOf(p, "Readings stored"); !slices.ContainsFunc(rows, func(row []string) bool {
		return row[1] != "0" &&
			row[1] != "–"
	}) {
		t.Errorf("none of the stored readings is shown: %q", rows)
	}
	p.until(`[...document.querySelectorAll("tbody tr")].some((tr) => tr.innerText.replaceAll(/\s+/g, " ").trim() === ` +
		`"stored 3")`)
	var body struct {
		Metrics map[string][]struct{ Value float64 }
	}
	try(t, json.Unmarshal([]byte(s.do("GET", s.url+"/v1/system", nil)), &body))
	if got := body.Metrics["pulsegate_store_devices"][0].Value; got != 3 {
		t.Errorf("%v devices, want 3", got)
	}
}

// The system view of a server that has just started shows a summary of each chart: the time of a commit has no value
// yet. It shows rejections as text, and nothing of them while there are none.
func TestRejections(t *testing.T) {
	p := open(t, serve(t).url+"/#system")
	p.drawn()
	if got := summary(p, "Time of a commit, 99 % below"); got != "No values in this range." {
		t.Errorf("the summary is %q", got)
	}
	if eval[bool](p, `document.body.innerText.includes("Rejections")`) {
		t.Error("a list of no rejections is shown")
	}
	p.goTo("#fleet")
	p.shows("No device has sent readings yet.")
	p.js(`
		const send = fetch;
		window.fetch = (path, options) => path.startsWith("v1/rejections") ? Promise.resolve(new Response(JSON.stringify({ total: 12345, rejections: [
			{ time: "2026-11-24T10:00:01.000Z", input: "mqtt", gateway: "bed-7", device: "ppg-1", field: "spo2_pct", reason: "<img src=x onerror=alert(1)> &amp;" },
			{ time: "2026-11-24T10:00:00.000Z", input: "mqtt", field: "", reason: "not a topic" }] }))) : send(path, options);`)
	p.goTo("#system")
	p.shows("The newest 2 of 12,345 since the start")
	for _, want := range []string{"mqtt bed-7 ppg-1 spo2_pct <img src=x onerror=alert(1)> &amp;",
		"mqtt – – – not a topic"} {
		p.until(fmt.Sprintf(
			`[...document.querySelectorAll("section tbody tr")].some((tr) => [...tr.children].slice(1).map((td) => `+
				`td.innerText).join(" ") === %q)`, want))
	}
	p.screen(360, 800)
	if got := eval[int64](p, `document.documentElement.scrollWidth`); got > 360 {
		t.Errorf("%d px wide on a screen of 360", got)
	}
	axe, err := os.ReadFile("testdata/axe.min.js")
	try(t, err)
	p.js(string(axe))
	if found := eval[string](p,
		`axe.run("section").then((r) => r.violations.map((v) => v.id + ": " + v.help).join("\n"))`); found != "" {
		t.Error(found)
	}
}

// summary returns the summary in words of a chart.
func summary(p *tab, chart string) string {
	p.t.Helper()
	selector := fmt.Sprintf("figure[data-chart=%q] .summary", chart)
	p.until(fmt.Sprintf("document.querySelector(%q) !== null", selector))
	return eval[string](p, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// Active alerts are in a column and a list of the fleet, and in a list and the charts of their device. They
// come and go without a new request.
func TestAlerts(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "alerts.toml")
	if err := os.WriteFile(rules, []byte(`[[alert]]
name = "HeartFast"
sign = "heart_rate_bpm"
flag = "high"
labels = { severity = "<b>page</b>" }
[[alert]]
name = "Silent"
silent = "30m"
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--alerts="+rules)
	fewReadings(s)
	p := open(t, s.url+"/")
	p.shows("2 active alerts")
	p.shows("Pulsegate is not a medical alarm system (IEC 60601-1-8)")
	column := func(want string) {
		t.Helper()
		p.until(fmt.Sprintf(
			`[...document.querySelectorAll("table.fleet tbody tr")].map((tr) => tr.children[0].innerText + " " + `+
				`tr.children[3].innerText.trim()).join() === %q`, want))
	}
	if got := eval[string](p,
		`[...document.querySelectorAll("table.fleet thead th")].slice(0, 4).map((th) => th.innerText.trim()).join()`); got !=
		"Device,State,Last reading,Alerts" {
		t.Errorf("the columns are %q", got)
	}
	column("ppg-flagged ⚠ HeartFast,ppg-silent ⚠ Silent,ppg-fresh –")
	p.click(".alerts summary")
	const list = `[...document.querySelectorAll(".alerts tbody tr")].map((tr) => [...tr.children].filter((c, i) => i ` +
		`!== 3).map((c) => c.innerText).join("|")).join("\n")`
	if got, want := eval[string](p, list),
		"HeartFast|ppg-flagged|heart_rate_bpm flagged as high|severity = <b>page</b>\nSilent|ppg-silent|no "+
			"reading for 30m|"; got != want {
		t.Errorf("the list is\n%s\nwant\n%s", got, want)
	}
	axe, err := os.ReadFile("testdata/axe.min.js")
	try(t, err)
	p.js(string(axe))
	for _, scheme := range []string{"dark", "light"} {
		p.scheme(scheme)
		if found := eval[string](p,
			`axe.run("main").then((r) => r.violations.map((v) => v.id + ": " + v.help).join("\n"))`); found != "" {
			t.Errorf("%s: %s", scheme, found)
		}
	}
	p.screen(360, 800)
	if got := eval[int64](p, `document.documentElement.scrollWidth`); got > 360 {
		t.Errorf("%d px wide on a screen of 360", got)
	}
	p.screen(1280, 900)
	// If the list of the server does not have all, the alerts of the devices on the page are asked for.
	p.js(`window.send = fetch; window.fetch = async (path, options) => path !== "v1/alerts?limit=1000" ? send(path, options) :
		new Response(JSON.stringify({ ...await (await send(path, options)).json(), alerts: [] }), { headers: { "Content-Type": "application/json" } });`)
	p.click("button[data-state='']")
	p.shows("The newest 0 of 2.")
	column("ppg-flagged ⚠ HeartFast,ppg-silent ⚠ Silent,ppg-fresh –")
	p.js(`{ window.fetch = (path, options) => path.startsWith("v1/alerts") ? new Promise(() => {}) : send(path, ` +
		`options); }`)
	following(p, s)
	s.post(reading("ppg-fresh", 0, `"heart_rate_bpm":150`), reading("ppg-flagged", 0, `"heart_rate_bpm":70`))
	p.until(`document.querySelector("tr[data-device=ppg-fresh]").innerText.includes("⚠ HeartFast")`)
	p.until(`!document.querySelector("tr[data-device=ppg-flagged]").innerText.includes("⚠")`)

	p.run(chromedp.Navigate(s.url + "/?#device?device=ppg-fresh&range=1h"))
	p.drawn()
	p.shows("1 active alert")
	p.shows("not a medical alarm system")
	p.until(`document.querySelector("figure[data-chart='Heart rate'] .summary").innerText.endsWith(", 1 alert: ` +
		`HeartFast.")`)
	if got := summary(p, "SpO₂"); strings.Contains(got, "alert") {
		t.Errorf("the summary of another sign is %q", got)
	}
	band := `(() => { const c = document.querySelector("figure[data-chart='Heart rate'] canvas"), x = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, want = [0x6b, 0x4a, 0x00];
		for (let i = 0; i < x.length; i += 4) if (want.every((v, k) => x[i + k] === v)) return true;
		return false; })()`
	if !eval[bool](p, band) {
		t.Error("the chart has no band")
	}
	following(p, s)
	s.post(reading("ppg-fresh", 0, `"heart_rate_bpm":71`))
	p.shows("No active alert")
	p.goTo("#device?device=ppg-silent&range=6h")
	p.until(`document.querySelector("figure[data-chart='Resting heart rate'] .summary")?.innerText.endsWith(", 1 ` +
		`alert: Silent.")`)
}

// Until the states of all devices are known, the page does not say that nothing is active.
func TestAlertsUnknown(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "alerts.toml")
	try(t, os.WriteFile(rules, []byte("[[alert]]\nname = \"HeartFast\"\nsign = \"heart_rate_bpm\"\nflag = \"high\"\n"),
		0o600))
	s := serve(t, "--alerts="+rules)
	fewReadings(s)
	p := open(t, s.url+"/")
	p.shows("1 active alert")
	p.js(`window.send = fetch; window.fetch = async (path, options) => !path.startsWith("v1/alerts") ? send(path, options) :
		new Response(JSON.stringify({ ...await (await send(path, options)).json(), alerts: [], total: 0, ...window.unknown }), { headers: { "Content-Type": "application/json" } });`)
	for _, tt := range []struct{ unknown, shown string }{
		{"{ ready: false }", "Active alerts are not known yet"},
		{"{ unread: 1 }", "No active alert; those of 1 device are not known"},
	} {
		p.js("window.unknown = " + tt.unknown)
		p.click("button[data-state='']")
		p.shows(tt.shown)
		p.until(`[...document.querySelectorAll("table.fleet tbody tr")].every((tr) => ` +
			`tr.children[3].innerText.trim() === "?")`)
	}
}

// The list is bounded, however many alerts begin while the page is open, and the number of those that are active stays
// right.
func TestManyAlerts(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "alerts.toml")
	try(t, os.WriteFile(rules, []byte("[[alert]]\nname = \"HeartFast\"\nsign = \"heart_rate_bpm\"\nflag = \"high\"\n"),
		0o600))
	s := serve(t, "--alerts="+rules)
	p := open(t, s.url+"/")
	p.shows("No active alert")
	p.js(`window.send = fetch; window.fetch = async (path, options) => !path.startsWith("v1/alerts") ? send(path, options) :
		new Response(JSON.stringify({ ...await (await send(path, options)).json(), total: 1000, alerts: Array.from({ length: 1000 }, (_, i) => (
			{ name: "HeartFast", device: "other-" + i, sign: "heart_rate_bpm", condition: "", since: "2026-11-24T10:00:01.000Z" })) }), { headers: { "Content-Type": "application/json" } });`)
	s.post(reading("ppg-1", 0, `"heart_rate_bpm":70`))
	p.click("button[data-state='']")
	p.shows("1,000 active alerts")
	p.js(`window.fetch = (path, options) => path.startsWith("v1/alerts") ? new Promise(() => {}) : send(path, options);`)
	p.click(".alerts summary")
	following(p, s)
	listed := func(n int) {
		t.Helper()
		p.until(fmt.Sprintf(`document.querySelectorAll(".alerts tbody tr").length === %d`, n))
	}
	s.post(reading("ppg-1", 0, `"heart_rate_bpm":150`))
	p.shows("The newest 1,000 of 1,001.")
	listed(1000)
	s.post(reading("ppg-1", 0, `"heart_rate_bpm":70`))
	p.shows("The newest 999 of 1,000.")
	listed(999)
}
