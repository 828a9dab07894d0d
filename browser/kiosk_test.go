package browser_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A screen on a wall has tiles, the worst first, whose flagged values are large, a clock that runs, and nothing to
// click. It says when it is not live, and then shows what the server has again, without being touched.
func TestKiosk(t *testing.T) {
	devices := filepath.Join(t.TempDir(), "devices.toml")
	const file = "[[device]]\ndevice = \"a\"\nlabel = \"Bed 1\"\ngroup = \"ward 3\"\n" +
		"[[device]]\ndevice = \"b\"\nlabel = \"Bed 2\"\ngroup = \"ward 3\"\n"
	try(t, os.WriteFile(devices, []byte(file), 0o600))
	s := serve(t, "--devices="+devices)
	s.post(reading("a", time.Second, `"heart_rate_bpm":70,"spo2_pct":97`),
		reading("b", time.Second, `"heart_rate_bpm":71,"spo2_pct":82`),
		reading("c", time.Second, `"spo2_pct":70`))
	p := open(t, s.url+"/#fleet?group=ward+3&kiosk=1")
	const names = `[...document.querySelectorAll("table.fleet tbody th")].map((e) => e.innerText.trim()).join()`
	p.until(names + ` === "Bed 2 b,Bed 1 a"`)
	for _, size := range [][2]int64{{1920, 1080}, {1366, 768}, {360, 800}} {
		p.screen(size[0], size[1])
		p.until(`document.documentElement.scrollWidth <= innerWidth`)
		p.until(`parseFloat(getComputedStyle(document.querySelector(".value.flag")).fontSize) >= 63`)
	}
	p.until(`[...document.querySelectorAll("button, input, select, summary")].every((e) => ` +
		`e.getClientRects().length === 0)`)
	p.shows("not an alarm system")
	axe(p)
	p.js(`window.before = document.querySelector(".clock").textContent`)
	p.until(`/^\d\d:\d\d:\d\d$/.test(document.querySelector(".clock").textContent) && ` +
		`document.querySelector(".clock").textContent !== window.before`)
	try(t, s.process.Signal(syscall.SIGSTOP))
	p.shows("Not live since")
	try(t, s.process.Signal(syscall.SIGCONT))
	s.post(reading("a", 0, `"spo2_pct":75`))
	p.until(names + ` === "Bed 1 a,Bed 2 b"`)
	p.until(`document.getElementById("band").hidden`)
	p.goTo("#fleet")
	p.shows("All groups")
	p.until(`!document.documentElement.hasAttribute("data-kiosk")`)
}
