package browser_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
)

var pageOfPDF = regexp.MustCompile(`/Type\s*/Page\b`)

// printed prints the page, and returns the document and the text that it has on paper.
func (p *tab) printed() (pdf []byte, text string) {
	p.t.Helper()
	p.js(`addEventListener("beforeprint", () => { window.paper = { text: document.querySelector("main").innerText, dark: getComputedStyle(document.body).colorScheme,
		foot: document.adoptedStyleSheets[0].cssRules[0].cssText,
		wide: Math.max(...[...document.querySelectorAll("main *")].map((e) => e.getBoundingClientRect().right)) - document.querySelector("main").getBoundingClientRect().left }; }, { once: true })`)
	params := page.PrintToPDFParams{PreferCSSPageSize: new(true), PrintBackground: new(true)}
	pdf = call(p, page.PrintToPDF, params).Data
	return pdf, eval[string](p, "window.paper.text")
}

// A patient-day is two pages of charts, and each measurement of blood pressure on further ones: as many as there are
// readings, though the charts show means. The sheet has the id, the span and the time of printing. The title has no id.
func TestPrintPatient(t *testing.T) {
	s := serve(t, withRule(t))
	assignment(s, "assign", "watch-1", "P-17", stamp(30*time.Hour), "")
	assignment(s, "assign", "cuff-1", "P-17", stamp(30*time.Hour), "")
	var readings []string
	for i := range 24 * 60 {
		at := time.Duration(i)*time.Minute + 30*time.Second
		readings = append(readings, reading("watch-1", at, fmt.Sprintf(
			`"heart_rate_bpm":%d,"spo2_pct":%d,"respiratory_rate_bpm":%d,"resting_heart_rate_bpm":%d,"body_temperature_c":%d`,
			60+i%80, 92+i%8, 12+i%9, 50+i%7, 36+i%2)))
		if i%15 == 0 {
			readings = append(readings,
				reading("cuff-1", at, fmt.Sprintf(`"systolic_mmhg":%d,"diastolic_mmhg":%d`, 110+i%50, 71)))
		}
	}
	s.post(readings...)
	p := open(t, s.url+"/#device?device=cuff-1")
	p.shows("Subject P-17 since")
	p.click(`main a[href^="#patient"]`)
	p.shows("Patient P-17")
	p.drawn()
	p.shows("buckets of")
	p.shows("Alerts of this range by today’s rules")
	p.scheme("dark")
	pdf, text := p.printed()
	charts := len(pageOfPDF.FindAll(pdf, -1))
	if charts != 2 || !strings.Contains(text, "Single measurements of Blood pressure are only on sheets") {
		t.Errorf("without what is to be read, there are %d pages with\n%s", charts, text)
	}

	p.js(`window.print = () => { window.isPrinted = true; }`)
	p.press("Print")
	p.until(`window.isPrinted`)
	pdf, text = p.printed()
	if *imagesDir != "" {
		try(t, os.WriteFile(filepath.Join(*imagesDir, "patient.pdf"), pdf, 0o644))
	}
	if n := len(pageOfPDF.FindAll(pdf, -1)); n < 4 || n > 5 {
		t.Errorf("a day has %d pages, want 2 and those of 96 measurements", n)
	}
	for _, want := range []string{"Patient P-17, ", "Printed ",
		time.Now().Add(-12 * time.Hour).UTC().Format(" Jan 2006, "), " (UTC)",
		"Assignments", "Alerts of this range"} {
		if !strings.Contains(text, want) {
			t.Errorf("the sheet has no %q:\n%s", want, text)
		}
	}
	if n := len(regexp.MustCompile(`\d\d\d/71\t`).FindAllString(text, -1)); n != 96 {
		t.Errorf("the sheet has %d measurements of blood pressure, want 96", n)
	}
	if strings.Contains(text, " ago") {
		t.Errorf("the sheet has an age:\n%s", text)
	}
	paper := eval[struct {
		Dark, Foot string
		Wide       float64
	}](p, "window.paper")
	if paper.Dark != "light" || !strings.Contains(paper.Foot, "Patient P-17, ") || paper.Wide > 703 {
		t.Errorf("the sheet is %+v", paper)
	}
	if bytes.Contains(pdf, []byte("P-17")) || strings.Contains(eval[string](p, "location.href + document.title"), "P-17") {
		t.Error("the title has the id")
	}
	p.until(`!document.documentElement.hasAttribute("data-print")`)

	p.js(`{ const really = fetch; window.fetch = async (path, ...rest) => { const a = await really(path, ...rest);
		return path.includes("ndjson") ? new Response((await a.text()).slice(0, -9)) : a; }; }`)
	p.press("7 d")
	p.until(`document.querySelector("[data-range='7d']").getAttribute("aria-pressed") === "true" && ` +
		`document.querySelector(".shown").innerText.includes("30 min")`)
	p.press("Print")
	p.shows("The answer is incomplete.")
}

