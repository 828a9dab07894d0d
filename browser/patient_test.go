package browser_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

// assignment sends a change of an assignment: assign, or end.
func assignment(s *server, do, device, subject, from, to string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"device":%q,"from":%q`, device, from)
	for member, value := range map[string]string{"subject": subject, "to": to} {
		if value != "" {
			body += fmt.Sprintf(`,%q:%q`, member, value)
		}
	}
	s.do("POST", s.admin+"/admin/subject/"+do, strings.NewReader(body+"}"))
}

// The view of a patient has what was measured of this patient, on all devices, while they were assigned, and nothing
// else, also after a device is assigned anew while it is open. No address and no title has the id.
func TestPatient(t *testing.T) {
	devices := filepath.Join(t.TempDir(), "devices.toml")
	const file = "[[subject]]\nsubject = \"P-17\"\nusual = { spo2_pct = \"80..84\" }\n"
	try(t, os.WriteFile(devices, []byte(file), 0o600))
	tokens := filepath.Join(t.TempDir(), "tokens")
	admin, reader := newToken(t, tokens, "ward", "write,read,admin"), newToken(t, tokens, "screen", "read")
	s := serve(t, "--tokens="+tokens, "--audit="+tokens+".log", "--devices="+devices)
	s.token = admin
	first, second := stamp(50*time.Minute), stamp(20*time.Minute)
	assignment(s, "assign", "watch-1", "P-17", first, second)
	assignment(s, "assign", "watch-1", "P-18", second, "")
	assignment(s, "assign", "watch-2", "P-17", second, "")
	assignment(s, "assign", "cuff-1", "P-17", first, "")
	s.post(reading("watch-1", 55*time.Minute, `"heart_rate_bpm":111`),
		reading("watch-1", 30*time.Minute, `"heart_rate_bpm":61`),
		reading("watch-1", 10*time.Minute, `"heart_rate_bpm":112`),
		reading("watch-2", time.Minute, `"heart_rate_bpm":63,"spo2_pct":85`),
		reading("cuff-1", 25*time.Minute, `"systolic_mmhg":120,"diastolic_mmhg":80`))
	p := open(t, s.url+"/#device?device=cuff-1")
	p.enter("#token", reader+kb.Enter)
	p.shows("Subject P-17 since")
	p.click(`main a[href^="#patient"]`)
	p.shows("Patient P-17")
	p.drawn()
	const cards = `[...document.querySelectorAll("dl.latest > div")].map((e) => e.innerText.replaceAll(/\s+/g, " ` +
		`").replace(/\d+ (s|min) ago/, "AGO")).join("|")`
	p.until(cards +
		` === "SpO₂ 85 % ▲ high AGO, watch-2|Blood pressure 120/80 mmHg AGO, cuff-1|Heart rate 63 /min AGO, watch-2"`)
	p.shows("Wears cuff-1 since")
	p.shows("Usual SpO₂ 80 to 84 % (this patient’s)")
	var values []string
	for _, row := range dataOf(p, "Heart rate") {
		values = append(values, strings.Join(row[1:], " "))
	}
	if want := []string{"61  watch-1", "63  watch-2"}; !slices.Equal(values, want) {
		t.Errorf("the heart rates are %q, want %q", values, want)
	}
	axe(p)
	p.screen(360, 800)
	p.until(`document.documentElement.scrollWidth <= 360`)
	p.screen(1280, 900)

	hash := eval[string](p, "location.hash")
	if where := eval[string](p, "location.href + document.title"); strings.Contains(where, "P-17") {
		t.Errorf("the id is in %s", where)
	}
	p.js(`location.reload()`)
	p.shows("Patient P-17")
	p.drawn()
	p.js(`const make = URL.createObjectURL; window.saved = new Promise((done) => {
		URL.createObjectURL = (blob) => { blob.text().then(done); return make.call(URL, blob); };
	})`)
	p.click(`[data-format="csv"]`)
	csv := eval[string](p, `window.saved`)
	if n := strings.Count(csv, ",P-17,"); n != 3 || strings.Count(csv, "\n") != 4 {
		t.Errorf("the file has\n%s", csv)
	}

	p.js(`window.link = document.querySelector("dl.latest a")`)
	following(p, s)
	s.post(reading("watch-2", time.Second, `"heart_rate_bpm":64`))
	p.until(cards + `.includes("Heart rate 64 /min AGO, watch-2")`)
	if !eval[bool](p, `window.link.isConnected`) {
		t.Error("a live reading replaces links that are the same")
	}
	third := stamp(0)
	assignment(s, "end", "watch-2", "", second, third)
	assignment(s, "assign", "watch-2", "P-19", third, "")
	s.post(reading("watch-2", 0, `"heart_rate_bpm":113`))
	p.until(`document.querySelector("main").innerText.match(/Wears cuff-1[^,]*\n/) && ` + cards +
		`.includes("Heart rate 64 /min AGO, watch-2")`)
	if text := p.text(); strings.Contains(text, "113") {
		t.Errorf("after watch-2 is another patient's, the page shows\n%s", text)
	}

	other := open(t, s.url+"/"+hash)
	other.enter("#token", reader+kb.Enter)
	other.shows("names nobody")
	p.press("Sign out")
	p.shows("Sign in")
	if kept := eval[bool](p, `sessionStorage.getItem("patients") !== null`); kept {
		t.Error("after the sign-out, the tab knows whose the address was")
	}
}

// Assignments of the past are corrected while the view is open: of a device that the patient still wears, and, while a
// range is zoomed, of one that the patient does not wear any more. What was measured of others leaves the screen. What
// cannot be compared with the server's assignments is hidden.
func TestPatientCorrected(t *testing.T) {
	s := serve(t)
	base := time.Now()
	at := func(ago time.Duration) string { return base.Add(-ago).UTC().Format("2006-01-02T15:04:05.000Z") }
	const began, changed = 4 * time.Hour, 2 * time.Hour
	atOnce := at(began - time.Millisecond) // the end of an assignment that was a mistake
	assignment(s, "assign", "watch-1", "P-17", at(began), "")
	assignment(s, "assign", "watch-2", "P-17", at(began), at(changed))
	s.post(reading("watch-1", 230*time.Minute, `"spo2_pct":84`),
		reading("watch-2", 210*time.Minute, `"heart_rate_bpm":163`),
		reading("watch-1", 3*time.Hour, `"heart_rate_bpm":161`), reading("watch-2", 150*time.Minute, `"heart_rate_bpm":64`),
		reading("watch-1", time.Hour, `"heart_rate_bpm":62,"spo2_pct":85`))
	p := open(t, s.url+"/#device?device=watch-1")
	p.shows("Subject P-17 since")
	p.click(`main a[href^="#patient"]`)
	p.shows("Patient P-17")
	rates := func(want ...string) {
		t.Helper()
		var got []string
		for _, row := range dataOf(p, "Heart rate") {
			got = append(got, row[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("the heart rates are %q, want %q", got, want)
		}
	}
	assignments := func(n int) {
		t.Helper()
		p.until(fmt.Sprintf(`document.querySelectorAll("main h2 + table tbody tr").length === %d`, n))
	}
	assignments(2)
	rates("163", "161", "64", "62")
	flagged := func(want string) {
		t.Helper()
		p.until(fmt.Sprintf(`document.querySelector("figure[data-chart=SpO₂] .summary")?.innerText.includes(%q)`, want))
	}
	flagged(", 1 flagged range.") // from 230 to 60 min ago

	assignment(s, "end", "watch-1", "", at(began), at(200*time.Minute))
	assignment(s, "assign", "watch-1", "P-18", at(200*time.Minute), at(changed))
	assignment(s, "assign", "watch-1", "P-17", at(90*time.Minute), "")
	assignments(3)
	rates("163", "64", "62")
	flagged(", 2 flagged ranges.") // between them, the device was not the patient's

	p.goTo(fmt.Sprintf("%s&from=%s&to=%s", eval[string](p, "location.hash"), at(220*time.Minute), at(140*time.Minute)))
	p.until(`document.querySelector(".shown").innerText.endsWith(", 2 readings")`)
	rates("163", "64")
	assignment(s, "end", "watch-2", "", at(began), atOnce)
	p.shows("No readings in this range.")
	if n := eval[int](p, `document.querySelectorAll("main figure").length`); n != 0 {
		t.Errorf("there are %d charts without readings", n)
	}
	p.shows("62 /min")

	try(t, s.process.Signal(syscall.SIGSTOP))
	p.shows("No values are shown: since ")
	if text := p.text(); strings.Contains(text, "62 /min") || strings.Contains(text, "watch-1") {
		t.Errorf("while the server does not answer, the page shows\n%s", text)
	}
	try(t, s.process.Signal(syscall.SIGCONT))
	p.shows("62 /min")
	p.until(`!document.body.innerText.includes("No values are shown")`)
}

// Who may not read what was measured of the patient any more does not see it any more.
func TestPatientForbidden(t *testing.T) {
	s, _, reader := withTokens(t, "--devices=watch-")
	assignment(s, "assign", "watch-1", "P-17", stamp(time.Hour), "")
	s.post(reading("watch-1", time.Minute, `"heart_rate_bpm":61`))
	p := open(t, s.url+"/#device?device=watch-1")
	p.enter("#token", reader+kb.Enter)
	p.shows("Subject P-17 since")
	p.click(`main a[href^="#patient"]`)
	p.shows("61 /min")
	p.drawn()
	following(p, s)
	assignment(s, "assign", "cuff-1", "P-17", stamp(time.Minute), "")
	p.press("6 h")
	p.shows("The credentials are not for this patient.")
	p.expectProblem("403")
	if text := p.text(); strings.Contains(text, "61") || strings.Contains(text, "P-17") ||
		strings.Contains(text, "watch-1") {
		t.Errorf("after the answer 403, the page shows\n%s", text)
	}
	subscribers(p, s, 0)
	p.allowProblem("403") // the view may have read again by itself, too
}

// A session that ends by itself leaves no id in the tab: the next one to sign in may be somebody else. Nor does the
// page of a device, unless the patient is opened.
func TestPatientForgotten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	admin, reader, other := newToken(t, file, "ward", "write,read,admin"), newToken(t, file, "screen", "read"),
		newToken(t, file, "other", "read", "--devices=cuff-")
	s := serve(t, "--tokens="+file, "--audit="+file+".log")
	s.token = admin
	assignment(s, "assign", "watch-1", "P-17", stamp(time.Hour), "")
	s.post(reading("watch-1", time.Minute, `"heart_rate_bpm":61`))
	p := open(t, s.url+"/#device?device=watch-1")
	kept := func(want string) {
		t.Helper()
		if got := eval[string](p, `JSON.stringify({...sessionStorage, ...localStorage})`); strings.Contains(got,
			"P-17") != (want != "") {
			t.Errorf("the tab keeps %s, want %q", got, want)
		}
	}
	p.enter("#token", reader+kb.Enter)
	p.shows("Subject P-17 since")
	kept("")
	p.click(`main a[href^="#patient"]`)
	p.shows("61 /min")
	kept("P-17")
	if out, err := exec.Command(built.program, "token", "revoke", "--file="+file, "--audit="+file+".log",
		"--gateway=screen").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.shows("Your session has ended.")
	p.expectProblem("401")
	kept("")
	p.enter("#token", other+kb.Enter)
	p.shows("names nobody")
	if text := p.text(); strings.Contains(text, "P-17") {
		t.Errorf("after somebody else has signed in, the page shows\n%s", text)
	}
}

// Values of two devices at the same times are told apart: whose a value and a flag is, and that there is no gap. What
// arrives while the tab is hidden is shown when it is not any more.
func TestPatientTwoDevices(t *testing.T) {
	s := serve(t)
	for _, device := range []string{"watch-1", "watch-2"} {
		assignment(s, "assign", device, "P-17", stamp(time.Hour), "")
	}
	first := time.Now().Add(-20 * time.Minute)
	for i := range 15 {
		at := time.Since(first.Add(time.Duration(i) * time.Minute)).Truncate(time.Second)
		stamped := stamp(at)
		s.post(fmt.Sprintf(`{"device":"watch-1","time":%q,"spo2_pct":85}`, stamped),
			fmt.Sprintf(`{"device":"watch-2","time":%q,"spo2_pct":98}`, stamped))
	}
	p := open(t, s.url+"/#device?device=watch-1")
	p.shows("Subject P-17 since")
	p.click(`main a[href^="#patient"]`)
	p.shows("Patient P-17")
	p.drawn()
	p.press("1 h")
	p.shows(", 30 readings")
	const of = `SpO₂: 30 values from 85 to 98 %, mean 91.5. Values of watch-1 and watch-2 in turn, which no line ` +
		`joins. No gaps, 1 flagged range.`
	p.shows(of)
	for _, row := range dataOf(p, "SpO₂") {
		if got := strings.Join(row[1:], "|"); got != "85|low|watch-1" && got != "98||watch-2" {
			t.Errorf("a row has %q", got)
		}
	}
	p.js(`document.querySelector("figure .plot").focus()`)
	p.key(kb.Home)
	for _, want := range []string{"watch-1, ", "watch-2, ", "watch-1, "} {
		p.until(fmt.Sprintf(`document.querySelector("figure .readout").innerText.startsWith(%q)`, want))
		p.key(kb.ArrowRight)
	}

	hide := func(hidden bool) {
		t.Helper()
		p.js(fmt.Sprintf(
			`Object.defineProperty(document, "hidden", { value: %t, configurable: true }); document.dispatchEvent(new `+
				`Event("visibilitychange"))`, hidden))
	}
	following(p, s)
	hide(true)
	subscribers(p, s, 0)
	s.post(reading("watch-2", time.Second, `"spo2_pct":84`))
	hide(false)
	p.shows("84 %")
	p.shows(", 31 readings")
}

// A live reading that arrived before a correction of its assignment, and is drawn after it, is not shown as the
// patient's. A range that cannot be read is not drawn from another one's readings, and what is wrong stays on the
// screen.
func TestPatientLate(t *testing.T) {
	s := serve(t)
	began := stamp(time.Hour)
	assignment(s, "assign", "watch-1", "P-17", began, "")
	assignment(s, "assign", "watch-2", "P-17", began, "")
	s.post(reading("watch-1", 50*time.Minute, `"heart_rate_bpm":61`),
		reading("watch-2", 40*time.Minute, `"heart_rate_bpm":62`))
	p := open(t, s.url+"/#device?device=watch-1")
	p.shows("Subject P-17 since")
	p.click(`main a[href^="#patient"]`)
	p.shows("Patient P-17")
	p.drawn()
	p.press("1 h")
	p.shows(", 2 readings")
	p.js(`const real = setTimeout; window.setTimeout = (call, ms, ...rest) => { if (ms !== 1000) return real(call, ms, ` +
		`...rest); window.held = call; return 1; }`)
	following(p, s)
	s.post(reading("watch-2", time.Second, `"heart_rate_bpm":113`))
	p.until(`window.held !== undefined`)
	assignment(s, "end", "watch-2", "", began, stamp(30*time.Minute))
	p.press("6 h")
	p.until(`document.querySelector(".shown").innerText.endsWith(", 2 readings") && document.querySelector("main h2 + ` +
		`table").innerText.match(/now/g).length === 1`)
	p.js(`window.setTimeout = real; window.held()`)
	p.until(`document.querySelector("dl.latest").innerText.includes("62")`)
	if text := p.text(); strings.Contains(text, "113") || !strings.Contains(text, ", 2 readings") {
		t.Errorf("after the device was another patient's, the page shows\n%s", text)
	}

	six := eval[string](p, `document.querySelector(".shown").innerText`)
	p.press("1 h")
	p.until(fmt.Sprintf(`document.querySelector(".shown").innerText !== %q`, six))
	p.js(`const really = fetch; window.fetch = (path, ...rest) => (path.includes("/aggregates") ? Promise.reject(new ` +
		`TypeError("cut")) : really(path, ...rest))`)
	before := eval[string](p, `document.querySelector(".shown").innerText`)
	p.press("7 d")
	p.shows("The server cannot be reached.")
	following(p, s)
	s.post(reading("watch-1", time.Second, `"heart_rate_bpm":64`))
	p.until(`document.querySelector("dl.latest").innerText.includes("64")`)
	if after := eval[string](p, `document.querySelector(".shown").innerText`); after != before {
		t.Errorf("a range that was not read is said to be drawn: %q, before %q", after, before)
	}
	p.shows("The server cannot be reached.")
	p.js(`window.fetch = really`)
	p.press("6 h")
	p.shows(", 3 readings")
	p.until(`!document.querySelector("main").innerText.includes("The server cannot be reached.")`)
}

// The box of the fleet opens the view of a patient who wears nothing now, by the id. No address has what is typed, and
// nothing is kept or asked for before.
func TestPatientFound(t *testing.T) {
	s := serve(t)
	assignment(s, "assign", "watch-1", "P-17", stamp(time.Hour), stamp(time.Minute))
	s.post(reading("watch-1", 30*time.Minute, `"heart_rate_bpm":61`))
	p := open(t, s.url+"/")
	p.shows("watch-1")
	p.js(`const kind = document.querySelector("select[aria-label=Find]"); kind.value = "patient"; ` +
		`kind.dispatchEvent(new Event("change"))`)
	p.screen(360, 800)
	p.enter("#match", strings.Repeat("P", 64))
	p.shows("open PPP")
	p.until(`document.documentElement.scrollWidth <= 360`)
	p.enter("#match", "P-17")
	p.until(`document.querySelector(".patient a")?.innerText === "P-17"`)
	if kept := eval[string](p, `JSON.stringify(sessionStorage)`); kept != "{}" {
		t.Errorf("before it is opened, the tab keeps %s", kept)
	}
	axe(p)
	p.key(kb.Enter)
	p.shows("Patient P-17")
	p.shows("61 /min")
	p.shows("Wears no device now.")
	if where := eval[string](p, `location.href + document.title + performance.getEntriesByType("resource").map((e) => `+
		`e.name)`); strings.Contains(where, "P-17") || strings.Contains(where, "PPP") {
		t.Errorf("the id is in %s", where)
	}
}
