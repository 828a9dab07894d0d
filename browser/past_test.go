package browser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withRule returns the arguments of a server with a rule about heart rates that are flagged as high.
func withRule(t testing.TB) string {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "alerts.toml")
	const rule = "[[alert]]\nname = \"HeartFast\"\nsign = \"heart_rate_bpm\"\nflag = \"high\"\nmax_age = \"2h\"\n"
	try(t, os.WriteFile(rules, []byte(rule), 0o600))
	return "--alerts=" + rules
}

// fires stores a reading of a device, and waits until the device has an alert, and until the next reading comes too late to
// be taken together with this one.
func (s *server) fires(device, reading string) {
	s.t.Helper()
	posted := time.Now()
	s.post(reading)
	for time.Since(posted) < time.Second ||
		!strings.Contains(s.do("GET", s.url+"/v1/alerts?device="+device, nil), `"total":1`) {
		if time.Since(posted) > patience {
			s.t.Fatal("there is no alert")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// pastRows is an expression of the list of past alerts, without times but with whether they go on.
const pastRows = `[...document.querySelectorAll("details.past tbody tr")].map((tr) => [...tr.children].map((c) => ` +
	`c.textContent.replaceAll(/\s+/g, " ").trim()).filter((c, i) => i < 3 || c.includes("active")).map((c) => ` +
	`c.replace(/at .*/, "")).join("|")).join("\n")`

// past waits until the list of past alerts has some rows, and returns when they began and ended.
func (p *tab) past(want string) [][]string {
	p.t.Helper()
	p.until(fmt.Sprintf(`!(document.querySelector("details.past")?.hidden ?? true) && %s === %q`, pastRows, want))
	return eval[[][]string](p, `[...document.querySelectorAll("details.past tbody tr")].map((tr) => [3, 4].map((i) => `+
		`tr.children[i].textContent))`)
}

// lines returns at how many places a chart has a line from top to bottom in the colour of alerts.
const lines = `(() => { const c = document.querySelector("figure[data-chart='Heart rate'] canvas"), x = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
	let n = 0, last = false;
	for (let i = 0; i < c.width; i++) {
		let high = 0;
		for (let k = 0; k < c.height; k++) if ([0x6b, 0x4a, 0x00].every((v, j) => x[4 * (k * c.width + i) + j] === v)) high++;
		const line = high > 80;
		if (line && !last) n++;
		last = line;
	}
	return n; })()`

// The page of a device marks alerts that have ended before it was opened, by today's rules. A range is asked for once.
// If the server does not tell, the page says so.
func TestPastAlerts(t *testing.T) {
	s := serve(t, withRule(t))
	s.post(reading("ppg-1", 40*24*time.Hour, `"spo2_pct":98`))
	s.post(reading("ppg-1", 40*time.Minute, `"heart_rate_bpm":70,"spo2_pct":98`))
	s.fires("ppg-1", reading("ppg-1", 30*time.Minute, `"heart_rate_bpm":151,"spo2_pct":97`))
	s.post(reading("ppg-1", 10*time.Minute, `"heart_rate_bpm":71,"spo2_pct":98`))
	p := open(t, s.url+"/")
	p.js(`window.send = fetch; window.asked = []; window.fetch = (path, options) => {
		if (!/^v1\/alerts.*from=/.test(path)) return send(path, options);
		window.asked.push([path, document.querySelectorAll("figure canvas").length]);
		return window.refuse ? Promise.resolve(new Response(JSON.stringify({ detail: "Busy." }), { status: 503 })) : send(path, options);
	}`)
	p.goTo("#device?device=ppg-1&range=1h")
	p.drawn()
	const ended = "HeartFast|ppg-1|heart_rate_bpm flagged as high"
	p.shows("No active alert")
	p.shows("Alerts of this range by today’s rules, as of ")
	p.shows("These are alerts by today's rules")
	if n := eval[int](p, `document.body.innerText.split("not a medical alarm system").length - 1`); n != 1 {
		t.Errorf("the notice is shown %d times", n)
	}
	began := p.past(ended)[0]
	if want := dataOf(p, "Heart rate")[1][0]; began[0] != want || began[0] >= began[1] {
		t.Errorf("the alert began at %s and ended at %s, its value was measured at %s", began[0], began[1], want)
	}
	p.until(`document.querySelector("figure[data-chart='Heart rate'] .summary").innerText.endsWith(", 1 alert: ` +
		`HeartFast.")`)
	if got := summary(p, "SpO₂"); strings.Contains(got, "alert") {
		t.Errorf("the summary of another sign is %q", got)
	}
	p.until(lines + " === 2")
	p.click("details.past summary")
	axe(p)

	following(p, s)
	s.post(reading("ppg-1", time.Second, `"heart_rate_bpm":152`))
	p.shows("1 active alert")
	p.until(`document.querySelector("figure[data-chart='Heart rate'] .summary").innerText.endsWith(", 2 alerts: ` +
		`HeartFast (2).")`)
	p.press("6 h")
	p.past("HeartFast|ppg-1|heart_rate_bpm flagged as high|active \n" + ended)
	p.until(`document.querySelector("figure[data-chart='Heart rate'] .summary").innerText.endsWith(", 2 alerts: ` +
		`HeartFast (2).")`) // the active one is not marked twice
	if asked := eval[[]any](p, `window.asked.map(([, n]) => n)`); len(asked) != 2 || asked[0] == 0.0 {
		t.Errorf("when the alerts were asked for, there were %v charts", asked)
	}

	p.js(`window.refuse = true`)
	p.press("24 h")
	p.shows("Alerts of this range are not marked: the server is busy.")
	p.until(`document.querySelector("details.past").hidden`)
	p.js(`window.refuse = false`)
	p.press("Try again")
	p.past("HeartFast|ppg-1|heart_rate_bpm flagged as high|active \n" + ended)
	p.press("All")
	p.shows("Alerts of this range are not marked: it is too long")
	p.expectProblem("400")
	axe(p)
}

// The view of a patient marks the parts of alerts that lie in the patient's assignments, and no other, also after these
// are corrected. Devices are shown with their labels.
func TestPatientPast(t *testing.T) {
	devices := filepath.Join(t.TempDir(), "devices.toml")
	try(t, os.WriteFile(devices, []byte("[[device]]\ndevice = \"watch-1\"\nlabel = \"Bed 1\"\n"), 0o600))
	s := serve(t, withRule(t), "--devices="+devices)
	began, changed := stamp(50*time.Minute), stamp(20*time.Minute)
	assignment(s, "assign", "watch-1", "P-17", began, changed)
	assignment(s, "assign", "watch-1", "P-18", changed, "")
	assignment(s, "assign", "watch-2", "P-17", changed, "")
	s.post(reading("watch-1", 25*time.Minute, `"heart_rate_bpm":151`))
	s.fires("watch-1", reading("watch-1", 15*time.Minute, `"heart_rate_bpm":152`))
	s.post(reading("watch-1", 10*time.Minute, `"heart_rate_bpm":72`), reading("watch-2", 5*time.Minute, `"heart_rate_bpm":71`))
	p := open(t, s.url+"/#device?device=watch-2")
	p.shows("Subject P-17 since")
	p.click(`main a[href^="#patient"]`)
	p.shows("Patient P-17")
	p.drawn()
	part := p.past("HeartFast|Bed 1 watch-1|heart_rate_bpm flagged as high")[0]
	if rows := eval[string](p, `document.querySelector("main h2 + table").innerText`); !strings.Contains(rows, part[1]) {
		t.Errorf("the part ends at %s, and the assignments are\n%s", part[1], rows)
	}
	p.until(`document.querySelector("figure[data-chart='Heart rate'] .summary").innerText.endsWith(", 1 alert: ` +
		`HeartFast (Bed 1).")`)
	p.until(`document.querySelector("main h2 + table").innerText.includes("Bed 1 watch-1")`)
	axe(p)
	p.screen(360, 800)
	p.until(`document.documentElement.scrollWidth <= 360`)
	p.screen(1280, 900)

	assignment(s, "end", "watch-1", "", began, stamp(50*time.Minute-time.Millisecond))
	p.until(`document.querySelector("figure[data-chart='Heart rate'] .summary")?.innerText.includes("1 value, 71")`)
	p.past("")
	if got := summary(p, "Heart rate"); strings.Contains(got, "alert") {
		t.Errorf("after the device was another patient's, the summary is %q", got)
	}
}
