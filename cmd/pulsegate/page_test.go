package main_test

import (
	"os"
	"strings"
	"testing"
)

// updatePage replaces the text between <!-- name:begin --> and <!-- name:end --> of a page. It does nothing if path is
// empty or the test has failed.
func updatePage(t *testing.T, path, name, text string) {
	t.Helper()
	if path == "" || t.Failed() {
		return
	}
	page, err := os.ReadFile(path)
	try(t, err)
	begin, end := "<!-- "+name+":begin -->", "<!-- "+name+":end -->"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no block %s", path, name)
	}
	try(t, os.WriteFile(path, []byte(before+begin+"\n\n"+strings.TrimSpace(text)+"\n\n"+end+after), 0o644))
}
