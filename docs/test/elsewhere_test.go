package docs_test

import (
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// elsewhere returns the code of docs/reading-elsewhere.md: the text of the blocks of a language, in their order.
func elsewhere(t *testing.T, language string) (blocks []string) {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/reading-elsewhere.md")
	try(t, err)
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// copied returns what the server has, a line for each value, as duckdb_copy.py's view readings has it.
func copied(t *testing.T, s *server, devices []string) string {
	t.Helper()
	var lines []string
	for _, device := range devices {
		resp, err := http.Get(s.url + "/v1/devices/" + device + "/readings?format=csv&from=2026-01-01")
		try(t, err)
		if resp.StatusCode == http.StatusNotFound {
			try(t, resp.Body.Close())
			continue
		}
		rows, err := csv.NewReader(resp.Body).ReadAll()
		try(t, err, resp.Body.Close())
		column := map[string]int{}
		for i, name := range rows[0] {
			column[name] = i
		}
		for _, row := range rows[1:] {
			for _, sign := range []string{"spo2_pct", "heart_rate_bpm"} {
				if value := row[column[sign]]; value != "" {
					lines = append(lines, strings.Join([]string{device, row[column["time"]], sign, value, row[column["subject"]]},
						" "))
				}
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestReadingElsewhere follows docs/reading-elsewhere.md. Its copy in DuckDB has what the server has after late,
// completed and erased readings, assignments back and forth, and a restore from a backup, although the program is
// killed.
func TestReadingElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t)
	shell, python := elsewhere(t, "sh"), elsewhere(t, "python")
	if len(shell) != 3 || len(python) != 1 {
		t.Fatalf("the page has %d and %d blocks", len(shell), len(python))
	}
	env := append(os.Environ(), "PYTHONPATH="+tool(t, "python"), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	start := func(command ...string) *exec.Cmd {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir, cmd.Env = dir, env
		return cmd
	}
	follow := func(command ...string) string {
		t.Helper()
		out, err := start(command...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
		return string(out)
	}
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	devices, subjects := []string{"ppg-000123", "bed-7", "bed-8"}, []string{"P-1", "P-2"}
	now := time.Now().UTC().Truncate(time.Minute)
	ago := func(minutes int) string {
		return now.Add(-time.Duration(minutes) * time.Minute).Format("2006-01-02T15:04:05.000Z")
	}
	change := func() {
		t.Helper()
		device, at := devices[rng.IntN(len(devices))], rng.IntN(60)
		switch rng.IntN(12) {
		case 0: // there may be none
			_ = start(program, "erase", "--target", s.admin, "--device", device, "--yes").Run()
		case 1:
			_ = start(program, "erase", "--target", s.admin, "--subject", subjects[rng.IntN(len(subjects))], "--yes").Run()
		case 2, 3, 4: // it may be refused beside another assignment
			from, subject := ago(at), subjects[rng.IntN(len(subjects))]
			_ = start(program, "subject", "assign", "--target", s.admin, "--device", device, "--subject", subject,
				"--from", from).Run()
			_ = start(program, "subject", "end", "--target", s.admin, "--device", device, "--from", from, "--to",
				ago(rng.IntN(at+1)-1)).Run()
		default:
			sign, value := "spo2_pct", 90+rng.IntN(10)
			if rng.IntN(2) == 0 {
				sign = "heart_rate_bpm"
			}
			body := fmt.Sprintf(`{"device":%q,"time":%q,%q:%d}`, device, ago(at), sign, value)
			resp, err := http.Post(s.url+"/v1/readings", "application/json", strings.NewReader(body))
			try(t, err, resp.Body.Close())
		}
	}
	copying, err := filepath.Abs(root + "/docs/clients/duckdb_copy.py")
	try(t, err)
	compare := func(when string) {
		t.Helper()
		follow("python3", copying, s.url, "copy.duckdb")
		got := follow("python3", "-c", `import duckdb
for row in duckdb.connect("copy.duckdb", read_only=True).execute("""
    SELECT device, strftime(time AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%gZ'), sign, value, coalesce(subject, '')
    FROM readings""").fetchall():
    print(*row)`)
		lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		slices.Sort(lines)
		if want := copied(t, s, devices); strings.Join(lines, "\n") != want {
			t.Fatalf("%s, the copy is\n%s\nwant\n%s", when, strings.Join(lines, "\n"), want)
		}
	}
	for range 40 {
		change()
	}
	compare("at first")
	rounds := 12
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		killed := start("python3", copying, s.url, "copy.duckdb")
		for range 8 {
			change()
		}
		try(t, killed.Start())
		change()
		_ = killed.Process.Kill() // it may have ended
		_ = killed.Wait()
		compare(fmt.Sprint("in round ", round))
	}
	follow(program, "backup", "--target", s.admin, "backup")
	for range 10 {
		change()
	}
	compare("after the backup")
	try(t, s.cmd.Process.Signal(os.Interrupt))
	<-s.exited
	follow(program, "restore", "backup", "--data", "restored")
	s = serve(t, "--data="+filepath.Join(dir, "restored"))
	for range 10 {
		change()
	}
	compare("after the restore")
	here := strings.NewReplacer("http://127.0.0.1:8080", s.url)
	for _, body := range []string{`"spo2_pct":97`, `"heart_rate_bpm":62`} {
		body = `{"device":"ppg-000123","time":"` + ago(-1) + `",` + body + `}`
		resp, err := http.Post(s.url+"/v1/readings", "application/json", strings.NewReader(body))
		try(t, err, resp.Body.Close())
	}
	for _, block := range shell {
		for line := range strings.Lines(strings.ReplaceAll(block, "pulsegate export", "pulsegate export --target "+s.url)) {
			follow("sh", "-c", line)
		}
	}
	ms := func(minutes int) string { return fmt.Sprint(now.Add(time.Duration(minutes) * time.Minute).UnixMilli()) }
	fill := strings.NewReplacer("${device}", "ppg-000123", "${__from}", ms(-60), "${__to}", ms(60), "\n", "")
	resp, err := http.Get(s.url + fill.Replace(elsewhere(t, "text")[0]))
	try(t, err)
	text, err := io.ReadAll(resp.Body)
	try(t, err, resp.Body.Close())
	if !strings.Contains(string(text), `"signs":{"spo2_pct":{"count":1,`) {
		t.Errorf("Grafana's request: %s\n%s", resp.Status, text)
	}
	if got := follow("python3", "-c", here.Replace(python[0])); !strings.Contains(got, now.Format("2006-01-02")) {
		t.Errorf("pandas has\n%s", got)
	}
}
