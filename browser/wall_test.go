package browser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// ages returns the numbers of seconds in the ages that the page shows.
const ages = `[...document.querySelectorAll("[data-at]")].map((e) => parseInt(e.textContent.match(/\d+ s/)?.[0]))`

// older waits until every age that the page shows is at least some seconds greater than those before.
func older(p *tab, before []int, seconds int) {
	p.t.Helper()
	p.until(fmt.Sprintf(
		`((now, before) => now.length === before.length && now.every((s, i) => s >= before[i] + %d))(%s, %s)`, seconds, ages,
		strings.ReplaceAll(fmt.Sprint(before), " ", ",")))
}

// isQuiet is whether the page says that it is not live, and its values are grey.
const isQuiet = `!document.querySelector("#band").hidden && getComputedStyle(document.querySelector(".value, .latest ` +
	`dd")).color === getComputedStyle(document.querySelector(".notice, .quiet")).color`

var notLive = regexp.MustCompile(`^Not live since \d\d:\d\d:\d\d, for \d+ s\.`)

// quiet waits until the page says since when it is not live, and counts.
func quiet(p *tab, since time.Time) {
	p.t.Helper()
	p.until(isQuiet)
	text := eval[string](p, `document.querySelector("#band").innerText`)
	if !notLive.MatchString(text) {
		p.t.Errorf("the band says %q", text)
	}
	zone := eval[int](p, `0 - new Date().getTimezoneOffset()`)
	at, err := time.Parse("15:04:05", strings.Fields(strings.ReplaceAll(text, ",", ""))[3])
	try(p.t, err)
	local := since.UTC().Add(time.Duration(zone) * time.Minute)
	second := func(t time.Time) int { return t.Hour()*3600 + t.Minute()*60 + t.Second() }
	// the last event was shortly before, or is on its way
	if d := (second(at) - second(local) + 24*3600) % (24 * 3600); d > 60 && d < 24*3600-10 {
		p.t.Errorf("the band says %q; the server was stopped at %v", text, local)
	}
	p.until(fmt.Sprintf(`document.querySelector("#band").innerText !== %q`, text))
}

// axe checks the page by the rules of axe.
func axe(p *tab) {
	p.t.Helper()
	rules, err := os.ReadFile("testdata/axe.min.js")
	try(p.t, err)
	p.js(string(rules))
	for _, scheme := range []string{"dark", "light"} {
		p.scheme(scheme)
		if found := eval[string](p,
			`axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes[0].html).join("\n"))`); found !=
			"" {
			p.t.Errorf("%s: %s", scheme, found)
		}
	}
}

// TestNotLive stops the server, and kills it. Ages go on, a device goes silent on the screen, and the page says since
// when it is not live, in every view.
func TestNotLive(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "alerts.toml")
	try(t, os.WriteFile(rules, []byte("[[alert]]\nname = \"HeartFast\"\nsign = \"heart_rate_bpm\"\nflag = \"high\"\n"),
		0o600))
	s := serve(t, "--alerts="+rules, "--stale-after=30s")
	s.post(reading("ppg-1", 0, `"heart_rate_bpm":150`), reading("ppg-2", 0, `"heart_rate_bpm":70,"spo2_pct":98`))
	p := open(t, s.url+"/")
	p.shows("1 active alert")
	p.click(".alerts summary")
	following(p, s)
	if eval[bool](p, `!document.querySelector("#band").hidden`) {
		t.Error("a live page says that it is not")
	}
	before, stopped := eval[[]int](p, ages), time.Now()
	if len(before) < 4 { // of the headline, the alert, and each row
		t.Errorf("the page shows %d ages: %s", len(before), p.text())
	}
	try(t, s.process.Signal(syscall.SIGSTOP))
	older(p, before, 4)
	quiet(p, stopped)
	p.until(`document.querySelector("tr[data-device=ppg-2]").innerText.includes("○ silent")`)
	axe(p)
	try(t, s.process.Signal(syscall.SIGCONT))
	p.until(`document.querySelector("#band").hidden`)

	s.post(reading("ppg-2", 0, `"heart_rate_bpm":71`))
	p.goTo("#device?device=ppg-2&range=1h")
	p.drawn()
	p.shows("● fresh")
	following(p, s)
	// A tab that was hidden says so at once when it is seen again.
	const hide = `Object.defineProperty(document, "hidden", { configurable: true, value: %v }); ` +
		`document.dispatchEvent(new Event("visibilitychange"));`
	p.js(fmt.Sprintf(hide, true))
	try(t, s.process.Kill())
	stopped = time.Now()
	p.js(`window.realNow = Date.now; Date.now = () => realNow() + 20000`)
	p.js(fmt.Sprintf(hide, false) + "window.seen = " + isQuiet)
	if !eval[bool](p, "window.seen") {
		t.Error("a tab that is seen again does not say that it is not live")
	}
	quiet(p, stopped)
	p.shows("○ silent")
	p.run(chromedp.Navigate("about:blank"))
	p.expectProblem("ERR_") // the requests that fail
}

