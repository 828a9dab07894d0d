package browser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// The fleet shows labels beside names, searches both, and filters by group. What is typed is not in the address, what
// is chosen is. The headline, alerts and the page of the device show labels, too. Ranges that are not those of all are
// named.
func TestLabels(t *testing.T) {
	dir := t.TempDir()
	devices, rules := filepath.Join(dir, "devices.toml"), filepath.Join(dir, "alerts.toml")
	write := func(label string) {
		t.Helper()
		text := ""
		for _, d := range [][3]any{{"ppg-1", label, "ward 3"}, {"ppg-2", "Bed 2", "ward 3"}, {"icu-1", "Bed 1", "ICU"}} {
			text += fmt.Sprintf("[[device]]\ndevice = %q\nlabel = %q\ngroup = %q\n", d[:]...)
		}
		text += "[[group]]\ngroup = \"ward 3\"\nusual = { heart_rate_bpm = \"45..120\" }\n"
		try(t, os.WriteFile(devices, []byte(text), 0o600))
	}
	write("Bed 12")
	const rule = "[[alert]]\nname = \"HeartFast\"\nsign = \"heart_rate_bpm\"\nflag = \"high\"\n"
	try(t, os.WriteFile(rules, []byte(rule), 0o600))
	s := serve(t, "--devices="+devices, "--alerts="+rules)
	s.post(reading("ppg-1", time.Second, `"heart_rate_bpm":150`), reading("ppg-2", time.Second, `"heart_rate_bpm":70`),
		reading("icu-1", time.Second, `"heart_rate_bpm":71`), reading("other", time.Second, `"heart_rate_bpm":72`))
	p := open(t, s.url+"/")
	heads := func(want string) {
		t.Helper()
		const texts = `[...document.querySelectorAll("table.fleet tbody th")].map((e) => e.innerText.replaceAll(/\s+/g, " ` +
			`").trim()).join()`
		p.until(fmt.Sprintf("%s === %q", texts, want))
	}
	heads("Bed 12 ppg-1,Bed 1 icu-1,other,Bed 2 ppg-2")
	p.shows("Worst: Bed 12 ppg-1 – ⚠ HeartFast: Heart rate 150 /min ▲ high")
	p.shows("usual 45 to 120")
	p.enter("#match", "BED 1")
	heads("Bed 12 ppg-1,Bed 1 icu-1")
	p.shows("2 All")
	if hash := eval[string](p, "location.hash"); strings.Contains(strings.ToLower(hash), "bed") {
		t.Errorf("what was typed is in the address: %s", hash)
	}
	p.js(`document.querySelector("#group").value = "ward 3"`)
	p.js(`document.querySelector("#group").dispatchEvent(new Event("change"))`)
	heads("Bed 12 ppg-1")
	axe(p)
	p.run(chromedp.Navigate(s.url + "/?#fleet?group=ward+3"))
	heads("Bed 12 ppg-1,Bed 2 ppg-2")
	p.until(`document.querySelector("#group").value === "ward 3"`)
	p.run(chromedp.Navigate(s.url + "/?#fleet?prefix=icu-")) // as the page wrote it once
	heads("Bed 1 icu-1")
	write("Bed 14")
	p.run(chromedp.Navigate(s.url + "/?#fleet"))
	p.until(`document.querySelector("table.fleet tbody th")?.innerText.includes("Bed 14")`)
	p.click(".alerts summary")
	p.until(`document.querySelector(".alerts .rows td").innerText.includes("Bed 14")`)
	p.goTo("#device?device=ppg-1")
	p.drawn()
	p.until(`document.querySelector("h1").innerText === "Bed 14 ppg-1 ward 3"`)
	p.shows("Usual Heart rate 45 to 120 /min (the group’s)")
	if title := eval[string](p, "document.title"); title != "ppg-1 – Pulsegate" {
		t.Errorf("the title is %q", title)
	}
}
