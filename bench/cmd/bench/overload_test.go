package main

import (
	"strings"
	"testing"
)

// TestOverload runs one short round of one setting and writes the results.
func TestOverload(t *testing.T) {
	t.Parallel()
	_, text := runResults(t, []string{"overload"}, "overload", "--rounds=1", "--seconds=1", "--connections=16",
		"--settings=rude", "--multiples=5", "--programs="+built(t))
	for _, want := range []string{"make overload ROUNDS=1 SECONDS=1", "\n**rude**: ", "\n| closed loop | ", "\n| 5x | ",
		"rude: stored at 5x / best"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
