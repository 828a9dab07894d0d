package browser_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// The session of a kiosk's token outlives a restart of the server. When the token expires, the values go, also if the
// server cannot be asked, and a band says since when.
func TestKioskSession(t *testing.T) {
	file, addr := filepath.Join(t.TempDir(), "tokens"), freeAddr(t)
	sender, screen := newToken(t, file, "bed-7", "write"), newToken(t, file, "wall", "read", "--kiosk", "--expires=30d")
	start := func() *server {
		s := serve(t, "--addr="+addr, "--tokens="+file, "--audit="+file+".log")
		s.token = sender
		s.post(reading("ppg-1", 0, `"spo2_pct":82`))
		return s
	}
	s := start()
	p := open(t, s.url+"/#fleet?kiosk=1")
	p.enter("#token", screen)
	p.press("Sign in")
	const values = `document.querySelectorAll(".value").length`
	p.until(values + ` > 0`)
	p.until(`fetch("v1/session").then((r) => r.json()).then((s) => Date.parse(s.expires) > Date.now() + 29 * 24 * 3600e3)`)

	try(t, s.process.Signal(syscall.SIGTERM))
	_, _ = s.process.Wait() // an error means that it has ended
	s = start()
	p.until(values + ` > 0 && document.getElementById("band").hidden`)
	p.js(`location.reload()`)
	p.until(`document.readyState === "complete" && ` + values + ` > 0`)

	following(p, s)
	// it knows when it ends
	p.until(`performance.getEntriesByName(new URL("v1/session?renew=1", location).href).length > 0`)
	try(t, s.process.Signal(syscall.SIGSTOP))
	p.js(`window.realNow = Date.now; Date.now = () => realNow() + 30 * 24 * 3600e3`)
	p.shows("Your session has ended. No values since ")
	p.until(values + ` === 0`)
	if text := eval[string](p, `document.querySelector(".ended").innerText`); !endedSince.MatchString(text) {
		t.Errorf("the band says %q", text)
	}
	p.js(`Date.now = window.realNow`)
	try(t, s.process.Signal(syscall.SIGCONT))
	p.until(values + ` > 0`) // it has not ended, says the server

	list, err := exec.Command(built.program, "token", "revoke", "--file="+file, "--audit="+file+".log",
		"--gateway=wall").CombinedOutput()
	if err != nil {
		t.Fatalf("revoke: %v\n%s", err, list)
	}
	p.shows("Your session has ended. No values since ")
	p.until(values + ` === 0 && document.querySelector("#token") !== null`)
	axe(p)
	p.expectProblem("401")
	p.allowProblem("ERR_") // of the restart
}

var endedSince = regexp.MustCompile(`^Your session has ended\. No values since \d+ \S+ \d\d:\d\d:\d\d\.$`)