// TestClockOff opens the page in a browser whose clock is a day ahead, or behind: ages are by the server's clock.
func TestClockOff(t *testing.T) {
	for _, off := range []string{"+", "-"} {
		t.Run(off, func(t *testing.T) {
			s := serve(t)
			s.post(reading("ppg-1", 10*time.Second, `"heart_rate_bpm":70`))
			p := open(t, s.url+"/#system")
			call(p, page.AddScriptToEvaluateOnNewDocument,
				page.AddScriptToEvaluateOnNewDocumentParams{Source: `{ const real = Date.now; Date.now = () => real() ` + off +
					` 86400000; }`})
			p.run(chromedp.Navigate(s.url + "/?#fleet"))
			p.until(`/^\d\d s ago$/.test(document.querySelector("tr[data-device=ppg-1] .value")?.innerText)`)
			p.shows("● fresh")
			p.goTo("#device?device=ppg-1")
			p.drawn()
			p.until(`/^\d\d s ago$/.test(document.querySelector(".latest [data-at]")?.innerText)`)
			if eval[bool](p, `!document.querySelector("#band").hidden`) {
				t.Error("the page says that it is not live")
			}
		})
	}
}

// TestWorstFirst checks the headline and the table: an alert about a sign stands first, a flagged value is shown
// whichever columns are chosen, and a critical fresh value is before one that was measured earlier.
func TestWorstFirst(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "alerts.toml")
	try(t, os.WriteFile(rules, []byte("[[alert]]\nname = \"SpO2Low\"\nsign = \"spo2_pct\"\nbelow = 60\n"), 0o600))
	s := serve(t, "--alerts="+rules)
	s.post(
		reading("a-systolic", 8*time.Minute, `"systolic_mmhg":83,"diastolic_mmhg":60`),
		reading("b-glucose", time.Minute, `"glucose_mg_dl":50`),
		reading("z-alert", 0, `"spo2_pct":55,"heart_rate_bpm":70`), reading("c-old", time.Hour, `"spo2_pct":55`),
	)
	p := open(t, s.url+"/")
	p.shows("1 active alert")
	p.until(`[...document.querySelectorAll("table.fleet tbody th")].map((e) => e.innerText).join() === "z-alert,` +
		`b-glucose,a-systolic,c-old"`)
	p.shows("Worst: z-alert – ⚠ SpO2Low: SpO₂ 55 % ◆ outside validated range, ▼ low, measured ")
	p.until(`document.querySelector("tr[data-device=b-glucose] td").innerText.replaceAll(/\s+/g, " ").includes("Glucose ` +
		`50 mg/dL ▼ low")`)
	p.click("details.columns summary")
	p.click("input[data-sign=spo2_pct]")
	p.until(`document.querySelector("tr[data-device=z-alert] td").innerText.replaceAll(/\s+/g, " ` +
		`").includes("SpO₂ 55 % ")`)
	p.shows("no clinical weight")
	p.shows("adults, not in pregnancy")
	axe(p)
	var names []string
	for _, row := range eval[[][]string](p, cells) {
		names = append(names, row[0])
	}
	if !slices.Equal(names, []string{"z-alert", "b-glucose", "a-systolic", "c-old"}) {
		t.Errorf("the rows are %q", names)
	}
}
