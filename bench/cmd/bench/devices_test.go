package main

import (
	"strings"
	"testing"
)

func TestDevices(t *testing.T) {
	t.Parallel()
	_, text := runResults(t, []string{"devices"}, "devices", "--rounds=1", "--devices=10000", "--readings=1", "--settled=200ms", "--programs="+built(t))
	for _, want := range []string{"make bench-devices ROUNDS=1 DEVICES=10000", "\n| 1000, with 10 readings each | ", "\n| 10000, with 1 readings each | ", "\n| one more device | "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
