package main_test

import (
	"bufio"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// ownSign is the field of a sign that no file of the program names, and ownFile defines it. Its values
// have a sign and three decimals, need more than 16 bits, and may be 0.
const (
	ownSign = "tympanic_gradient_mk"
	ownFile = `[[sign]]
field = "tympanic_gradient_mk"
label = "Tympanic gradient"
unit = "mV"
decimals = 3
accepted = { min = -900.5, max = 900.5 }
usual = { max = 500 }
`
)

// A sign that nobody thought of goes through every address and format, a crash, a restart without its
// file, a backup, an export and import, a move to the other store and an erasure.
func TestOwnSign(t *testing.T) {
	t.Parallel()
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		driveOwnSign(t)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db := pgtest.Start(t, "fsync=off")
		driveOwnSign(t, "--store="+db.DSN(), "--postgres-single")
	})
}

func driveOwnSign(t *testing.T, store ...string) {
	scratch, bin := t.TempDir(), program(t)
	file, dir := filepath.Join(scratch, "signs.toml"), filepath.Join(scratch, "data")
	writeTo(t, file, []byte(ownFile))
	with := append([]string{"--signs=" + file, "--admin-addr=127.0.0.1:0", "--mqtt-addr=127.0.0.1:0"}, store...)
	p := start(t, bin, dir, with...)

	ask := func(method, path, body string, want int) string {
		t.Helper()
		kind := "application/json"
		if strings.HasPrefix(path, "/fhir") {
			kind = "application/fhir+json"
		}
		resp, text := fetch(t, method, p.url(path), body, "Content-Type", kind)
		if resp.StatusCode != want {
			t.Fatalf("%s %s: %d, want %d: %s", method, path, resp.StatusCode, want, text)
		}
		return text
	}
	shows := func(path string, want ...string) {
		t.Helper()
		text := ask(http.MethodGet, path, "", 200)
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("GET %s: %q is missing in %s", path, part, text)
			}
		}
	}
	run := func(want string, args ...string) string {
		t.Helper()
		out, errs, code := output(t, bin, args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("%v: exit code %d, %q is missing in %s%s", args, code, want, out, errs)
		}
		return out
	}

	assign := func() {
		t.Helper()
		run("", "subject", "assign", "--target=http://"+p.admin, "--device=d-1", "--subject=p-1",
			"--from=2026-11-21T00:00:00Z")
	}
	assign()
	live, err := http.Get(p.url("/v1/live?device=d-1"))
	try(t, err)
	defer live.Body.Close()
	const (
		one = `{"device":"d-1","time":"2026-11-21T10:00:00Z","heart_rate_bpm":72,"` + ownSign + `":-800.125}`
		two = `{"device":"d-1","time":"2026-11-21T10:00:01Z","` + ownSign + `":0}` + "\n" +
			`{"device":"d-1","time":"2026-11-21T10:00:02Z","` + ownSign + `":500.001}`
	)
	ask(http.MethodPost, "/v1/readings", one, 200)
	for events := bufio.NewScanner(live.Body); ; {
		if !events.Scan() {
			t.Fatalf("the live stream ended: %v", events.Err())
		}
		if strings.Contains(events.Text(), `"`+ownSign+`":`) && strings.Contains(events.Text(), "-800.125") {
			break
		}
	}
	ask(http.MethodPost, "/v1/readings", two, 200)
	ask(http.MethodPost, "/v1/readings", strings.Replace(one, "125", "1255", 1), 422)
	ask(http.MethodPost, "/v1/readings", strings.Replace(one, "800.125", "900.501", 1), 422)
	ask(http.MethodPost, "/v1/readings", strings.Replace(one, "125", "126", 1), 409)

	// The other inputs accept exactly the value that is stored.
	const (
		line        = "v,device=d-1 " + ownSign + "=-800.125 1795255200"
		observation = `{"resourceType":"Observation","status":"final",` +
			`"code":{"coding":[{"system":"urn:pulsegate:sign","code":"` + ownSign + `"}]},
			"device":{"identifier":{"system":"urn:pulsegate:device","value":"d-1"}},"effectiveDateTime":"2026-11-21T10:00:00Z",
			"valueQuantity":{"value":-800.125,"unit":"mV","system":"http://unitsofmeasure.org","code":"mV"}}`
	)
	ask(http.MethodPost, "/api/v2/write?precision=s", line, 204)
	ask(http.MethodPost, "/api/v2/write?precision=s", strings.Replace(line, "-800.125", "-800.126", 1), 400)
	ask(http.MethodPost, "/fhir/Observation", observation, 200)
	ask(http.MethodPost, "/fhir/Observation", strings.Replace(observation, "-800.125", "-800.126", 1), 409)

	publish := func(text, want string) {
		t.Helper()
		conn := connect(t, p.mqtt)
		defer conn.Close()
		body := "\x00\x0dpulsegate/d-1\x00\x07\x00" + text
		// the answer shows whether it came
		_, _ = io.WriteString(conn,
			"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01a\x32"+string([]byte{byte(len(body))})+body+"\xe0\x00")
		if got, err := io.ReadAll(conn); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("MQTT answers %q, %v, want %q", got, err, want)
		}
	}
	published := `{"time":"2026-11-21T10:00:00Z","` + ownSign + `":-800.125}`
	publish(published, "\x40\x02\x00\x07")
	publish(strings.Replace(published, "125", "126", 1), ownSign+": contradicts the stored value")

	reads := func() {
		t.Helper()
		const readings = "/v1/devices/d-1/readings"
		shows(readings, `"heart_rate_bpm":72,"`+ownSign+`":-800.125`, `"`+ownSign+`":0`, `"`+ownSign+` high"`)
		if text := ask(http.MethodGet, readings+"?flag="+ownSign+"+high", "", 200); strings.Count(text, `"time":`) != 1 ||
			!strings.Contains(text, "500.001") {
			t.Errorf("flagged: %s", text)
		}
		shows(readings+"?format=ndjson", `"`+ownSign+`":-800.125`)
		shows(readings+"?format=csv", ","+ownSign, ",-800.125", "500.001")
		shows(readings+"?format=parquet", ownSign)
		shows("/v1/devices/d-1/aggregates?step=1h", `"`+ownSign+`":{`, `"min":-800.125`, `"max":500.001`)
		shows("/v1/devices/d-1", `"`+ownSign+`":{"value":500.001`)
		shows("/v1/devices", `"`+ownSign+`":{"value":500.001`)
		shows("/v1/limits", `"`+ownSign+`":{`, `"unit":"mV"`)
		shows("/openapi.json", ownSign)
		shows("/fhir/Observation?device=d-1", `"code":"`+ownSign+`"`, "-800.125")
		if out := run("", "devices", "--target="+p.url("")); !strings.Contains(out, ownSign) ||
			!strings.Contains(out, "500.001") || !strings.Contains(out, " mV") {
			t.Errorf("devices: %s", out)
		}
		if out := run("", "latest", "d-1", "--target="+p.url("")); !regexp.MustCompile(ownSign + ` +500\.001 +mV `).
			MatchString(out) {
			t.Errorf("latest: %s", out)
		}
		if _, errs, code := output(t, bin, "export", "--target="+p.url(""), "--device=d-1", "--format=omh"); code != 0 ||
			!strings.Contains(errs, "no schema for them: "+ownSign+"\n") {
			t.Errorf("export in the form of Open mHealth: exit code %d, %s", code, errs)
		}
	}
	reads()
	shows("/v1/limits", `"number":13,"label":"Tympanic gradient"`) // a position

	p.kill()
	p = start(t, bin, dir, with...)
	reads()
	p.stopCleanly()

	if _, errs, code := output(t, bin, append([]string{"serve", "--data=" + dir, "--usual=" + ownSign + "=1..2"},
		with[1:]...)...); code != 64 || !strings.Contains(errs, `--usual: "`+ownSign+`" is neither a built-in sign`) {
		t.Errorf("a range of a retired sign: exit code %d, %s", code, errs)
	}
	p = start(t, bin, dir, with[1:]...) // without the file
	reads()
	if text := ask(http.MethodPost, "/v1/readings", strings.Replace(one, ":00Z", ":03Z", 1), 422); !strings.Contains(text,
		ownSign) {
		t.Errorf("a retired sign: %s", text)
	}
	exported := filepath.Join(scratch, "out.ndjson")
	run("", "export", "--target="+p.url(""), "--device=d-1", "--format=ndjson", "--out="+exported)
	table := filepath.Join(scratch, "out.csv")
	writeTo(t, table, []byte(strings.Replace(run("", "export", "--target="+p.url(""), "--device=d-1", "--format=csv"),
		","+ownSign+",", ",Gradient,", 1)))
	if store == nil {
		copied, restored := filepath.Join(scratch, "copy"), filepath.Join(scratch, "restored")
		run("ok ", "backup", copied, "--target=http://"+p.admin)
		run("", "restore", copied, "--data="+restored)
		run(ownSign+"=3\n", "check", restored)
		kept := p
		p = start(t, bin, restored)
		reads()
		p.kill()
		p = kept
	}
	p.stop()

	// The other store.
	moved := filepath.Join(scratch, "moved")
	if store == nil {
		db := pgtest.Start(t, "fsync=off")
		run("ok devices=1 readings=3 copied=3 ", "migrate", "--from="+dir, "--to="+db.DSN(), "--postgres-single")
		p = start(t, bin, moved, "--store="+db.DSN(), "--postgres-single")
	} else {
		run("ok devices=1 readings=3 copied=3 ", "migrate", "--from="+strings.TrimPrefix(store[0], "--store="), "--to="+moved)
		run(ownSign+"=3\n", "check", moved)
		p = start(t, bin, moved)
	}
	reads()
	p.stop()

	// A second server, whose file has another sign before it.
	writeTo(t, file, []byte(strings.NewReplacer(ownSign, "other_mv", "Tympanic", "Other").Replace(ownFile)+ownFile))
	for from, more := range map[string][]string{exported: nil, table: {"--map=heart_rate_bpm=heart_rate_bpm," + ownSign +
		"=Gradient"}} {
		p = start(t, bin, from+".data", "--signs="+file, "--admin-addr=127.0.0.1:0")
		run("stored=3 ", append([]string{"import", from, "--target=" + p.url(""), "--signs=" + file}, more...)...)
		assign()
		reads()
		run("missing=0 altered=0 ", "sim", "--target="+p.url(""), "--signs="+file, "--users=2", "--posts=20", "--seed=7",
			"--verify", "--start=2026-11-20T00:00:00Z")
		shows("/v1/devices", `"other_mv":{"value":`)
		run("erased device=d-1 readings=3", "erase", "--target=http://"+p.admin, "--device=d-1", "--yes")
		ask(http.MethodGet, "/v1/devices/d-1", "", 404)
		p.stop()
	}
}