// A list of measurements that was printed is read again when what is stored has changed: the sheet has the subject of
// now.
func TestPrintCorrected(t *testing.T) {
	s := serve(t)
	begin, next := stamp(30*time.Hour), stamp(29*time.Hour)
	assignment(s, "assign", "cuff-1", "P-102", begin, "")
	var readings []string
	for i := range 1100 { // more than are drawn one by one
		readings = append(readings, reading("cuff-1", time.Duration(i)*time.Minute+time.Hour,
			`"systolic_mmhg":118,"diastolic_mmhg":71`))
	}
	s.post(readings...)
	p := open(t, s.url+"/#device?device=cuff-1&from="+stamp(24*time.Hour)+"&to="+stamp(30*time.Minute))
	p.drawn()
	p.shows("Subject P-102 since")
	p.js(`window.print = () => { window.isPrinted = true; }`)
	press := func() string {
		t.Helper()
		p.js(`window.isPrinted = false`)
		for !eval[bool](p, `window.isPrinted`) { // while the view reads again, it says so and does not print
			p.press("Print")
			p.until(`window.isPrinted || document.body.innerText.includes("Print it again")`)
		}
		_, text := p.printed()
		p.until(`!document.documentElement.hasAttribute("data-print")`)
		return text
	}
	of := func(text, subject string) int { return strings.Count(text, "\t118/71\t\t"+subject) }
	if text := press(); of(text, "P-102") != 1100 {
		t.Fatalf("the sheet has %d measurements, want 1100:\n%s", of(text, "P-102"), text)
	}
	assignment(s, "end", "cuff-1", "", begin, next)
	assignment(s, "assign", "cuff-1", "P-200", next, "")
	p.shows("Subject P-200 since")
	text, deadline := press(), time.Now().Add(time.Minute)
	for of(text, "P-200") != 1100 && time.Now().Before(deadline) { // the readings are read after that
		time.Sleep(100 * time.Millisecond)
		text = press()
	}
	if of(text, "P-200") != 1100 || of(text, "P-102") > 0 {
		t.Errorf("the sheet has %d measurements of P-200, and %d of P-102, want 1100 and 0", of(text, "P-200"), of(text, "P-102"))
	}
}

// The fleet on paper has all columns, also those that are not chosen, and no controls.
func TestPrintFleet(t *testing.T) {
	s := serve(t)
	fewReadings(s)
	s.post(reading("ppg-other", time.Minute, `"body_weight_kg":71.5,"glucose_mg_dl":101`))
	p := open(t, s.url+"/")
	p.shows("ppg-other")
	p.until(`document.querySelector("p.sheet") !== null`)
	before := eval[string](p, `document.querySelector("table.fleet").innerText`)
	pdf, text := p.printed()
	for _, want := range []string{"Fleet, devices 1 to 4 of 4. Printed ", "71.5", "101", "140.25", "58"} {
		if !strings.Contains(text, want) {
			t.Errorf("the list has no %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "Next page") || len(pageOfPDF.FindAll(pdf, -1)) > 2 {
		t.Errorf("%d pages with\n%s", len(pageOfPDF.FindAll(pdf, -1)), text)
	}
	p.until(`!document.documentElement.hasAttribute("data-print")`)
	if after := eval[string](p, `document.querySelector("table.fleet").innerText`); strings.Contains(after+before,
		"71.5") {
		t.Errorf("before and after printing, a column is shown that was not chosen:\n%s", after)
	}
}
