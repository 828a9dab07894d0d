package browser_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var (
	imagesDir = flag.String("images", "", "write screenshots into this `folder`")
	pageFile  = flag.String("measure", "", "measure the page, and write the figures into this `file`")
)

// ward stores a fleet: most devices are fresh, some are silent, and a few flagged. The first
// one has two days of readings.
func ward(s *server, devices int) {
	var readings []string
	flush := func(least int) {
		if len(readings) >= least && len(readings) > 0 {
			s.post(readings...)
			readings = nil
		}
	}
	for i := range devices {
		ago := time.Duration(5+(i*7919)%840) * time.Second
		if i%211 == 5 {
			ago = time.Duration(20+(i*37)%4000) * time.Minute // silent
		}
		heart, spo2 := 58+(i*31)%42, 94.5+float64(i*17%50)/10
		switch {
		case i%997 == 123:
			heart = 132 + i%17
		case i%1499 == 700:
			spo2 = 87 + float64(i%30)/10
		}
		readings = append(readings, reading(fmt.Sprintf("ppg-%06d", i+1), ago,
			fmt.Sprintf(`"systolic_mmhg":%d,"diastolic_mmhg":%d,"spo2_pct":%.1f,"heart_rate_bpm":%d,"resting_heart_rate_bpm":%d`,
				105+(i*13)%35, 62+(i*7)%22, min(spo2, 100), heart, 50+(i*3)%24)))
		flush(5000)
	}
	flush(1)
}

// days stores the readings of a device, one each step, up to now: a daily rhythm, an hour of
// a fast heart, and a gap.
func days(s *server, device string, length, step time.Duration) {
	var readings []string
	for at := length; at > 0; at -= step {
		hours := -at.Hours()
		if hours > -9.5 && hours < -8 {
			continue // the gap
		}
		noise := math.Sin(hours*61) * math.Sin(hours*17.3)
		heart := 70 + 9*math.Sin(hours/24*2*math.Pi) + 5*noise
		if hours > -4 && hours < -3 {
			heart += 68 * math.Sin((hours+4)*math.Pi)
		}
		members := fmt.Sprintf(`"heart_rate_bpm":%.1f,"spo2_pct":%.1f`, heart, min(100, 97+1.2*math.Sin(hours*5)+noise))
		if int(at/step)%15 == 0 {
			members += fmt.Sprintf(`,"systolic_mmhg":%.0f,"diastolic_mmhg":%.0f`, 120+8*noise+heart/20, 76+5*noise)
		}
		if int(at/step)%60 == 0 {
			members += fmt.Sprintf(`,"resting_heart_rate_bpm":%.0f`, 57+2*math.Sin(hours/30))
		}
		if readings = append(readings, reading(device, at, members)); len(readings) == 20_000 {
			s.post(readings...)
			readings = nil
		}
	}
	if len(readings) > 0 {
		s.post(readings...)
	}
}

// TestScreenshots writes the images of README with -images.
func TestScreenshots(t *testing.T) {
	if *imagesDir == "" {
		t.Skip("make screenshots writes them")
	}
	s := serve(t)
	ward(s, 10_000)
	days(s, "ppg-000042", 48*time.Hour, time.Minute)
	p := open(t, s.url+"/")
	p.screen(1280, 800)
	shoot := func(name string) {
		t.Helper()
		image, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		try(t, err)
		try(t, os.WriteFile(filepath.Join(*imagesDir, name+".png"), image, 0o644))
	}
	p.shows("10,000 All")
	shoot("fleet")
	p.goTo("#device?device=ppg-000042&range=24h")
	p.drawn()
	shoot("device")
	if os.Getenv("MORE") != "" { // further ones, to look at
		p.scheme("dark")
		p.goTo("#device?device=ppg-000042&range=7d")
		p.until(`location.hash.includes("7d") && document.querySelectorAll("figure canvas").length > 2`)
		shoot("device-dark")
		p.goTo("#fleet")
		p.shows("10,000 All")
		shoot("fleet-dark")
		p.scheme("light")
		p.screen(360, 740)
		shoot("fleet-phone")
		p.goTo("#device?device=ppg-000042&range=6h")
		p.drawn()
		shoot("device-phone")
	}

	s = serve(t) // its history has nothing but a load to draw, for a minute
	for i := range 600 {
		for k := range 5 + i/20%4 + i%3 {
			s.post(reading(fmt.Sprintf("ppg-%06d", 1+(i*9+k)%9000), 0, `"heart_rate_bpm":71`))
		}
		time.Sleep(100 * time.Millisecond)
	}
	p = open(t, s.url+"/#system")
	p.screen(1280, 800)
	p.drawn()
	shoot("system")
}

// TestMeasure writes figures of the page with -measure: the first view of 10,000 devices, and
// a year of minutes.
func TestMeasure(t *testing.T) {
	if *pageFile == "" {
		t.Skip("make bench-page measures")
	}
	const rounds = 7
	s := serve(t)
	ward(s, 10_000)
	days(s, "ppg-year", 365*24*time.Hour, time.Minute)

	// Each round has a tab of its own, with an empty cache.
	var bytes, first, year []float64
	for range rounds {
		p := open(t, "about:blank")
		p.origin = s.url
		p.run(chromedp.Navigate(s.url + "/"))
		p.until(`document.querySelectorAll("table.fleet tbody tr").length === 50`)
		first = append(first, eval[float64](p, `performance.getEntriesByName("first-table")[0].startTime`))
		p.until(`document.readyState === "complete"`)
		bytes = append(bytes,
			eval[float64](p,
				`[...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")].reduce((a, e) => a `+
					`+ e.transferSize, 0)`))
		year = append(year, eval[float64](p, fmt.Sprintf(`(async () => {
			const start = performance.now();
			location.hash = %q;
			while (!(document.querySelectorAll("figure canvas").length >= 4)) await new Promise((done) => requestAnimationFrame(done));
			return performance.now() - start;
		})()`, "#device?device=ppg-year&range=all")))
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	var text strings.Builder
	fmt.Fprintf(&text, "| the page in Chromium with an empty cache, median of %d | |\n|---|---:|\n", rounds)
	fmt.Fprintf(&text, "| transferred for the first view, 10,000 devices stored | %.1f KB |\n", median(bytes)/1000)
	fmt.Fprintf(&text, "| from the start of the navigation to the first table | %.0f ms |\n", median(first))
	fmt.Fprintf(&text, "| a device-year of minutes (523,000 readings), from the click to the drawn charts | %.0f ms |\n",
		median(year))
	t.Log("\n" + text.String())
	page, err := os.ReadFile(*pageFile)
	try(t, err)
	head, rest, ok := strings.Cut(string(page), "<!-- measured -->\n")
	_, tail, ok2 := strings.Cut(rest, "<!-- /measured -->")
	if !ok || !ok2 {
		t.Fatalf("%s has no place for figures", *pageFile)
	}
	try(t, os.WriteFile(*pageFile, []byte(head+"<!-- measured -->\n"+text.String()+"<!-- /measured -->"+tail), 0o644))
}
