package main_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/limits.md names every bound that serve has a flag for, with the default that
// serve has, and tests that exist.
//
// Seen to fail with a flag that the page does not name, with another default, and with
// a test that is called otherwise.
func TestLimitsPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	help, _, code := output(t, program(t), "serve", "--help")
	if code != 0 {
		t.Fatalf("serve --help: exit code %d", code)
	}
	defaults := flagDefaults(t, help)
	if len(defaults) < 14 {
		t.Errorf("found %d bounds in the help: %v", len(defaults), defaults)
	}
	for flag, value := range defaults {
		rows := regexp.MustCompile("(?m)^\\| [^|]*\\| [^|]*`"+flag+"`[^|]*\\| ([^|]*)\\|").FindAllStringSubmatch(page, -1)
		if len(rows) == 0 {
			t.Errorf("%s has no row in docs/limits.md", flag)
			continue
		}
		named := false
		for _, row := range rows {
			named = named || strings.Contains(plain(row[1]), plain(value))
		}
		if !named {
			t.Errorf("%s: no row says %s, which serve has", flag, value)
		}
	}
	known := testNames(t)
	for _, name := range regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w*`).FindAllString(page, -1) {
		if !known[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// flagDefaults returns the defaults of the flags of serve that set a bound.
func flagDefaults(t *testing.T, help string) map[string]string {
	t.Helper()
	defaults := map[string]string{}
	// A flag stands in a line of its own, --max-conns=65536 for example.
	for _, m := range regexp.MustCompile(`(--[a-z-]+)=(\S+)`).FindAllStringSubmatch(help, -1) {
		flag := m[1]
		if strings.HasPrefix(flag, "--max-") && flag != "--max-ahead" || strings.HasSuffix(flag, "-timeout") || flag == "--min-free-bytes" {
			value := strings.TrimRight(m[2], ".,")
			// The help says N where the default depends on the memory there is.
			if fitted := regexp.MustCompile(flag + `=N[^=]*?Default:\s+(\d+)`).FindStringSubmatch(help); value == "N" && fitted != nil {
				value = fitted[1]
			}
			defaults[flag] = value
		}
	}
	return defaults
}

// plain returns a number, a size or a duration in the form of the help.
func plain(s string) string {
	s = strings.ReplaceAll(strings.TrimSpace(s), ",", "")
	for unit, bytes := range map[string]string{"16 KiB": "16384", "32 MiB": "33554432", "256 MiB": "268435456", " s": "s"} {
		s = strings.ReplaceAll(s, unit, bytes)
	}
	return s
}

// testNames returns the names of all tests and fuzz targets of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return names
}
