package main

import (
	"strings"
	"testing"
)

func TestSealed(t *testing.T) {
	_, text := runResults(t, []string{"sealed"}, "sealed", "--rounds=1", "--devices=2", "--minutes=200", "--long=300")
	for _, want := range []string{"make bench-sealed ROUNDS=1", "\n| rows | ", "\n| sealed | ", "\n| disk, bytes a reading | "} {
		if !strings.Contains(text, want) {
			t.Errorf("the results have no %q", want)
		}
	}
}
