package main

import (
	"strings"
	"testing"
)

// TestRead runs one short round of both parts and writes the results.
func TestRead(t *testing.T) {
	needWrk(t)
	_, text := runResults(t, []string{"read"}, "read", "--rounds=1", "--warm-up=0s", "--seconds=1", "--readings=20000", "--devices=2000", "--connections=1",
		"--subscribers=20", "--rate=200", "--settled=200ms", "--dir="+t.TempDir())
	for _, want := range []string{
		"make bench-read ROUNDS=1 SECONDS=1", "20000 readings of 2000 devices", "\n| **pulsegate**: latest values", "\n| **nethttp**: ",
		"\n| 0 | ", "\n| 20 | ", "at most 35", "at most 1.25",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "not measured") {
		t.Errorf("a goal was not measured:\n%s", text)
	}
}
