package archtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each line of .ci/concurrent.txt names a test of the package in the comment above it, so that a renamed
// test does not lose the race detector.
func TestConcurrentNamesTests(t *testing.T) {
	text, err := os.ReadFile("../../.ci/concurrent.txt")
	try(t, err)
	dir, names := "", 0
	for line := range strings.Lines(string(text)) {
		name := strings.TrimSpace(line)
		if after, ok := strings.CutPrefix(name, "# "); ok {
			dir = after
			continue
		}
		names++
		declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
		files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
		try(t, err)
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			try(t, err)
			return declared.Match(text)
		}) {
			t.Errorf("%q has no test %s", dir, name)
		}
	}
	if names == 0 {
		t.Error(".ci/concurrent.txt names no tests")
	}
}
