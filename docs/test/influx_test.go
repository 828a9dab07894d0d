package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// influxClients are commands that write the points of standard input, as functions of the server's URL, the token and
// whether to compress. Each says what it prints after a write that is stored, and when a line was rejected.
func influxClients(t *testing.T) map[string]influxClient {
	python := "PYTHONPATH=" + tool(t, "influx_python")
	telegraf := tool(t, "telegraf_outputs")
	command := func(token, name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), python, "PULSEGATE_TOKEN="+token)
		return cmd
	}
	encoding := map[bool]string{true: "gzip", false: "identity"}
	output := func(name, settings string) influxClient {
		return influxClient{precision: "ns", written: "kept 0", run: func(url, token string, gzip bool) *exec.Cmd {
			conf := filepath.Join(t.TempDir(), "telegraf.conf")
			writeFile(t, conf, fmt.Sprintf("[agent]\n[[outputs.%s]]\nurls = [%q]\ncontent_encoding = %q\n%s", name, url,
				encoding[gzip], settings))
			return command(token, telegraf, conf)
		}}
	}
	return map[string]influxClient{
		"influxdb-client": {precision: "ms", written: "written True", run: func(url, token string, gzip bool) *exec.Cmd {
			return command(token, "python3", "influxclients/v2.py", url, encoding[gzip])
		}},
		"influxdb": {precision: "ms", written: "written True", run: func(url, token string, gzip bool) *exec.Cmd {
			return command(token, "python3", "influxclients/v1.py", url, "any", encoding[gzip])
		}},
		"outputs.influxdb_v2": output("influxdb_v2",
			`token = "$PULSEGATE_TOKEN"`+"\norganization = \"any\"\nbucket = \"any\"\n"),
		"outputs.influxdb": output("influxdb",
			"username = \"any\"\npassword = \"$PULSEGATE_TOKEN\"\nskip_database_creation = true\n"),
	}
}

type influxClient struct {
	precision string
	written   string // is printed after each write, or for some clients if nothing was rejected
	run       func(url, token string, gzip bool) *exec.Cmd
}

// write writes points, and returns what the client prints to standard output and everything that it prints.
func (c *influxClient) write(t *testing.T, url, token string, gzip bool, writes ...string) (out, all string) {
	t.Helper()
	cmd := c.run(url, token, gzip)
	var stderr strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(strings.Join(writes, "\n")), &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, text, &stderr)
	}
	return string(text), string(text) + stderr.String()
}

// points returns a write of points of a device, a second apart, with the fields. Other tags need escapes.
func (c *influxClient) points(device string, second int, fields ...string) string {
	var points []string
	for i, f := range fields {
		at := time.Unix(1_795_200_000+int64(second+i), 0).UnixMilli()
		if c.precision == "ns" {
			at *= 1e6
		}
		points = append(points,
			fmt.Sprintf(
				`{"measurement":"vital signs, a=b","tags":{"device":%q,"bed":"7, \"a\" = b","ö k":"x"},"fields":{%s},"time":%d}`,
				device, f, at))
	}
	return fmt.Sprintf(`{"precision":%q,"points":[%s]}`, c.precision, strings.Join(points, ","))
}

// Clients that others wrote write readings with a token. What they send again are duplicates; of a write with a
// rejected line the others are stored, and the client gets the reason.
func TestInfluxClients(t *testing.T) {
	t.Parallel()
	k := tokens{t.TempDir()}
	token := k.create(t, "bed-7", "--rights=read,write", "--rate=1000000")
	s := serve(t, k.flags()...)
	r := reader{url: s.url, token: token}
	for name, client := range influxClients(t) {
		for _, gzip := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/gzip %t", name, gzip), func(t *testing.T) {
				t.Parallel()
				device := fmt.Sprintf("%s-%t", name, gzip)
				first := client.points(device, 0, `"heart_rate_bpm":72`, `"spo2_pct":97.5,"body_temperature_c":36.6`,
					`"systolic_mmhg":121,"diastolic_mmhg":79.25`)
				out, all := client.write(t, s.url, token, gzip, first, first,
					client.points(device, 3, `"heart_rate_bpm":73`, `"spo2_pct":300`, `"heart_rate_bpm":74`))
				if n := strings.Count(out, client.written); n != 2 && n != 3 ||
					!strings.Contains(all, "partial write: line 2: spo2_pct: outside the accepted range 2 to 100 %; dropped=1") {
					t.Errorf("it prints\n%s", all)
				}
				if strings.HasPrefix(name, "influxdb") && !strings.HasPrefix(out, "version ") || strings.Contains(out, "False") ||
					strings.Contains(out, "fail") {
					t.Errorf("it prints\n%s", all)
				}
				line := func(second int, fields string) string {
					return fmt.Sprintf(`{"device":%q,"time":%q,%s}`+"\n", device, time.Unix(1_795_200_000+int64(second), 0).UTC().
						Format("2006-01-02T15:04:05.000Z"), fields)
				}
				want := line(0, `"heart_rate_bpm":72`) + line(1, `"spo2_pct":97.5,"body_temperature_c":36.6`) + line(2,
					`"systolic_mmhg":121,"diastolic_mmhg":79.25`) +
					line(3, `"heart_rate_bpm":73`) + line(5, `"heart_rate_bpm":74`)
				if got := r.stored(t, device); got != want {
					t.Errorf("stored\n%swant\n%s", got, want)
				}
			})
		}
	}
}

