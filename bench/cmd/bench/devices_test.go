package main

import (
	"strings"
	"testing"
)

func TestDevices(t *testing.T) {
	t.Parallel()
	_, text := runPage(t, []string{"bench-devices"}, "devices", "--rounds=1", "--devices=10000", "--readings=1", "--settled=200ms", "--programs="+built(t))
	for _, want := range []string{"make bench-devices ROUNDS=1 DEVICES=10000", "\n| 1000 | 10 | ", "\n| 10000 | 1 | ", "\n| **one more device**, bytes | "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
