package docs_test

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// badInput returns the rows of the tables below the heading "Bad input" of a page, which have this many cells.
func badInput(t *testing.T, name string, cells int) (rows [][]string) {
	t.Helper()
	_, section, _ := strings.Cut(page(t, name), "\n## Bad input\n")
	section, _, _ = strings.Cut(section, "\n## ")
	lines := strings.Split(section, "\n")
	for i, line := range lines {
		row := strings.Split(line, "|")
		if len(row) != cells+2 || i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|---") ||
			strings.HasPrefix(line, "|---") {
			continue
		}
		row = row[1 : cells+1]
		for i := range row {
			row[i] = strings.Trim(strings.TrimSpace(row[i]), "`")
		}
		rows = append(rows, row)
	}
	if len(rows) < 3 {
		t.Fatalf("the page has %d rows with %d cells", len(rows), cells)
	}
	return rows
}

// answer sends a body and returns the status and the body of the answer.
func answer(t *testing.T, address, body string) string {
	t.Helper()
	resp, err := http.Post(address, "", strings.NewReader(body))
	try(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, text)
}

// Bad payloads are answered as the table of docs/mappings.md says, with the mappings of the page.
func TestMappingBadInput(t *testing.T) {
	t.Parallel()
	text := page(t, "docs/mappings.md")
	_, scale, _ := strings.Cut(text, "```toml\n[[mapping]]\n")
	scale, rest, _ := strings.Cut(scale, "```")
	_, cuff, _ := strings.Cut(rest, "```toml\ndecode = ")
	cuff, _, _ = strings.Cut(cuff, "```")
	file := filepath.Join(t.TempDir(), "mappings.toml")
	writeFile(t, file, "[[mapping]]\n"+scale+"[[mapping]]\nname = \"cuff\"\ndevice = \"/id\"\ndecode = "+cuff)
	s := serve(t, "--mapping="+file)
	titles := map[string]string{"400": "malformed-body|The body is not valid",
		"422": "invalid-reading|The reading is not acceptable"}
	for _, row := range badInput(t, "docs/mappings.md", 4) {
		kind, title, _ := strings.Cut(titles[row[2]], "|")
		want := fmt.Sprintf(
			`%[1]s {"type":"https://github.com/pulsegate/pulsegate/blob/main/docs/problems.md#%[2]s","title":"%[3]s",`+
				`"status":%[1]s,%[4]s}`+"\n", row[2], kind, title, row[3])
		if got := answer(t, s.url+"/v1/mapped/"+row[0], row[1]); got != want {
			t.Errorf("%s %s is answered\n%swant\n%s", row[0], row[1], got, want)
		}
	}
	if got := (&reader{url: s.url}).get(t, "/v1/devices/d"); got != "" {
		t.Errorf("stored %s", got)
	}
}

// Bad lines and requests are answered as the tables of docs/influxdb.md say, at both addresses.
func TestInfluxBadInput(t *testing.T) {
	t.Parallel()
	_, watch, _ := strings.Cut(page(t, "docs/influxdb.md"), "\n## Mappings\n")
	_, watch, _ = strings.Cut(watch, "```toml\n")
	watch, _, _ = strings.Cut(watch, "```")
	file := filepath.Join(t.TempDir(), "mappings.toml")
	writeFile(t, file, watch)
	s := serve(t, "--mapping="+file)
	r := reader{url: s.url}
	check := func(query, body, status, message string) {
		t.Helper()
		for path, form := range map[string]string{"/write": `%s {"error":%q}`,
			"/api/v2/write": `%s {"code":"invalid","message":%q}`} {
			if got, want := answer(t, s.url+path+"?"+query, body), fmt.Sprintf(form+"\n", status, message); got != want {
				t.Errorf("%s?%s %s is answered\n%swant\n%s", path, query, body, got, want)
			}
		}
	}
	for i, row := range badInput(t, "docs/influxdb.md", 3) {
		at := map[string]string{"s": "1795255200", "ms": "1795255200000", "ns": "1795255200000000000"}[row[0]]
		first := fmt.Sprintf("vitals,device=first-%d heart_rate_bpm=72 %s\n", i, at)
		check("precision="+row[0], first+row[1], "400", "partial write: line 2: "+row[2]+"; dropped=1")
		if got := r.get(t, fmt.Sprintf("/v1/devices/first-%d", i)); got == "" {
			t.Errorf("%s: the first line is not stored", row[1])
		}
	}
	for _, row := range badInput(t, "docs/influxdb.md", 4) {
		check(row[0], row[1], row[2], row[3])
	}
	for _, device := range []string{"d", "watch-1"} {
		if got := r.get(t, "/v1/devices/"+device); got != "" {
			t.Errorf("stored %s", got)
		}
	}
}

// Bad mappings and files are answered as the tables of docs/importing.md say, with a mapping of the page. Only a file
// without a value is no error: its summary says so.
func TestImportBadInput(t *testing.T) {
	t.Parallel()
	_, mapping, _ := strings.Cut(page(t, "docs/importing.md"), "For CSV it has `source = \"csv\"`:\n\n```toml\n")
	mapping, _, _ = strings.Cut(mapping, "```")
	check := func(want, file string, flags ...string) {
		t.Helper()
		out, err := exec.Command(program, append([]string{"import", file, "--device=d", "--dry-run"}, flags...)...).
			CombinedOutput()
		if !strings.Contains(string(out), want) || (err == nil) != strings.Contains(want, "values=0") {
			t.Errorf("%s: %v: import prints\n%swant %s", flags, err, out, want)
		}
	}
	for _, row := range badInput(t, "docs/importing.md", 3) {
		dir := t.TempDir()
		bad := strings.Replace(mapping, row[0], strings.ReplaceAll(row[1], `\n`, "\n"), 1)
		if bad == mapping {
			t.Errorf("the mapping does not have %s", row[0])
		}
		writeFile(t, dir+"/scale.csv", "kind\n")
		writeFile(t, dir+"/scale.toml", bad)
		check(": "+row[2], dir+"/scale.csv", "--mapping="+dir+"/scale.toml")
	}
	for _, row := range badInput(t, "docs/importing.md", 4) {
		dir := t.TempDir()
		cmd := exec.Command("sh", "-c", "{ "+row[1]+"; } > file")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", row[1], err, out)
		}
		check(row[3], dir+"/file", strings.Fields(row[2])...)
	}
}
