package main_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// occupied has the metric, for each bound beyond which the server answers 503, by which one sees it coming.
var occupied = map[string]string{
	"--max-conns": "pulsegate_connections", "--max-queued": "pulsegate_queue_readings",
	"--max-wait": "pulsegate_commit_duration_seconds", "--max-devices": "pulsegate_store_devices",
	"--min-free-bytes": "pulsegate_store_free_bytes",
}

// docs/limits.md has a row for every bound that serve has a flag for, with its default, and
// testdata/limits.txt has existing tests of each row. If the server answers 503 beyond a bound,
// there is a metric of what it bounds.
//
// Seen to fail with a flag that the page does not name, with another default, and with a wrong
// test name.
func TestLimitsPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/limits.md")
	try(t, err)
	page := string(text)
	metrics, err := os.ReadFile("../../docs/metrics.md")
	try(t, err)
	help, _, code := output(t, program(t), "serve", "--help")
	if code != 0 {
		t.Fatalf("serve --help: exit code %d", code)
	}
	defaults := flagDefaults(t, help)
	if len(defaults) < 8 {
		t.Errorf("found %d bounds in the help: %v", len(defaults), defaults)
	}
	for flag, value := range defaults {
		rows := regexp.MustCompile("(?m)^\\| [^|]*\\| [^|]*`"+flag+"`[^|]*\\| ([^|]*)\\|(.*)$").
			FindAllStringSubmatch(page, -1)
		if len(rows) == 0 {
			t.Errorf("%s has no row in docs/limits.md", flag)
			continue
		}
		named := false
		for _, row := range rows {
			named = named || strings.Contains(plain(row[1]), plain(value))
			if metric := occupied[flag]; strings.Contains(row[2], "503") &&
				(metric == "" || !strings.Contains(string(metrics), "`"+metric)) {
				t.Errorf("%s: no metric of what it bounds: %q", flag, metric)
			}
		}
		if !named {
			t.Errorf("%s: no row has %s, the default of serve", flag, value)
		}
	}
	const path = "testdata/limits.txt"
	list, err := os.ReadFile(path)
	try(t, err)
	known := testNames(t)
	for _, section := range []string{"Bounds", "Hostile input", "Others"} {
		rows, listed := firstCells(page, section), []string(nil)
		for name, tests := range testsOf(string(list), section) {
			listed = append(listed, name)
			named := testName.FindAllString(tests, -1)
			if len(named) == 0 {
				t.Errorf("%s has no test of %q", path, name)
			}
			for _, test := range named {
				if !known[test] {
					t.Errorf("%s: there is no %s", path, test)
				}
			}
		}
		if len(listed) == 0 || section != "Others" && !slices.Equal(rows, listed) {
			t.Errorf("docs/limits.md has the rows %q under %s, and %s has %q", rows, section, path, listed)
		}
	}
}

// flagDefaults returns the defaults of the flags of serve that set a bound.
func flagDefaults(t *testing.T, help string) map[string]string {
	t.Helper()
	defaults := map[string]string{}
	help = strings.Join(strings.Fields(help), " ") // descriptions are wrapped
	flags := regexp.MustCompile(`(--[a-z-]+)=`).FindAllStringSubmatchIndex(help, -1)
	for i, at := range flags {
		flag, end := help[at[2]:at[3]], len(help)
		if i+1 < len(flags) {
			end = flags[i+1][0]
		}
		if strings.HasPrefix(flag, "--max-") && flag != "--max-ahead" || strings.HasSuffix(flag, "-timeout") ||
			flag == "--min-free-bytes" {
			m := regexp.MustCompile(`\(default: ([^,)]+)`).FindStringSubmatch(help[at[0]:end])
			if m == nil {
				t.Errorf("the help has no default of %s", flag)
				continue
			}
			defaults[flag] = m[1]
		}
	}
	return defaults
}

// plain returns a number, a size or a duration in the form of the help.
func plain(s string) string {
	return regexp.MustCompile(`([0-9]) (s|[KMG]iB)\b`).ReplaceAllString(strings.ReplaceAll(strings.TrimSpace(s), ",", ""),
		"$1$2")
}

// testNames returns the names of all tests and fuzz targets of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	root, err := filepath.Abs("../..")
	try(t, err)
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return nil
	})
	try(t, err)
	return names
}