// Telegraf keeps its metrics while the server cannot store them, and what they would lose is named in docs/influxdb.md:
// those of outputs.influxdb after 401.
func TestTelegrafKeeps(t *testing.T) {
	t.Parallel()
	k := tokens{t.TempDir()}
	token := k.create(t, "bed-7")
	slow := map[string]string{"outputs.influxdb_v2": k.create(t, "bed-8", "--rate=1", "--burst=1"),
		"outputs.influxdb": k.create(t, "bed-9", "--rate=1", "--burst=1")}
	full, s := serve(t, append(k.flags(), "--min-free-bytes=1000000000000000")...), serve(t, k.flags()...)
	clients := influxClients(t)
	for name, want := range map[string]string{"outputs.influxdb_v2": "kept 1\n", "outputs.influxdb": "kept 0\n"} {
		c := clients[name]
		beat := func(i int) string { return c.points(name, i, `"heart_rate_bpm":72`) }
		if out, all := c.write(t, full.url, token, false, beat(0)); out != "kept 1\n" {
			t.Errorf("%s, the disk is full: it prints\n%s", name, all)
		}
		if out, all := c.write(t, s.url, slow[name], false, c.points(name, 1, `"heart_rate_bpm":72`, `"heart_rate_bpm":72`,
			`"heart_rate_bpm":72`), beat(9)); out != "kept 0\nkept 1\n" {
			t.Errorf("%s, the rate is used up: it prints\n%s", name, all)
		}
		if out, all := c.write(t, s.url, "none", false, beat(0)); out != want {
			t.Errorf("%s, without a token: it prints\n%s", name, all)
		}
	}
}

// docs/clients/influx.py stores every reading once, though the server is killed while it sends, and prints what is
// rejected.
func TestInfluxResend(t *testing.T) {
	t.Parallel()
	python := "PYTHONPATH=" + tool(t, "influx_python")
	flags := []string{"--data=" + t.TempDir(), "--addr=" + freePort(t)}
	s := serve(t, flags...)
	cmd := exec.Command("python3", root+"/docs/clients/influx.py", s.url)
	cmd.Env = append(os.Environ(), python)
	const more = `{"device":"ppg-2","time":1795200000002,"spo2_pct":97}` + "\n" +
		`{"device":"ppg-1","time":1,"spo2_pct":97}`
	s, printed, err := killWhileSending(t, s, cmd, 2500, more, flags...)
	const want = "lines 2001 to 2502: partial write: line 502: time: before 2001-01-01T00:00:00.000Z, the oldest time " +
		"that this server accepts; dropped=1\n"
	if err == nil || err.Error() != "exit status 1" || printed != want {
		t.Errorf("the client prints %q, %v; want %q", printed, err, want)
	}
	const integer = `{"device":"ppg-2","time":"2026-11-20T18:40:00.002Z","spo2_pct":97}` + "\n"
	if got := (&reader{url: s.url}).stored(t, "ppg-2"); got != integer {
		t.Errorf("stored %s, want %s", got, integer)
	}
}

// The first commands of docs/influxdb.md work.
func TestInfluxPage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	_, commands, _ := strings.Cut(page(t, "docs/influxdb.md"), "```sh\npulsegate serve\n")
	commands, _, found := strings.Cut(commands, "```")
	out := run(t, "", nil, "sh", "-c", strings.ReplaceAll(commands, "http://127.0.0.1:8080", s.url))
	if !found || !strings.Contains(out, "HTTP/1.1 204 No Content") ||
		!strings.Contains(out, `"heart_rate_bpm":{"value":72,`) {
		t.Errorf("they print\n%s", out)
	}
}
