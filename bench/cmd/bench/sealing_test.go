package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSealing loads a server for some seconds, in which nothing is sealed.
func TestSealing(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // PostgreSQL's user needs search permission
		t.Fatal(err)
	}
	_, text := runResults(t, []string{"sealing"}, "sealing", "--for=3s", "--senders=1", "--every=1s", "--programs="+built(t), "--dir="+dir)
	for _, want := range []string{"make bench-sealing", "\n| 3s | "} {
		if !strings.Contains(text, want) {
			t.Errorf("the results have no %q", want)
		}
	}
}
